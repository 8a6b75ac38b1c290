"""This module has the classes of models that were operated on, for transformers.

The configuration of such a model has its operations under "surgery". A new model does
them again, then its weights are loaded. An exported folder carries this file and those
that it imports, so that `AutoModel...from_pretrained(folder, trust_remote_code=True)`
opens it anywhere."""

from functools import cache
from typing import Any

import transformers

from .surgery import operate

FAMILIES = ("Bert", "Roberta", "Electra", "MPNet", "DistilBert")


@cache
def __getattr__(name: str) -> type[Any]:
    """Return the class of operated models, or of their configurations, for a name in
    transformers.

    The `model_type` of the configuration is one that transformers does not know. So
    nothing opens such a folder without this file, and no cut matrix is filled with
    random numbers. Raises AttributeError for a name of no supported family."""
    base = getattr(transformers, name) if name.startswith(FAMILIES) else None
    if base is None:
        raise AttributeError(
            f"{name} is no model or configuration of {', '.join(FAMILIES)}"
        )
    if name.endswith("Config"):
        return type(
            name, (base,), {"model_type": f"operated-{base.model_type}"} | PLACE
        )

    def __init__(
        self: transformers.PreTrainedModel, config: transformers.PretrainedConfig
    ) -> None:
        base.__init__(self, config)
        for op in config.surgery:
            operate(self, op)

    config_class = __getattr__(base.config_class.__name__)
    return type(
        name, (base,), {"__init__": __init__, "config_class": config_class} | PLACE
    )


PLACE = {"__module__": __name__}  # transformers looks here for the sources of a class.
