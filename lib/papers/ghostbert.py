"""GhostBERT (Huang et al., ACL 2021): its settings by profile, its Specs, its claims. Free of torch.

`paper` is as printed (Appendix A.2, Table 8) where the paper says something. `toy` and `mini` have values of their
own, chosen once before their first recorded run; every difference is listed in `DEVIATIONS` and shown on the pages.
"""

from dataclasses import replace

from lib import data, published
from lib.measure import compare, cost, stats, verdict
from lib.options import Distil, Ghost, Importance, Targets, Train
from lib.papers.profiles import checkpoint, profile, shape, toy_backbone
from lib.spec import Spec, known, plain

HEADS = 12                  # widths are kept heads M of 12: an integer, since floor(12 * 0.0833) is 0
WIDTHS = (9, 6, 3, 1)       # of Tables 3 and 10
MODELS = ("Prune", "Ghost")
LONG = ("MNLI", "QQP")      # distilled for one epoch instead of three (Table 8)

TASKS = {"toy": ("CoLA", "RTE"), "mini": ("SST-2",),
         "paper": ("MNLI", "QNLI", "QQP", "RTE", "SST-2", "MRPC", "CoLA", "STS-B")}
SEEDS = {"toy": (0, 1), "mini": (0, 1, 2), "paper": (0, 1, 2, 3, 4)}

ROWS = {"toy": {"CoLA": 1500, "RTE": 1500}, "mini": {"SST-2": 8000}, "paper": {}}   # training rows; all where a task is not named
HELD_OUT = {"toy": 300, "mini": 300, "paper": 0}           # further training rows, for importance

TEACHER = {"toy": Train(epochs=4, batch=32, lr=5e-4, max_length=64, clip=1.0, warmup=0.1, dropout=0.1, byte_dropout=True),
           "mini": Train(epochs=3, batch=32, lr=1e-4, max_length=128, clip=1.0, warmup=0.1, dropout=0.1),
           "paper": Train(epochs=3, batch=32, lr=2e-5, max_length=128, pad_to=128, clip=1.0, dropout=0.1, select="best")}
DISTIL = {"toy": Train(epochs=2, batch=32, lr=1e-3, max_length=64, clip=1.0, dropout=0.1, byte_dropout=True),
          "mini": Train(epochs=3, batch=32, lr=2e-4, max_length=128, clip=1.0, dropout=0.1),
          "paper": Train(epochs=3, batch=32, lr=2e-5, max_length=128, pad_to=128, clip=1.0, dropout=0.1)}
FINETUNE = {"toy": Train(epochs=2, batch=32, lr=5e-4, max_length=64, clip=1.0, dropout=0.1, byte_dropout=True),
            "mini": Train(epochs=3, batch=32, lr=5e-5, max_length=128, clip=1.0, dropout=0.1),
            "paper": Train(epochs=3, batch=32, lr=2e-5, max_length=128, pad_to=128, clip=1.0, dropout=0.1, select="best")}
IMPORTANCE = {"toy": Importance("held_out", batch=8, max_length=64), "mini": Importance("held_out", batch=8, max_length=128),
              "paper": Importance("dev", batch=8, max_length=128, cumulative=True)}

CACHED = {"toy": True, "mini": False, "paper": False}      # the teacher's states from disk; mini was recorded without

DEVIATIONS = {
    "toy": ("generated tasks and a 2-layer encoder instead of GLUE and BERT-base",
            "no data augmentation in the distillation stage",
            "importance on 300 held-out training rows; the paper's ancestor uses the development set",
            "padding is masked in ghosts and losses, batches are padded to their longest row",
            "learning rates and epochs of their own; the last model counts, not the best on the development set",
            "dropout rates in 256ths; the teacher's hidden states are computed once, for real tokens"),
    "mini": ("all-MiniLM-L6-v2 (6 layers, 384 hidden, tuned on sentence pairs) instead of BERT-base",
             "SST-2 with 8,000 of 67,349 training rows",
             "no data augmentation in the distillation stage",
             "importance on 300 held-out training rows; the paper's ancestor uses the development set",
             "padding is masked in ghosts and losses, batches are padded to their longest row",
             "learning rates of their own: the printed 2e-5 leaves a cut MiniLM at chance; the last model counts, not "
             "the best on the development set"),
    "paper": ("no data augmentation in the distillation stage yet",
              "teacher settings are not printed: those of the fine-tuning stage are taken"),
}


def pick(what, wanted, there):
    """The wanted values, or the profile's own where none are named. Raises ValueError for one that is not there."""
    for value in wanted:
        known(what, value, there)
    return tuple(wanted) or there


def tasks(profile_name, wanted=()):
    known("profile", profile_name, TASKS)
    for name in wanted:
        data.task(profile(profile_name).source, name)
    return tuple(wanted) or TASKS[profile_name]


def seeds(profile_name, wanted=()):
    return tuple(wanted) or SEEDS[profile_name]


def backbone(profile_name):
    return {"toy": toy_backbone, "mini": lambda: checkpoint("all-MiniLM-L6-v2"),
            "paper": lambda: checkpoint("bert-base-uncased")}[profile_name]()


def dataset(profile_name, task):
    return data.describe(profile(profile_name).source, task, ROWS[profile_name].get(task), HELD_OUT[profile_name])


def ghost(profile_name, **changes):
    """The paper's ghost module: depthwise, after O and FFN2, three taps, softmax and ReLU, one ghost feature."""
    options = dict(kind="dwconv", positions=("o", "ffn2"), kernel=3, features=1, softmax=True, relu=True,
                   mask=profile_name != "paper")
    return Ghost(**options | changes)


def teacher(profile_name, task):
    """The fine-tuned full model: teacher, initialisation of every student, and the plain 12/12 row."""
    where = profile(profile_name)
    return Spec("finetune", {"data": dataset(profile_name, task), "train": TEACHER[profile_name],
                             "targets": Targets("hard"), "numerics": where.numerics}, {"start": backbone(profile_name)})


def operation(profile_name, task, heads, ghosts):
    """(surgery, inputs) that turn a teacher into a student of `heads` of 12, with a Ghost or without. 12 of 12 skips the
    cut; what a ghost stands in for the cut heads of stays whole (section 4.2)."""
    if not 1 <= heads <= HEADS:
        raise ValueError(f"width {heads}/{HEADS} keeps no head or too many: take 1 to {HEADS}")
    if ghosts:
        cost.compatible(shape(profile_name), ghosts, heads)
    surgery, inputs = [], {"teacher": teacher(profile_name, task)}
    if heads < HEADS:
        surgery.append({"op": "cut", "heads": heads} | ({"whole": list(ghosts.whole)} if ghosts and ghosts.whole else {}))
        inputs["importance"] = Spec("importance", {
            "data": dataset(profile_name, task), "importance": IMPORTANCE[profile_name],
            "numerics": profile(profile_name).numerics}, {"teacher": inputs["teacher"]})
    if ghosts:
        surgery.append({"op": "ghost"} | plain(ghosts))
    return surgery, inputs


def finetuned(profile_name, task, start, tokens=0):
    """The last stage: labels alone, from `start`; `tokens` pads every row to one length."""
    return Spec("finetune", {"data": dataset(profile_name, task), "train": padded(FINETUNE[profile_name], tokens),
                             "targets": Targets("hard"), "numerics": profile(profile_name).numerics}, {"start": start})


def padded(train, tokens):
    return replace(train, max_length=tokens, pad_to=tokens) if tokens else train


def student(profile_name, task, heads, ghosts=None):
    """Cut to `heads` of 12, with a Ghost or without (the pruned baseline, by the same procedure), distilled, then
    fine-tuned on the labels (section 2.3)."""
    surgery, inputs = operation(profile_name, task, heads, ghosts)
    train, tokens = DISTIL[profile_name], ghosts.tokens if ghosts else 0
    if profile_name == "paper" and task in LONG:
        train = replace(train, epochs=1)
    if CACHED[profile_name] and not tokens:
        inputs["states"] = Spec("states", {"data": dataset(profile_name, task), "train": train, "distil": Distil(mask=True),
                                           "numerics": profile(profile_name).numerics}, {"teacher": inputs["teacher"]})
    distilled = Spec("distil", {"data": dataset(profile_name, task), "train": padded(train, tokens), "surgery": surgery,
                                "numerics": profile(profile_name).numerics,
                                "distil": Distil(mask=profile_name != "paper")}, inputs)
    return finetuned(profile_name, task, distilled, tokens)


def undistilled(profile_name, task, heads, ghosts):
    """The ablation without distillation: cut and ghosts, then labels alone."""
    surgery, inputs = operation(profile_name, task, heads, ghosts)
    return finetuned(profile_name, task, Spec("operate", {"surgery": surgery}, inputs))


def variants(profile_name, options):
    """{label: Ghost} of a sweep over options: each changes the paper's module in the named fields alone."""
    return {label: ghost(profile_name, **changes) for label, changes in options.items()}


def sweep(profile_name, task_names, widths, seed_numbers, modules):
    """The grid of a table over ghost modules: one row for each task, width, module and seed."""
    return [{"task": task, "m": m, "model": label, "seed": seed, "spec": student(profile_name, task, m, module).at(seed)}
            for task in task_names for m in widths for label, module in modules.items() for seed in seed_numbers]


# Tables 4 to 6, Figure 3, B.4: what each row changes. The ablation without distillation is `undistilled`.
ABLATIONS = {"GhostBERT": {}, "- Softmax": {"softmax": False}, "- ReLU": {"relu": False}}
KERNELS = {f"k = {k}": {"kernel": k} for k in (1, 3, 5, 9, 17)}
FEATURES = {f"F = {f}": {"features": f} for f in (1, 2, 4, 8, 12)}
POSITIONS = {"After QK": {"kind": "conv2d", "positions": ("qk",)}, "After V": {"positions": ("v",)},
             "After O": {"positions": ("o",)}, "After FFN1": {"positions": ("ffn1",)}, "After FFN2": {"positions": ("ffn2",)},
             "Ours: After O&FFN2": {}}
ONE_LENGTH = {"toy": 40, "mini": 128, "paper": 128}  # tokens that Conv1D_F is tied to


def convolutions(profile_name):
    """The rows of Table 5. Where a convolution mixes channels or tokens, all weights that one output sums are normalised
    together: by the taps alone an output would be a sum over 768 channels. The paper leaves it open."""
    return {"Conv1D_S": {"kind": "conv1d_s", "softmax_over": "inputs"},
            "Conv1D_F": {"kind": "conv1d_f", "softmax_over": "inputs", "tokens": ONE_LENGTH[profile_name]},
            "Conv2D": {"kind": "conv2d"}, "DWConv": {}}


def pruned_vs_ghost(profile_name, task_names, widths, seed_numbers):
    """The grid of Tables 3 and 10: one row for each task, width, model and seed."""
    return [{"task": task, "m": m, "model": model, "seed": seed,
             "spec": student(profile_name, task, m, ghost(profile_name) if model == "Ghost" else None).at(seed)}
            for task in task_names for m in widths for model in MODELS for seed in seed_numbers]


def unpruned(profile_name, task_names, seed_numbers):
    """The 12/12 rows of Figure 1: plain fine-tuning, with ghosts, and distilled without ghosts, the control that the
    paper does not report."""
    models = {"Plain": teacher, "Ghost": lambda p, t: student(p, t, HEADS, ghost(p)),
              "Distilled": lambda p, t: student(p, t, HEADS)}
    return [{"task": task, "m": HEADS, "model": model, "seed": seed, "spec": spec(profile_name, task).at(seed)}
            for task in task_names for model, spec in models.items() for seed in seed_numbers]


def metrics(profile_name):
    """{task: metric that the paper's tables show}."""
    source = profile(profile_name).source
    return {name: data.task(source, name).metrics[0] for name in TASKS[profile_name] + tuple(data.source(source).TASKS)}


def paired(frame, profile_name):
    """{width: pairs} of ghost and pruned runs, where there are any."""
    found = {m: compare.pairs(rows, "Ghost", "Prune", metrics(profile_name)) for m, rows in frame.groupby("m")}
    return {m: pairs for m, pairs in found.items() if pairs}


def gains(frame, profile_name):
    """{width: Estimate} of the paired gain of ghosts over pruning alone, in points, tasks averaged."""
    return {m: stats.paired_difference(pairs) for m, pairs in paired(frame, profile_name).items()}


def claims_of_table_3(frame, profile_name):
    """Verdicts on G1, ghosts raise a pruned model at every width, and G3, the more the smaller it is. Printed widths
    that were not run at this scale are left out, and said so."""
    printed = published.table("ghostbert", "table3")
    gain = {int(m.split("/")[0]): g - p for m, p, g in
            zip(printed["m"], printed["Pruned BERT Avg. acc"], printed["GhostBERT Avg. acc"], strict=True)}
    by_width = paired(frame, profile_name)
    estimates = {f"{m}/12": estimate for m, estimate in gains(frame, profile_name).items()}
    shown = {f"{m}/12": g for m, g in gain.items() if m in by_width or not by_width}
    failed = compare.lost(frame)
    trend = stats.trend(by_width) if len(by_width) > 1 else None
    return [verdict.judge_delta("G1", estimates, shown, profile_name, failed=failed),
            verdict.judge_trend("G3", trend, -1, profile_name, stats.slope(list(gain), list(gain.values())),
                                unit="points per twelfth of width", failed=failed)]


def estimate(frame, profile_name, method, baseline, m=None):
    """Paired difference of two models of a frame in points, at one width or over all; None where nothing pairs."""
    rows = frame if m is None else frame[frame["m"] == m]
    pairs = compare.pairs(rows, method, baseline, metrics(profile_name))
    return stats.paired_difference(pairs) if pairs else None


def claim_delta(name, frame, profile_name, method, baseline, printed):
    """Verdict on `method` above `baseline` at each printed width: {m: points}."""
    cells = {f"{m}/12": estimate(frame, profile_name, method, baseline, m) for m in printed}
    return verdict.judge_delta(name, cells, {f"{m}/12": value for m, value in printed.items()}, profile_name,
                               failed=compare.lost(frame))


def claim_best(name, frame, profile_name, method, printed):
    """Verdict on `method` above each rival: {(rival, m): points}."""
    cells = {f"{rival} at {m}/12": estimate(frame, profile_name, method, rival, m) for rival, m in printed}
    return verdict.judge_ordering(name, cells, {f"{rival} at {m}/12": value for (rival, m), value in printed.items()},
                                  profile_name, failed=compare.lost(frame))


def printed_gaps(table, label, method, widths, rename=lambda text: text):
    """{(rival, m): points by which `method` is printed above it} of a published table with an average column."""
    rows = {(rename(row[label]), int(str(row.get("m", "1/12")).split("/")[0])): row.get("Avg.", row.get("Avg. acc"))
            for row in published.table("ghostbert", table).to_dict("records")}
    return {(rival, m): round(rows[method, m] - value, 1) for (rival, m), value in rows.items()
            if rival != method and m in widths}
