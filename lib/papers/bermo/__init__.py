"""BERMo (Kodge and Roy, 2021): a weighted sum of all layers replaces the last layer's
output, also while weights are pruned.

Read `recipes.py` first: it says which models there are, and how each is made.
`pruning.py` has the schedule of the masks in a training. The masks and the mix are
`lib/model/masks.py` and `lib/model/mix.py`, as an exported model carries them."""

TITLE, PREFIX, ORDER = "BERMo", "bermo", 3
