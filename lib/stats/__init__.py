"""This package computes metrics of predictions, costs of encoders, and paired
differences between models with their confidence intervals.

Tables show them, and claims of papers are tested by them."""
