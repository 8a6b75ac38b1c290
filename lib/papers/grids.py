"""This module has what the grids of all papers share.

It defines the four profiles with their rows, settings and encoders, and the tasks,
seeds and fine-tuned teachers. A reader's own data and model can replace those of a
profile. The module is free of torch.

A `ReaderProfile` is the name of a profile, so it finds the settings of that profile in
every table. It also says where rows and encoder come from instead:
`describe_training_rows` describes the rows, `backbone_spec` the encoder. So no paper
needs to know of it."""

import os
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from lib import data
from lib.core import disk, options
from lib.core.names import Refused, check_name
from lib.core.options import Augment, Importance, Numerics, Span, Targets, Train
from lib.core.papers import collect_modules, find_papers
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.types import Json
from lib.data import grammar, models, own
from lib.data.feed import TokenizerCoverage, measure_tokenizer_coverage
from lib.data.read import GLUE, SENTEVAL, SQUAD
from lib.papers.encoder import find_first_position, read_configuration, read_shape
from lib.papers.encoder import resolve_encoder_folder as resolve_encoder_folder
from lib.stats.compare import Column
from lib.stats.cost import SHAPES, Shape, count_flops_of_layers


def read_settings(paper_or_table: str) -> SimpleNamespace:
    """Return the settings of a paper, or the tables of a TOML file here, as attributes.

    A table below the name of a class of options (lib.core.options, or the paper's own),
    such as [Train.TEACHER], holds such options for each profile: the fields of `all`,
    and its own. A Train also has the fields of [TRAINING] in grids.toml, which all
    trainings of a profile share. COLUMNS are made Columns.

        >>> settings("students").DISTIL["paper"].epochs
        3"""
    is_paper = paper_or_table in find_papers()
    place = (
        FOLDER / paper_or_table / "settings.toml"
        if is_paper
        else FOLDER / f"{paper_or_table}.toml"
    )
    tables, kinds = dict(disk.read_toml(place)), dict(vars(options))
    if is_paper and paper_or_table in (options_of_papers := collect_modules("options")):
        kinds |= vars(options_of_papers[paper_or_table])
    for kind in tables.keys() & kinds.keys():
        common = (
            disk.read_toml(FOLDER / "grids.toml")["TRAINING"] if kind == "Train" else {}
        )
        for table_name, by_profile in tables.pop(kind).items():
            tables[table_name] = {
                profile: kinds[kind](
                    **common.get(profile, {}) | by_profile.get("all", {}) | fields
                )
                for profile, fields in by_profile.items()
                if profile != "all"
            }
    columns = tuple(Column(*fields) for fields in tables.get("COLUMNS", ()))
    return SimpleNamespace(**tables | {"COLUMNS": columns})


FOLDER = Path(__file__).parent
S = read_settings("grids")
# Tables of grids.toml, which describes each.
DRAWN: tuple[str, ...] = S.DRAWN
SECOND: str = S.SECOND
STEPS: int = S.STEPS
HELD_OUT: dict[str, int] = S.HELD_OUT
ROWS: dict[str, dict[str, int]] = S.ROWS
TEACHER: dict[str, Train] = S.TEACHER
SPAN: dict[str, Span] = S.SPAN
TRIES: dict[str, int] = S.TRIES
UNSEEN: dict[str, dict[str, dict[str, int]]] = S.UNSEEN
LEVEL: dict[str, dict[str, float]] = S.LEVEL
CHECKPOINTS: dict[str, dict[str, str]] = S.CHECKPOINTS
CALLED: dict[str, str] = S.CALLED
MOST: dict[str, int] = S.MOST
TOY: Json = S.TOY
LEARNING: Json = S.LEARNING


# Device of all runs: "" is the CPU, "cuda" a GPU.
DEVICE: Any = os.environ.get("DEVICE", "")

# {name: profile}, with its name, the source of its tasks (lib.data), a line about it
# for pages, and Numerics.
PROFILES = {
    name: SimpleNamespace(
        name=name, numerics=Numerics(fields["dtype"], 1, DEVICE), **fields
    )
    for name, fields in S.PROFILES.items()
}

Value = TypeVar("Value")
# Json is for the options of a finished Spec.
Options = TypeVar("Options", Train, Importance, Json)

# Speed of a training: its share of the FLOP rate of a matrix product, and the extra
# seconds of a step. Measured by 240 steps of 32 rows of a BERT of 2 layers of 384:
# 4,628 GFLOP in 81 seconds of a core that does 91 GFLOP a second by a matrix product.
EFFICIENCY, STEP_SECONDS = 0.65, 0.02
# Seconds of a run beside its training: it opens a model and scores it.
START_SECONDS = 5.0
# Steps that take the settings of a training and only read its rows.
READING = ("states", "quantise", "predict")
# Least number of tokens at which a reader may cut rows.
SHORTEST = 8
# Parameters of notebooks and commands that name a profile.
PARAMETERS = (
    "profile",
    "data",
    "model",
)


def find_profile(profile: str) -> SimpleNamespace:
    """Return the profile of a name. Raises Refused with the nearest name."""
    check_name("profile", profile, PROFILES)
    return PROFILES[profile]


def checkpoint_spec(checkpoint_name: str) -> Spec:
    """Return the Spec of a published checkpoint.

    Its seed is fixed, because all seeds start from it. Raises Refused for an unknown
    name."""
    check_name("checkpoint", checkpoint_name, models.HUB)
    return Spec(
        "checkpoint",
        {"name": checkpoint_name, "digest": data.digest_checkpoint(checkpoint_name)},
        seed=0,
    )


def list_encoder_families(profile: str) -> tuple[str, ...]:
    """Return the families of encoders that a profile has, such as ("bert", "roberta").

    A reader's model is of one family. One that no paper has counts as a BERT."""
    if folder := read_reader_part(profile, "model"):
        kind = read_shape(folder).family
        return (kind if kind in CHECKPOINTS["paper"] else "bert",)
    return tuple(CHECKPOINTS.get(find_profile(profile).name, ("bert",)))


def name_encoder(profile: str) -> str:
    """Return the name of a profile's encoder in texts, such as MiniLM."""
    return CALLED.get(profile, f"the encoder of {profile}")


def backbone_spec(profile: str, family: str = "bert") -> Spec:
    """Return the Spec of the encoder that a profile's models of a family start from.

    A reader's model replaces that of every family. Raises Refused for a family that the
    profile does not have."""
    if folder := read_reader_part(profile, "model"):
        return Spec(
            "checkpoint",
            {"name": folder, "digest": data.digest_weights(folder)},
            seed=0,
        )
    check_name(
        f"kind of encoder in profile {profile!r}",
        family,
        list_encoder_families(profile),
    )
    return (
        toy_backbone_spec()
        if profile == "toy"
        else checkpoint_spec(CHECKPOINTS[profile][family])
    )


def start_checkpoint_spec(profile: str, checkpoint_name: str) -> Spec:
    """Return the Spec of a published checkpoint, or of the reader's model instead."""
    return (
        backbone_spec(profile)
        if read_reader_part(profile, "model")
        else checkpoint_spec(checkpoint_name)
    )


def toy_backbone_spec() -> Spec:
    """Return the Spec of toy's encoder, pre-trained on generated text."""
    args = {"train": Train(**LEARNING), "numerics": PROFILES["toy"].numerics}
    return Spec("pretrain", TOY | args, seed=0)


def untrained_spec() -> Spec:
    """Return the Spec of toy's encoder with random weights."""
    return Spec("pretrain", TOY | {"numerics": PROFILES["toy"].numerics}, seed=0)


def find_encoder_shape(profile: str, family: str = "bert") -> Shape:
    """Return the Shape of a profile's encoder, for cost formulas.

    Raises Refused for a family that the profile does not have."""
    if folder := read_reader_part(profile, "model"):
        return read_shape(folder)
    check_name(
        f"kind of encoder in profile {profile!r}",
        family,
        list_encoder_families(profile),
    )
    if profile != "toy":
        return SHAPES[CHECKPOINTS[profile][family].removesuffix("-uncased")]
    layers, hidden, heads, ffn = (
        TOY["model"][n] for n in ("layers", "hidden", "heads", "ffn")
    )
    return Shape(
        "bert",
        layers,
        hidden,
        heads,
        ffn,
        len(grammar.list_vocabulary()),
        128,
        2,
        hidden,
    )


class ReaderProfile(str):
    """A ReaderProfile is the name of a profile, with the reader's data, model, or both.

    data: a file of the reader (lib.data.own), or "". model: the full path of a folder,
    or "". length: the number of tokens at which rows of the data are cut; 0 takes the
    profile's. Raises Refused for data without a model at toy, for a length without
    data, and for a length that the encoder cannot read."""

    data: str
    model: str
    length: int

    def __new__(
        cls, profile: str, data: str = "", model: str = "", length: int = 0
    ) -> Self:
        self = super().__new__(cls, profile)
        task = own.task(data) if data else None
        self.data, self.model = (
            task.name if task else "",
            model and resolve_encoder_folder(model, task),
        )
        self.length = length
        if data and profile == "toy" and not model:
            fix = "name a model, or take the profile 'mini'"
            raise Refused(f"the encoder of 'toy' knows generated words alone: {fix}")
        if length and not data:
            raise Refused("a length is for rows of your own: name them in data")
        if length and not SHORTEST <= length <= (most := self.token_limit):
            fault = f"length is {length}, and the encoder reads {most} tokens"
            raise Refused(f"{fault}: take {SHORTEST} to {most}")
        if self.measured_feed and self.measured_feed.unknown > 0.5:
            fix = "take an encoder of the language and the case of your texts, or set "
            fix += "do_lower_case in tokenizer_config.json as its vocabulary has it"
            raise Refused(
                f"{self.measured_feed.summary}: that is no reading; fix: {fix}"
            )
        return self

    def __str__(self) -> str:
        names = " and ".join(name for name in PARAMETERS[1:] if getattr(self, name))
        return f"{self[:]}, own {names}"

    @property
    def task_title(self) -> str:
        """Return the title of the reader's task, or "" for the profile's tasks."""
        return own.format_task_title(self.data) if self.data else ""

    @property
    def encoder_folder(self) -> Path | None:
        """Return the folder of the encoder, None where it is not on this machine."""
        names = CHECKPOINTS.get(self[:], {})
        if self.model or not names:
            return Path(self.model) if self.model else None
        return data.find_checkpoint(names["bert"], "config.json")

    @property
    def token_limit(self) -> int:
        """Return the number of tokens that the encoder can read."""
        base = find_encoder_shape(self)
        config = read_configuration(self.encoder_folder) if self.encoder_folder else {}
        return base.positions - find_first_position(base.family, config)

    @property
    def measured_feed(self) -> TokenizerCoverage | None:
        """Return how the encoder's tokenizer cuts and reads the rows of a user.

        It is None without rows of a reader, or without a tokenizer on this machine."""
        if not (self.data and self.encoder_folder):
            return None
        reading = own.read_user_line(self.data)
        cut = 0 if reading.task.span else find_length_limit(self)
        return measure_tokenizer_coverage(
            reading.splits["train"], self.encoder_folder, cut
        )

    @property
    def row_cautions(self) -> list[str]:
        """Return sentences that warn of the reader's rows, for beside any advice."""
        lines = [*own.read_user_line(self.data).cautions] if self.data else []
        return lines + (
            [self.measured_feed.summary]
            if self.measured_feed and self.measured_feed.needs_warning
            else []
        )

    def describe_inputs(self) -> list[str]:
        """Return sentences for a page on the reader's data and model.

        The first one also stands in captions."""
        parts = [f"data: {self.task_title}"] * bool(self.data)
        parts += [f"model: {Path(self.model).name}"] * bool(self.model)
        lines = [f"Your own {', '.join(parts)}."]
        if self.data:
            splits = data.read_splits("own", self.data)
            rows = f"{len(splits['train']):,} training and {len(splits['dev']):,} development rows"
            learned, held = limit_row_counts(self.data, self, None, HELD_OUT[self])
            capped = f"; {learned:,} of the training rows are trained on"
            capped += f", {held:,} others rank heads and neurons" * bool(held)
            capped *= learned < len(splits["train"])
            lines += [f"{line}." for line in own.read_user_line(self.data).lines]
            lines.append(f"The data have {rows}{capped}.")
            lines += [f"{self.measured_feed.summary}."] if self.measured_feed else []
        settled = f"All other settings are those of profile {self[:]}"
        return [*lines, f"{settled}; the paper's verdicts are off."]


def make_reader_profile(
    profile: str, data: str = "", model: str = "", length: int = 0
) -> str:
    """Return the profile's name, as a `ReaderProfile` if data, model or length are
    given."""
    is_own = data or model or length
    return ReaderProfile(profile, data, model, length) if is_own else profile


def find_length_limit(profile: str) -> int:
    """Return the number of tokens at which the rows of a profile are cut."""
    return getattr(profile, "length", 0) or TEACHER[profile].max_length


def find_profile_of_values(parameter_values: Mapping[str, Any]) -> str:
    """Return the profile's name from the parameters of a notebook.

    parameter_values: {parameter: value}. In a notebook without `data`, `model` may mean
    something else, so only the profile counts."""
    parameters = (
        (*PARAMETERS, "length") if "data" in parameter_values else PARAMETERS[:1]
    )
    return make_reader_profile(
        **{n: parameter_values[n] for n in parameters if n in parameter_values}
    )


def list_parameter_values(profile: str) -> dict[str, Any]:
    """Return {parameter: value} of a notebook that stand for a profile's name."""
    if not isinstance(profile, ReaderProfile):
        return {"profile": profile[:]}
    reader_parts = {name: read_reader_part(profile, name) for name in PARAMETERS[1:]}
    cut = {"length": profile.length} if profile.length else {}
    return {"profile": profile[:]} | reader_parts | cut


def list_command_options(profile: str) -> list[str]:
    """Return the options of a command that stand for a profile's name."""
    return [
        f"--{name} {shlex.quote(str(value))}"
        for name, value in list_parameter_values(profile).items()
        if value
    ]


def read_reader_part(profile: str, part_name: str) -> str:
    """Return the reader's `data`, `model` or `task` of a profile's name, or ""."""
    return getattr(profile, part_name, "")


def describe_reader_inputs(profile: str) -> list[str]:
    """Return sentences on the reader's data and model; [] without them."""
    return profile.describe_inputs() if isinstance(profile, ReaderProfile) else []


def digest_reader_inputs(profile: str) -> list[str]:
    """Return the digests of the reader's data, model and test rows.

    The first two are "" where they are not given."""
    name, model = (read_reader_part(profile, what) for what in PARAMETERS[1:])
    digests = [
        name and data.digest_local_rows("own", name)[0],
        model and data.digest_weights(model),
    ]
    test = data.read_splits("own", name).get("test") if name else None
    return digests + ([data.digest_splits({"rows": test})] if test else [])


def list_reader_cautions(profile: str) -> list[str]:
    """Return sentences that warn of the reader's rows; [] without such rows."""
    return profile.row_cautions if isinstance(profile, ReaderProfile) else []


def limit_row_counts(
    task_name: str, profile: str, wanted_rows: int | None, wanted_held_out: int
) -> tuple[int, int]:
    """Return (training rows, held-out rows) of a reader's task.

    `wanted_rows` and `wanted_held_out` are the wanted numbers. At most a fifth of the
    training rows is held out."""
    available, most = len(data.read_splits("own", task_name)["train"]), MOST[profile]
    wanted_held_out = min(wanted_held_out, available // 5)
    return min(
        wanted_rows or most or available, most or available, available - wanted_held_out
    ), wanted_held_out


LABELS = Targets("hard")
# Settings of every training, under their printed names.
LOOP = {"Adam beta1": 0.9, "Adam beta2": 0.999, "Learning Rate Decay": "Linear"}


def select_tasks(
    profile: str,
    chosen_tasks: Sequence[str] = (),
    *,
    by_profile: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """Return the tasks of a page: the chosen ones, or those of the profile.

    by_profile: {profile: tasks}. A page takes all tasks of the same kind: of GLUE, of
    SQuAD, of SentEval. A reader's data are a single task in place of all. Raises
    Refused, with the nearest name, for an unknown profile or task."""
    check_name("profile", profile, by_profile)
    if title := read_reader_part(profile, "task_title"):
        for name in chosen_tasks:
            check_name("task of your own data", name, (title,))
        return (title,)
    listed = {name for names in by_profile.values() for name in names}
    kinds = [kind for kind in (GLUE, SQUAD, SENTEVAL) if listed & kind.keys()]
    for name in chosen_tasks:
        check_name("task of this page", name, [name for kind in kinds for name in kind])
    return tuple(chosen_tasks) or tuple(by_profile[profile])


def select_seeds(
    profile: str,
    chosen_seeds: Sequence[int] = (),
    *,
    by_profile: Mapping[str, Sequence[int]],
) -> tuple[int, ...]:
    """Return the seeds of a page: the chosen ones, or those of the profile.

    by_profile: {profile: seeds}. Raises Refused, with the nearest name, for a profile
    without seeds."""
    check_name("profile", profile, by_profile)
    return tuple(chosen_seeds) or tuple(by_profile[profile])


def pick_values(
    label_noun: str,
    values_by_label: Mapping[str, Value],
    chosen_labels: Collection[str] = (),
) -> dict[str, Value]:
    """Return {label: value} of the chosen labels, or of all.

    label_noun: the noun of a label in messages. Raises Refused with the nearest
    label."""
    for name in chosen_labels:
        check_name(label_noun, name, values_by_label)
    return {
        name: values_by_label[name]
        for name in values_by_label
        if name in (chosen_labels or values_by_label)
    }


def find_source(profile: str, task: str) -> str:
    """Return the source of a task's rows at a profile, as lib.data names it.

    At toy they are generated sentences. Elsewhere it is GLUE or SQuAD. Probing tasks
    come from SentEval at paper, and from a treebank at mini and base."""
    task_source = find_profile(profile).source
    if task_source == "toy" or task in GLUE:
        return task_source
    return (
        "squad" if task in SQUAD else "senteval" if profile == "paper" else "treebank"
    )


def describe_dataset(profile: str, task: str) -> Json:
    """Return the descriptor of a task's rows at a profile
    (lib.data.describe_task_rows)."""
    return describe_training_rows(
        profile, task, ROWS[profile].get(task), HELD_OUT[profile]
    )


def describe_training_rows(
    profile: str,
    task: str,
    rows: int | None,
    held_out_rows: int = 0,
    with_unseen_rows: bool = True,
    **further_options: Any,
) -> Json:
    """Return the descriptor of a task's training rows, and of its unseen rows.

    rows: the number of training rows. held_out_rows: the number of further rows that
    score candidates. with_unseen_rows: whether to add unseen rows, which do not depend
    on the training rows. further_options: other arguments of
    `lib.data.describe_task_rows`. A reader's data have no unseen rows. At the profiles
    in DRAWN the seed of a run draws its training rows."""
    if name := read_reader_part(profile, "data"):
        counts = limit_row_counts(name, profile, rows, held_out_rows)
        return data.describe_task_rows("own", name, *counts, **further_options)
    further_options |= UNSEEN[profile].get(task, {}) if with_unseen_rows else {}
    place = find_source(profile, task), task
    if profile in DRAWN:
        further_options["drawn"] = True
        pool = data.describe_task_rows(*place, **further_options)["drawn"]["rows"]
        # A task with fewer rows has all of them.
        rows = min(rows or pool, pool - held_out_rows)
    return data.describe_task_rows(*place, rows, held_out_rows, **further_options)


def make_common_arguments(
    profile: str,
    task: str,
    rows_descriptor: Json | None = None,
    /,
    spans_by_profile: Mapping[str, Span] = SPAN,
    **further_arguments: Any,
) -> Json:
    """Return arguments of a step on a task: its rows, the numerics, and
    `further_arguments`.

    rows_descriptor: a descriptor other than the profile's. spans_by_profile: how each
    profile cuts the passages of a task such as SQuAD."""
    task_args = {
        "data": rows_descriptor or describe_dataset(profile, task),
        "numerics": find_profile(profile).numerics,
    }
    task_args |= (
        {"span": cut}
        if (cut := find_span_settings(profile, task, spans_by_profile))
        else {}
    )
    for name in ("train", "importance"):
        task_args |= (
            {name: adapt_options(profile, further_arguments.pop(name))}
            if name in further_arguments
            else {}
        )
    return task_args | further_arguments


def find_reader_span(profile: str) -> Span | None:
    """Return how the passages of a reader's questions are cut; None for other tasks."""
    name = read_reader_part(profile, "data")
    return SPAN[profile] if name and data.task("own", name).span else None


def adapt_options(profile: str, options: Options) -> Options:
    """Return the settings of a training or a ranking, adapted to a reader's rows.

    Rows are cut at the reader's length. A training on few rows has more epochs, so that
    it has at least STEPS steps."""
    if not isinstance(profile, ReaderProfile) or isinstance(options, dict):
        return options
    if profile.length:
        options = replace(options, max_length=profile.length)
    if not profile.data or not isinstance(options, Train):
        return options
    rows = limit_row_counts(profile.data, profile, None, HELD_OUT[profile])[0]
    epochs = max(options.epochs, ceil(STEPS * options.batch / rows))
    pad_to = profile.length if options.pad_to and profile.length else options.pad_to
    return replace(options, epochs=epochs, pad_to=pad_to)


def measure_flops_per_second() -> float:
    """Return the FLOPs per second of one core, measured by a matrix product.

    The clock counts this thread's own seconds, so other work does not change it."""
    matrix, began = np.ones((1024, 1024), np.float32), time.thread_time()
    with threadpool_limits(1):
        for _ in range(4):
            matrix @ matrix
    return 4 * 2 * 1024**3 / (time.thread_time() - began)


def estimate_seconds(profile: str) -> Callable[[Spec, Json], float] | None:
    """Return f(Spec, metrics of its run) -> core-seconds, by FLOPs, of runs at a
    profile with a reader's rows; None at others, where rows and encoder are the same.

    A step of a training costs three forward passes of the whole encoder; what reads the
    rows without training costs one. The tokens of a row are those that a finished run
    has in its metrics, or those of the reader."""
    if not read_reader_part(profile, "data"):
        return None
    usual, reads = find_length_limit(profile), getattr(profile, "measured_feed", None)
    if reads and reads.length:
        usual = float(np.minimum(reads.lengths, reads.length).mean())
    pace = EFFICIENCY * measure_flops_per_second()

    def estimate(spec: Spec, metrics: Json) -> float:
        train, rows = spec.args.get("train"), spec.args.get("data", {}).get("rows")
        if not (train and rows):
            return START_SECONDS
        encoder = _shape_behind(spec) or find_encoder_shape(profile)
        tokens = metrics.get("mean_tokens", usual)
        layers = [{"heads": encoder.heads, "ffn": encoder.ffn}] * encoder.layers
        size = encoder.hidden // encoder.heads
        row = count_flops_of_layers(encoder.hidden, size, layers, round(tokens))
        passes, steps = 1, 0
        if spec.step not in READING:
            passes = 3 * train["epochs"]
            steps = ceil(rows * train["epochs"] / train["batch"])
        seconds = passes * rows * row / pace + steps * STEP_SECONDS
        return seconds + START_SECONDS

    return estimate


def _shape_behind(spec: Spec) -> Shape | None:
    """Return the Shape of the published encoder that a run starts from; None for a
    reader's."""
    while first := spec.inputs.get("start") or spec.inputs.get("teacher"):
        spec = first
    return SHAPES.get(str(spec.args.get("name", "")).removesuffix("-uncased"))


def make_latency_arguments(timed_runs: int, token_count: int, batch_size: int) -> Json:
    """Return arguments of the step `latency`, for one thread.

    timed_runs: number of timed passes. token_count: tokens of a row. batch_size: rows
    of a pass."""
    numerics = find_profile("toy").numerics
    return {
        "batch": batch_size,
        "length": token_count,
        "runs": timed_runs,
        "numerics": numerics,
    }


def find_span_settings(
    profile: str, task: str, spans_by_profile: Mapping[str, Span] = SPAN
) -> Span | None:
    """Return how the passages of a question-answering task are cut; None for others."""
    return spans_by_profile[profile] if task in SQUAD else find_reader_span(profile)


def teacher_spec(
    profile: str,
    task: str,
    family: str = "bert",
    train: Train | None = None,
    spans_by_profile: Mapping[str, Span] = SPAN,
) -> Spec:
    """Return the Spec of the fine-tuned whole model.

    It is the teacher and the start of many students, and the baseline of most tables.
    train: settings of a paper other than the profile's. spans_by_profile: as in
    `make_common_arguments`."""
    args = {"train": train or TEACHER[profile], "targets": LABELS}
    start = {"start": backbone_spec(profile, family)}
    return Spec(
        "finetune",
        make_common_arguments(profile, task, spans_by_profile=spans_by_profile, **args),
        start,
    )


def augmented_rows_spec(
    profile: str, task: str, rows_descriptor: Json | None = None
) -> Spec:
    """Return the Spec of augmented rows: training rows, and copies with replaced words.

    The words come from a BERT, as in TinyBERT's code. Outside paper each row has one
    copy. One augmentation serves all seeds; at the profiles in DRAWN each seed augments
    its own rows. rows_descriptor: descriptor of rows other than the profile's."""
    tries = TRIES.get(task, 30) if profile == "paper" else 1
    options = Augment(tries=tries, p=0.4, candidates=15, neighbours="embeddings")
    args = make_common_arguments(profile, task, rows_descriptor, augment=options)
    pinned = None if profile in DRAWN else 0
    return Spec(
        "augment", args, {"language_model": backbone_spec(profile)}, seed=pinned
    )


def list_columns_by_task(
    profile: str, printed_columns: Collection[Column] = ()
) -> dict[str, tuple[Column, ...]]:
    """Return {task: its columns (lib.stats.compare.Column)} for a table of scores.

    A task has the columns that the paper prints, or else its first metric. At mini and
    base each task counts once, by its first column."""
    if name := read_reader_part(profile, "data"):
        title = read_reader_part(profile, "task_title")
        return {title: (Column(title, title, data.task("own", name).metrics[0]),)}
    task_source = find_profile(profile).source
    sources = ["toy"] if task_source == "toy" else ["glue", "squad", "treebank"]
    tasks = {
        name: task
        for source in sources
        for name, task in data.list_tasks(source).items()
    }
    by_task: dict[str, tuple[Column, ...]]
    by_task = {
        name: (Column(name, name, task.metrics[0]),) for name, task in tasks.items()
    }
    for name in {column.task for column in printed_columns}:
        by_task[name] = tuple(
            column for column in printed_columns if column.task == name
        )
    return (
        {name: columns[:1] for name, columns in by_task.items()}
        if profile in ("mini", "base")
        else by_task
    )


def list_searches_behind(network_rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the searches and random draws behind some networks.

    A network is trained from a `start` that was cut to the architecture of its input
    `search`. The new rows have the labels of their networks."""
    return [
        row.with_spec(search)
        for row in network_rows
        for first in [row.spec.inputs_with_seeds.get("start")]
        if first and (search := first.inputs_with_seeds.get("search"))
    ]


def list_distillations_behind(network_rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the distillations behind some students.

    They have the labels of their students, and no score. Measures such as the distance
    to the teacher read them."""
    return [
        row.with_spec(first)
        for row in network_rows
        for first in [row.spec.inputs_with_seeds.get("start")]
        if first and first.step == "distil"
    ]
