"""What the page `bench_t01_training` shows, measured: `make bench` writes
figures/bench/*.csv.

    python notebooks/bench.py [part ...] [--quick]

Each line of a table is printed as it is measured, and written at once to a file of this
start below figures/scratch/bench, so a kill loses none. A part that ends puts its lines
in place of earlier ones of the same kind of processor. With --quick each part is a
sample of seconds, which stays in that file.

Our training loop stands against transformers.Trainer on the same rows, epochs, seeds
and machine, each training in a process of its own. Its opponents are Trainer with the
habits of run_glue (padding to 128 tokens, float32), Trainer tuned (dynamic padding,
batches by length, bfloat16 where ours uses it), and Trainer tuned with our setting of
the memory allocator. Repeats are interleaved, and CPU time stands beside wall time.
Each part yields the lines of its table, one for each measurement."""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import transformers
from torch import profiler

from lib import data
from lib.core import disk, paths, processor
from lib.core.execute import execute
from lib.core.options import Distil, Importance, Numerics, Targets, Train
from lib.core.spec import Spec
from lib.core.steps import find_step_function
from lib.core.store import Store, TrainingOutput
from lib.data import texts
from lib.model import backbone
from lib.papers import frontier, grids
from lib.papers.bermo import recipes as bermo
from lib.papers.efficientbert import measures
from lib.papers.efficientbert import recipes as efficientbert
from lib.papers.efficientbert import searches as efficientbert_search
from lib.papers.nas_pruning import gated
from lib.papers.nas_pruning import recipes as nas
from lib.papers.nas_pruning.options import Objective
from lib.stats import metrics
from lib.stats.cost import SHAPES, compute_layer_widths_of_pruned_network, flops
from lib.train import augment, lean, loop, losses
from lib.train.batches import encode_split
from lib.train.steps.latency import read_wall_and_cpu_seconds

MODEL, REPEATS = "all-MiniLM-L6-v2", 3
TRAIN = Train(
    epochs=1,
    batch=32,
    lr=1e-4,
    max_length=128,
    clip=1.0,
    dropout=0.1,
    byte_dropout=True,
)
# Without instructions for bfloat16 all contenders compute in float32.
DTYPE = (
    "bfloat16" if grids.DEVICE or processor.has_bfloat16_instructions() else "float32"
)
LEAN, FULL = (Numerics(dtype, 1, grids.DEVICE) for dtype in (DTYPE, "float32"))
HABITS, TUNED = "Trainer, run_glue habits", "Trainer, tuned"
LABELS = Targets("hard")


def timed(function, *args, **more):
    """Seconds of wall and of CPU [2] that a call takes."""
    began = read_wall_and_cpu_seconds()
    function(*args, **more)
    return read_wall_and_cpu_seconds() - began


@contextmanager
def scratch(*specs):
    """A store for the runs of one part, deleted at its end; these Specs are made
    first."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "runs", Path(folder) / "records")
        for spec in specs:
            execute(spec, store, keep_weights=True)
        yield store


def starting(rows):
    """(arguments that runs on so many rows of CoLA share, checkpoint, teacher)."""
    start = Spec(
        "checkpoint",
        {"name": MODEL, "digest": data.find_checkpoint_digest(MODEL)},
        seed=0,
    )
    common = {
        "data": data.make_data_descriptor("glue", "CoLA", rows, 64),
        "train": TRAIN,
        "numerics": LEAN,
    }
    return (
        common,
        start,
        Spec("finetune", common | {"targets": LABELS}, {"start": start}, seed=0),
    )


# ---- THE LOOP AGAINST TRAINER


def peak(dtype, seconds=0.5):
    """Return the best rate of a square matrix product in FLOP/s, of sizes 512 to 4096,
    here."""
    best = 0.0
    for size in (512, 1024, 2048, 4096):
        a, b = (
            torch.randn(size, size, device=loop.get_device()).to(dtype)
            for _ in range(2)
        )
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            _ = (a @ b)[0, 0].item()
            best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def peak_memory():
    """Return the most bytes that this process had: on its GPU, or in memory."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes.
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def tasks(rows):
    """{name: (Task, training rows, development rows)} of a short and a long task.

    They are CoLA as it is, and the rows of RTE that have 96 word pieces or more, cut at
    128."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        data.require_checkpoint_folder(MODEL)
    )
    short, rte = data.read_splits("glue", "CoLA"), data.read_splits("glue", "RTE")
    long = np.flatnonzero(
        encode_split(tokenizer, rte["train"], 128).compute_row_lengths() >= 96
    )[: rows // 4]
    return {
        "CoLA": (
            data.find_task_by_name("glue", "CoLA"),
            short["train"].select_rows(np.arange(rows)),
            short["dev"],
        ),
        "RTE, 96 to 128 tokens": (
            data.find_task_by_name("glue", "RTE"),
            rte["train"].select_rows(long),
            rte["dev"],
        ),
    }


def ours(model, tokenizer, split, seed):
    """f() that trains a model with our loop."""
    rows = encode_split(tokenizer, split, TRAIN.max_length)

    def loss(batch, chosen):
        labels = rows.labels[chosen].to(loop.get_device())
        return losses.compute_prediction_losses(model(**batch).logits, labels, LABELS)

    run = TrainingOutput(tempfile.mkdtemp(), seed)
    return lambda: loop.fit(run, model, rows, loss, TRAIN, LEAN)


def trainer(model, tokenizer, split, seed, tuned):
    """f() that trains a model with transformers.Trainer."""
    sides = (split.a,) if split.b is None else (split.a, split.b)
    padding = {} if tuned else {"padding": "max_length"}
    encoded = tokenizer(*sides, truncation=True, max_length=TRAIN.max_length, **padding)
    rows = [
        {k: v[i] for k, v in encoded.items()} | {"labels": int(split.y[i])}
        for i in range(len(split))
    ]
    lean = {
        "train_sampling_strategy": "group_by_length",
        "bf16": LEAN.dtype == "bfloat16",
    }
    silent = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no"}
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=TRAIN.batch,
        num_train_epochs=TRAIN.epochs,
        learning_rate=TRAIN.lr,
        max_grad_norm=TRAIN.clip,
        seed=seed,
        use_cpu=loop.get_device().type == "cpu",
        disable_tqdm=True,
        **silent | (lean if tuned else {}),
    )
    pad = transformers.DataCollatorWithPadding(tokenizer)
    return transformers.Trainer(
        model, arguments, train_dataset=rows, data_collator=pad
    ).train


def with_our_memory(*job):
    """f() that trains a model with the tuned Trainer and our setting of the memory
    allocator."""
    lean.configure_malloc_to_keep_memory()
    return trainer(*job, tuned=True)


CONTENDERS = {
    "ours": ours,
    TUNED: lambda *job: trainer(*job, tuned=True),
    f"{TUNED}, our memory setting": with_our_memory,
    HABITS: lambda *job: trainer(*job, tuned=False),
}


def prepared(task, split, seed, contender="ours"):
    """(model, tokenizer, f() that trains it) of a contender."""
    place, head = data.require_checkpoint_folder(MODEL), "SequenceClassification"
    model, tokenizer = backbone.load_with_task_head(
        place, head, task.output_width, TRAIN.dropout, seed
    )
    return model, tokenizer, CONTENDERS[contender](model, tokenizer, split, seed)


def trained(name, repeat, contender, rows):
    """The line of one training: speed, time, share of the peak, score.

    The share is of this process's best square matrix product. The slow habits get an
    eighth of the rows."""
    loop.set_dtype_threads_and_device(asdict(LEAN))
    (task, split, dev), numerics = tasks(rows)[name], LEAN
    if contender == HABITS:
        split, numerics = split.select_rows(np.arange(len(split) // 8)), FULL
    ceiling = peak(getattr(torch, numerics.dtype))
    model, tokenizer, fit = prepared(task, split, repeat, contender)
    lengths = encode_split(tokenizer, split, TRAIN.max_length).compute_row_lengths()
    wall, cpu = timed(fit)
    work = 3 * sum(flops(SHAPES[MODEL], token_count=int(t)) for t in lengths)
    logits = loop.predict_logits(
        model, encode_split(tokenizer, dev, TRAIN.max_length), LEAN
    )
    return {
        **{"task": name, "contender": contender, "repeat": repeat, "rows": len(split)},
        **{"mean_tokens": round(float(lengths.mean()), 1), "dtype": numerics.dtype},
        **{"threads": LEAN.threads, "examples_per_second": len(split) / wall},
        **{"wall_seconds": wall, "cpu_seconds": cpu, "peak_gflops": ceiling / 1e9},
        "share_of_peak": work / wall / ceiling,
        "peak_megabytes": peak_memory() / 1e6,
        "dev_score": metrics.compute_metric(task.metrics[0], logits, dev.y),
    }


def training(repeats=5, rows=1024):
    """One line for each task, repeat and contender (`trained`), each made by a new
    process."""
    new = {
        "max_workers": 1,
        "mp_context": get_context("spawn"),
        "max_tasks_per_child": 1,
    }
    with ProcessPoolExecutor(**new) as process:
        for name, repeat in product(tasks(rows), range(repeats)):
            speeds = {}
            for contender in CONTENDERS:
                line = process.submit(trained, name, repeat, contender, rows).result()
                speeds[contender] = line["examples_per_second"]
                yield line | {"ours_over_it": speeds["ours"] / speeds[contender]}


def profile(rows=256, most=10):
    """One line for each task and operation: its share of our loop's own CPU time, the
    largest."""
    for name, (task, split, _) in tasks(rows).items():
        _, _, fit = prepared(task, split, 0)
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as recorded:
            fit()
        events = sorted(
            recorded.key_averages(), key=lambda event: -event.self_cpu_time_total
        )
        total = sum(event.self_cpu_time_total for event in events)
        for event in events[:most]:
            share = round(event.self_cpu_time_total / total, 3)
            yield {"task": name, "operation": event.key, "share": share}


# ---- DISTILLATION AND AUGMENTATION


def distilling(repeats=REPEATS, rows=512):
    """One line for each student and repeat: examples per second of the distil step.

    The teacher's states come from disk, or the teacher runs beside its student.
    """
    common, start, teacher = starting(rows)
    ranked = {name: common[name] for name in ("data", "numerics")}
    ranked["importance"] = Importance("held_out", batch=8, max_length=128)
    ranks = Spec("importance", ranked, {"teacher": teacher}, seed=0)
    common |= {"distil": Distil(mask=True)}
    cached = Spec("states", common, {"teacher": teacher}, seed=0)
    with scratch(start, teacher, ranks, cached) as store:
        places = {"from disk": {"states": cached}, "recomputed": {}}
        for repeat, heads, name in product(range(repeats), (12, 3), places):
            args = common | {"surgery": [{"op": "cut", "heads": heads}]}
            inputs = {"teacher": teacher, "importance": ranks} | places[name]
            speed = execute(
                Spec("distil", args, inputs).with_seed(repeat), store
            ).metrics
            line = {"student": f"{heads}/12", "teacher": name, "repeat": repeat}
            yield line | {"examples_per_second": speed["examples_per_second"]}


def augmenting(repeats=REPEATS, rows=100, count=15):
    """One line for each model and repeat: CPU seconds to find candidates for every
    eligible word.

    Sentences are in one batch, or taken one at a time.
    """
    both = (data.read_splits("glue", task)["train"] for task in ("CoLA", "SST-2"))
    texts = [text for split in both for text in split.a[: rows // 2]]
    with tempfile.TemporaryDirectory() as masked:
        torch.manual_seed(0)
        size = {"hidden_size": 192, "num_hidden_layers": 2, "intermediate_size": 768}
        made = transformers.BertForMaskedLM(transformers.BertConfig(**size))
        made.save_pretrained(masked)
        transformers.AutoTokenizer.from_pretrained(
            data.require_checkpoint_folder(MODEL)
        ).save_pretrained(masked)
        places = {f"neighbours, {MODEL}": data.require_checkpoint_folder(MODEL)}
        places |= {"masked LM, 2 layers of 192": Path(masked)}
        sources = {name: augment.WordReplacer(place) for name, place in places.items()}
        for name, repeat in product(sources, range(repeats)):
            line = {"model": name, "repeat": repeat, "sentences": len(texts)}
            for way, batches in (
                ("batched", [texts]),
                ("single", [[text] for text in texts]),
            ):
                job = (sources[name], count, FULL, {})
                cpu = [
                    timed(augment.find_replacement_candidates, batch, *job)[1]
                    for batch in batches
                ]
                line[f"{way}_seconds"] = sum(cpu)
            yield line


# ---- A CANDIDATE OF EFFICIENTBERT'S SEARCH


def searching(repeats=REPEATS, rows=1024, documents=2000):
    """One line for each repeat: a candidate with a supernet's weights, and one from
    scratch.

    The candidate has the base shape at mini size, and trains on CoLA. A line has the
    share of its steps after which the first has the smoothed loss that the second ends
    on, and how many candidates a minute that makes. The supernet reads so many
    documents of Wikipedia and books once; these must be at hand."""
    common, start, teacher = starting(rows)
    text = {
        "corpus": texts.make_corpus_data_descriptor("wikipedia+books", documents),
        "numerics": LEAN,
    }
    text |= {
        "net": efficientbert.scale_network_to_profile("Supernet", "mini").to_json()
    }
    text |= {"train": replace(efficientbert.PRETRAIN["mini"], epochs=1)}
    text |= {"warmup": efficientbert.WARM["mini"]}
    supernet = Spec("predistil", text, {"teacher": start}, seed=0)
    brief = efficientbert_search.BRIEFLY["mini"]
    args = common | {"train": brief, "warmup": efficientbert.TAUGHT["mini"]}
    args |= {
        "net": efficientbert.scale_network_to_profile("Base Model", "mini").to_json()
    }
    with scratch(start, teacher, supernet) as store:
        for repeat in range(repeats):
            runs = {
                name: execute(
                    Spec("warmup", args, {"teacher": teacher} | more).with_seed(repeat),
                    store,
                )
                for name, more in (("inherits", {"start": supernet}), ("scratch", {}))
            }
            curves = (run.read_arrays("curve") for run in runs.values())
            share = measures.compute_share_of_steps_to_match_loss(*curves)
            steps = runs["scratch"].metrics["steps"]
            line = {
                "repeat": repeat,
                "rows": rows,
                "documents": documents,
                "steps": steps,
            }
            line |= {"share_of_steps": share}
            line |= {"supernet_seconds": store.find_run(supernet).status["seconds"]}
            for name, part in (("inherits", share), ("scratch", 1.0)):
                measured = runs[name].metrics
                seconds = (
                    measured["steps"] * brief.batch / measured["examples_per_second"]
                )
                line[f"{name}_per_minute"] = 60 / (part * seconds)
            yield line | {
                f"{name}_score": run.metrics["matthews"] for name, run in runs.items()
            }


# ---- PRUNING


class Watched(TrainingOutput):
    """A run of a Spec that notes (wall, CPU) seconds after each step, and ends after
    `most`."""

    class Over(Exception):
        pass

    def __init__(self, folder, spec, store, most):
        super().__init__(folder, spec.seed)
        self.inputs = {
            name: store.find_run(parent)
            for name, parent in spec.input_specs_with_seeds.items()
        }
        self.most, self.marks = most, []

    def report_progress(self, *_, **__):
        self.marks.append(read_wall_and_cpu_seconds())
        if len(self.marks) > self.most:
            raise self.Over


def step_seconds(spec, store, most):
    """[most, 2] seconds of wall and CPU of a Spec's training steps after its first; no
    more run."""
    with tempfile.TemporaryDirectory() as folder, suppress(Watched.Over):
        writer = Watched(folder, spec, store, most)
        find_step_function(spec.step)(writer, **spec.args)
    return np.diff(writer.marks, axis=0)


def pruners(common, start):
    """{method: Spec} whose steps do the same work from the first on; plain fine-tuning
    is first.

    Masks are at their final threshold, the embeddings are as they are, and searches
    have as many steps before their target as at mini."""
    labels, starts = common | {"targets": LABELS}, {"start": start}
    made = {"plain fine-tuning": Spec("finetune", labels, starts)}
    for method in bermo.METHODS:
        prune = bermo.make_pruning_settings("mini", "SST-2", "BERT", method)[1]
        final = {"initial_threshold": prune.final_threshold, "warmup_steps": 0}
        prune = replace(prune, **final, initial_warmup=0, final_warmup=0)
        args = labels | {"prune": prune, "frozen": "embeddings"}
        made[f"masks: {method}"] = Spec("fineprune", args, starts)
    made["layer mix"] = Spec("fineprune", labels | {"mix": bermo.MIX["mini"]}, starts)
    short = replace(TRAIN, max_length=16)  # any teacher will do
    teacher = Spec("finetune", labels | {"train": short}, starts, seed=0)
    for objective, more in (
        ("cross_entropy", {}),
        ("prediction", {"teacher": teacher}),
    ):
        args = common | {
            "gates": nas.make_gate_settings(),
            "objective": Objective(objective),
        }
        made[f"search: {objective}"] = Spec(
            "nas_search", args, {"start": teacher} | more
        )
    return made


def pruning(repeats=REPEATS, sizes=(("RTE", 128, 2), ("CoLA", 0, 4))):
    """One line for each task, method and repeat: median seconds of a training step, and
    ratios.

    The ratios are to the step of plain fine-tuning on the same batch. The methods are
    BERMo's masks and mix, and the differentiable search with labels and with a teacher,
    whose logits are made before its first step. sizes: (task, tokens to which batches
    are padded, steps that count)."""
    for task, tokens, most in sizes:
        common, start, _ = starting(64)
        train = replace(TRAIN, epochs=376, pad_to=tokens)  # 752 steps
        made = pruners(
            common
            | {"data": data.make_data_descriptor("glue", task, 64), "train": train},
            start,
        )
        with scratch(start, made["search: prediction"].inputs["teacher"]) as store:
            for repeat in range(repeats):
                seconds_of = {
                    n: step_seconds(s.with_seed(repeat), store, most)
                    for n, s in made.items()
                }
                for name, seconds in seconds_of.items():
                    wall, cpu = np.median(seconds, 0)
                    ratio = np.median(seconds / seconds_of["plain fine-tuning"], 0)
                    line = {
                        "task": task,
                        "padded_to": tokens,
                        "method": name,
                        "repeat": repeat,
                    }
                    line |= {
                        "steps": most,
                        "dtype": LEAN.dtype,
                        "threads": LEAN.threads,
                    }
                    line |= {"cpu_seconds": cpu, "wall_seconds": wall}
                    yield line | {"cpu_ratio": ratio[1], "wall_ratio": ratio[0]}


def cutting(turns=50, ratio=0.3, batch=8):
    """One line for each turn: CPU seconds of a forward pass, whole and cut, and their
    FLOPs' ratio.

    The model has all-MiniLM-L6-v2's shape. A random architecture of that share of the
    FLOPs is cut out. A row has 128 tokens; float32, one thread."""
    shape, uncut, name = (
        SHAPES[MODEL],
        nas.format_pruned_model_label(1.0, "Random"),
        nas.format_pruned_model_label(ratio, "Random"),
    )
    models = {
        uncut: {"shape": MODEL},
        name: nas.describe_random_architecture_for_latency(ratio, MODEL),
    }
    how = {"models": models, "reference": uncut} | grids.make_latency_arguments(
        turns, 128, batch
    )
    spec = Spec("latency", how, seed=0)
    with scratch(spec) as store:
        times = dict(
            zip(
                spec.args["models"],
                store.find_run(spec).read_arrays("times")["cpu"],
                strict=True,
            )
        )
    (surgery,) = spec.args["models"][name]["surgery"]
    widths = compute_layer_widths_of_pruned_network(
        {"heads": surgery["heads"], "neurons": surgery["neurons"]}
    )
    fewer = gated.count_masked_encoder_flops(shape) / gated.flops(
        shape.hidden, shape.hidden // shape.heads, widths
    )
    both = zip(times[uncut], times[name], strict=True)
    for turn, (uncut, cut) in enumerate(both):
        line = {"ratio": ratio, "batch": batch, "turn": turn, "whole_seconds": uncut}
        yield line | {"cut_seconds": cut, "flops_ratio": fewer}


# ---- ROWS OF ONE'S OWN

# Models of the page 92_your_task that can also be made with Trainer and Torch-Pruning.
SIX = ("Whole", "Whole, distilled", "Width", "Torch-Pruning Taylor")
SIX += ("Layer dropping", "Int8")
HALF = 6  # Width of the students, in twelfths


def write_own_rows(folder, rows):
    """Write so many rows of SST-2 as a reader's files: four fifths to train, a fifth to
    judge."""
    split = data.read_splits("glue", "SST-2")["train"]
    first = 4 * rows // 5
    for name, part in (("train", range(first)), ("dev", range(first, rows))):
        table = {"text": [split.a[i].strip() for i in part]}
        table["label"] = ["good" if split.y[i] else "bad" for i in part]
        folder.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(table).to_csv(folder / f"{name}.tsv", sep="\t", index=False)


def make_encoder_of_base_shape(folder):
    """Write an untrained BERT-base with the tokenizer of MODEL. Times do not depend on
    the weights; its scores mean nothing."""
    start = data.require_checkpoint_folder(MODEL)
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig()).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(start).save_pretrained(folder)
    return folder


def measure_command(words, **variables):
    """Return (seconds of wall, last line of the output) of a command.

    CPU seconds are not told: workers of a fork server are no children of the command.
    Raises CalledProcessError where the command fails."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=os.environ | variables,
        cwd=paths.ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return time.perf_counter() - began, done.stdout.strip().splitlines()[-1]


def list_own_specs(profile, rows_folder, model_folder, seed):
    """Return {model of SIX: its Spec} on a reader's rows."""
    profile = grids.ProfileWithUserData(profile, str(rows_folder), str(model_folder))
    (task,) = grids.select_tasks(profile, tasks_by_profile=frontier.TASKS)
    return {
        name: frontier.TABLE[name].make_spec(profile, task, HALF).with_seed(seed)
        for name in SIX
    }


def write_settings_by_hand(file, specs, rows_folder, model_folder):
    """Write the settings of by_hand.py: the epochs, rates and rows that our runs
    have."""
    last, teacher = specs["Width"], specs["Whole"]
    names = ("epochs", "lr", "batch", "warmup", "weight_decay", "clip")
    stages = {"teacher": teacher, "finetune": last, "distil": last.inputs["start"]}
    job = {
        "rows": str(rows_folder),
        "model": str(model_folder),
        "training_rows": teacher.args["data"]["rows"],
        "max_length": teacher.args["train"]["max_length"],
        "share": HALF / 12,
        "bf16": LEAN.dtype == "bfloat16",
        "threads": paths.count_cores(),
        "seed": teacher.seed,
        "stages": {
            stage: {name: getattr(Train(**spec.args["train"]), name) for name in names}
            for stage, spec in stages.items()
        },
    }
    file.write_text(json.dumps(job))


def own_rows(repeats=REPEATS, rows=2000, profiles=("mini",)):
    """One line for each profile, repeat and contender: seconds to make and score six
    models on rows of one's own.

    "ours" is the page 92_your_task as a reader starts it. "by hand" is by_hand.py, with
    the same rows, epochs, rates and batches, and with a thread for each core. Both have
    the whole machine and start with nothing."""
    for profile, repeat in product(profiles, range(repeats)):
        with tempfile.TemporaryDirectory() as scratch_folder:
            folder = Path(scratch_folder)
            write_own_rows(folder / "rows", rows)
            model = (
                make_encoder_of_base_shape(folder / "encoder")
                if profile == "base"
                else data.require_checkpoint_folder(MODEL)
            )
            specs = list_own_specs(profile, folder / "rows", model, repeat)
            write_settings_by_hand(
                folder / "settings.json", specs, folder / "rows", model
            )
            roots = {
                f"{name}_ROOT": str(folder / name.lower())
                for name in ("RUNS", "RECORDS", "FIGURES")
            }
            words = ["-m", "lib", "run", "92_your_task", "--profile", profile]
            words += ["--data", folder / "rows", "--model", model]
            words += [
                "--methods",
                json.dumps(SIX),
                "--budgets",
                HALF,
                "--seeds",
                repeat,
            ]
            ours, _ = measure_command(words, **roots)
            store = Store(folder / "runs", folder / "records")
            scores = {
                name: 100 * store.find_run(spec).metrics["accuracy"]
                for name, spec in specs.items()
            }
            script = paths.ROOT / "notebooks" / "by_hand.py"
            by_hand, said = measure_command([script, folder / "settings.json"])
        for name, seconds, made in (
            ("ours", ours, scores),
            ("by hand", by_hand, json.loads(said)),
        ):
            line = {"profile": profile, "contender": name, "repeat": repeat}
            line |= {"rows": rows, "models": len(made), "dtype": LEAN.dtype}
            line |= {"cores": paths.count_cores(), "wall_seconds": seconds}
            line |= {"wall_ratio": seconds / ours}
            yield line | {"mean_score": np.mean([*made.values()])}


def machine():
    """Where and when a bench ran, for its table. The features tell what a processor can
    do; its name may not."""
    card = torch.cuda.is_available() and torch.cuda.get_device_name()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": card or processor.read_processor_name(),
        "features": " ".join(processor.list_processor_features()),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


PARTS = (training, profile, distilling, augmenting, pruning, cutting, searching)
PARTS += (own_rows,)
# A quick bench calls its parts with these arguments. It leaves out `own_rows`, which
# takes minutes for any number of rows, as each training has 240 steps at least.
QUICK = {
    "training": {"repeats": 1, "rows": 128},
    "profile": {"rows": 64},
    "distilling": {"repeats": 1, "rows": 64},
    "augmenting": {"repeats": 1, "rows": 10},
    "pruning": {"repeats": 1, "sizes": (("CoLA", 0, 2),)},
    "cutting": {"turns": 2},
    "searching": {"repeats": 1, "rows": 64, "documents": 50},
}


def as_text(line):
    """A line of a table as text, its numbers with four digits."""
    return "  ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in line.items()
    )


def record(lines, journal):
    """Yield the lines of a table as they come, printed and written to a file."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    for number, line in enumerate(lines):
        print(f"  {as_text(line)}", flush=True)
        table = pd.DataFrame([line | machine()])
        table.to_csv(journal, mode="a", header=not number, index=False)
        yield line


def replace_lines(lines, path):
    """Put lines into a table, in place of those of the same kind of processor.

    A line that names no features is of the kind of its device if it computed in a dtype
    of the new lines."""
    table = pd.DataFrame(lines).assign(**machine()).round(4)
    if path.exists():
        old = pd.read_csv(path, keep_default_na=False)
        kinds = old.get("features", pd.Series("", old.index))
        is_unnamed = kinds == ""
        if "dtype" in old:
            is_unnamed &= old["dtype"].isin(table["dtype"].unique())
        is_same = old["device"] == table["device"][0]
        is_same &= is_unnamed | (kinds == table["features"][0])
        table = pd.concat([old[~is_same], table])
    disk.write_text_file(path, table.to_csv(index=False))


def main(words=None):
    parser = argparse.ArgumentParser(
        "bench.py", description="What costs how much here."
    )
    names = {part.__name__: part for part in PARTS}
    parser.add_argument("part", nargs="*", choices=[*names, []], help="all without one")
    parser.add_argument("--quick", action="store_true", help="a sample of seconds")
    args = parser.parse_args(words)
    started = time.strftime("%Y-%m-%dT%H%M%S")
    for name in args.part or (QUICK if args.quick else names):
        journal = paths.FIGURES / "scratch" / "bench" / f"{name}-{started}.csv"
        print(f"{name}: {paths.format_project_path(journal)}", flush=True)
        try:
            lines = [
                *record(
                    names[name](**QUICK.get(name, {}) if args.quick else {}), journal
                )
            ]
        except FileNotFoundError as error:
            print(f"  left out: {error}", flush=True)
            continue
        if not args.quick:
            replace_lines(lines, paths.ROOT / "figures" / "bench" / f"{name}.csv")


if __name__ == "__main__":
    main()
