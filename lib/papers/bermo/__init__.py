"""This folder reproduces BERMo (Kodge and Roy, 2021).

The paper replaces the last layer's output of BERT by a learned weighted sum of the
outputs of all layers, also while weights are pruned.

Read `recipes.py` first: it says which models there are, and how each is made.
`pruning.py` prunes weights during a training. The masks and the weighted sum are in
`lib/model/masks.py` and `lib/model/mix.py`, since an exported model carries them."""

TITLE, PREFIX, ORDER = "BERMo", "bermo", 3
