"""This module has the transformers classes of models with surgery.

The configuration of such a model has its operations under "surgery". A new model
applies them when it is built, before its weights are loaded. An exported folder has
this file and those that it imports, so that
`AutoModel...from_pretrained(folder, trust_remote_code=True)` opens it anywhere."""

from functools import cache
from typing import Any

import transformers

from .surgery import operate

FAMILIES = ("Bert", "Roberta", "Electra", "MPNet", "DistilBert")


@cache
def __getattr__(name: str) -> type[Any]:
    """Return a subclass of a transformers model or configuration, by its name, that
    applies surgery.

    The configuration has a `model_type` that transformers does not know. So no folder
    with surgery is opened without this file, which would replace weights by random
    ones. Raises AttributeError for a name of no supported family."""
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


# Attribute by which transformers finds the source file of these classes.
PLACE = {"__module__": __name__}
