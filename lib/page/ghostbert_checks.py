"""Figures that GhostBERT's text prints, computed again. Free of torch."""

from lib import published
from lib.measure import cost
from lib.measure.printed import check
from lib.papers.ghostbert import WIDTHS, ghost
from lib.papers.profiles import shape


def checked(name, table, computed):
    """Verdict on {row: value} of figures that the text prints, by `value` of a published table."""
    printed = published.table("ghostbert", table)
    printed = printed.set_index(printed.columns[0])["value"].astype(str)
    rounded = {row: round(value, 3) for row, value in computed.items()}
    return check(name, rounded, printed[list(computed)].to_dict())


def added(module):
    """What ghosts add to BERT-base: (weights, % of its weights, products, % of its FLOPs)."""
    base = shape("paper")
    weights, products = cost.ghost_parameters(base, module), cost.ghost_flops(base, module)
    flops = cost.flops(base, convention="ghostbert")
    return weights, 100 * weights / cost.parameters(base), products, 100 * products / flops


def check_extra():
    """What ghosts add to BERT-base, in the introduction and in section 3.2.1."""
    weights, share, products, flops = added(ghost("paper"))
    return checked(
        "Sections 1 and 3.2.1, what ghosts add:",
        "claims",
        {
            "extra params of ghost modules (introduction)": share,
            "extra FLOPs of ghost modules (introduction)": flops,
            "extra params of ghost modules (results)": weights / 1e3,
            "extra FLOPs of ghost modules (results)": products / 1e6,
        },
    )


def check_shares():
    """The FLOPs that section 3.2.2 prints of small models, as counted."""
    base, module = shape("paper"), ghost("paper")
    whole = cost.flops(base, convention="ghostbert")
    share = {
        m: 100 * cost.flops(base, heads=m, ghost=module, convention="ghostbert") / whole
        for m in WIDTHS
    }
    flops = {
        "GhostBERT m=6/12 relative FLOPs": share[6],
        "GhostRoBERTa m=9/12 relative FLOPs": share[9],
        **{f"m={m}/12 relative FLOPs": share[m] for m in (3, 1)},
    }
    return checked("Section 3.2.2, shares of BERT-base and RoBERTa-base:", "claims", flops)


def check_example():
    """Appendix B.4's example: twelve features from twelve heads."""
    weights, share, products, flops = added(ghost("paper", features=12))
    return checked(
        "Appendix B.4, its example:",
        "b4",
        {
            "example L=12 d=768 n=128 k=3 M=12: additional #params": weights / 1e6,
            "example: share of backbone #params": share,
            "example: additional FLOPs": products / 1e9,
            "example: share of backbone FLOPs": flops,
        },
    )
