"""This module has type aliases that several packages of lib use."""

from typing import Any, TypeAlias

import numpy as np

from lib.model.options import ContextYield as ContextYield
from lib.model.options import IndicesPerLayerByKind as IndicesPerLayerByKind

Json = dict[str, Any]  # JSON object: {name: JSON value}.
CsvRow = dict[str, str]  # {column of a CSV file: text of the cell}.
ReasonOrEmpty = str  # Sentence on what is wrong or missing; "" where nothing is.
MetricName = str  # Such as "accuracy".
Arrays = dict[str, np.ndarray]  # {name: array} of one `.safetensors` file of a run.

# A profile is the size of the experiments: "toy" (generated data), "mini" and "base"
# (real data, small and BERT-base's shape), or "paper" (the papers' own sizes). With a
# user's data or encoder it is a ProfileWithUserData, a str that carries them.
ProfileName: TypeAlias = str
TaskName: TypeAlias = str  # Such as "SST-2".
ModelName: TypeAlias = str  # Name of a model in tables.
EncoderFamily: TypeAlias = str  # "bert", "roberta" or "electra".
Seed: TypeAlias = int
Points: TypeAlias = float  # Score, or difference of scores, in points of 100.
# None in the place of a setting: that of the profile is taken.
ProfileDefault: TypeAlias = None
SplitName: TypeAlias = str  # "train", "dev", "test" or "unseen".
ClassName: TypeAlias = str
Sentence: TypeAlias = str
ModelInput: TypeAlias = str  # Argument of a model's forward pass, such as "input_ids".
Digest: TypeAlias = str  # Hexadecimal digits of a hash.
TokenCount: TypeAlias = int
LossTerm: TypeAlias = str  # "loss" is the sum; the other terms are logged.
