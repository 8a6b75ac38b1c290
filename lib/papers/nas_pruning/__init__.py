"""This folder reproduces the report "Neural Architecture Search on BERT for Network
Compression".

Heads and feed-forward neurons are multiplied by gates. These are trained until the
model has a target cost in FLOPs. Then the heads and neurons whose gates are closed are
cut out.

Read `recipes.py` first: it says which models there are, and how each is made.
`control.py` moves gates towards the target, and `gating.py` does so during a training.
The gates themselves are in `lib/model/gates.py`."""

TITLE, PREFIX, ORDER = "NAS pruning", "nas", 4
