"""This package has the functions of the steps that papers share. A step is a kind of
run, such as a fine-tuning; `lib.core.steps` lists all steps without torch.

To add a step, write a function `<name>(run, **args)` that returns metrics, in a module
of this folder or of a paper's, and add an entry to that list or to the paper's
`steps.py`. A step that trains on a task is a function `<name>(training, **args)`. It
gets the run and the arguments data, train, numerics and span as one TaskTraining
(lib.train.learn)."""
