"""This module has the mini protocol: tasks and seeds, fixed before the first record.

The settings stand in the module of each paper. The trials behind them are in
`data/published/trials.csv`. The module is free of torch.
"""

FIRST, SECOND = "SST-2", "STS-B"
BOTH, ONE = (FIRST, SECOND), (FIRST,)  # Headlines have both tasks, other claims have one.
# Headlines have five seeds, other claims have three. Trials have seeds 0 to 2 and from 90.
FIVE, THREE = ((10, 11, 12, 13, 14), (10, 11, 12))
TEN = tuple(range(10, 20))  # Claim B2 has ten seeds, because it counts diverged seeds.
