"""This module has names of types that many rooms use."""

from typing import Any

import numpy as np

Json = dict[str, Any]  # This is an object of JSON.
Arrays = dict[str, np.ndarray]  # These are arrays by name, as a run saves them.
