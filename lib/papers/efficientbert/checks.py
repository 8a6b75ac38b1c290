"""This module counts parameters of EfficientBERT's networks. Formulas that check
printed numbers call its function (lib.claims.checks)."""

from fractions import Fraction

from lib.papers.efficientbert import recipes
from lib.papers.efficientbert.options import NetworkName
from lib.papers.efficientbert.search.net import CountingConvention, count_net_parameters


def count_millions_of_parameters(
    network_name: NetworkName,
    counting_convention: CountingConvention = "with projection",
) -> Fraction:
    """Return the exact number of parameters of a published EfficientBERT, in millions.

    It serves to check the sizes that the paper prints. Raises KeyError for an unknown
    network and Refused for an unknown convention.

    network_name: the network's name in EfficientBERT's tables, such as
    "EfficientBERT_TINY".
    counting_convention: what is counted besides embeddings and layers: "deployable"
    (nothing), "with pooler", or "with projection" (the map to the teacher's hidden
    size)."""
    return Fraction(
        count_net_parameters(recipes.NETS[network_name], counting_convention), 10**6
    )


FUNCTIONS = {"net": count_millions_of_parameters}
