"""This folder has EfficientBERT's search: the language of formulas, networks, spaces and
samplers.

Only `step.py`, which trains candidates, needs torch."""
