"""GhostBERT (Huang et al., ACL 2021): its settings by profile, its Specs, its claims. Free of torch.

`paper` is as printed (Appendix A.2, Table 8) where the paper says something. `toy` and `mini` have values of their
own, chosen once before their first recorded run; every difference is listed in `DEVIATIONS` and shown on the pages.
"""

from dataclasses import replace
from functools import partial

from lib import published
from lib.measure import compare, cost, stats, verdict
from lib.options import Augment, Distil, Ghost, Importance, Targets
from lib.papers import claims, grids, mini
from lib.papers.grids import LABELS, dataset, metrics, teacher
from lib.papers.profiles import CHECKPOINTS, backbone, families, profile, shape
from lib.spec import Spec, known, plain

HEADS = (
    12  # widths are kept heads M of 12 (ELECTRA-small has 4): an integer, floor(12 * 0.0833) is 0
)
WIDTHS = (9, 6, 3, 1)  # of Tables 3 and 10
MODELS = ("Prune", "Ghost")
LONG = ("MNLI", "QQP")  # distilled for one epoch instead of three (Table 8)
NAMES = {
    "bert": ("BERT-base", "GhostBERT"),
    "roberta": ("RoBERTa-base", "GhostRoBERTa"),
    "electra": ("ELECTRA-small", "GhostELECTRA-small"),
}  # rows of Table 1, without and with ghosts
PRUNED = ("bert", "roberta")  # kinds that Table 1 cuts as well
MARGIN = 0.5  # points within which two scores count as alike (G8, G10)

TASKS = {
    "toy": ("CoLA", "RTE"),
    "mini": mini.BOTH,
    "paper": ("MNLI", "QNLI", "QQP", "RTE", "SST-2", "MRPC", "CoLA", "STS-B"),
}
SWEPT = TASKS | {"toy": ("CoLA",), "mini": mini.ONE}
CUT = {"toy": (3, 1)}  # widths of Tables 1 and 3; elsewhere all
SWEPT_CUT = {"toy": (3,)}  # of Tables 4, 5 and 9, which print 3 and 1
FIVE = ("SST-2", "MRPC", "CoLA", "STS-B", "RTE")  # tasks of Tables 6, 9 and 11 and of Figure 3
SEEDS = {"toy": (0,), "mini": mini.FIVE, "paper": (0, 1, 2, 3, 4)}
SWEPT_SEEDS = {
    "toy": (0,),
    "mini": mini.THREE,
    "paper": (0, 1, 2),
}  # of tables that change one thing; a verdict takes three

DISTIL = grids.training(epochs=(2, 3, 3), lr=(1e-3, 2e-4, 2e-5))
FINETUNE = grids.training(epochs=(2, 3, 3), lr=(5e-4, 5e-5, 2e-5), select=("last", "last", "best"))
IMPORTANCE = {
    "toy": Importance("held_out", batch=8, max_length=64),
    "mini": Importance("held_out", batch=8, max_length=128),
    "paper": Importance("dev", batch=8, max_length=128, cumulative=True),
}

AUGMENTED = {
    "toy": False,
    "mini": False,
    "paper": True,
}  # rows of the distillation stage; Table 4 has both
TRIES = {
    "CoLA": 30,
    "MRPC": 30,
    "STS-B": 30,
    "RTE": 30,
    "SST-2": 20,
    "QNLI": 20,
    "MNLI": 10,
    "QQP": 10,
}  # TinyBERT's code

# Teacher and last stage learn from labels, as the text says. Table 8 says distillation in the last stage: rows that try it.
LAST = {
    "Soft labels last": Targets("soft", sum_classes=True),
    "Labels and soft labels last": Targets("both", sum_classes=True),
}
LOOP = {
    "Adam beta1": 0.9,
    "Adam beta2": 0.999,
    "Learning Rate Decay": "Linear",
}  # rows of Table 8 that every run has

CACHED = {"toy": True, "mini": True, "paper": False}  # the teacher's states from disk

DEVIATIONS = published.deviations("ghostbert")

tasks = partial(grids.tasks, own=TASKS)
seeds = partial(grids.seeds, own=SEEDS)
swept = partial(grids.tasks, own=SWEPT)  # of tables that change one thing: at toy one is enough
swept_seeds = partial(grids.seeds, own=SWEPT_SEEDS)


def five(profile_name, wanted=()):
    """Those of `swept` that the paper averages in its tables of five tasks."""
    return tasks(profile_name, wanted or [name for name in swept(profile_name) if name in FIVE])


def widths(profile_name, wanted=()):
    """Kept heads of the tables over widths."""
    return tuple(wanted) or CUT.get(profile_name, WIDTHS)


def swept_widths(profile_name, wanted=()):
    """Kept heads of the tables that change one thing at a time."""
    return tuple(wanted) or SWEPT_CUT.get(profile_name, (3, 1))


def not_run(profile_name, ran, printed=WIDTHS):
    """A line for a page on the printed widths that it did not run, and how to run them."""
    left = [f"{m}/12" for m in printed if m not in ran]
    return [
        f"Not run at {profile_name}: {', '.join(left)}. Fill in with the parameter widths = {list(printed)}."
    ] * bool(left)


def ghost(profile_name, **changes):
    """The paper's ghost module: depthwise, after O and FFN2, three taps, softmax and ReLU, one ghost feature."""
    options = dict(
        kind="dwconv",
        positions=("o", "ffn2"),
        kernel=3,
        features=1,
        softmax=True,
        relu=True,
        mask=profile_name != "paper",
    )
    return Ghost(**options | changes)


def check(profile_name, heads, ghosts, family="bert"):
    """Raises ValueError, before anything runs, where an encoder cannot be cut to `heads` or cannot have these ghosts."""
    encoder = shape(profile_name, family)
    if type(heads) is not int or not 1 <= heads <= encoder.heads:
        raise ValueError(
            f"width {heads}/{encoder.heads} keeps no head or too many: take a whole number from 1 to "
            f"{encoder.heads}"
        )
    if not ghosts:
        return
    cost.compatible(encoder, ghosts, heads)
    if not ghosts.positions or len(set(ghosts.positions)) < len(ghosts.positions):
        raise ValueError(f"Ghost.positions is {ghosts.positions}: name at least one, and each once")
    if ghosts.kind == "conv1d_f" and not ghosts.tokens:
        raise ValueError(
            "Ghost.tokens is 0: 'conv1d_f' needs the one number of tokens that it will take"
        )


def operation(profile_name, task, heads, ghosts, family="bert"):
    """(surgery, inputs) that turn a teacher into a student of `heads`, with a Ghost or without. All heads skip the cut;
    what a ghost stands in for the cut heads of stays whole (section 4.2)."""
    check(profile_name, heads, ghosts, family)
    surgery, inputs = [], {"teacher": teacher(profile_name, task, family)}
    if heads < shape(profile_name, family).heads:
        surgery.append(
            {"op": "cut", "heads": heads}
            | ({"whole": list(ghosts.whole)} if ghosts and ghosts.whole else {})
        )
        inputs["importance"] = Spec(
            "importance",
            {
                "data": dataset(profile_name, task),
                "importance": IMPORTANCE[profile_name],
                "numerics": profile(profile_name).numerics,
            },
            {"teacher": inputs["teacher"]},
        )
    if ghosts:
        surgery.append({"op": "ghost"} | plain(ghosts))
    return surgery, inputs


def finetuned(profile_name, task, start, tokens=0, targets=LABELS, taught_by=None):
    """The last stage, from `start`: labels, or the answers of the model `taught_by` where the targets ask for them;
    `tokens` pads every row to one length."""
    inputs = {"start": start} | ({"teacher": taught_by} if targets.kind != "hard" else {})
    return Spec(
        "finetune",
        {
            "data": dataset(profile_name, task),
            "train": padded(FINETUNE[profile_name], tokens),
            "targets": targets,
            "numerics": profile(profile_name).numerics,
        },
        inputs,
    )


def padded(train, tokens):
    return replace(train, max_length=tokens, pad_to=tokens) if tokens else train


def distillation(profile_name, task):
    """Settings of the distillation stage of a task."""
    epochs = {"epochs": 1} if profile_name == "paper" and task in LONG else {}
    return replace(DISTIL[profile_name], **epochs)


def augmentation(profile_name, task):
    """The training rows with others beside them in which words are replaced, by a BERT and as TinyBERT does it; one try
    a sentence at the small scales. Data: made once for all seeds."""
    options = Augment(
        tries=TRIES.get(task, 30) if profile_name == "paper" else 1,
        p=0.4,
        candidates=15,
        neighbours="embeddings",
    )
    return Spec(
        "augment",
        {
            "data": dataset(profile_name, task),
            "augment": options,
            "numerics": profile(profile_name).numerics,
        },
        {"language_model": backbone(profile_name)},
        seed=0,
    )


def student(profile_name, task, heads, ghosts=None, family="bert", augmented=None, targets=LABELS):
    """Cut to `heads`, with a Ghost or without (the pruned baseline, by the same procedure), distilled, then fine-tuned
    on the targets (section 2.3). augmented: whether distilled on augmented rows; None is the profile's habit."""
    surgery, inputs = operation(profile_name, task, heads, ghosts, family)
    train, tokens = distillation(profile_name, task), ghosts.tokens if ghosts else 0
    if AUGMENTED[profile_name] if augmented is None else augmented:
        inputs["augmented"] = augmentation(profile_name, task)
    elif CACHED[profile_name] and not tokens:
        inputs["states"] = Spec(
            "states",
            {
                "data": dataset(profile_name, task),
                "train": train,
                "distil": Distil(mask=True),
                "numerics": profile(profile_name).numerics,
            },
            {"teacher": inputs["teacher"]},
        )
    distilled = Spec(
        "distil",
        {
            "data": dataset(profile_name, task),
            "train": padded(train, tokens),
            "surgery": surgery,
            "numerics": profile(profile_name).numerics,
            "distil": Distil(mask=profile_name != "paper"),
        },
        inputs,
    )
    return finetuned(profile_name, task, distilled, tokens, targets, inputs["teacher"])


def untrained(profile_name, task, heads, ghosts, family="bert"):
    """A student as it begins: cut, with its ghosts as drawn."""
    surgery, inputs = operation(profile_name, task, heads, ghosts, family)
    return Spec("operate", {"surgery": surgery}, inputs)


def undistilled(profile_name, task, heads, ghosts):
    """The ablation without distillation: cut and ghosts, then labels alone."""
    return finetuned(profile_name, task, untrained(profile_name, task, heads, ghosts))


def variants(profile_name, options):
    """{label: Ghost} of a sweep over options: each changes the paper's module in the named fields alone."""
    return {label: ghost(profile_name, **changes) for label, changes in options.items()}


def crossed(task_names, widths, seed_numbers, models):
    """One row for each task, width, model and seed. models: {label: f(task, heads) -> Spec}."""
    return grids.crossed(
        seed_numbers,
        lambda task, m, model: models[model](task, m),
        task=task_names,
        m=widths,
        model=models,
    )


def sweep(profile_name, task_names, widths, seed_numbers, modules):
    """The grid of a table over ghost modules, {label: Ghost or None}."""
    return crossed(
        task_names,
        widths,
        seed_numbers,
        {
            label: lambda task, m, module=module: student(profile_name, task, m, module)
            for label, module in modules.items()
        },
    )


# Tables 4 to 6, Figure 3, B.4: what each row changes. The ablation without distillation is `undistilled`.
ABLATIONS = {"GhostBERT": {}, "- Softmax": {"softmax": False}, "- ReLU": {"relu": False}}
EQUAL_TAPS = {
    "- Softmax, taps 1/k at first": {"softmax": False, "init": "uniform"}
}  # a ghost as large as with the softmax
KERNELS = {f"k = {k}": {"kernel": k} for k in (1, 3, 5, 9, 17)}
FEATURES = {f"F = {f}": {"features": f} for f in (1, 2, 4, 8, 12)}
POSITIONS = {
    "After QK": {"kind": "conv2d", "positions": ("qk",)},
    "After V": {"positions": ("v",)},
    "After O": {"positions": ("o",)},
    "After FFN1": {"positions": ("ffn1",)},
    "After FFN2": {"positions": ("ffn2",)},
    "Ours: After O&FFN2": {},
}
ONE_LENGTH = {"toy": 32, "mini": 64, "paper": 128}  # tokens that Conv1D_F is tied to


def convolutions(profile_name):
    """The rows of Table 5. Where a convolution mixes channels or tokens, all weights that one output sums are normalised
    together: by the taps alone an output would be a sum over 768 channels. The paper leaves it open."""
    return {
        "Conv1D_S": {"kind": "conv1d_s", "softmax_over": "inputs"},
        "Conv1D_F": {
            "kind": "conv1d_f",
            "softmax_over": "inputs",
            "tokens": ONE_LENGTH[profile_name],
        },
        "Conv2D": {"kind": "conv2d"},
        "DWConv": {},
    }


def normalisations(profile_name):
    """The rows of Table 5 with the other normalisations: softmax over the taps where it is over all inputs, and none."""
    found = {}
    for label, changes in convolutions(profile_name).items():
        if "softmax_over" in changes:
            found[f"{label}, softmax over taps"] = {**changes, "softmax_over": "taps"}
        found[f"{label}, no softmax"] = {**changes, "softmax_over": "taps", "softmax": False}
    return found


def pruned_vs_ghost(profile_name, task_names, widths, seed_numbers, last="hard"):
    """The grid of Tables 3 and 10. last: what the last stage learns from, as in `Targets.kind`."""
    targets = Targets(last, sum_classes=last != "hard")
    return crossed(
        task_names,
        widths,
        seed_numbers,
        {
            label: lambda task, m, module=module: student(
                profile_name, task, m, module, targets=targets
            )
            for label, module in zip(MODELS, (None, ghost(profile_name)), strict=True)
        },
    )


def unpruned(profile_name, task_names, seed_numbers, family="bert"):
    """The 12/12 rows of Figure 1: plain fine-tuning, with ghosts, and distilled without ghosts, the control that the
    paper does not report."""
    return crossed(
        task_names,
        [shape(profile_name, family).heads],
        seed_numbers,
        {
            "Plain": lambda task, m: teacher(profile_name, task, family),
            "Ghost": lambda task, m: student(profile_name, task, m, ghost(profile_name), family),
            "Distilled": lambda task, m: student(profile_name, task, m, None, family),
        },
    )


def extent(profile_name, complete=False):
    """(tasks, widths, seeds) of Table 1's page: a sample at toy, unless it is to be complete."""
    if profile_name == "toy":
        return (TASKS["paper"], WIDTHS, (0, 1)) if complete else (SWEPT["toy"], CUT["toy"], (0,))
    return TASKS[profile_name], WIDTHS, SEEDS[profile_name]


def backbones(profile_name, task_names, widths, seed_numbers, kinds=()):
    """The grid of Table 1, with a column `family`: whole models of every kind as `unpruned`, and ghosts on cut ones."""
    rows = {
        family: unpruned(profile_name, task_names, seed_numbers, family)
        for family in kinds or families(profile_name)
    }
    for family in rows.keys() & set(PRUNED):
        rows[family] += crossed(
            task_names,
            widths,
            seed_numbers,
            {
                "Ghost": lambda task, m, family=family: student(
                    profile_name, task, m, ghost(profile_name), family
                )
            },
        )
    return [row | {"family": family} for family in rows for row in rows[family]]


def line(family, model, m):
    """Name of a row of Table 1: of a kind, a model of `backbones` and its kept heads. All profiles have as many heads."""
    plain, ghosted = NAMES[family]
    return {"Plain": plain, "Distilled": f"{plain}, distilled"}.get(
        model, f"{ghosted} (m = {m}/{shape('paper', family).heads})"
    )


def lines_of_table_1(widths):
    """{name: (family, model, heads)} of its rows and of the control's, in their order."""
    whole = [
        (family, model, shape("paper", family).heads)
        for family in NAMES
        for model in ("Plain", "Distilled", "Ghost")
    ]
    cut = [(family, "Ghost", m) for family in PRUNED for m in widths]
    return {
        line(*row): row for row in sorted(whole + cut, key=lambda row: list(NAMES).index(row[0]))
    }


def ablated(profile_name, task_names, widths, seed_numbers, more=False):
    """The grid of Table 4, each row one change from the paper's module, augmentation among them; and what distillation
    and augmentation do to the whole model without ghosts, the control that the paper lacks. more: taps of 1/k at first,
    and a last stage that learns from the teacher, as well."""
    module, other = ghost(profile_name), not AUGMENTED[profile_name]
    switch = "+ DA" if other else "- DA"
    return (
        sweep(profile_name, task_names, widths, seed_numbers, variants(profile_name, ABLATIONS))
        + crossed(
            task_names,
            widths,
            seed_numbers,
            {
                "- DA & KD": lambda task, m: undistilled(profile_name, task, m, module),
                switch: lambda task, m: student(profile_name, task, m, module, augmented=other),
            },
        )
        + unpruned(profile_name, task_names, seed_numbers)
        + crossed(
            task_names,
            [HEADS],
            seed_numbers,
            {
                f"{label} {switch}": lambda task, m, ghosts=ghosts: student(
                    profile_name, task, m, ghosts, augmented=other
                )
                for label, ghosts in {"Ghost": module, "Distilled": None}.items()
            },
        )
        + (
            sweep(
                profile_name, task_names, widths, seed_numbers, variants(profile_name, EQUAL_TAPS)
            )
            + crossed(
                task_names,
                widths,
                seed_numbers,
                {
                    label: lambda task, m, targets=targets: student(
                        profile_name, task, m, module, targets=targets
                    )
                    for label, targets in LAST.items()
                },
            )
            if more
            else []
        )
    )


def paired(frame, profile_name):
    """{width: pairs} of ghost and pruned runs, where there are any."""
    found = {
        m: compare.pairs(rows, "Ghost", "Prune", metrics(profile_name))
        for m, rows in frame.groupby("m")
    }
    return {m: pairs for m, pairs in found.items() if pairs}


def gains(frame, profile_name):
    """{width: Estimate} of the paired gain of ghosts over pruning alone, in points, tasks averaged."""
    return {m: stats.paired_difference(pairs) for m, pairs in paired(frame, profile_name).items()}


@claims.each_task
def claims_of_table_3(frame, profile_name):
    """Verdicts on G1, ghosts raise a pruned model at every printed width, and G3, the more the smaller it is. A width that
    was not run is named, and G1 is not confirmed without it."""
    printed = published.table("ghostbert", "table3")
    gain = {
        int(m.split("/")[0]): g - p
        for m, p, g in zip(
            printed["m"],
            printed["Pruned BERT Avg. acc"],
            printed["GhostBERT Avg. acc"],
            strict=True,
        )
    }
    by_width = paired(frame, profile_name)
    estimates = {f"{m}/12": estimate for m, estimate in gains(frame, profile_name).items()}
    failed = compare.lost(frame)
    trend = stats.trend(by_width) if len(by_width) > 1 else None
    return [
        verdict.judge_delta(
            "G1", estimates, {f"{m}/12": g for m, g in gain.items()}, profile_name, failed=failed
        ),
        verdict.judge_trend(
            "G3",
            trend,
            -1,
            profile_name,
            stats.slope(list(gain), list(gain.values())),
            unit="points per twelfth of width",
            failed=failed,
        ),
    ]


@claims.each_task
def claim_unpruned(frame, profile_name):
    """Verdict on G2 for each kind in a frame of `backbones`: ghosts on the whole model above plain fine-tuning, and above
    the same distillation without ghosts, of which the paper prints nothing. Cells are named by the checkpoint that ran."""
    said = published.table("ghostbert", "claims").set_index("claim")["value"]
    cells, printed, ran = {}, {}, dict.fromkeys(frame["family"])
    for family in ran:
        name = CHECKPOINTS["mini"][family] if profile_name == "mini" else NAMES[family][0]
        for rival, over in (
            ("Plain", "over fine-tuning"),
            ("Distilled", "over distillation alone"),
        ):
            cells[f"{name}, {over}"] = claims.estimate(
                frame[frame["family"] == family],
                profile_name,
                "Ghost",
                rival,
                shape(profile_name, family).heads,
            )
        printed[f"{name}, over fine-tuning"] = float(said[f"dev average gain {NAMES[family][0]}"])
    judged = verdict.judge_delta(
        "G2", cells, printed, profile_name, failed=compare.lost(frame), word="for"
    )
    lacking = ", ".join(plain for family, (plain, _) in NAMES.items() if family not in ran)
    return replace(
        judged,
        note="; ".join(
            filter(None, (judged.note, f"not at this scale: {lacking}" * bool(lacking)))
        ),
    )


def claim_position(frame, profile_name):
    """Verdict on G9: both positions together above each cheap one, at the printed 1/12 and at other widths that were run;
    there the direction alone is judged. After QK is not cheap, and is printed above ours."""
    ours, best = "Ours: After O&FFN2", "After QK"
    rivals = [name for name in POSITIONS if name not in (ours, best)]
    gaps = published.gaps("ghostbert", "table6", "Position", ours, [1])
    ran = [
        m
        for m in dict.fromkeys(frame["m"])
        if m != 1 and claims.estimate(frame, profile_name, ours, rivals[0], m)
    ]
    return claims.best(
        "G9",
        frame,
        profile_name,
        ours,
        {(name, 1): gaps[name, 1] for name in rivals}
        | {(name, m): 0.0 for m in ran for name in rivals},
    )


def claim_features(frame, profile_name):
    """Verdict on G10, at 1/12: four ghost features above one, and twelve not above four by MARGIN."""
    table = (
        published.table("ghostbert", "b4")
        .query("m == '1/12' and unit == 'points'")
        .set_index("F")["value"]
        .astype(float)
    )
    rise, rest = (
        claims.estimate(frame, profile_name, *names, 1)
        for names in (("F = 4", "F = 1"), ("F = 12", "F = 4"))
    )
    rises = verdict.judge_delta(
        "G10",
        {"F = 4 over F = 1": rise},
        {"F = 4 over F = 1": round(table["4"] - table["1"], 1)},
        profile_name,
        failed=compare.lost(frame),
        word="for",
    )
    flat = verdict.judge_within("G10", rest, float("-inf"), MARGIN, profile_name)
    return claims.together(
        [rises, replace(flat, measured=f"for F = 12 over F = 4: {flat.measured}")]
    )


def claim_convolution(frame, profile_name, widths):
    """Verdict on G8 at the printed ones of these widths: DWConv not below Conv1D_S by MARGIN, and above the other two."""
    gaps = published.gaps(
        "ghostbert",
        "table5",
        "Convolution Type",
        "DWConv",
        widths,
        lambda text: text.removeprefix("ours: "),
    )
    others = claims.best(
        "G8",
        frame,
        profile_name,
        "DWConv",
        {k: gap for k, gap in gaps.items() if k[0] != "Conv1D_S"},
    )
    alike = {
        m: verdict.judge_within(
            "G8",
            claims.estimate(frame, profile_name, "DWConv", "Conv1D_S", m),
            -MARGIN,
            float("inf"),
            profile_name,
        )
        for rival, m in gaps
        if rival == "Conv1D_S"
    }
    return claims.together(
        [
            others,
            *(
                replace(part, measured=f"over Conv1D_S at {m}/12: {part.measured}")
                for m, part in alike.items()
            ),
        ]
    )


def lines_of_table_2(profile_name, wanted=()):
    """{name: (family, model, heads)} of the rows of Table 2 that a profile can make: models as fine-tuned, and with ghosts,
    whole and cut. Raises ValueError naming the nearest row."""
    lines = lines_of_table_1(WIDTHS if wanted else widths(profile_name))
    there = {
        name: line
        for name, line in lines.items()
        if line[0] in families(profile_name) and line[1] != "Distilled"
    }
    for name in wanted:
        known(f"row of Table 2 in profile {profile_name!r}", name, there)
    return {name: line for name, line in there.items() if name in (wanted or there)}


def submitted(profile_name, task_names, seed_numbers, lines):
    """The grid of Table 2: one row for each model of `lines`, file of its submission, and seed."""

    def made(task, model):
        family, kind, m = lines[model]
        return (
            teacher(profile_name, task, family)
            if kind == "Plain"
            else student(profile_name, task, m, ghost(profile_name), family)
        )

    return grids.submitted(profile_name, task_names, seed_numbers, made, model=lines)


def inspection(profile_name, task, model, rows, tokens=0):
    """Spec of what the ghosts of a model do on `rows` development rows; `tokens` pads every row to one length."""
    return Spec(
        "inspect_ghosts",
        {
            "data": dataset(profile_name, task),
            "train": padded(FINETUNE[profile_name], tokens),
            "numerics": profile(profile_name).numerics,
            "rows": rows,
        },
        {"model": model},
    )


def inspected(profile_name, task, heads, module, rows, seed_numbers, family="bert"):
    """The grid of the mechanism: one student's ghosts at the start, distilled, and fine-tuned, on `rows` development
    rows. At the start the kernels are the ones that the same seed's distillation begins with."""
    tuned = student(profile_name, task, heads, module, family)
    stages = {
        "start": untrained(profile_name, task, heads, module, family),
        "distilled": tuned.inputs["start"],
        "fine-tuned": tuned,
    }
    return [
        {
            "task": task,
            "m": heads,
            "stage": stage,
            "seed": seed,
            "spec": inspection(profile_name, task, model, rows, module.tokens).at(seed),
        }
        for stage, model in stages.items()
        for seed in seed_numbers
    ]


def started(profile_name, task_names, widths, modules, rows=100):
    """The grid of ghosts before any training, on `rows` development rows of the first task, at the profile's first seed:
    {label: Ghost} at each width."""
    return crossed(
        task_names[:1],
        widths,
        swept_seeds(profile_name)[:1],
        {
            label: lambda task, m, module=module: inspection(
                profile_name, task, untrained(profile_name, task, m, module), rows, module.tokens
            )
            for label, module in modules.items()
        },
    )


def sizes(frame, source):
    """{(m, model): {(source, place): text}} of a collected grid of `started`: |g| / |y|, mean over the layers."""
    places = {"o": "after O", "ffn2": "after FFN2"}
    return {
        (f"{row['m']}/12", row["model"]): {
            (source, about): f"{row['run'].arrays('ghosts')[f'{place}.size'].mean():.3f}"
            if row["run"]
            else "–"
            for place, about in places.items()
        }
        for row in frame.to_dict("records")
    }


def checked(name, table, computed):
    """Verdict on figures that the text prints, {row: value} against `value` of a published table such as "claims"."""
    printed = published.table("ghostbert", table)
    printed = printed.set_index(printed.columns[0])["value"].astype(str)
    return verdict.judge_equal(
        name,
        {row: round(value, 3) for row, value in computed.items()},
        printed[list(computed)].to_dict(),
    )


def check_extra():
    """What ghosts add to BERT-base, in the introduction and in section 3.2.1."""
    base, module = shape("paper"), ghost("paper")
    weights, products = cost.ghost_parameters(base, module), cost.ghost_flops(base, module)
    whole = cost.parameters(base), cost.flops(base, convention="ghostbert")
    return checked(
        "Sections 1 and 3.2.1, what ghosts add:",
        "claims",
        {
            "extra params of ghost modules (introduction)": 100 * weights / whole[0],
            "extra FLOPs of ghost modules (introduction)": 100 * products / whole[1],
            "extra params of ghost modules (results)": weights / 1e3,
            "extra FLOPs of ghost modules (results)": products / 1e6,
        },
    )


def printed_averages(table):
    """{model: printed average} of Table 1 or 2, models without their sources."""
    found = published.table("ghostbert", table)
    return found.set_index(found["Model"].str.replace(r" \(.*\d{4}\)", "", regex=True))["Avg."]


def check_gains(split, table):
    """The gains that section 3.2.1 prints of a split, from the averages of its table."""
    average, whole = printed_averages(table), {kind: shape("paper", kind).heads for kind in NAMES}
    return checked(
        f"Section 3.2.1, gains on the {split} sets:",
        "claims",
        {
            f"{split} average gain {plain}": average[line(kind, "Ghost", whole[kind])]
            - average[plain]
            for kind, (plain, _) in NAMES.items()
        },
    )


def check_shares():
    """What section 3.2.2 prints of small models: scores from Table 1's averages, FLOPs as counted for it."""
    average, counted = (
        printed_averages("table1"),
        {
            m: cost.flops(shape("paper"), heads=m, ghost=ghost("paper"), convention="ghostbert")
            for m in WIDTHS
        },
    )
    share = {
        m: 100 * counted[m] / cost.flops(shape("paper"), convention="ghostbert") for m in WIDTHS
    }
    return checked(
        "Section 3.2.2, shares of BERT-base and RoBERTa-base:",
        "claims",
        {
            **{
                f"m={m}/12 share of BERT-base performance": 100
                * average[line("bert", "Ghost", m)]
                / average["BERT-base"]
                for m in (3, 1)
            },
            "GhostBERT m=6/12 relative FLOPs": share[6],
            "GhostRoBERTa m=9/12 relative FLOPs": share[9],
            **{f"m={m}/12 relative FLOPs": share[m] for m in (3, 1)},
        },
    )


def check_example():
    """Appendix B.4's example: twelve features from twelve heads."""
    base, module = shape("paper"), ghost("paper", features=12)
    weights, products = cost.ghost_parameters(base, module), cost.ghost_flops(base, module)
    return checked(
        "Appendix B.4, its example:",
        "b4",
        {
            "example L=12 d=768 n=128 k=3 M=12: additional #params": weights / 1e6,
            "example: share of backbone #params": 100 * weights / cost.parameters(base),
            "example: additional FLOPs": products / 1e9,
            "example: share of backbone FLOPs": 100
            * products
            / cost.flops(base, convention="ghostbert"),
        },
    )
