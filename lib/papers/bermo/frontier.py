"""This module has the frontier's points of fine-pruning, with BERMo's mix and
without."""

from functools import partial

from lib.core.spec import Spec
from lib.papers import students
from lib.papers.bermo import recipes
from lib.papers.points import Method, join_stages_into_one_training

# Pruning method of these points: BERT diverges under movement pruning (claim B2).
METHOD = "Magnitude"


def fine_pruning_spec(profile: str, task: str, kept_twelfths: int, model: str) -> Spec:
    """Return the Spec of a model that is pruned while it is fine-tuned.

    It keeps kept_twelfths / 12 of the encoder's weights."""
    epochs = join_stages_into_one_training(students.FINETUNE, profile).epochs
    return recipes.pruned_spec(
        profile, task, model, METHOD, epochs, share=kept_twelfths / students.HEADS
    )


POINTS = {
    f"Fine-pruned {model}": Method(
        "paper", partial(fine_pruning_spec, model=model), "all"
    )
    for model in ("BERT", "BERMo")
}
