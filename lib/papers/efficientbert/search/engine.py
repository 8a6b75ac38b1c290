"""This module has the loop of an architecture search: propose a candidate, score it,
save the result.

The history of a search is a file of JSON lines: a header, then a line for each
evaluated candidate. The next candidate depends on the history and the seed alone. So a
search that was killed continues from its last line."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib.core import disk
from lib.core.names import Refused, derive_seed, list_non_default_fields
from lib.core.spec import canonical
from lib.core.types import Json
from lib.model.formula import FormulaError
from lib.papers.efficientbert.options import Search
from lib.papers.efficientbert.search import samplers
from lib.papers.efficientbert.search.net import Net
from lib.papers.efficientbert.search.samplers import Evaluation
from lib.papers.efficientbert.search.space import Space


class CandidateScore(NamedTuple):
    score: float
    failure_reason: str  # Why the network could not be scored; "" where it could.


class HistoryLine(NamedTuple):
    entry_without_digest: Json
    line_bytes: bytes  # Content of the line, with the line break.


def search_networks(
    space: Space,
    score_net: Callable[[Net], float],
    options: Search,
    proposal_seed: int,
    history_path: Path,
    report_share_of_budget: Callable[[float], None] | None = None,
) -> list[Evaluation]:
    """Search for good networks: propose candidates one after the other, and score them.

    Return the evaluations (network with score), oldest first. The search ends at the
    budget in `options`, or earlier where no new candidate is found. Each evaluation is
    added to the history file at once. So a search that was killed continues from there
    and gives the same result.

    space: the set of networks that the search may evaluate.
    score_net: f(network) -> score, the higher the better. A network has score 0 where
    the function raises FloatingPointError or FormulaError (invalid formula of a
    feed-forward network), or gives no finite number. It still counts as worse than any
    other network.
    options: the method and budget of the search.
    proposal_seed: seed of the proposals.
    history_path: the file of earlier evaluations. It is made anew where it belongs to
    another search.
    report_share_of_budget: f(share of the budget that is spent), called after each
    evaluation."""
    first = space.list_starting_networks()
    history = read_or_restart_history(space, options, proposal_seed, history_path)
    while len(history) < options.budget:
        began = time.perf_counter()
        n = len(history)
        rng = np.random.default_rng(derive_seed(proposal_seed, f"proposal {n}"))
        candidate = (
            first[n]
            if n < len(first)
            else samplers.propose_candidate(space, history, options, rng)
        )
        if candidate is None:
            break
        score, failed = score_candidate(score_net, candidate)
        seconds = round(time.perf_counter() - began, 3)
        entry = Evaluation(
            candidate, space.make_deduplication_key(candidate), score, seconds, failed
        )
        append_history_line_with_digest(
            history_path,
            # All networks of a search share widths and heads.
            {**vars(entry), "candidate": candidate.to_json()["layers"]},
        )
        history.append(entry)
        if report_share_of_budget:
            report_share_of_budget(len(history) / options.budget)
    return history


def score_candidate(
    score_net: Callable[[Net], float], candidate: Net
) -> CandidateScore:
    """Return the score of a network in a search, and the reason if it failed.

    A network fails where `score_net` raises FloatingPointError (its training diverges)
    or FormulaError (the formula of a feed-forward network is invalid), or gives no
    finite number. It then has score 0 and an error message as `failure_reason`, which
    is else "". So one failure does not end the search."""
    try:
        score = float(score_net(candidate))
    except (FloatingPointError, FormulaError) as error:
        return CandidateScore(0.0, str(error) or type(error).__name__)
    if math.isfinite(score):
        return CandidateScore(score, "")
    return CandidateScore(0.0, f"the score is {score}")


def find_best_evaluation(history: list[Evaluation]) -> Evaluation:
    """Return the evaluation (network with score) with the highest score of a search.

    Of equal scores the first one counts. Raises Refused where all networks failed or
    none was evaluated.

    history: all evaluations of the search, oldest first."""
    worked = [e for e in history if not e.failed]
    if not worked:
        said = f"; the first: {history[0].failed}" if history else ""
        raise Refused(f"none of {len(history)} candidates could be evaluated{said}")
    return max(worked, key=lambda e: e.score)


def append_history_line_with_digest(
    history_path: Path, entry_without_digest: Json
) -> None:
    """Append an entry to the history file of a search, as a JSON line with a digest.

    A process that is killed may leave an incomplete line. By the digest
    `iterate_verified_history_lines` recognises it, so that the search continues from
    the last complete one. Raises ValueError for NaN and infinity, which JSON lacks.

    history_path: the history file, which is created where it is missing.
    entry_without_digest: the settings of the search (first line), or a network with its
    score."""
    with open(history_path, "a") as file:
        file.write(
            json.dumps(
                {
                    **entry_without_digest,
                    "digest": digest_history_entry(entry_without_digest),
                },
                allow_nan=False,
            )
            + "\n"
        )


def digest_history_entry(entry_without_digest: Json) -> str:
    """Return the digest of a line of a search's history: 16 hexadecimal digits.

    It shows whether the line is complete and undamaged. The field "seconds" does not
    count, because a repeated search takes another time and is otherwise equal.

    entry_without_digest: the JSON object of the line, without the digest."""
    return disk.digest_bytes(
        canonical({**entry_without_digest, "seconds": 0}).encode()
    )[:16]


def iterate_verified_history_lines(
    history_bytes: bytes,
) -> Iterator[HistoryLine]:
    """Yield the lines of a search's history file, up to the first damaged one.

    A HistoryLine is the JSON object without its digest, and the bytes of the line with
    its line break. A line is damaged if it is incomplete, no JSON, or has another
    digest. Lines after it are not used, since each proposal depends on all evaluations
    before.

    history_bytes: the content of the file."""
    for line in history_bytes.splitlines(keepends=True):
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            value = json.loads(line)
            if value.pop("digest") == digest_history_entry(value) and line.endswith(
                b"\n"
            ):
                yield HistoryLine(value, line)
                continue
        return


def read_or_restart_history(
    space: Space, options: Search, seed: int, history_path: Path
) -> list[Evaluation]:
    """Return the evaluations of a search that was stopped, from its history file.

    The search continues after them. The file is cut before its first damaged line. It
    is begun anew, and the result is [], where it belongs to another space, other
    options or another seed. Another budget alone does not matter, so a search may be
    continued with a larger one.

    space: the set of networks that the search may evaluate.
    options: method and budget of the search.
    history_path: the file, which is created where it is missing."""
    # The budget is left out: it does not change which candidates are proposed, so a
    # search may continue with a larger budget from the same file.
    proposing = list_non_default_fields(options)
    del proposing["budget"]
    header = {"space": space.to_json(), "seed": seed, "search": proposing}
    lines = list(
        iterate_verified_history_lines(
            history_path.read_bytes() if history_path.exists() else b""
        )
    )
    if not lines or canonical(lines[0][0]) != canonical(header):
        history_path.unlink(missing_ok=True)
        append_history_line_with_digest(history_path, header)
        return []
    os.truncate(history_path, sum(len(line) for _, line in lines))
    return [
        Evaluation(
            **e | {"candidate": space.convert_json_layers_to_net(e["candidate"])}
        )
        for e, _ in lines[1:]
    ]
