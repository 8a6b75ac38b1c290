"""GhostBERT: verdicts on its claims G1 to G10, and checks of figures that its text prints.

Claims are judged from collected frames of the grids of `lib.papers.ghostbert`. Free of torch.
"""

from math import inf

from lib import published
from lib.measure import cost, stats, verdict
from lib.papers import claims
from lib.papers.ghostbert import AUGMENTED, CHEAP, NAMES, WIDTHS, ghost
from lib.papers.profiles import CHECKPOINTS, shape

MARGIN = 0.5  # points within which two scores count as alike (G8, G10)

# ---- CLAIMS


def printed_gains():
    """{kept heads: points} by which Table 3 prints a ghost model above the pruned one."""
    return {
        int(row["m"].split("/")[0]): row["GhostBERT Avg. acc"] - row["Pruned BERT Avg. acc"]
        for row in published.lines("ghostbert", "table3")
    }


# G1: ghosts raise a pruned model at every printed width; one that was not run is missing.
claim_gain = claims.delta("G1", "Ghost", "Prune", printed_gains())


@claims.each_task
def claim_trend(frame, profile_name):
    """Verdict on G3: ghosts gain the more, the smaller the width is."""
    printed = printed_gains()
    by_width = {
        m: claims.pairs(rows, profile_name, "Ghost", "Prune") for m, rows in frame.groupby("m")
    }
    slope = float(stats.slope_weights(list(printed)) @ list(printed.values()))
    return claims.trend("G3", frame, profile_name, by_width, slope, "points per twelfth of width")


@claims.each_task
def claim_unpruned(frame, profile_name):
    """Verdict on G2 for each kind of encoder in a frame of `backbones`.

    Ghosts on the whole model stand above plain fine-tuning, and above the same distillation without
    ghosts, of which the paper prints nothing. A cell is named by the checkpoint that ran.
    """
    told = published.table("ghostbert", "claims").set_index("claim")["value"]
    cells, ran = {}, dict(list(frame.groupby("family", sort=False)))
    for family, rows in ran.items():
        plain = NAMES[family][0]
        name = CHECKPOINTS["mini"][family] if profile_name == "mini" else plain
        whole = rows[rows["m"] == shape(profile_name, family).heads], "Ghost"
        printed = float(told[f"dev average gain {plain}"])
        cells[f"{name}, over fine-tuning"] = *whole, "Plain", printed
        cells[f"{name}, over distillation alone"] = *whole, "Distilled", None
    judged = claims.compared("G2", frame, profile_name, cells, word="for")
    lacking = ", ".join(plain for family, (plain, _) in NAMES.items() if family not in ran)
    return claims.noted(judged, f"not at this scale: {lacking}" * bool(lacking))


def claim_kernel(frame, profile_name, widths=(3, 1)):
    """Verdict on G4 at the printed ones of these widths: three taps stand above other numbers."""
    gaps = published.gaps("ghostbert", "table9", "Kernel Size", "k = 3", widths, "k = {}".format)
    return claims.best("G4", "k = 3", gaps)(frame, profile_name)


claim_softmax = claims.delta("G5", "GhostBERT", "- Softmax", {3: 0.8, 1: 0.9})
claim_relu = claims.delta("G6", "GhostBERT", "- ReLU", {3: 1.6, 1: 2.2})


def claim_distillation(frame, profile_name):
    """Verdict on G7: augmentation and distillation stand above labels alone."""
    both = "GhostBERT" if AUGMENTED[profile_name] else "+ DA"
    return claims.delta("G7", both, "- DA & KD", {3: 3.5, 1: 6.4})(frame, profile_name)


def claim_convolution(frame, profile_name, widths=(3, 1)):
    """Verdict on G8 at the printed ones of these widths: DWConv is not below Conv1D_S by MARGIN,
    and above the other two convolutions."""
    column = "Convolution Type", "DWConv"
    gaps = published.gaps(
        "ghostbert", "table5", *column, widths, lambda text: text.removeprefix("ours: ")
    )
    above = {key: points for key, points in gaps.items() if key[0] != "Conv1D_S"}
    parts = [claims.best("G8", "DWConv", above)(frame, profile_name)]
    for rival, m in [key for key in gaps if key not in above]:
        rows, models = frame[frame["m"] == m], ("DWConv", rival)
        alike = claims.within("G8", rows, profile_name, models, -MARGIN, inf)
        parts.append(claims.about(f"over {rival} at {m}/12", alike))
    return claims.together(parts)


def claim_position(frame, profile_name):
    """Verdict on G9: ghosts at both positions stand above those at each cheap one.

    It is judged at the printed 1/12 and, by its direction alone, at other widths that were run.
    """
    *rivals, ours = CHEAP
    gaps = published.gaps("ghostbert", "table6", "Position", ours, [1])
    printed = {(name, 1): gaps[name, 1] for name in rivals}
    for m, rows in frame.groupby("m", sort=False):
        if m != 1 and claims.estimate(rows, profile_name, ours, rivals[0]):
            printed |= {(name, m): 0.0 for name in rivals}
    return claims.best("G9", ours, printed)(frame, profile_name)


def claim_features(frame, profile_name):
    """Verdict on G10 at 1/12: four ghost features stand above one, and twelve not above four by
    MARGIN."""
    table = published.table("ghostbert", "b4").query("m == '1/12' and unit == 'points'")
    score, rows = table.set_index("F")["value"].astype(float), frame[frame["m"] == 1]
    rise = {"F = 4 over F = 1": (rows, "F = 4", "F = 1", round(score["4"] - score["1"], 1))}
    flat = claims.within("G10", rows, profile_name, ("F = 12", "F = 4"), -inf, MARGIN)
    return claims.together(
        [
            claims.compared("G10", frame, profile_name, rise, word="for"),
            claims.about("for F = 12 over F = 4", flat),
        ]
    )


# ---- FIGURES OF THE TEXT


def checked(name, table, computed):
    """Verdict on {row: value} of figures that the text prints, by `value` of a published table."""
    printed = published.table("ghostbert", table)
    printed = printed.set_index(printed.columns[0])["value"].astype(str)
    rounded = {row: round(value, 3) for row, value in computed.items()}
    return verdict.judge_equal(name, rounded, printed[list(computed)].to_dict())


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
