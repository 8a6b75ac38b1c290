"""This module has the options of EfficientBERT, free of torch.

A default means "off", so a field that is added later keeps the identity of earlier
runs. The comment at a field also says what the paper leaves open."""

from dataclasses import dataclass
from typing import Literal

from lib.core.options import Count, Option


@dataclass(frozen=True)
class Search(Option):
    """A Search has the settings by which candidates are proposed (section 3.2,
    search.samplers)."""

    # Sampler. The paper names LaNAS, but its code has a cascade of classifiers.
    method: Literal["random", "cascade", "evolution"]
    # Number of evaluations, failed ones included. The paper's stages have 1,900, 100
    # and 3,000.
    budget: Count
    # Unguided draws before the search for a new candidate in the wanted region is given
    # up. The code has 20,000.
    draws: Count
    # Unguided evaluations before the cascade is first fitted; the code has 80.
    initial: int = 0
    refit: int = 0  # Evaluations between two fits of the cascade; the code has 10.
    # Features of a candidate that the cascade reads (search.space).
    encoding: Literal["", "index"] = ""
    population: int = 0  # Number of youngest candidates that are alive in evolution.
    tournament: int = 0  # Number of alive candidates that compete to be the parent.
    # Score of a candidate: the task's first metric or, with "loss", exp(-L). L is the
    # prediction loss (equation 3) on all held-out rows, so hardly two candidates tie.
    score: Literal["", "loss"] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == "evolution" and 2 * self.population > self.budget:
            most = f"evolution proposes candidates after the first {self.population} of them alone"
            fix = f"take a population of at most {self.budget // 2}, half of the budget"
            raise self.make_field_error(
                "population", f"the budget is {self.budget}, and {most}: {fix}"
            )


@dataclass(frozen=True)
class Warmup(Option):
    """A Warmup has the settings of warm-up distillation (equations 1 to 4)."""

    # Attention is matched before the softmax, as in the authors' code.
    attention: Literal["scores"]
    # One projection of the student's states serves embedding and layers, as in the
    # authors' code; the paper's text has one for each of the two.
    projection: Literal["shared"]
    # Weight gamma of the prediction loss: 0 in pre-training, 1 in fine-tuning.
    prediction: float = 0.0
    # Whether scores of at most -100, so all of padded keys, are first set to 0, as in
    # the authors' code.
    zero: bool = False
    # Whether means leave out padding. Those of the authors' code include it.
    mask: bool = False
    # Whether a task of scores learns the label, as in the authors' code, and not the
    # teacher's score.
    gold: bool = False
    # Whether the prediction loss lets no answer begin or end at [CLS], as in the
    # authors' code. The paper is silent.
    hide_first: bool = False


@dataclass(frozen=True)
class Shared(Option):
    """A Shared says which parts of a supernet stage 3 of the search trains."""

    # (least, most) parameters of a part, projection included. The code has 15 and 16
    # million.
    # pyrefly: ignore[implicit-any-type-argument]  As at Train.select_by.
    window: tuple
    # For each layer the pairs (stack k, inverse ratio q) that it draws from. The code has
    # all 16, and that of stage 2 once more.
    # pyrefly: ignore[implicit-any-type-argument]  As at Train.select_by.
    choices: tuple
