"""This room has what every room may import: names and seeds, places, files, Specs,
runs, options.

It imports nothing of lib but `lib.model.options`, the names that exported models carry
too."""
