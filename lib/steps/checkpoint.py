"""Step: a published checkpoint in the store, so that whatever starts from it knows its digest."""

import json

import torch
import transformers

from lib.data import models
from lib.model import backbone
from lib.spec import stream


def checkpoint(run, name, digest, random=False):
    """random: the same architecture and tokenizer with new random weights, the control without
    pre-training.
    """
    models.copy(name, digest, run.folder / "model")
    if random:
        torch.manual_seed(stream(run.seed, "init"))
        config = transformers.AutoConfig.from_pretrained(
            run.folder / "model", local_files_only=True
        )
        with backbone.quiet():
            transformers.AutoModel.from_config(config).save_pretrained(run.folder / "model")
    config = json.loads((run.folder / "model" / "config.json").read_text())
    return {
        k: config[k]
        for k in ("model_type", "num_hidden_layers", "hidden_size", "num_attention_heads")
        if k in config
    }
