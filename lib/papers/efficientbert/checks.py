"""This module counts EfficientBERT's networks for formulas over printed cells
(lib.claims.checks)."""

from fractions import Fraction

from lib.papers.efficientbert import recipes
from lib.papers.efficientbert.search.net import count_net_parameters


def net(name: str, convention: str = "with projection") -> Fraction:
    """Return the parameters of one of EfficientBERT's networks, in millions."""
    return Fraction(count_net_parameters(recipes.NETS[name], convention), 10**6)


FUNCTIONS = {"net": net}
