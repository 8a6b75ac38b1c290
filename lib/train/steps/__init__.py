"""These are the steps that papers share; `lib.core.steps` lists them without torch.

To add a step, write a function `<name>(run, **args)` that returns metrics, in a module
of this folder or of a paper's, and one entry in that list or in the paper's `steps.py`.
A training on a task is a function `<name>(training, **args)`: the run and the arguments
of TASK_TRAINING reach it as one TaskTraining (lib.train.learn)."""
