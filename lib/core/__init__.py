"""This package has what every other package of lib may import: names and seeds, paths,
files, Specs, runs, options.

It imports nothing of lib but `lib.model.options`, which exported models carry too."""
