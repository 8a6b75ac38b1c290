"""This module has type aliases that several packages of lib use."""

from typing import Any, TypeAlias

import numpy as np

Json = dict[str, Any]  # JSON object: {name: JSON value}.
Arrays = dict[str, np.ndarray]  # {name: array} of one `.safetensors` file of a run.

# Name of a profile: "toy", "mini", "base" or "paper". With a reader's own data or
# encoder it is a ProfileWithUserData, a subclass of str.
ExperimentSize: TypeAlias = str
TaskName: TypeAlias = str  # Such as "SST-2".
ModelName: TypeAlias = str  # Name of a model in tables.
EncoderFamily: TypeAlias = str  # "bert", "roberta" or "electra".
Points: TypeAlias = float  # Score, or difference of scores, in points of 100.
# None in the place of a setting: that of the profile is taken.
ProfileDefault: TypeAlias = None
