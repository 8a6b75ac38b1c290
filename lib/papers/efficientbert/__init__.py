"""EfficientBERT (Dong et al., EMNLP Findings 2021): a search for the formula of the
feed-forward networks, and a distillation that warms candidates up.

Read `recipes.py` first: which networks there are, and how each is made. `search/` has
the search, `searches.py` its settings, `students.py` and `warming.py` the
distillation."""

TITLE, PREFIX, ORDER = "EfficientBERT", "efficientbert", 2
