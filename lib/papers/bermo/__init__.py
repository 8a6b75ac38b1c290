"""BERMo (Kodge and Roy, 2021): a weighted sum of all layers stands in place of the last
one, also while weights are pruned.

Read `recipes.py` first: which models there are, and how each is made. `pruning.py` has
the masks' schedule in a training; masks and mix themselves are `lib/model/masks.py` and
`lib/model/mix.py`, as an exported model carries them."""

TITLE, PREFIX, ORDER = "BERMo", "bermo", 3
