"""This folder reproduces the report "Neural Architecture Search on BERT for Network
Compression".

The outputs of attention heads and feed-forward neurons are multiplied by gates. These
are trained until the model has a target cost in FLOPs. Then the heads and neurons whose
gates are closed are cut out.

Read `recipes.py` first: it says which models there are, and how each is made.
`control.py` decides which gates are opened or closed so that the cost moves towards the
target. `gating.py` asks it for that in the steps of a training.
The gates themselves are in `lib/model/gates.py`."""

TITLE, PREFIX, ORDER = "NAS pruning", "nas", 4
