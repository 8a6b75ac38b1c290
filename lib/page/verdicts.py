"""Verdicts as a reader sees them: badges, the table of a page, the words explained. Free of torch."""

import html

from lib import published
from lib.measure.verdict import CHECKS, READING, WORDS, tally


def badge(word, kind="finding", before="", after=""):
    """A verdict's word as HTML. Findings are round and coloured, arithmetic checks square and grey; each word has a mark of
    its own, so that none is told by colour alone."""
    check = kind == "arithmetic"
    shown = CHECKS[word] if check else f"{WORDS[word][0]} {word.replace('_', ' ').lower()}"
    text = " ".join(filter(None, (before, shown, after and f"({after})")))
    return f'<span class="badge {kind if check else word}">{html.escape(text)}</span>'


def table(verdicts):
    """Verdicts as HTML: the claim, the word as a badge, what was measured, the power, and how to read them."""
    texts = published.claims().set_index("id")["claim"]
    rows = "".join(
        f"<tr><td><b>{html.escape(v.claim)}</b> {html.escape(texts.get(v.claim, ''))}</td>"
        f"<td>{badge(v.verdict, v.kind)}<br>{'<br>'.join(filter(None, (v.provisional, html.escape(v.scale))))}</td>"
        f"<td>{html.escape(v.measured)}{f'; p = {v.p:.2g}' if v.p is not None else ''}</td>"
        f"<td>{html.escape('; '.join(filter(None, (v.note, v.power))))}</td></tr>"
        for v in verdicts
    )
    counts = tally((v.kind, v.verdict) for v in verdicts)
    return (
        f'<div class="table"><table class="verdicts"><caption>Claims of the paper. {counts.capitalize()}</caption><thead><tr>'
        f"<th>claim</th><th>verdict</th><th>measured</th><th>note</th></tr></thead><tbody>{rows}</tbody></table></div>"
        f"{pooled(verdicts)}{legend()}"
    )


def pooled(verdicts):
    """A sentence on the rows that verdicts count beside those of the tables, as HTML; empty where there are none."""
    most = max((v.unseen for v in verdicts), default=0)
    return (
        ""
        if not most
        else (
            "<p>Scores in the tables are of development rows, as the papers print them. "
            "Verdicts count these together with unseen rows, "
            f"at most {most:,} a task: rows with labels that no run trained or selected on.</p>"
        )
    )


def legend():
    """What the words mean, as HTML."""
    rows = "".join(
        f"<li>{badge(word)} {html.escape(line)}</li>" for word, (_, _, line) in WORDS.items()
    )
    checks = " ".join(badge(word, "arithmetic") for word in CHECKS)
    return (
        f'<details class="legend"><summary>How to read the verdicts</summary><ul>{rows}<li>{checks} '
        f"arithmetic checks</li></ul>{''.join(f'<p>{html.escape(line)}</p>' for line in READING)}</details>"
    )


def markdown():
    """What the words mean, as README has it."""
    lines = ["| word | meaning |", "|---|---|"]
    lines += [
        f"| {mark} {word.replace('_', ' ').lower()} | {line} |"
        for word, (mark, _, line) in WORDS.items()
    ]
    return "\n".join(lines) + "\n\n" + " ".join(READING) + "\n"
