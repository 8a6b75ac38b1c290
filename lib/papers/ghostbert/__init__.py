"""This folder reproduces GhostBERT (Huang et al., ACL 2021).

The paper prunes heads and neurons of an encoder. It then adds features (ghosts) that
cheap convolutions compute from the remaining ones.

Read `recipes.py` first: it says which models there are, and how each is made. The
convolutions are in `lib/model/ghost.py`, since an exported model carries them. Training
in two stages, which other methods share, is in `lib/papers/students.py`."""

TITLE, PREFIX, ORDER = "GhostBERT", "ghostbert", 1
