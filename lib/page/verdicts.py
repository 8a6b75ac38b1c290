"""Verdicts as a reader sees them: badges, the table of a page, the words explained. Free of
torch.
"""

from collections import Counter
from functools import cache
from pathlib import Path

import jinja2

from lib.measure.claims import CHECKS, READING, WORDS
from lib.page import checks

TEMPLATE = Path(__file__).parent / "template"


def label(word, kind="finding", before=""):
    """Return the text of a badge: each word has a mark of its own, so that colour alone tells
    nothing.
    """
    shown = f"{WORDS[word][0]} {word.replace('_', ' ').lower()}"
    shown = CHECKS[word] if kind == "arithmetic" else shown
    return f"{before} {shown}".strip()


ENVIRONMENT = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True)
ENVIRONMENT.globals |= {"label": label, "words": WORDS, "checks": CHECKS, "reading": READING}
_SHOW = ENVIRONMENT.get_template("verdicts.html.j2").module


GROUPS = list(dict.fromkeys(group for _, group, _ in WORDS.values()))


def counted(words):
    """Return how many words are of each group, as text: "1 held, 2 open"."""
    counts = Counter(WORDS[word][1] for word in words)
    return ", ".join(f"{counts[group]} {group}" for group in GROUPS if counts[group])


def tally(kinds_and_words):
    """Counts of verdicts as text, findings and arithmetic checks apart.

    kinds_and_words: (kind, word) of each verdict.
    """
    kinds = {"finding": [], "arithmetic": []}
    for kind, word in kinds_and_words:
        kinds[kind].append(word)
    findings, checks = kinds.values()
    parts = [f"findings: {counted(findings)}"] * bool(findings)
    parts += [f"arithmetic checks: {checks.count('CONFIRMED')} of {len(checks)}"] * bool(checks)
    return "; ".join(parts)


def table(verdicts):
    """Verdicts as HTML: the claim, the word, what was measured.

    Further claims of a page that has central ones are folded away.
    """
    counts = tally((v.kind, v.verdict) for v in verdicts).capitalize()
    first = [v for v in verdicts if leading(v.claim)]
    rest = [v for v in verdicts if not leading(v.claim)]
    parts = (first, rest) if first else (rest, [])
    return str(_SHOW.table(*parts, claims(), counts))


def answers(verdicts):
    """Return a sentence for each central claim or own question among Verdicts, with its word; where
    there is none, how many of all have which word.
    """
    found = [v for v in verdicts if v.kind == "finding" and leading(v.claim)]
    counts = tally((v.kind, v.verdict) for v in verdicts).capitalize()
    return [
        f"{v.claim}: {claims().get(v.claim, '')} {label(v.verdict).capitalize()}." for v in found
    ] or [f"{counts}."] * bool(counts)


def leading(claim):
    """Whether it is a central claim, a question of our own, or a check by a page itself."""
    return checks.claims().get(claim, {"role": "own"})["role"] in ("central", "own")


@cache
def claims():
    """Return {claim: its text}."""
    return {id: line["says"] for id, line in checks.claims().items()}


def legend():
    """Return what the words mean, folded, as every page ends with it."""
    return str(_SHOW.legend())
