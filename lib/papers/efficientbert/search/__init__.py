"""This room has EfficientBERT's search: formulas, networks, spaces and samplers, and
gate control.

It is free of torch.
"""
