"""Bench: our training loop against transformers.Trainer, on the same rows, epochs, seeds, machine and process.

Opponents: Trainer with the habits of run_glue (padding to 128, float32), and Trainer tuned (dynamic padding, batches
by length, bfloat16 where ours uses it). Interleaved, several repeats, CPU time beside wall time; the share of the
machine's best measured square matrix product says how far from the ceiling a loop is.
"""

import importlib
import platform
import resource
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import transformers

from lib import data
from lib.data import models, texts
from lib.execute import execute, processor
from lib.measure import gated, metrics
from lib.measure.cost import SHAPES, flops
from lib.model import backbone
from lib.options import Distil, Importance, Numerics, Objective, Targets, Train
from lib.papers import bermo, efficientbert, efficientbert_search, nas
from lib.spec import Spec
from lib.steps.latency import settle
from lib.store import Scratch, Store
from lib.train import augment, loop, losses
from lib.train.batches import encode

MODEL = "all-MiniLM-L6-v2"
TRAIN = Train(epochs=1, batch=32, lr=1e-4, max_length=128, clip=1.0, dropout=0.1, byte_dropout=True)


def peak(dtype, seconds=1.5):
    """Best rate of a square matrix product, FLOP/s, over sizes 512 to 4096 in this process and thread count."""
    best = 0.0
    for size in (512, 1024, 2048, 4096):
        a, b = (torch.randn(size, size, device=loop.device()).to(dtype) for _ in range(2))
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            _ = (a @ b)[0, 0].item()
            best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def tasks(rows):
    """{name: (Task, training rows, development rows)}: CoLA as it is, and RTE's rows of 96 word pieces or more, cut at
    128, as the task near that length."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(models.locate(MODEL))
    cola, rte = data.splits("glue", "CoLA"), data.splits("glue", "RTE")
    long = np.flatnonzero(encode(tokenizer, rte["train"], 128).lengths() >= 96)
    return {
        "CoLA": (data.task("glue", "CoLA"), cola["train"].take(np.arange(rows)), cola["dev"]),
        "RTE, 96 to 128 tokens": (
            data.task("glue", "RTE"),
            rte["train"].take(long[: rows // 2]),
            rte["dev"],
        ),
    }


def fresh(task, seed):
    return backbone.headed(
        models.locate(MODEL), "SequenceClassification", task.outputs, TRAIN.dropout, seed
    )


def ours(task, split, numerics, seed):
    """(model, tokenizer, f() that trains it)."""
    model, tokenizer = fresh(task, seed)
    rows = encode(tokenizer, split, TRAIN.max_length)
    targets = Targets("hard")

    def loss(batch, chosen):
        return losses.prediction(
            model(**batch).logits, rows.labels[chosen].to(loop.device()), targets
        )

    return (
        model,
        tokenizer,
        lambda: loop.fit(
            Scratch(Path(tempfile.mkdtemp()), seed), model, rows, loss, TRAIN, numerics
        ),
    )


def trainer(task, split, numerics, seed, tuned):
    """The same with transformers.Trainer."""
    model, tokenizer = fresh(task, seed)
    texts = (split.a,) if split.b is None else (split.a, split.b)
    padding = {} if tuned else {"padding": "max_length"}
    encoded = tokenizer(*texts, truncation=True, max_length=TRAIN.max_length, **padding)
    rows = [
        {k: v[i] for k, v in encoded.items()} | {"labels": int(split.y[i])}
        for i in range(len(split))
    ]
    how = (
        {"train_sampling_strategy": "group_by_length", "bf16": numerics.dtype == "bfloat16"}
        if tuned
        else {}
    )
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=TRAIN.batch,
        num_train_epochs=TRAIN.epochs,
        learning_rate=TRAIN.lr,
        max_grad_norm=TRAIN.clip,
        seed=seed,
        use_cpu=loop.device().type == "cpu",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
        **how,
    )
    run = transformers.Trainer(
        model,
        arguments,
        train_dataset=rows,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    return model, tokenizer, run.train


def contenders(numerics):
    return {
        "ours": lambda *a: ours(*a[:2], numerics, a[2]),
        "Trainer, tuned": lambda *a: trainer(*a[:2], numerics, a[2], True),
        "Trainer, run_glue habits": lambda *a: trainer(
            *a[:2], replace(numerics, dtype="float32"), a[2], False
        ),
    }


def training(repeats=3, rows=1024, threads=1, dtype="bfloat16"):
    """One line for each task, contender and repeat: examples per second, seconds of wall and CPU, share of the peak,
    development score. The slow habits get a quarter of the rows."""
    torch.set_num_threads(threads)
    numerics, lines = Numerics(dtype, threads), []
    ceiling = {name: peak(getattr(torch, name)) for name in ("float32", dtype)}
    for name, (task, split, dev) in tasks(rows).items():
        for repeat in range(repeats):
            for contender, make in contenders(numerics).items():
                slow = contender.endswith("habits")
                part = split.take(np.arange(len(split) // 4)) if slow else split
                with backbone.quiet():
                    model, tokenizer, fit = make(task, part, repeat)
                lengths = encode(tokenizer, part, TRAIN.max_length).lengths()
                wall, cpu = time.perf_counter(), cpu_seconds()
                fit()
                wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
                work = 3 * sum(flops(SHAPES[MODEL], tokens=int(t)) for t in lengths)
                kind = "float32" if slow else dtype
                logits = loop.predict(model, encode(tokenizer, dev, TRAIN.max_length), numerics)
                lines.append(
                    {
                        "task": name,
                        "contender": contender,
                        "repeat": repeat,
                        "rows": len(part),
                        "mean_tokens": round(float(lengths.mean()), 1),
                        "dtype": kind,
                        "threads": threads,
                        "examples_per_second": len(part) / wall,
                        "wall_seconds": wall,
                        "cpu_seconds": cpu,
                        "peak_gflops": ceiling[kind] / 1e9,
                        "share_of_peak": work / wall / ceiling[kind],
                        "dev_score": metrics.score(task.metrics[0], logits, dev.y),
                    }
                )
                print(
                    f"  {name}: {contender} {lines[-1]['examples_per_second']:.1f} examples/s",
                    flush=True,
                )
    return pd.DataFrame(lines)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def machine():
    """Where and when a bench ran, for its table."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else processor()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": device,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def profile(rows=256, threads=1, dtype="bfloat16", most=10):
    """One line for each task and operation: its share of our loop's own CPU time, the `most` largest."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    lines = []
    for name, (task, split, _) in tasks(rows).items():
        _, _, fit = ours(task, split, Numerics(dtype, threads), 0)
        with record(activities=[ProfilerActivity.CPU]) as recorded:
            fit()
        found = sorted(recorded.key_averages(), key=lambda event: -event.self_cpu_time_total)
        total = sum(event.self_cpu_time_total for event in found)
        lines += [
            {
                "task": name,
                "operation": event.key,
                "share": round(event.self_cpu_time_total / total, 3),
            }
            for event in found[:most]
        ]
    return pd.DataFrame(lines)


def distilling(repeats=3, rows=512, threads=1, dtype="bfloat16"):
    """One line for each student and repeat: examples per second of the distil step with the teacher's states from disk
    and with the teacher run beside it, both by the real steps in a store of their own."""
    with tempfile.TemporaryDirectory() as folder:
        store, numerics = (
            Store(Path(folder) / "runs", Path(folder) / "records"),
            Numerics(dtype, threads),
        )
        described = data.describe("glue", "CoLA", rows, 64)
        common = {"data": described, "train": TRAIN, "numerics": numerics}
        start = Spec("checkpoint", {"name": MODEL, "digest": models.digest(MODEL)}, seed=0)
        teacher = Spec("finetune", common | {"targets": Targets("hard")}, {"start": start}, seed=0)
        ranks = Spec(
            "importance",
            {
                "data": described,
                "numerics": numerics,
                "importance": Importance("held_out", batch=8, max_length=128),
            },
            {"teacher": teacher},
            seed=0,
        )
        cached = Spec(
            "states", common | {"distil": Distil(mask=True)}, {"teacher": teacher}, seed=0
        )
        for spec in (start, teacher, ranks, cached):
            execute(spec, store, keep=True)
        lines = []
        for repeat in range(repeats):
            for heads in (12, 3):
                for name, more in (("from disk", {"states": cached}), ("recomputed", {})):
                    args = common | {
                        "distil": Distil(mask=True),
                        "surgery": [{"op": "cut", "heads": heads}],
                    }
                    spec = Spec(
                        "distil", args, {"teacher": teacher, "importance": ranks} | more
                    ).at(repeat)
                    speed = execute(spec, store).metrics["examples_per_second"]
                    lines.append(
                        {
                            "student": f"{heads}/12",
                            "teacher": name,
                            "repeat": repeat,
                            "examples_per_second": speed,
                        }
                    )
    return pd.DataFrame(lines)


def augmenting(repeats=3, rows=100, count=15):
    """One line for each model and repeat: CPU seconds to find candidates for every eligible word of real sentences,
    batched and one sentence and word at a time, with the same models."""
    texts = [
        *data.splits("glue", "CoLA")["train"].a[: rows // 2],
        *data.splits("glue", "SST-2")["train"].a[: rows // 2],
    ]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        masked = Path(folder) / "masked"
        torch.manual_seed(0)
        config = transformers.BertConfig(
            hidden_size=192, num_hidden_layers=2, intermediate_size=768
        )
        with backbone.quiet():
            transformers.BertForMaskedLM(config).save_pretrained(masked)
        transformers.AutoTokenizer.from_pretrained(models.locate(MODEL)).save_pretrained(masked)
        for name, place in (
            ("neighbours, all-MiniLM-L6-v2", models.locate(MODEL)),
            ("masked LM, 2 layers of 192", masked),
        ):
            source = augment.source(place)
            for repeat in range(repeats):
                began = time.process_time()
                augment.candidates(texts, source, count, Numerics("float32", 1), {})
                batched = time.process_time() - began
                began = time.process_time()
                one_at_a_time(texts, source, count)
                lines.append(
                    {
                        "model": name,
                        "repeat": repeat,
                        "sentences": len(texts),
                        "batched_seconds": batched,
                        "single_seconds": time.process_time() - began,
                    }
                )
    return pd.DataFrame(lines)


def one_at_a_time(texts, source, count):
    """The opponent: each sentence tokenised anew for each word, one forward or one row of cosines at a time."""
    tokenizer, table = source.tokenizer, source.vectors.numpy()
    for text in texts:
        words, places = augment.cut(source, text)
        for i in places:
            pieces = [tokenizer.tokenize(word) for word in words]
            if source.head is not None and len(pieces[i]) == 1:
                flat = [piece for word in pieces for piece in word]
                hidden = ["[CLS]", *flat, "[SEP]", *flat, "[SEP]"]
                place = 1 + sum(map(len, pieces[:i]))
                hidden[place] = "[MASK]"
                ids = torch.tensor([tokenizer.convert_tokens_to_ids(hidden)])
                types = torch.tensor([[0] * (len(flat) + 2) + [1] * (len(flat) + 1)])
                with torch.inference_mode():
                    logits = source.model(input_ids=ids, token_type_ids=types).logits
                torch.argsort(logits[0, place], descending=True)[:count].tolist()
            elif (vector := source.vector(words[i])) is not None:
                np.argsort(-(table @ (vector.numpy() / np.linalg.norm(vector))))[:count]


def searching(repeats=3, rows=1024, documents=2000, threads=1, dtype="bfloat16"):
    """One line for each repeat: a candidate of EfficientBERT's search, the base shape at mini size on CoLA, trained with
    weights from a supernet and from scratch by the real steps in a store of their own. Steps of the first until its
    smoothed loss is what the second's is at its end, and candidates per minute of training up to that loss.

    The supernet is pre-trained for one epoch on so many documents of Wikipedia and books, which must be at hand.
    """
    with tempfile.TemporaryDirectory() as folder:
        store, numerics = (
            Store(Path(folder) / "runs", Path(folder) / "records"),
            Numerics(dtype, threads),
        )
        described, warm = data.describe("glue", "CoLA", rows, 64), efficientbert.WARM["mini"]
        start = Spec("checkpoint", {"name": MODEL, "digest": models.digest(MODEL)}, seed=0)
        teacher = Spec(
            "finetune",
            {"data": described, "train": TRAIN, "targets": Targets("hard"), "numerics": numerics},
            {"start": start},
            seed=0,
        )
        supernet = Spec(
            "predistil",
            {
                "corpus": texts.describe("wikipedia+books", documents),
                "numerics": numerics,
                "net": efficientbert.scaled("Supernet", "mini").to_json(),
                "warmup": warm,
                "train": replace(efficientbert.PRETRAIN["mini"], epochs=1),
            },
            {"teacher": start},
            seed=0,
        )
        for spec in (start, teacher, supernet):
            execute(spec, store, keep=True)
        lines = []
        for repeat in range(repeats):
            runs = {}
            for name, inherits in (("inherits", {"start": supernet}), ("scratch", {})):
                args = {
                    "data": described,
                    "net": efficientbert.scaled("Base Model", "mini").to_json(),
                    "numerics": numerics,
                    "train": efficientbert_search.BRIEFLY["mini"],
                    "warmup": replace(warm, prediction=1.0),
                }
                runs[name] = execute(
                    Spec("warmup", args, {"teacher": teacher} | inherits).at(repeat), store
                )
            share = efficientbert.share_of_steps(
                *(runs[name].arrays("curve") for name in ("inherits", "scratch"))
            )
            whole = {
                name: run.metrics["steps"]
                * args["train"].batch
                / run.metrics["examples_per_second"]
                for name, run in runs.items()
            }
            lines.append(
                {
                    "repeat": repeat,
                    "rows": rows,
                    "documents": documents,
                    "steps": runs["scratch"].metrics["steps"],
                    "share_of_steps": share,
                    "supernet_seconds": store.find(supernet).status["seconds"],
                    "inherits_per_minute": 60 / (share * whole["inherits"]),
                    "scratch_per_minute": 60 / whole["scratch"],
                    "inherits_score": runs["inherits"].metrics["matthews"],
                    "scratch_score": runs["scratch"].metrics["matthews"],
                }
            )
    return pd.DataFrame(lines)


class Watched(Scratch):
    """A run of a Spec that notes (CPU, wall) seconds after each training step, and ends with the step after `most`."""

    class Over(Exception):
        pass

    def __init__(self, folder, spec, store, most):
        super().__init__(folder, spec.seed)
        self.inputs = {name: store.find(parent) for name, parent in spec.parents.items()}
        self.most, self.marks = most, []

    def progress(self, *_, **__):
        settle()
        self.marks.append((cpu_seconds(), time.perf_counter()))
        if len(self.marks) > self.most:
            raise self.Over


def step_seconds(spec, store, most):
    """[most, 2] seconds of CPU and wall of a Spec's training steps after its first; the rest of the run is left out."""
    step = getattr(importlib.import_module(f"lib.steps.{spec.step}"), spec.step)
    with tempfile.TemporaryDirectory() as folder, suppress(Watched.Over), backbone.quiet():
        draft = Watched(Path(folder), spec, store, most)
        step(draft, **spec.args)
    return np.diff(draft.marks, axis=0)


def pruners(common, start):
    """{method: Spec} whose steps do the same work from the first on: masks at their final threshold, the embeddings as they
    are, and searches with as many steps before their target as at mini. Plain fine-tuning comes first."""
    labels = common | {"targets": Targets("hard")}
    plain = Spec("finetune", labels, {"start": start})
    teacher = Spec(
        "finetune", labels | {"train": replace(TRAIN, max_length=16)}, {"start": start}, seed=0
    )  # any will do
    made = {"plain fine-tuning": plain}
    for method in bermo.METHODS:
        prune = bermo.settings("mini", "SST-2", "BERT", method)[1]
        prune = replace(
            prune,
            initial_threshold=prune.final_threshold,
            warmup_steps=0,
            initial_warmup=0,
            final_warmup=0,
        )
        made[f"masks: {method}"] = Spec(
            "fineprune", labels | {"prune": prune, "frozen": "embeddings"}, {"start": start}
        )
    made["layer mix"] = Spec("fineprune", labels | {"mix": bermo.MIX["mini"]}, {"start": start})
    for objective, more in (("cross_entropy", {}), ("prediction", {"teacher": teacher})):
        made[f"search: {objective}"] = Spec(
            "nas_search",
            common | {"gates": nas.gates(), "objective": Objective(objective)},
            {"start": teacher} | more,
        )
    return made


def pruning(repeats=3, threads=1, dtype="bfloat16", sizes=(("RTE", 128, 2), ("CoLA", 0, 4))):
    """One line for each task, method and repeat: seconds of CPU and wall of a training step, medians, and the median ratio
    to the same step, that of the same batch, of plain fine-tuning. BERMo's masks and mix, the differentiable search with
    labels and with a teacher, whose logits are made once before its first step, by the real steps of the runs.

    sizes: (task, tokens that each batch is padded to, steps that count).
    """
    lines, numerics = [], Numerics(dtype, threads)
    start = Spec("checkpoint", {"name": MODEL, "digest": models.digest(MODEL)}, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "runs", Path(folder) / "records")
        execute(start, store, keep=True)
        for task, tokens, most in sizes:
            common = {
                "data": data.describe("glue", task, 64),
                "numerics": numerics,
                "train": replace(TRAIN, epochs=376, pad_to=tokens),
            }  # 752 steps
            made = pruners(common, start)
            execute(made["search: prediction"].inputs["teacher"], store, keep=True)
            for repeat in range(repeats):
                found = {
                    name: step_seconds(spec.at(repeat), store, most) for name, spec in made.items()
                }
                for name, seconds in found.items():
                    (cpu, wall), ratio = (
                        np.median(seconds, 0),
                        np.median(seconds / found["plain fine-tuning"], 0),
                    )
                    lines.append(
                        {
                            "task": task,
                            "padded_to": tokens,
                            "method": name,
                            "repeat": repeat,
                            "steps": most,
                            "dtype": dtype,
                            "threads": threads,
                            "cpu_seconds": cpu,
                            "wall_seconds": wall,
                            "cpu_ratio": ratio[0],
                            "wall_ratio": ratio[1],
                        }
                    )
    return pd.DataFrame(lines)


def cutting(turns=50, ratio=0.3, batch=8):
    """One line for each turn: CPU seconds of a forward pass of all-MiniLM-L6-v2's shape, whole and with a random
    architecture of that share of the FLOPs cut out, 128 tokens, float32, one thread; and the ratio of their FLOPs."""
    spec, shape = nas.latency((ratio,), MODEL, runs=turns, batch=batch), SHAPES[MODEL]
    with tempfile.TemporaryDirectory() as folder:
        times = execute(spec, Store(Path(folder) / "runs", Path(folder) / "records")).arrays(
            "times"
        )["cpu"]
    told = spec.args["models"]
    whole, cut = (
        dict(zip(told, times, strict=True))[nas.label(share, "Random")] for share in (1.0, ratio)
    )
    (kept,) = told[nas.label(ratio, "Random")]["surgery"]
    widths = gated.counts({"heads": kept["heads"], "neurons": kept["neurons"]})
    fewer = gated.masked(shape) / gated.flops(shape.hidden, shape.hidden // shape.heads, widths)
    return pd.DataFrame(
        {
            "ratio": ratio,
            "batch": batch,
            "turn": range(turns),
            "whole_seconds": whole,
            "cut_seconds": cut,
            "flops_ratio": fewer,
        }
    )


def write(folder, repeats=3):
    """Run the bench and write a csv for each part into the folder. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in (distilling, augmenting, pruning):
        part(repeats).assign(**machine()).round(4).to_csv(
            folder / f"{part.__name__}.csv", index=False
        )
    training(repeats).assign(**machine()).round(4).to_csv(folder / "training.csv", index=False)
    profile().to_csv(folder / "profile.csv", index=False)
    cutting().assign(**machine()).round(4).to_csv(folder / "cutting.csv", index=False)
    searching(repeats).assign(**machine()).round(4).to_csv(folder / "searching.csv", index=False)
    return folder
