"""This module has what the experiment grids of all papers share: the four profiles with
their data, settings and encoders, and the tasks, seeds and fine-tuned teachers.

A reader's own data and model can replace those of a profile. Then the profile is a
`ProfileWithUserData`: a str that is the profile's name, so it finds the settings of
that profile in every table, and that has the reader's data and model as attributes.
`make_training_data_descriptor` and `pretrained_encoder_spec` look at these, so no paper
needs to know of them."""

import os
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Self, TypeAlias, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from lib import data
from lib.core import disk, options
from lib.core.memo import cache_results_while_enabled
from lib.core.names import Refused, check_known_name
from lib.core.options import Augment, Importance, Numerics, Span, Targets, Train
from lib.core.papers import import_module_of_each_paper
from lib.core.rows import Row
from lib.core.spec import Spec
from lib.core.types import (
    Digest,
    EncoderFamily,
    Json,
    ModelName,
    ProfileDefault,
    ProfileName,
    Seed,
    Sentence,
    TaskName,
    TokenCount,
)
from lib.data import DataDescriptor, grammar, models, own
from lib.data.feed import TokenizerCoverage, measure_tokenizer_coverage
from lib.data.read import GLUE, SENTEVAL, SQUAD
from lib.papers.encoder import (
    check_and_find_encoder_folder as check_and_find_encoder_folder,
)
from lib.papers.encoder import (
    find_position_offset,
    read_configuration,
    read_encoder_shape,
)
from lib.stats.compare import MetricColumn
from lib.stats.cost import SHAPES, Shape, count_flops_of_layers

UserDataText: TypeAlias = (
    str  # Names a file and its columns, in a line of text; "" for none.
)
EncoderFolder: TypeAlias = str  # Folder of a user's own encoder; "" for none.
ParameterName: TypeAlias = str
TrainingAndHeldOutRowCounts: TypeAlias = tuple[int, int]
AllTrainingRows: TypeAlias = None  # None in the place of a number of rows.
DataModelOrTaskTitle: TypeAlias = str
CoreSeconds: TypeAlias = float
RunArguments = Json  # {argument of a step: value}.


class SettingsTable(dict[str, Any]):
    """A SettingsTable is a table of settings, by profile, task or name of a method.

    It is a dict whose inner tables are SettingsTables too. Looking up a key that it
    lacks raises Refused, with the name of the table and the keys that it has, since
    such a key comes from a user: a table may have no settings for a profile.

    table_name: name of the table, such as "PENALTIES.l0".
    settings: {key: value}."""

    def __init__(self, table_name: str, settings: Mapping[str, Any]) -> None:
        super().__init__(
            (key, SettingsTable(f"{table_name}.{key}", value))
            if isinstance(value, dict)
            else (key, value)
            for key, value in settings.items()
        )
        self.table_name = table_name

    def __missing__(self, key: str) -> None:
        if key in PROFILES:
            others = ", ".join(name for name in PROFILES if name in self)
            fault = f"the profile {key} has no settings for this ({self.table_name})"
            raise Refused(fault + f": take one of {others}" * bool(others))
        check_known_name(f"key of the settings {self.table_name}", key, self)


def read_settings(paper_or_file_stem: str) -> SimpleNamespace:
    """Return the tables of a TOML file of settings as attributes.

    All runs of a paper get their settings from its file, `settings.toml` in the paper's
    folder. Settings that papers share are in TOML files beside this module. A table
    below the name of a class of options, such as [Train.TEACHER], becomes {profile:
    options}, where a profile is a size of experiment; fields below `all` hold for every
    profile that does not set them. Options of the class Train, for a training, also get
    the fields that all trainings of a profile share. The table COLUMNS becomes a tuple
    of Columns, metrics of tasks. Other tables become SettingsTables, which refuse keys
    that they lack.

        >>> read_settings("students").DISTIL["paper"].epochs
        3

    paper_or_file_stem: name of a paper's folder, or of the file without suffix."""
    place = FOLDER / paper_or_file_stem / "settings.toml"
    if not place.exists():
        place = FOLDER / f"{paper_or_file_stem}.toml"
    tables = dict(disk.read_toml(place))
    kinds = dict(vars(options))
    if module := import_module_of_each_paper("options").get(paper_or_file_stem):
        kinds |= vars(module)
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
    columns = tuple(MetricColumn(*fields) for fields in tables.pop("COLUMNS", ()))
    tables = SettingsTable(paper_or_file_stem, tables)
    return SimpleNamespace(**tables, COLUMNS=columns)


FOLDER = Path(__file__).parent
S = read_settings("grids")
# Settings from grids.toml beside this module, where comments describe them.
DRAWN: tuple[str, ...] = S.DRAWN
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
if DEVICE not in ("", "cuda"):
    raise Refused(f"DEVICE is {DEVICE!r}; allowed: cuda, or unset for the CPU")

# {name: profile}. A profile is a size of the experiments, such as "mini". It has its
# name, the source of its data sets (such as "glue"), a line about it for pages, and the
# Numerics (dtype, threads and device) of its runs.
PROFILES = {
    name: SimpleNamespace(
        name=name, numerics=Numerics(fields["dtype"], 1, DEVICE), **fields
    )
    for name, fields in S.PROFILES.items()
}

Value = TypeVar("Value")
# Type of settings in the description of a run: an options object, or JSON where the
# description was read from a file.
Options = TypeVar("Options", Train, Importance, Json)

# Speed of a training, by which run times are estimated. EFFICIENCY is its FLOPs per
# second as a share of those of a large matrix product. STEP_SECONDS is added for each
# step. Measured by 240 steps of 32 rows, with a BERT of 2 layers and hidden size 384:
# 4,628 GFLOP took 81 seconds on a core that does 91 GFLOP per second in a matrix
# product.
EFFICIENCY = 0.65
STEP_SECONDS = 0.02
# Seconds of a run besides its training, for opening and scoring a model.
START_SECONDS = 5.0
# Steps (kinds of runs) that have training settings among their arguments but do not
# train. They make one forward pass over the rows, so their run time is estimated by it.
READING = ("states", "quantise", "predict")
# Users may cut the rows of their own data to this number of tokens or more.
SHORTEST = 8


def find_profile_settings(profile: ProfileName) -> SimpleNamespace:
    """Return the settings of a profile, which is a size of experiment.

    They are attributes: name, source (of its data sets, such as "glue"), about (a line
    of description), dtype, and numerics (dtype, threads and device of its runs). Raises
    Refused for an unknown name.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    check_known_name("profile", profile, PROFILES)
    return PROFILES[profile]


@cache_results_while_enabled
def checkpoint_spec(checkpoint_name: str) -> Spec:
    """Return the Spec (description of a run) that takes a pre-trained checkpoint.

    The checkpoint is a published one, from which trainings start. It has the fixed seed
    0, because runs of all seeds start from the same weights. Raises Refused for an
    unknown name.

    checkpoint_name: such as "bert-base-uncased"."""
    check_known_name("checkpoint", checkpoint_name, models.HUB)
    return Spec(
        "checkpoint",
        {
            "name": checkpoint_name,
            "digest": data.find_checkpoint_digest(checkpoint_name),
        },
        seed=0,
    )


def list_encoder_families(profile: ProfileName) -> tuple[EncoderFamily, ...]:
    """Return the families of encoders of an experiment, such as ("bert", "roberta").

    For a user's own encoder it is the family of that encoder, or "bert" where no paper
    uses this family.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    if folder := get_user_data_attribute(profile, "model"):
        kind = read_encoder_shape(folder).family
        return (kind if kind in CHECKPOINTS["paper"] else "bert",)
    return tuple(CHECKPOINTS.get(find_profile_settings(profile).name, ("bert",)))


def find_checkpoint_name(profile: ProfileName, family: EncoderFamily) -> str:
    """Return the name of an experiment's published encoder, such as "bert-base-uncased".

    It is "" at "toy", whose encoder is pre-trained here. Raises Refused for a family
    that the experiment does not have.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    family: such as "bert" or "roberta"."""
    families = list_encoder_families(profile)
    check_known_name(f"kind of encoder in profile {profile!r}", family, families)
    return CHECKPOINTS.get(profile, {}).get(family, "")


def get_encoder_display_name(profile: ProfileName) -> str:
    """Return the name of an experiment's encoder on report pages, such as "MiniLM".

    Where the settings have no name for it, it is "the encoder of toy" or the like.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    return CALLED.get(profile, f"the encoder of {profile}")


@cache_results_while_enabled
def pretrained_encoder_spec(
    profile: ProfileName, family: EncoderFamily = "bert"
) -> Spec:
    """Return the Spec (description of a run) of an experiment's pre-trained encoder.

    All its models start from this encoder. A user's own encoder replaces it, whatever
    the family. Raises Refused for a family that the experiment does not have.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    family: such as "bert" or "roberta"."""
    if folder := get_user_data_attribute(profile, "model"):
        return Spec(
            "checkpoint",
            {"name": folder, "digest": data.digest_local_checkpoint(folder)},
            seed=0,
        )
    checkpoint_name = find_checkpoint_name(profile, family)
    return (
        checkpoint_spec(checkpoint_name)
        if checkpoint_name
        else toy_pretrained_encoder_spec()
    )


@cache_results_while_enabled
def checkpoint_or_user_encoder_spec(profile: ProfileName, checkpoint_name: str) -> Spec:
    """Return the Spec (description of a run) that takes a published checkpoint.

    A user's own encoder takes the place of any checkpoint. Raises Refused for an
    unknown name.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    checkpoint_name: such as "bert-base-uncased"."""
    return (
        pretrained_encoder_spec(profile)
        if get_user_data_attribute(profile, "model")
        else checkpoint_spec(checkpoint_name)
    )


def toy_pretrained_encoder_spec() -> Spec:
    """Return the Spec (description of a run) that pre-trains a tiny encoder.

    It learns generated text. Experiments of the size "toy" start from it, so they need
    no download."""
    args = {"train": Train(**LEARNING), "numerics": PROFILES["toy"].numerics}
    return Spec("pretrain", TOY | args, seed=0)


def untrained_toy_encoder_spec() -> Spec:
    """Return the Spec (description of a run) of a tiny encoder with random weights.

    It has the sizes of the encoder of "toy" experiments. Comparisons with it show what
    pre-training brings."""
    return Spec("pretrain", TOY | {"numerics": PROFILES["toy"].numerics}, seed=0)


def find_encoder_shape(profile: ProfileName, family: EncoderFamily = "bert") -> Shape:
    """Return the Shape of an experiment's encoder, such as its layers and heads.

    Costs and widths are computed from it, without loading the model. Raises Refused for
    a family that the experiment does not have.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    family: such as "bert"; a user's own encoder has one shape for all families."""
    if folder := get_user_data_attribute(profile, "model"):
        return read_encoder_shape(folder)
    if checkpoint_name := find_checkpoint_name(profile, family):
        return SHAPES[checkpoint_name.removesuffix("-uncased")]
    model = TOY["model"]
    return Shape(
        "bert",
        model["layers"],
        model["hidden"],
        model["heads"],
        model["ffn"],
        len(grammar.list_vocabulary()),
        128,
        2,
        model["hidden"],
    )


class ProfileWithUserData(str):
    """A ProfileWithUserData names an experiment's size, with a user's own data or
    encoder.

    It is a str. It can be used wherever the name of a size, such as "mini", can: it
    finds the settings of that size, and has the user's data and encoder as attributes.

    Raises Refused for data without an encoder at the size "toy", whose encoder knows
    only generated words; for a length without data; and for a length or data that the
    encoder cannot read.

    data: the user's data, one line of text that names a file and its columns, or "".
    model: the folder of the user's encoder, or "".
    length: tokens to which rows of the data are cut; 0 takes those of the profile."""

    data: UserDataText
    model: EncoderFolder
    length: TokenCount

    def __new__(
        cls,
        profile: ProfileName,
        data: UserDataText = "",
        model: EncoderFolder = "",
        length: TokenCount = 0,
    ) -> Self:
        self = super().__new__(cls, profile)
        task = own.infer_task(data) if data else None
        self.data = task.name if task else ""
        self.model = model and check_and_find_encoder_folder(model, task)
        self.length = length
        if data and profile == "toy" and not model:
            fix = "name a model, or take the profile 'mini'"
            raise Refused(f"the encoder of 'toy' knows generated words alone: {fix}")
        if length and not data:
            raise Refused("a length is for rows of your own: name them in data")
        if length and not SHORTEST <= length <= self.token_limit:
            most = self.token_limit
            fault = f"length is {length}, and the encoder reads {most} tokens"
            raise Refused(f"{fault}: take {SHORTEST} to {most}")
        if (
            self.tokenizer_coverage
            and self.tokenizer_coverage.unknown_token_share > 0.5
        ):
            fix = "take an encoder of the language and the case of your texts, or set "
            fix += "do_lower_case in tokenizer_config.json as its vocabulary has it"
            raise Refused(
                f"{self.tokenizer_coverage.summary}: that is no reading; fix: {fix}"
            )
        return self

    def __str__(self) -> str:
        names = " and ".join(name for name in ("data", "model") if getattr(self, name))
        return f"{self[:]}, own {names}"

    @property
    def task_title(self) -> TaskName:
        """Return the title of the task in the user's own data; "" without such data.

        Tables and the choice of tasks use it as the name of the task."""
        return own.format_user_task_title(self.data) if self.data else ""

    @property
    def encoder_folder(self) -> Path | None:
        """Return the folder of the encoder from which the experiment's models start.

        It is the user's own encoder, if there is one. It is None where the encoder was
        not downloaded to this machine."""
        if self.model:
            return Path(self.model)
        checkpoint_name = CHECKPOINTS[self[:]]["bert"]
        return data.find_checkpoint_folder_with_file(checkpoint_name, "config.json")

    @property
    def token_limit(self) -> TokenCount:
        """Return the largest number of tokens that the encoder can read.

        It follows from the encoder's position embedding table. Longer rows have to be
        cut."""
        base = find_encoder_shape(self)
        config = read_configuration(self.encoder_folder) if self.encoder_folder else {}
        return base.positions - find_position_offset(base.family, config)

    @property
    def tokenizer_coverage(self) -> TokenizerCoverage | None:
        """Return how the encoder's tokenizer splits the texts of the user's own data.

        A TokenizerCoverage has the share of unknown tokens and the number of tokens of
        each row, both for the first 1,000 training rows. It shows whether the encoder
        can read the language of the data. It is None without such data, or where there
        is no tokenizer on this machine."""
        if not (self.data and self.encoder_folder):
            return None
        reading = own.read_user_data(self.data)
        cut = 0 if reading.task.span else find_truncation_length(self)
        return measure_tokenizer_coverage(
            reading.splits["train"], self.encoder_folder, cut
        )


def find_truncation_length(profile: ProfileName) -> TokenCount:
    """Return the number of tokens to which an experiment cuts its rows.

    It is the number that a user chose for own data, or else that of the profile.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    return getattr(profile, "length", 0) or TEACHER[profile].max_length


def make_profile_from_notebook_parameters(
    notebook_parameters: Mapping[ParameterName, Any],
) -> ProfileName:
    """Return the profile that the parameters of a notebook name.

    A profile is an experiment's size, such as "mini". Where the parameters `data` (a
    user's rows) or `model` (a user's encoder) are set, it is a ProfileWithUserData, a
    str that has them as attributes. In a notebook without the parameter `data`, the
    parameter `model` names a model of a paper, such as "TinyBERT-4L". So there only
    `profile` is read. Raises Refused where data, encoder and length do not fit
    together.

    notebook_parameters: {parameter: value}, with at least `profile`; others that a
    ProfileWithUserData does not have are not read."""
    profile = notebook_parameters["profile"]
    if "data" not in notebook_parameters:
        return profile
    choices = {
        name: notebook_parameters[name]
        for name in ("data", "model", "length")
        if name in notebook_parameters
    }
    return ProfileWithUserData(profile, **choices) if any(choices.values()) else profile


def get_notebook_parameters(profile: ProfileName) -> dict[ParameterName, Any]:
    """Return {parameter: value} by which a notebook is run for a profile.

    The parameters are `profile` and, with a user's own data or encoder, `data`, `model`
    and `length`. It is the reverse of `make_profile_from_notebook_parameters`.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    parameters: dict[str, Any] = {"profile": profile[:]}
    if isinstance(profile, ProfileWithUserData):
        parameters |= {"data": profile.data, "model": profile.model}
        if profile.length:
            parameters["length"] = profile.length
    return parameters


def format_profile_as_command_options(profile: ProfileName) -> list[str]:
    """Return command-line options that name a profile, such as ["--profile mini"].

    They also name a user's own data and encoder, quoted for a shell. Messages show the
    command with which a result is made again.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    return [
        f"--{name} {shlex.quote(str(value))}"
        for name, value in get_notebook_parameters(profile).items()
        if value
    ]


def get_user_data_attribute(
    profile: ProfileName, attribute_name: DataModelOrTaskTitle
) -> str:
    """Return an attribute of a ProfileWithUserData; "" for the plain name of a size.

    A ProfileWithUserData is the name of an experiment's size with a user's own data or
    encoder. So callers need not ask whether a profile is one or a plain str.

    attribute_name: "data", "model" or "task_title"."""
    return getattr(profile, attribute_name, "")


def describe_user_data_and_model(profile: ProfileName) -> list[Sentence]:
    """Return sentences for a report page on the user's own data and encoder.

    The first one names them, and also stands in captions. Others say how many rows the
    data have, how many of them are trained on, that all other settings are those of the
    experiment's size, and that a paper's claims are not judged. The list is empty for
    the papers' own data and encoders.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    if not isinstance(profile, ProfileWithUserData):
        return []
    parts = [f"data: {profile.task_title}"] * bool(profile.data)
    parts += [f"model: {Path(profile.model).name}"] * bool(profile.model)
    lines = [f"Your own {', '.join(parts)}."]
    if profile.data:
        splits = data.read_splits("own", profile.data)
        rows = f"{len(splits['train']):,} training and {len(splits['dev']):,} development rows"
        learned, held = limit_user_data_row_counts(
            profile.data, profile, None, HELD_OUT[profile]
        )
        capped = f"; {learned:,} of the training rows are trained on"
        capped += f", {held:,} others rank heads and neurons" * bool(held)
        capped *= learned < len(splits["train"])
        lines += [f"{line}." for line in own.read_user_data(profile.data).lines]
        lines.append(f"The data have {rows}{capped}.")
        if profile.tokenizer_coverage:
            lines.append(f"{profile.tokenizer_coverage.summary}.")
        lines.append(
            f"A training of fewer than {STEPS} steps gets more epochs, unless a page varies "
            "them or you set them."
        )
    settled = f"All other settings are those of profile {profile[:]}"
    return [*lines, f"{settled}; the paper's verdicts are off."]


def digest_user_data_and_model(profile: ProfileName) -> list[Digest]:
    """Return digests of a user's own data and encoder, as [data, encoder].

    A third digest is that of the data's test rows, if there are any. A digest is ""
    where there are no own data, or no own encoder. By the digests, results of other
    data or encoders are recognised.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    name = get_user_data_attribute(profile, "data")
    model = get_user_data_attribute(profile, "model")
    digests = [
        name and data.digest_task_rows_cached("own", name)[0],
        model and data.digest_local_checkpoint(model),
    ]
    test = data.read_splits("own", name).get("test") if name else None
    if test:
        digests.append(data.digest_splits({"rows": test}))
    return digests


def list_user_data_warnings(profile: ProfileName) -> list[Sentence]:
    """Return sentences that warn of problems in a user's own data.

    They stand beside any advice on which compression method to take. The list is empty
    without such data or without problems.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    if not isinstance(profile, ProfileWithUserData) or not profile.data:
        return []
    coverage = profile.tokenizer_coverage
    line = [coverage.summary] if coverage and coverage.needs_warning else []
    return [*own.read_user_data(profile.data).cautions, *line]


def limit_user_data_row_counts(
    user_data: UserDataText,
    profile: ProfileName,
    requested_training_row_count: int | ProfileDefault,
    requested_held_out_row_count: int,
) -> TrainingAndHeldOutRowCounts:
    """Return how many training and held-out rows a user's data allow, in this order.

    Held-out rows are training rows that are not trained on: heads and neurons are
    ranked by them. They are at most a fifth of the rows.

    user_data: the user's data, one line of text that names a file and its columns.
    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    requested_training_row_count: training rows asked for; None means the limit of the
    profile, or all.
    requested_held_out_row_count: held-out rows asked for."""
    available = len(data.read_splits("own", user_data)["train"])
    most = MOST[profile] or available
    held_out_row_count = min(requested_held_out_row_count, available // 5)
    row_count = min(
        requested_training_row_count or most, most, available - held_out_row_count
    )
    return row_count, held_out_row_count


LABELS = Targets("hard")
# Settings that all trainings share, {name in the papers' tables of settings: value}.
LOOP = {"Adam beta1": 0.9, "Adam beta2": 0.999, "Learning Rate Decay": "Linear"}


def select_tasks(
    profile: ProfileName,
    chosen_tasks: Sequence[TaskName] = (),
    *,
    tasks_by_profile: Mapping[ProfileName, Sequence[TaskName]],
) -> tuple[TaskName, ...]:
    """Return the tasks of a report page: the chosen ones, or those of the profile.

    The chosen tasks have to be of the same kind (GLUE, SQuAD or SentEval) as those of
    the page. A user's own data are a single task that replaces all. Raises Refused for
    an unknown profile or task.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    tasks_by_profile: {profile: tasks of the page}."""
    check_known_name("profile", profile, tasks_by_profile)
    if title := get_user_data_attribute(profile, "task_title"):
        for name in chosen_tasks:
            check_known_name("task of your own data", name, (title,))
        return (title,)
    listed = {name for names in tasks_by_profile.values() for name in names}
    kinds = [kind for kind in (GLUE, SQUAD, SENTEVAL) if listed & kind.keys()]
    for name in chosen_tasks:
        check_known_name(
            "task of this page", name, [name for kind in kinds for name in kind]
        )
    return tuple(chosen_tasks) or tuple(tasks_by_profile[profile])


def select_seeds(
    profile: ProfileName,
    chosen_seeds: Sequence[Seed] = (),
    *,
    seeds_by_profile: Mapping[ProfileName, Sequence[Seed]],
) -> tuple[Seed, ...]:
    """Return the seeds of a report page: the chosen ones, or those of the profile.

    Raises Refused for a profile for which the page has no seeds.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper".
    seeds_by_profile: {profile: seeds of the page}."""
    check_known_name("profile", profile, seeds_by_profile)
    return tuple(chosen_seeds) or tuple(seeds_by_profile[profile])


def select_values_by_label(
    category_name_in_errors: str,
    value_by_label: Mapping[str, Value],
    chosen_labels: Collection[str] = (),
) -> dict[str, Value]:
    """Return {label: value} for the chosen labels, in the order of `value_by_label`.

    If no labels are chosen, the result has all values. Notebooks use this function for
    what a user selects, such as the labels "Width" and "NAS" of two compression
    methods. Raises Refused for an unknown label, with a list of the known ones.

    category_name_in_errors: what a label is, such as "method", for the error
    message."""
    for name in chosen_labels:
        check_known_name(category_name_in_errors, name, value_by_label)
    return {
        name: value_by_label[name]
        for name in value_by_label
        if name in (chosen_labels or value_by_label)
    }


def find_data_source_name(
    profile: ProfileName, task: TaskName
) -> Literal["toy", "glue", "squad", "senteval", "treebank"]:
    """Return the name of the source from which an experiment takes the data of a task.

    It is "toy" (generated sentences), "glue", "squad", "senteval" or "treebank".
    Probing tasks come from SentEval at "paper", and from a treebank at "mini" and
    "base". Raises Refused for an unknown profile.

    profile: size of the experiment, one of "toy", "mini", "base" and "paper"."""
    task_source = find_profile_settings(profile).source
    if task_source == "toy" or task in GLUE:
        return task_source
    return (
        "squad" if task in SQUAD else "senteval" if profile == "paper" else "treebank"
    )


def make_profile_data_descriptor(
    profile: ProfileName, task: TaskName
) -> DataDescriptor:
    """Return a dict that says which rows of a task an experiment of this size uses.

    It has the source, the task, the number of rows and a digest (hash) of the data. It
    is an argument of a Spec, the description of a run, so that a run is only repeated
    on the same rows.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    return make_training_data_descriptor(
        profile, task, ROWS[profile].get(task), HELD_OUT[profile]
    )


@cache_results_while_enabled
def make_training_data_descriptor(
    profile: ProfileName,
    task: TaskName,
    training_row_count: int | AllTrainingRows,
    held_out_row_count: int = 0,
    adds_unseen_evaluation_rows: bool = True,
    **further_options: Any,
) -> DataDescriptor:
    """Return a dict that says which training rows of a task an experiment uses.

    It has the source, the task, the number of rows and a digest (hash) of the data, and
    is an argument of a Spec, the description of a run. So a run is only repeated on the
    same rows. At some sizes of experiment each seed draws its own training rows.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    training_row_count: number of training rows; None means all.
    held_out_row_count: number of further training rows that are not trained on; by them
    candidates of a search are scored, or heads are ranked.
    adds_unseen_evaluation_rows: whether models are also scored on unseen rows: labelled
    rows on which nothing is trained or selected. A user's own data have none.
    further_options: other arguments of `lib.data.make_data_descriptor`."""
    if name := get_user_data_attribute(profile, "data"):
        counts = limit_user_data_row_counts(
            name, profile, training_row_count, held_out_row_count
        )
        return data.make_data_descriptor("own", name, *counts, **further_options)
    if adds_unseen_evaluation_rows:
        further_options |= UNSEEN[profile].get(task, {})
    place = find_data_source_name(profile, task), task
    if profile in DRAWN:
        further_options["draws_rows_by_seed"] = True
        pool = data.make_data_descriptor(*place, **further_options)["drawn"]["rows"]
        # If fewer rows can be drawn than were asked for, all of them are.
        training_row_count = min(training_row_count or pool, pool - held_out_row_count)
    return data.make_data_descriptor(
        *place, training_row_count, held_out_row_count, **further_options
    )


def make_run_arguments_of_task(
    profile: ProfileName,
    task: TaskName,
    data_descriptor: DataDescriptor | ProfileDefault = None,
    /,
    passage_window_settings_by_profile: Mapping[ProfileName, Span] = SPAN,
    **further_arguments: Any,
) -> RunArguments:
    """Return the arguments that all runs on a task share, to put into their Specs.

    A Spec is the description of a run. The arguments are {"data": which rows,
    "numerics": dtype, threads and device}, for question answering "span" (how passages
    are cut into windows), and `further_arguments`. Of these, `train` (settings of a
    training) and `importance` (of a ranking of heads) are adapted to a user's own data:
    a training on few rows gets more epochs, for example.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    data_descriptor: says which rows; None takes those of the profile.
    passage_window_settings_by_profile: {profile: how passages are cut}."""
    task_args = {
        "data": data_descriptor or make_profile_data_descriptor(profile, task),
        "numerics": find_profile_settings(profile).numerics,
    }
    span = find_passage_window_settings(
        profile, task, passage_window_settings_by_profile
    )
    if span:
        task_args["span"] = span
    for name in {"train", "importance"} & further_arguments.keys():
        task_args[name] = adapt_options_to_user_data(profile, further_arguments[name])
    return further_arguments | task_args


def get_passage_windows_of_user_data(profile: ProfileName) -> Span | None:
    """Return how passages of a user's own data are cut into windows, as a Span.

    It is None where the data are not questions on passages, and for the papers' own
    data.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    name = get_user_data_attribute(profile, "data")
    return SPAN[profile] if name and data.find_task_by_name("own", name).span else None


def adapt_options_to_user_data(
    profile: ProfileName, options: Options, epochs_are_requested: bool = False
) -> Options:
    """Return the settings of a training or a ranking, adapted to a user's own data.

    A ranking is that of heads and neurons before pruning. Texts are cut to the number
    of tokens that the user chose. A training on few rows gets more epochs, so that it
    has at least 240 steps, unless its epochs were requested. Without a user's data or
    encoder the settings stay as they are.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    options: Train, Importance, or a dict, which stays as it is.
    epochs_are_requested: whether a page varies the epochs, or a user set them."""
    if not isinstance(profile, ProfileWithUserData) or isinstance(options, dict):
        return options
    if profile.length:
        options = replace(options, max_length=profile.length)
    if not profile.data or not isinstance(options, Train):
        return options
    rows = limit_user_data_row_counts(profile.data, profile, None, HELD_OUT[profile])[0]
    least = 0 if epochs_are_requested else ceil(STEPS * options.batch / rows)
    epochs = max(options.epochs, least)
    pad_to = profile.length if options.pad_to and profile.length else options.pad_to
    return replace(options, epochs=epochs, pad_to=pad_to)


def measure_flops_per_second() -> float:
    """Return the FLOPs per second of one CPU core, measured on float32 matrix products.

    Run times are estimated by it. Only this thread's own CPU seconds are counted, so
    other work on the machine hardly changes the result."""
    matrix = np.ones((1024, 1024), np.float32)
    began = time.thread_time()
    with threadpool_limits(1):
        for _ in range(4):
            matrix @ matrix
    return 4 * 2 * 1024**3 / (time.thread_time() - began)


def make_run_time_estimator(
    profile: ProfileName,
) -> Callable[[Spec, Json], CoreSeconds] | None:
    """Return a function that estimates how long a run on a user's own data takes.

    The function is f(Spec, metrics) -> core-seconds, where the Spec describes the run
    and metrics are {} before it has run. It counts FLOPs: a training step is three
    forward passes of the whole encoder, and a run that only reads the rows is one pass.
    The mean number of tokens of a row is that in the metrics, if it is there, else that
    of the data. The result is None for the papers' data, as their run times are known.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder."""
    if not get_user_data_attribute(profile, "data"):
        return None
    usual = find_truncation_length(profile)
    reads = getattr(profile, "tokenizer_coverage", None)
    if reads and reads.max_length:
        usual = float(np.minimum(reads.row_lengths, reads.max_length).mean())
    pace = EFFICIENCY * measure_flops_per_second()

    def estimate_core_seconds(spec: Spec, metrics: Json) -> float:
        train = spec.args.get("train")
        rows = spec.args.get("data", {}).get("rows")
        if not (train and rows):
            return START_SECONDS
        encoder = _find_shape_of_published_encoder(spec) or find_encoder_shape(profile)
        tokens = metrics.get("mean_tokens", usual)
        layers = [{"heads": encoder.heads, "ffn": encoder.ffn}] * encoder.layers
        size = encoder.hidden // encoder.heads
        row = count_flops_of_layers(encoder.hidden, size, layers, round(tokens))
        passes = 1
        steps = 0
        if spec.step not in READING:
            passes = 3 * train["epochs"]
            steps = ceil(rows * train["epochs"] / train["batch"])
        seconds = passes * rows * row / pace + steps * STEP_SECONDS
        return seconds + START_SECONDS

    return estimate_core_seconds


def _find_shape_of_published_encoder(spec: Spec) -> Shape | None:
    """Return the Shape of the published encoder from which a chain of runs starts.

    The chain is followed from a Spec (the description of a run) to its inputs. The
    result is None where the chain starts from another encoder, such as a user's own.
    The Shape (layers, heads and sizes) serves to estimate run times."""
    while first := spec.inputs.get("start") or spec.inputs.get("teacher"):
        spec = first
    return SHAPES.get(str(spec.args.get("name", "")).removesuffix("-uncased"))


def make_latency_arguments(
    timed_pass_count: int, token_count: int, batch_size: int
) -> RunArguments:
    """Return the arguments of a run that times the forward passes of encoders.

    Pages on several papers time networks by such a run. Its step (kind of run) is
    `latency`, which computes in one CPU thread.

    timed_pass_count: number of timed passes of each encoder.
    token_count: tokens of a sequence.
    batch_size: sequences of a pass."""
    return {
        "batch": batch_size,
        "length": token_count,
        "runs": timed_pass_count,
        "numerics": PROFILES["toy"].numerics,
    }


def find_passage_window_settings(
    profile: ProfileName,
    task: TaskName,
    passage_window_settings_by_profile: Mapping[ProfileName, Span] = SPAN,
) -> Span | None:
    """Return how the passages of a question-answering task are cut into windows.

    The Span that is returned has lengths in tokens. It is None for other tasks, which
    need no windows.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    passage_window_settings_by_profile: {profile: how passages are cut}."""
    return (
        passage_window_settings_by_profile[profile]
        if task in SQUAD
        else get_passage_windows_of_user_data(profile)
    )


@cache_results_while_enabled
def teacher_spec(
    profile: ProfileName,
    task: TaskName,
    family: EncoderFamily = "bert",
    train: Train | ProfileDefault = None,
    passage_window_settings_by_profile: Mapping[ProfileName, Span] = SPAN,
) -> Spec:
    """Return the Spec (description of a run) that fine-tunes an encoder on a task.

    It learns the labels. Its model is the teacher and the start of most students, and
    the baseline of most tables.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    family: family of encoders, such as "bert".
    train: training settings; None means those of the profile.
    passage_window_settings_by_profile: {profile: how passages are cut}, for question
    answering."""
    args = make_run_arguments_of_task(
        profile,
        task,
        passage_window_settings_by_profile=passage_window_settings_by_profile,
        train=train or TEACHER[profile],
        targets=LABELS,
    )
    return Spec("finetune", args, {"start": pretrained_encoder_spec(profile, family)})


def augmented_rows_spec(
    profile: ProfileName,
    task: TaskName,
    data_descriptor: DataDescriptor | ProfileDefault = None,
) -> Spec:
    """Return the Spec (description of a run) that augments the training rows of a task.

    It adds copies in which words are replaced by those that a language model proposes,
    as in TinyBERT's code: for each text of a row at most one copy of the row, at
    "paper" up to 30. One augmentation serves all seeds; only where each seed draws its
    own training rows does each seed have its own.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    data_descriptor: says which rows are augmented; None takes those of the profile."""
    tries = TRIES.get(task, 30) if profile == "paper" else 1
    options = Augment(tries=tries, p=0.4, candidates=15, neighbours="embeddings")
    args = make_run_arguments_of_task(profile, task, data_descriptor, augment=options)
    pinned = None if profile in DRAWN else 0
    return Spec(
        "augment",
        args,
        {"language_model": pretrained_encoder_spec(profile)},
        seed=pinned,
    )


def select_metrics_by_task(
    profile: ProfileName, printed_columns: Collection[MetricColumn] = ()
) -> dict[TaskName, tuple[MetricColumn, ...]]:
    """Return {task: Columns}, the metrics that a table of scores has for each task.

    A MetricColumn is a metric on one of the task's splits. A task has the metrics that
    the paper prints for it, or else the first metric of the task. At "mini" and "base"
    only the first of the printed metrics is taken, so that each task counts once in a
    mean.

    profile: size of the experiment, such as "mini"; a ProfileWithUserData, a subclass
    of str, adds a user's own data or encoder.
    printed_columns: the Columns of the paper's table."""
    if name := get_user_data_attribute(profile, "data"):
        title = get_user_data_attribute(profile, "task_title")
        metric = data.find_task_by_name("own", name).metrics[0]
        return {title: (MetricColumn(title, title, metric),)}
    task_source = find_profile_settings(profile).source
    sources = ["toy"] if task_source == "toy" else ["glue", "squad", "treebank"]
    by_task: dict[str, tuple[MetricColumn, ...]] = {}
    for source in sources:
        for name, task in data.list_tasks(source).items():
            by_task[name] = (MetricColumn(name, name, task.metrics[0]),)
    for name in {column.task for column in printed_columns}:
        by_task[name] = tuple(
            column for column in printed_columns if column.task == name
        )
    if profile in ("mini", "base"):
        return {name: columns[:1] for name, columns in by_task.items()}
    return by_task


def list_architecture_searches_of_models(model_rows: Iterable[Row]) -> list[Row]:
    """Return Rows of the searches that decided the architecture of some networks.

    A Row is a Spec (the description of a run) with labels such as task and seed. A
    search, or a random draw, decides which heads and neurons are kept; networks without
    a search or draw are left out. The labels are those of the networks, so tables can
    show both together.

    model_rows: the Rows of the trained networks."""
    rows = []
    for row in model_rows:
        start = row.spec.input_specs_with_seeds.get("start")
        search = start and start.input_specs_with_seeds.get("search")
        if search:
            rows.append(row.with_spec(search))
    return rows


def list_distillations_of_students(student_rows: Iterable[Row]) -> list[Row]:
    """Return Rows of the distillations from which some students are fine-tuned.

    A Row is a Spec (the description of a run) with labels such as task and seed.
    Students without a distillation are left out. The labels are those of the students.
    A distillation has no score, but measures such as the distance to the teacher, for
    tables.

    student_rows: the Rows of the students' last training stage."""
    rows = []
    for row in student_rows:
        start = row.spec.input_specs_with_seeds.get("start")
        if start and start.step == "distil":
            rows.append(row.with_spec(start))
    return rows


def list_rows_of_models(
    profile: ProfileName,
    spec_function_by_model: Mapping[ModelName, Callable[[ProfileName, TaskName], Spec]],
    tasks: Iterable[TaskName],
    seeds: Iterable[Seed],
    **further_labels: Any,
) -> list[Row]:
    """Return the Rows of a table that compares models, one for each task, model and
    seed.

    A Row is a Spec (the description of a run) with the labels task, model and seed.

    profile: size of the experiment, such as "mini".
    spec_function_by_model: {name of a model: f(profile, task) -> Spec of its run}.
    further_labels: further labels of all Rows, such as kind="score"; they come before
    task, model and seed."""
    return [
        Row(make(profile, task), **further_labels, task=task, model=model, seed=seed)
        for task, (model, make), seed in product(
            tasks, spec_function_by_model.items(), seeds
        )
    ]
