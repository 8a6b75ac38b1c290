"""This module shows verdicts: badges, the words explained, sentences. It is free of torch."""

from collections import Counter
from pathlib import Path

import jinja2

from lib.measure.claims import CHECKS, READING, WORDS
from lib.page import checks
from lib.papers.grids import PROFILES

TEMPLATE = Path(__file__).parent / "template"


def label(word, kind="finding", before=""):
    """Return the text of a badge. Each word has a mark of its own, besides its colour."""
    shown = f"{WORDS[word][0]} {word.replace('_', ' ').lower()}"
    shown = CHECKS[word] if kind == "arithmetic" else shown
    return f"{before} {shown}".strip()


ENVIRONMENT = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True)
ENVIRONMENT.globals |= {"label": label, "words": WORDS, "checks": CHECKS, "reading": READING}
# The index has pages of no paper first, then the pages of each paper, then experiments.
HEADINGS = ("The workbook", *checks.PAPERS.values(), "Experiments")
ENVIRONMENT.globals |= {"headings": HEADINGS, "profiles": PROFILES}

GROUPS = list(dict.fromkeys(group for _, group, _ in WORDS.values()))


def counted(words):
    """Return how many words are of each group, as text: "1 held, 2 open"."""
    counts = Counter(WORDS[word][1] for word in words)
    return ", ".join(f"{counts[group]} {group}" for group in GROUPS if counts[group])


def tally(verdicts):
    """Return counts of Verdicts as text, with findings and arithmetic checks apart."""
    findings = [v.verdict for v in verdicts if v.kind == "finding"]
    checks = [v.verdict for v in verdicts if v.kind == "arithmetic"]
    parts = [f"findings: {counted(findings)}"] * bool(findings)
    parts += [f"arithmetic checks: {checks.count('CONFIRMED')} of {len(checks)}"] * bool(checks)
    return "; ".join(parts).capitalize()


def answers(verdicts):
    """Return a sentence for each central claim or own question among Verdicts, with its word.

    Where there is none, a line says how many of all Verdicts have which word.
    """
    found = [each for each in map(told, verdicts) if each["kind"] == "finding" and each["leading"]]
    lines = [f"{v['claim']}: {v['says']} {label(v['verdict']).capitalize()}." for v in found]
    return lines or [f"{tally(verdicts)}."] * bool(verdicts)


def told(verdict):
    """Return a Verdict as a page's JSON file has it: without its cells, with its claim's sentence.

    It leads where it is on a central claim or a question of our own, and where the page itself made
    the check.
    """
    body = {name: value for name, value in vars(verdict).items() if name != "results"}
    claim = checks.claims().get(verdict.claim, {"says": "", "role": "own"})
    return body | {"says": claim["says"], "leading": claim["role"] in ("central", "own")}
