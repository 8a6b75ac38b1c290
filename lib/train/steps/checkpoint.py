"""This step copies a published checkpoint into a run. Other runs can then have the
checkpoint as an input. The digest of its files is part of their identity, so that other
files make other runs."""

from typing import TypeAlias

import torch
import transformers

from lib.core.names import derive_seed
from lib.core.store import RunWriter
from lib.core.types import Digest
from lib.data import models
from lib.model import backbone
from lib.stats.metrics import Metrics

CheckpointName: TypeAlias = str
ReplacesWeightsByRandomOnes: TypeAlias = bool


def checkpoint(
    run: RunWriter,
    name: CheckpointName,
    digest: Digest,
    random: ReplacesWeightsByRandomOnes = False,
) -> Metrics:
    """Copy a pretrained checkpoint into a run's folder, for other runs to start from.

    Returns {"model_type"}, such as "bert". Raises Refused where the files differ from
    the expected digest.

    run: the folder of this run, for writing, and its seed.
    name: the name of the checkpoint, such as "bert-base-uncased".
    digest: the digest that its files must have.
    random: whether its weights are replaced by random ones, as a control without
    pre-training."""
    folder = run.folder / "model"
    models.copy_checkpoint(name, digest, folder)
    if random:
        torch.manual_seed(derive_seed(run.seed, "init"))
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
    return {"model_type": backbone.read_configuration(folder)["model_type"]}
