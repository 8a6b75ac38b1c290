"""This package compares what the papers claim with what was measured.

It reads the notebooks' grids of runs and the papers' claims. It gives each comparison
of a claim a word such as "agrees", computes printed numbers again, and writes and
verifies the committed records of runs."""
