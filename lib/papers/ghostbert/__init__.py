"""GhostBERT (Huang et al., ACL 2021): cheap convolutions add features to a pruned
encoder.

Their inputs are the features that the encoder keeps. Read `recipes.py` first: it says
which models there are, and how each is made. The convolutions are `lib/model/ghost.py`,
as an exported model carries them. Training in two stages, which other methods share, is
`lib/papers/students.py`."""

TITLE, PREFIX, ORDER = "GhostBERT", "ghostbert", 1
