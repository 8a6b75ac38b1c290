"""This module has the transformers classes of models that were changed by operations
such as pruning ("surgery").

The configuration of such a model has the list of its operations under "surgery". A
model of these classes applies them when it is built, before its weights are loaded. The
folder of an exported model has copies of this file and of those that it imports, so
that `AutoModel...from_pretrained(folder, trust_remote_code=True)` opens it where this
project is not installed."""

from functools import cache
from typing import Any

import transformers

from .surgery import apply_surgery

FAMILIES = ("Bert", "Roberta", "Electra", "MPNet", "DistilBert")


@cache
def __getattr__(name: str) -> type[Any]:
    """Return a transformers class whose models restore pruning and other saved changes.

    Python calls this function for every attribute that this module lacks, such as
    "BertForSequenceClassification" or "BertConfig". The result is a subclass of the
    transformers class of the same name. When its model is built, the operations that
    the configuration lists (pruning, added modules) are applied, so that the saved
    weights fit.

    The configuration has a `model_type` that transformers does not know. This is on
    purpose: plain transformers then refuses to open such a model, instead of drawing
    all weights of changed shapes at random without an error. Raises AttributeError for
    a class of an unsupported model family."""
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
            apply_surgery(self, op)

    config_class = __getattr__(base.config_class.__name__)
    return type(
        name, (base,), {"__init__": __init__, "config_class": config_class} | PLACE
    )


# Attributes of the classes that this module makes by `type`. transformers finds the
# source file of a class through its `__module__`.
PLACE = {"__module__": __name__}
