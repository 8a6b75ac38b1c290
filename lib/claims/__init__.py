"""This room holds what the papers say to what was measured.

It reads notebooks' grids, cells of claims and plans, gives each cell its word, computes
printed numbers again, and makes and verifies the records. It is free of torch."""
