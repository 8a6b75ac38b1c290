"""This package has what every other package of lib may import: checks of names, seeds,
paths, files, Specs (descriptions of runs), runs and options.

It imports nothing of lib but `lib.model.options`, which is copied into the folder of
each exported model too."""
