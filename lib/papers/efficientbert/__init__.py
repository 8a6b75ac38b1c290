"""EfficientBERT (Dong et al., EMNLP Findings 2021): a search for the formula of the
feed-forward networks, and a distillation that trains each candidate from a warm start.

Read `recipes.py` first: it says which networks there are, and how each is made.
`search/` has the search, `searches.py` its settings, `students.py` and `warming.py` the
distillation."""

TITLE, PREFIX, ORDER = "EfficientBERT", "efficientbert", 2
