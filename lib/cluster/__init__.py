"""This package executes many runs (trainings, measurements) in the order of their
inputs: in processes of this machine, on a Ray cluster, or on Slurm."""
