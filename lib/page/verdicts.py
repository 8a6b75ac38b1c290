"""Verdicts as a reader sees them: badges, the table of a page, the words explained. Free of
torch.
"""

from functools import cache
from pathlib import Path

import jinja2

from lib import checks
from lib.measure.verdict import CHECKS, READING, WORDS, tally
from lib.papers import protocol

TEMPLATE = Path(__file__).parent / "template"


def label(word, kind="finding", before="", after=""):
    """The text of a badge: each word has a mark of its own, so that colour alone tells nothing."""
    shown = f"{WORDS[word][0]} {word.replace('_', ' ').lower()}"
    shown = CHECKS[word] if kind == "arithmetic" else shown
    return " ".join(filter(None, (before, shown, after and f"({after})")))


ENVIRONMENT = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True)
ENVIRONMENT.globals |= {"label": label, "words": WORDS, "checks": CHECKS, "reading": READING}
_SHOW = ENVIRONMENT.get_template("verdicts.html.j2").module


def table(verdicts):
    """Verdicts as HTML: the claim, the word, what was measured, the power.

    Further claims of a page that has central ones are folded away.
    """
    counts = tally((v.kind, v.verdict) for v in verdicts).capitalize()
    first = [v for v in verdicts if leading(v.claim)]
    rest = [v for v in verdicts if not leading(v.claim)]
    parts = (first, rest) if first else (rest, [])
    return str(_SHOW.table(*parts, claims(), counts))


def leading(claim):
    """Whether it is a central claim, a question of our own, or a check by a page itself."""
    return claim in protocol.CLAIMS or claim not in checks.claims()


@cache
def claims():
    """{claim: its text}."""
    own = {id: claim.says for id, claim in protocol.OWN.items()}
    return own | {id: line["says"] for id, line in checks.claims().items()}


def legend():
    """What the words mean, folded, as every page ends with it."""
    return str(_SHOW.legend())
