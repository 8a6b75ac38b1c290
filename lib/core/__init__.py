"""This package has what every other package of lib may import: checks of names, seeds,
paths, files, Specs (descriptions of runs), runs and options.

Its import statements name nothing else of lib but `lib.model.options`, which is copied
into the folder of each exported model too. Modules of the papers and of `lib/train` are
found by name while the program runs."""
