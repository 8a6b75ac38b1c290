"""This folder has EfficientBERT's architecture search: formulas of feed-forward
networks, candidate networks and how they are drawn.

Only `step.py`, which trains candidates, imports torch."""
