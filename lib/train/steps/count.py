"""This step counts the parameters and FLOPs of a published architecture, from its
configuration alone."""

from typing import TypeAlias

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from lib.core.store import RunWriter
from lib.core.types import Json, TokenCount
from lib.model.parts import count_parameters
from lib.stats.metrics import Metrics

ConfigOfTransformers: TypeAlias = Json
ClassCount: TypeAlias = int


def count(
    run: RunWriter,
    config: ConfigOfTransformers,
    tokens: TokenCount,
    labels: ClassCount,
) -> Metrics:
    """Count the parameters and FLOPs of a published architecture.

    Only its configuration is needed, and no weights. Returns {"parameters" of the
    classifier, "encoder_parameters", "flops" of one forward pass of one row}. PyTorch
    counts the FLOPs under eager attention: matrix products and convolutions, where one
    multiply-accumulate is two FLOPs.

    run: the folder of this run; not used.
    config: {"model_type", sizes...} as transformers names them; what is left out has
    the default of transformers.
    tokens: the length of the row.
    labels: the number of classes."""
    configuration = transformers.AutoConfig.for_model(**config, num_labels=labels)
    with torch.device("meta"):
        cls = transformers.AutoModelForSequenceClassification
        model = cls.from_config(configuration, attn_implementation="eager").eval()
        # The mask has four axes, as transformers uses such a mask unchanged. It would
        # read the values of a mask [B, T], and tensors on the device "meta" have none.
        inputs = {
            "input_ids": torch.zeros(1, tokens, dtype=torch.long),
            "attention_mask": torch.zeros(1, 1, tokens, tokens),
        }
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**inputs)
    encoder = count_parameters(model.base_model)["parameters"]
    more = {"encoder_parameters": encoder, "flops": counter.get_total_flops()}
    return count_parameters(model) | more
