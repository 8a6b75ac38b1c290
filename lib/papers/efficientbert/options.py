"""This module has the options of EfficientBERT's search and distillation.

A field's default means "off", and the identity of a run leaves out fields with their
default. So a field that is added later does not change the identity of earlier runs.
The docstring of a class also says what the paper leaves open."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from lib.core.options import Count, Option
from lib.core.types import Json

# Says which text a pre-training reads; `lib.papers.efficientbert.warming.encode_corpus`
# explains the form.
CorpusDescriptor = Json
NetworkName: TypeAlias = str  # Name in EfficientBERT's tables, such as "Base Model".
CorpusName: TypeAlias = str  # "wikipedia+books" or "wikipedia".
# None in the place of a run whose model gives the initial weights: they are random.
RandomWeights: TypeAlias = None
# None in the place of a number of rows: all that are not held out.
AllRemainingRows: TypeAlias = None
# Score by which a search ranks networks: "" is the task's first metric, "loss" is
# exp(-L) of the loss L on the teacher's logits.
SelectionScore: TypeAlias = Literal["", "loss"]
RandomCascadeOrEvolution: TypeAlias = str


@dataclass(frozen=True)
class Search(Option):
    """This class has the settings of an architecture search.

    They say how candidate networks are proposed and scored (EfficientBERT, section
    3.2). Raises Refused for a value that is not allowed, for a cascade or an evolution
    without the numbers that it needs, and for an evolution whose population is above
    half of the budget.

    method: how candidate networks are proposed. "random" draws them. "cascade" draws
    them too, but keeps only those that a series of classifiers accepts; the classifiers
    are fitted on the scores of earlier candidates. "evolution" mutates good candidates.
    The paper names the search method LaNAS, but its code has "cascade".
    budget: number of candidates that are evaluated, failed ones included. The paper has
    1,900 in stage 1 of its search, 100 in stage 2 and 3,000 in stage 3.
    draws: largest number of random draws, or of mutations for "evolution", in which one
    new candidate is sought. If none passes all classifiers of "cascade", the draw that
    passes the most of them is taken. The authors' code has 20,000.
    initial: for "cascade", number of evaluated candidates before its classifiers are
    first fitted. The authors' code has 80. Other methods have 0.
    refit: for "cascade", number of evaluated candidates between two fits of its
    classifiers. The authors' code has 10. Other methods have 0.
    encoding: for "cascade", how a candidate becomes the features that the classifiers
    read. "index" has a number for each symbol in the formulas of the feed-forward
    networks, such as W2 gelu(W1 x), and for each of their sizes. Other methods have "".
    population: for "evolution", number of latest candidates from which parents are
    taken.
    tournament: for "evolution", number of candidates that are drawn from these latest
    ones. The best of them is the parent of the next candidate.
    score: score of a candidate: "" is the task's first metric, "loss" is exp(-L). L is
    the loss on the teacher's logits (equation 3) on all held-out rows. Unlike an
    accuracy it is continuous, so ties are rare."""

    method: Literal["random", "cascade", "evolution"]
    budget: Count
    draws: Count
    initial: int = 0
    refit: int = 0
    encoding: Literal["", "index"] = ""
    population: int = 0
    tournament: int = 0
    score: Literal["", "loss"] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = {
            "cascade": ("initial", "refit"),
            "evolution": ("population", "tournament"),
        }
        for name in needed.get(self.method, ()):
            if getattr(self, name) < 1:
                raise self.make_field_error(name, f"{self.method} needs at least 1")
        if self.method == "evolution" and 2 * self.population > self.budget:
            most = f"evolution proposes candidates after the first {self.population} of them alone"
            fix = f"take a population of at most {self.budget // 2}, half of the budget"
            raise self.make_field_error(
                "population", f"the budget is {self.budget}, and {most}: {fix}"
            )


@dataclass(frozen=True)
class Warmup(Option):
    """This class has the settings of warm-up distillation (EfficientBERT, section 3.2).

    Warm-up means that a student inherits weights of a larger network, then learns from
    a teacher (equations 1 to 4). Raises Refused for a value that is not allowed.

    attention: what is matched of the attention: the "scores" before the softmax, as in
    the authors' code.
    projection: the linear map from the student's hidden size to the teacher's. One map
    is "shared" by the embedding and all layers, as in the authors' code; the paper's
    text has one for the embedding and one for the layers.
    prediction: weight gamma of the loss on logits in equation 4: 0 on plain text, 1 on
    a task.
    zero: whether attention scores of at most -100 are set to 0 before they are
    compared, as in the authors' code, where padded keys have such scores. Scores here
    are without the mask, so those of padded keys are set to 0 too.
    mask: whether the mean squared errors leave out padded tokens. The authors' code
    includes them.
    gold: whether a regression task (STS-B) learns the labels, as in the authors' code,
    and not the teacher's outputs.
    hide_first: whether the loss on the logits of answer spans leaves out the position
    of [CLS] as start and end of an answer, as in the authors' code. The paper is
    silent."""

    attention: Literal["scores"]
    projection: Literal["shared"]
    prediction: float = 0.0
    zero: bool = False
    mask: bool = False
    gold: bool = False
    hide_first: bool = False


@dataclass(frozen=True)
class SubnetworkOptions(Option):
    """This class says which subnetworks of a supernet are trained.

    A supernet is a network whose leading parts are smaller networks with shared
    weights. In stage 3 of EfficientBERT's search each training step draws one of these
    at random.

    window: (least, most) parameters of a subnetwork, with the linear map to the
    teacher's hidden size. The authors' code has 15 and 16 million.
    choices: for each layer the pairs (k, q) from which its size is drawn: k stacked
    feed-forward networks with 1/q of the full inner width. A pair that occurs twice is
    drawn twice as often. The authors' code lists all 16 pairs, and once more the pair
    that stage 2 of the search found."""

    # pyrefly: ignore[implicit-any-type-argument]  An Option would read a type
    # `tuple[X, ...]` as "one of the values X", so the tuple is bare.
    window: tuple
    # pyrefly: ignore[implicit-any-type-argument]  A bare tuple, as above.
    choices: tuple
