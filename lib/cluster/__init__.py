"""This room makes many runs as one graph: on this machine, on Ray, or on Slurm."""
