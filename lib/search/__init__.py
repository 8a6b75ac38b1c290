"""EfficientBERT's search: formulas, networks, their space and samplers. Free of torch."""
