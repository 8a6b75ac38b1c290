"""This module has the options of EfficientBERT, free of torch.

A default means "off", so that a field that is added later leaves the identity of
earlier runs alone. The comment at a field also says what the paper leaves open."""

from dataclasses import dataclass
from typing import Literal

from lib.core.options import Count, Option


@dataclass(frozen=True)
class Search(Option):
    """A Search says how candidates are proposed (section 3.2,
    search.samplers)."""

    # The paper names LaNAS, and its code has a cascade of classifiers.
    method: Literal["random", "cascade", "evolution"]
    # Failed evaluations count too. The paper's stages have 1,900, 100 and 3,000
    # evaluations.
    budget: Count
    # After so many unguided draws an unseen candidate in the wanted region is given up.
    # The code has 20,000.
    draws: Count
    initial: int = 0  # The cascade first learns from so many unguided evaluations; the code has 80.
    refit: int = (
        0  # The cascade is fitted again after so many evaluations; the code has 10.
    )
    encoding: Literal["", "index"] = (
        ""  # The cascade reads candidates so (search.space).
    )
    population: int = 0  # In evolution so many candidates are alive, the youngest ones.
    tournament: int = 0  # So many of them compete to be the parent.
    # A candidate is scored by the task's first metric or, with "loss", by exp(-L): L is
    # the prediction loss (equation 3) on all held-out rows, so hardly two candidates
    # tie.
    score: Literal["", "loss"] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == "evolution" and 2 * self.population > self.budget:
            most = f"evolution proposes candidates after the first {self.population} of them alone"
            fix = f"take a population of at most {self.budget // 2}, half of the budget"
            raise self.refuse_field(
                "population", f"the budget is {self.budget}, and {most}: {fix}"
            )


@dataclass(frozen=True)
class Warmup(Option):
    """A Warmup is the settings of warm-up distillation (EfficientBERT, equations 1 to
    4)."""

    # Attention is matched by its "scores" before the softmax, as in the code.
    attention: Literal["scores"]
    # One projection of the student's states is "shared" by embedding and layers, as in
    # the code; the paper's text has one for each of the two.
    projection: Literal["shared"]
    # This is gamma, the weight of the prediction loss: 0 in pre-training, 1 in
    # fine-tuning.
    prediction: float = 0.0
    # Scores of at most -100, thus all of padded keys, are first set to 0, as in the
    # code.
    zero: bool = False
    mask: bool = False  # The means leave padding out; those of the code include it.
    # A regression learns the label, as in the code, not the teacher's score.
    gold: bool = False
    # In the prediction loss no answer begins or ends at [CLS], as in the code; the
    # paper is silent.
    hide_first: bool = False


@dataclass(frozen=True)
class Shared(Option):
    """A Shared says which parts of a supernet are trained (EfficientBERT, stage 3)."""

    # A part has at least and at most so many parameters, projection included. The code
    # has 15 and 16 million.
    # pyrefly: ignore[implicit-any-type-argument]  As at Train.select_by.
    window: tuple
    # Each layer draws from its list of (k, q). The code has all 16, and that of stage 2
    # once more.
    # pyrefly: ignore[implicit-any-type-argument]  As at Train.select_by.
    choices: tuple
