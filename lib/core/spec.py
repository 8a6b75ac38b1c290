"""This module has Spec, the description of a run: all that decides its result, and
nothing else.

    Spec("finetune", {"data": ..., "train": Train(...)}, {"start": pretrained}, seed=0)

A Spec names a step, which is a kind of work such as "finetune"
(`lib.core.steps.STEPS`), the arguments of the step, and other Specs as inputs, such as
the model to start from. So Specs form a graph. The identity of a Spec is a hash of its
JSON. Full paths do not count in it: a user's data and model are identified by digests.
The seed is not part of it: runs of one Spec at several seeds are replicates, in one
folder. An input without a seed takes the seed of the Spec that needs it, so two models
that are compared at one seed share their teacher and the order of data. An input with a
seed keeps it, and that seed is part of the identity."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lib.core.disk import digest_bytes
from lib.core.names import Refused, check_known_name, list_non_default_fields
from lib.core.steps import STEPS

if TYPE_CHECKING:
    from lib.core.types import Json


@dataclass(frozen=True)
class Output:
    """An Output stands for an argument that is known only after another run.

    It is one of the results of an input, a run that is executed before. For example,
    Output("search", "net") is the network that the run "search" will find.

    input: the name of the input in the Spec, the description of the later run.
    key: the name of the result."""

    input: str
    key: str


@dataclass(frozen=True)
class Spec:
    """A Spec is the description of one training or measurement, called a run.

    It has all that decides the result and nothing else. Equal Specs are executed once,
    and the stored run is found again by `name`. Raises Refused for a step, argument or
    input of an unknown name.

    step: the kind of work, such as "finetune"; a key of lib.core.steps.STEPS.
    args: the arguments of the step, {name: plain JSON value, Option (a dataclass of
    settings) or Output (a result of an input, not known yet)}. Entries that are None
    are left out.
    inputs: {name, such as "teacher": Spec of a run that must exist before, as the step
    reads it}. Entries that are None are left out.
    seed: None for an input that takes the seed of the Spec that needs it, and for a
    Spec that takes the seed of its planned experiment (Row)."""

    step: str
    args: Json = field(default_factory=dict)
    inputs: dict[str, Spec] = field(default_factory=dict)
    seed: int | None = None

    # Only type checkers read this signature. It lets a caller give None as a value in
    # `inputs`, although the field never has it: `__post_init__` leaves such entries
    # out.
    if TYPE_CHECKING:

        def __init__(
            self,
            step: str,
            args: Json = ...,
            inputs: Mapping[str, Spec | None] = ...,
            seed: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_known_name("step", self.step, STEPS)
        step = STEPS[self.step]
        for name in self.args:
            check_known_name(f"argument of step {self.step}", name, step.args)
        inputs = {name: spec for name, spec in self.inputs.items() if spec is not None}
        object.__setattr__(self, "inputs", inputs)
        for name in inputs:
            check_known_name(
                f"input of step {self.step}",
                name[: name.find(":") + 1] or name,
                step.inputs,
            )
        args = {
            k: to_plain_json(v) for k, v in sorted(self.args.items()) if v is not None
        }
        object.__setattr__(self, "args", args)

    def with_seed(self, seed: int | None) -> Spec:
        """Return this description of a run at another seed, for a replicate.

        Raises Refused unless the seed is an integer of at least 0."""
        if type(seed) is not int or seed < 0:
            raise Refused(f"seed is {seed!r}; it must be a whole number from 0")
        # The copy includes the cached property `id`, which does not depend on the seed.
        # The two cached properties that are removed below depend on the seed.
        made = object.__new__(Spec)
        made.__dict__.update(self.__dict__, seed=seed)
        for derived in ("input_specs_with_seeds", "float32_spec"):
            made.__dict__.pop(derived, None)
        return made

    @cached_property
    def float32_spec(self) -> Spec:
        """Return the description of the same run in float32 in place of bfloat16.

        A processor without bfloat16 instructions executes it instead of this Spec. The
        inputs, runs that come before, are in float32 too. It is this Spec itself where
        nothing is computed in bfloat16 on a CPU. Specs for a GPU keep bfloat16, as GPUs
        have such instructions."""
        args = self.args
        inputs = {name: spec.float32_spec for name, spec in self.inputs.items()}
        numerics = args.get("numerics") or {}
        if numerics.get("dtype") == "bfloat16" and not numerics.get("device"):
            args = args | {"numerics": numerics | {"dtype": "float32"}}
        elif inputs == self.inputs:
            return self
        return Spec(self.step, args, inputs, self.seed)

    @cached_property
    def input_specs_with_seeds(self) -> dict[str, Spec]:
        """Return {name, such as "teacher": Spec} of the runs that this run needs.

        A Spec is the description of a run. An input without a seed takes the seed of
        this Spec, so that models that are compared at one seed share their teacher."""
        return {
            name: spec if spec.seed is not None else spec.with_seed(self.seed)
            for name, spec in self.inputs.items()
        }

    @cached_property
    def id(self) -> str:
        inputs = {
            n: s.id + f"/{s.seed}" * (s.seed is not None)
            for n, s in self.inputs.items()
        }
        version, args = STEPS[self.step].version, remove_absolute_paths(self.args)
        text = canonical([self.step, version, args, inputs])
        return digest_bytes(text.encode())[:12]

    @property
    def name(self) -> str:
        """Return the name of the run, such as "finetune-0a1b2c3d4e5f/0".

        It is the path of the run's folder below the folder of all runs: the step (kind
        of work), a hash of all that decides the result but the seed, and the seed.
        Raises Refused for a description without a seed."""
        if self.seed is None:
            raise Refused(
                f"this {self.step} Spec has no seed: ask for one with .with_seed(seed)"
            )
        return f"{self.step}-{self.id}/{self.seed}"

    def resolve_step_arguments(self, metrics_by_input: Mapping[str, Json]) -> Json:
        """Return the arguments with which the function of this run's step is called.

        Some arguments are metrics of runs that come before (Output), such as the
        network that a search finds. They are replaced by their values.

        metrics_by_input: {name of the input: metrics of its finished run}."""
        args = dict(self.args)
        for name, value in args.items():
            if isinstance(value, dict) and "$output" in value:
                source, key = value["$output"]
                args[name] = metrics_by_input[source][key]
        return args

    def to_json(self) -> Json:
        return {
            "step": self.step,
            "version": STEPS[self.step].version,
            "args": self.args,
            "inputs": {n: s.to_json() for n, s in sorted(self.inputs.items())},
            "seed": self.seed,
        }

    def __hash__(self) -> int:
        return hash((self.id, self.seed))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and (self.id, self.seed) == (
            other.id,
            other.seed,
        )


def make_spec_from_json(spec_json: Json) -> Spec:
    """Return the Spec, the description of a run, that `Spec.to_json` wrote as JSON.

    Workers and stored runs have Specs in this form. Raises Refused where the code of
    its step (kind of work) has another version now, which may give another result."""
    step, version = spec_json["step"], spec_json["version"]
    check_known_name("step", step, STEPS)
    if version != STEPS[step].version:
        raise Refused(
            f"step {step} is at version {STEPS[step].version}; this Spec is of version {version}: "
            "make the run again"
        )
    inputs = {
        name: make_spec_from_json(spec) for name, spec in spec_json["inputs"].items()
    }
    return Spec(step, spec_json["args"], inputs, spec_json["seed"])


def find_transitive_input_specs(specs: Iterable[Spec]) -> set[Spec]:
    """Return all Specs that some Specs depend on, directly or not.

    A Spec is the description of a run (training or measurement), and its inputs are the
    Specs of runs that come before. The result has the inputs, the inputs of these, and
    so on, with the seeds at which they are run."""
    ancestors, left = set(), list(specs)
    while left:
        new = set(left.pop().input_specs_with_seeds.values()) - ancestors
        ancestors |= new
        left += new
    return ancestors


def uses_toy_data(step_arguments: Json) -> bool:
    """Return whether a training or measurement reads toy data, which are generated.

    Such a run needs little memory. Its weights are always saved, as they take only a
    few megabytes.

    step_arguments: the arguments in the description of the run. "data" says which rows
    are read: a dict whose "source" is "toy", "glue" and so on, or a dict of such
    dicts."""
    data = step_arguments.get("data") or {}
    return "toy" in (
        description.get("source")
        for description in (data, *data.values())
        if isinstance(description, dict)
    )


PLAIN = {bool, int, float, str, type(None)}


def to_plain_json(value: Any) -> Any:
    """Return an argument of a run's description (Spec) as plain JSON.

    So the description can be stored, compared and hashed. A dataclass of settings
    becomes a dict of the fields that differ from their defaults. A tuple becomes a
    list. An Output, a result that an earlier run (input) will give, becomes {"$output":
    [name of the input, name of the result]}. Raises Refused for other types, which JSON
    could not give back unchanged."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, dict):
        return {str(k): to_plain_json(v) for k, v in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [to_plain_json(v) for v in value]
    if isinstance(value, Output):
        return {"$output": [value.input, value.key]}
    if is_dataclass(value):
        return to_plain_json(list_non_default_fields(value))
    raise Refused(
        f"{value!r} ({type(value).__name__}) cannot stand in a Spec: use int, float, str, bool, "
        "lists, dicts or an option of lib.core.options"
    )


def remove_absolute_paths(json_value: Any) -> Any:
    """Return a JSON value with "" in place of every text that begins with "/".

    Nested dicts and lists are searched too. The arguments of a run then have the same
    hash on every machine, wherever the user's files lie. Digests beside the paths still
    identify the files."""
    if isinstance(json_value, dict):
        return {k: remove_absolute_paths(v) for k, v in json_value.items()}
    if isinstance(json_value, list):
        return [remove_absolute_paths(v) for v in json_value]
    return (
        "" if isinstance(json_value, str) and json_value.startswith("/") else json_value
    )


# canonical(value) returns JSON with sorted keys and without spaces, so that equal
# values have equal hashes. It raises ValueError for NaN and infinity.
canonical = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode
