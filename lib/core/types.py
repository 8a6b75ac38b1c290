"""This module has type aliases that several packages of lib use."""

from typing import Any

import numpy as np

Json = dict[str, Any]  # JSON object: {name: JSON value}.
Arrays = dict[str, np.ndarray]  # {name: array} of one `.safetensors` file of a run.
