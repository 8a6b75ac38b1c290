"""This module lists BERMo's methods for the frontier, a comparison of score and cost of
all papers' methods: pruning during fine-tuning, with the weighted sum of layers and
without."""

from functools import partial
from typing import Literal

from lib.core.spec import Spec
from lib.core.types import ProfileName, TaskName
from lib.papers import students
from lib.papers.bermo import recipes
from lib.papers.points import CompressionMethod, make_single_stage_train_settings

# Pruning method of the two models in POINTS. It is magnitude pruning, because under
# movement pruning the training of BERT without the weighted sum of layers diverges.
METHOD = "Magnitude"


def magnitude_fine_pruned_spec(
    profile: ProfileName,
    task: TaskName,
    kept_weights_in_twelfths: int,
    model_name: Literal["BERT", "BERMo"],
) -> Spec:
    """Describe the run that prunes a model by magnitude while it is fine-tuned.

    The model is one point in a comparison of score and cost of many compression
    methods, all trained for equally many epochs. The Spec is the frozen description of
    this run, still without a seed.

    profile: size of the experiment, "toy", "mini", "base" or "paper".
    kept_weights_in_twelfths: the share of the weights in the encoder's linear layers
    that is kept, times 12; 3 means a quarter.
    model_name: "BERT", or "BERMo", whose last output is a weighted sum of all layers'
    outputs (layer mix)."""
    epochs = make_single_stage_train_settings(students.FINETUNE, profile, task).epochs
    return recipes.pruned_spec(
        profile,
        task,
        model_name,
        METHOD,
        epochs,
        kept_share=kept_weights_in_twelfths / students.HEADS,
    )


POINTS = {
    f"Fine-pruned {model}": CompressionMethod(
        "paper", partial(magnitude_fine_pruned_spec, model_name=model), "all"
    )
    for model in ("BERT", "BERMo")
}
