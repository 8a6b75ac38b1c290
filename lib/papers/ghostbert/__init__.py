"""GhostBERT (Huang et al., ACL 2021): cheap convolutions make more features out of
those that a pruned encoder keeps.

Read `recipes.py` first: which models there are, and how each is made. The convolutions
themselves are `lib/model/ghost.py`, as an exported model carries them. Training in two
stages, which other methods share, is `lib/papers/students.py`."""

TITLE, PREFIX, ORDER = "GhostBERT", "ghostbert", 1
