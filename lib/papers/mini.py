"""The mini protocol: tasks and seeds of the recorded evidence, fixed before its first record.

The settings stand in the module of each paper. What was tried for them is in
`data/published/trials.csv`. Free of torch.
"""

FIRST, SECOND = "SST-2", "STS-B"
BOTH, ONE = (FIRST, SECOND), (FIRST,)  # tasks of headlines, and of the other claims
FIVE, THREE = ((10, 11, 12, 13, 14), (10, 11, 12))  # their seeds; 0 to 2 and from 90 are of trials
TEN = tuple(range(10, 20))  # seeds of B2, whose unit is a diverged seed
