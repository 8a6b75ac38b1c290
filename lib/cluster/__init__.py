"""This package makes many runs in the order of their inputs: on this machine, on Ray,
or on Slurm."""
