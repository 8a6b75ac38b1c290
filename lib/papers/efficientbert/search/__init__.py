"""This folder has EfficientBERT's search: formulas, networks, spaces and samplers.

Only `step.py`, which trains candidates, needs torch."""
