"""Step: a published checkpoint in the store, so that whatever starts from it knows its digest."""

import json

from lib.data import models


def checkpoint(run, name, digest):
    models.copy(name, digest, run.folder / "model")
    config = json.loads((run.folder / "model" / "config.json").read_text())
    return {k: config[k] for k in ("model_type", "num_hidden_layers", "hidden_size", "num_attention_heads") if k in config}
