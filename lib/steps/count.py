"""Step: what a published architecture costs, counted on its configuration alone."""

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode


def count(run, config, tokens, labels):
    """Step: count parameters and FLOPs of a configuration.

    config: {"model_type", sizes...} as transformers names them; the rest is the framework's
    default.

    Returns the parameters of the classifier and of its encoder, and the FLOPs of one forward pass
    at batch 1 as PyTorch counts them under eager attention: matrix products and convolutions, one
    multiply-accumulate being two.
    """
    config = transformers.AutoConfig.for_model(**config, num_labels=labels)
    with torch.device("meta"):
        cls = transformers.AutoModelForSequenceClassification
        model = cls.from_config(config, attn_implementation="eager").eval()
        # A whole mask, as one of a row's length would be looked into, and there is nothing on this
        # device.
        inputs = {
            "input_ids": torch.zeros(1, tokens, dtype=torch.long),
            "attention_mask": torch.zeros(1, 1, tokens, tokens),
        }
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**inputs)
    parts = {"parameters": model, "encoder_parameters": model.base_model}
    return {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()} | {
        "flops": counter.get_total_flops()
    }
