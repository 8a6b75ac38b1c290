"""The report "Neural Architecture Search on BERT for Network Compression": gates on
heads and neurons are trained to a target cost, and the closed ones are cut.

Read `recipes.py` first: it says which models there are, and how each is made.
`control.py` steers a search to its cost, `gating.py` runs it within a training. The
gates themselves are `lib/model/gates.py`."""

TITLE, PREFIX, ORDER = "NAS pruning", "nas", 4
