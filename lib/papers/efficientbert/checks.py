"""This module counts parameters of EfficientBERT's networks. Formulas that check
printed numbers call its function (lib.claims.checks)."""

from fractions import Fraction

from lib.papers.efficientbert import recipes
from lib.papers.efficientbert.search.net import count_net_parameters


def count_millions_of_parameters(
    network_name: str, counting_convention: str = "with projection"
) -> Fraction:
    """Return the number of parameters of one of EfficientBERT's published networks, in
    millions.

    network_name: the network's name in the paper's tables.
    counting_convention: what is counted besides embeddings and layers, as in
    `count_net_parameters`."""
    return Fraction(
        count_net_parameters(recipes.NETS[network_name], counting_convention), 10**6
    )


FUNCTIONS = {"net": count_millions_of_parameters}
