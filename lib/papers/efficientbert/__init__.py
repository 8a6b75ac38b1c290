"""This folder reproduces EfficientBERT (Dong et al., Findings of EMNLP 2021).

The paper searches for the formula of the feed-forward networks of a small BERT. It
distils each candidate from a teacher, and a candidate inherits its first weights from a
larger network.

Read `recipes.py` first: it says which networks there are, and how each is trained.
`search/` has the search and `searches.py` its settings. `students.py` and `warming.py`
have the distillation."""

TITLE, PREFIX, ORDER = "EfficientBERT", "efficientbert", 2
