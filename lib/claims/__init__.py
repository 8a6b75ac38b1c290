"""This room compares what the papers say with what was measured.

It reads the grids of notebooks and the claims with their plans. It gives each
comparison of a claim a word such as "agrees", computes printed numbers again, and makes
and verifies the records. It is free of torch."""
