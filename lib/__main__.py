"""This module is the command line of the package: `python -m lib run ghostbert
--profile toy`.

Each command is one function, and its docstring is its help. It imports what it needs,
so that a command starts fast."""

from __future__ import annotations

import argparse
import getpass
import json
import locale
import os
import re
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from lib.core import disk, paths
    from lib.core.names import Refused, format_error_in_one_line
# A Python older than 3.11 lacks a module of the standard library, such as tomllib.
except ModuleNotFoundError as error:
    needs = "needs Python 3.11"
    sys.exit(f"error: {error} in {sys.executable}, and the workbook {needs}")

if TYPE_CHECKING:
    from lib.claims.notebook import ParameterValues
    from lib.cluster.sweep import ErrorBySpec, TimeForecast
    from lib.core.rows import Row
    from lib.core.spec import Spec
    from lib.core.store import Store
    from lib.core.types import ProfileName
    from lib.report.site import HasFailed

    RowsByVariableByNotebook = dict[Path, dict[str, list[Row]]]
    ErrorByNotebook = dict[Path, Refused]
    ExitStatus = int

FlagsAndKeywords = tuple[tuple[str, ...], dict[str, Any]]
COMMANDS: dict[str, tuple[Callable[..., Any], tuple[FlagsAndKeywords, ...]]] = {}


def register_command(
    command_name: str, *arguments: FlagsAndKeywords
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a function a command of `python -m lib`.

    The function's docstring is the command's help.

    arguments: for each argument of the command a pair (flags, keywords), as
    `make_option` returns it, which argparse's `add_argument` takes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        COMMANDS[command_name] = (function, arguments)
        return function

    return register


def make_option(*flags: str, **add_argument_keywords: Any) -> FlagsAndKeywords:
    return flags, add_argument_keywords


def parse_positive_integer(argument_text: str) -> int:
    """Return a command-line argument as a whole number above 0.

    It is a `type` of argparse. Raises ArgumentTypeError, which argparse prints, for any
    other text."""
    if not (argument_text.isdigit() and int(argument_text)):
        raise argparse.ArgumentTypeError(
            f"{argument_text} must be above 0, a whole number"
        )
    return int(argument_text)


def parse_comma_separated_items(argument_text: str) -> list[int | str]:
    """Return a command-line argument such as "Whole,3" as a list of words and numbers.

    It is a `type` of argparse. A JSON list such as '["Whole, distilled"]' is accepted
    too, for names with commas. Raises ArgumentTypeError, which argparse prints, for a
    text that begins with "[" and is not JSON."""
    if argument_text.startswith("["):
        try:
            return json.loads(argument_text)
        except ValueError:
            why = 'is no list of JSON, such as \'["Whole, distilled", "Width"]\''
            raise argparse.ArgumentTypeError(f"{argument_text} {why}") from None
    words = map(str.strip, argument_text.split(","))
    return [int(word) if re.fullmatch(r"[+-]?\d+", word) else word for word in words]


def parse_names(argument_text: str) -> list[str]:
    """Return a command-line argument such as "G1,91" as a list of names.

    It is a `type` of argparse, as `parse_comma_separated_items`."""
    return list(map(str, parse_comma_separated_items(argument_text)))


# {name of a command-line option: its help}. Each of these options, such as --methods,
# takes a list and sets the parameter of the same name, which only some notebooks have.
ABOUT = "of notebooks that take some, as in"
LISTS = {
    "methods": f"{ABOUT} Whole,Width; for 92_your_task Whole must be among them",
    "budgets": f"{ABOUT} 6,3",
    "seeds": f"{ABOUT} 0,1",
}
PAGES = (
    make_option(
        "pattern", nargs="*", help="part of a notebook's name; all without one"
    ),
    make_option(
        "--profile", "-p", default="toy", help="toy (default), mini, base or paper"
    ),
    make_option(
        "--data", default="", help="your own rows: a file, a folder, or hub:NAME"
    ),
    make_option(
        "--model",
        default="",
        help="your own encoder: a folder, or a name that `fetch` brought",
    ),
    make_option(
        "--length",
        type=parse_positive_integer,
        default=0,
        help="tokens at which your own rows are cut, of notebooks that take it: 92_your_task",
    ),
    *(
        make_option(f"--{name}", type=parse_comma_separated_items, help=about)
        for name, about in LISTS.items()
    ),
)
WORKERS = make_option(
    "--workers",
    "-w",
    type=parse_positive_integer,
    help="runs at once; else as many as fit",
)
BACKEND = make_option(
    "--backend",
    default="local",
    help="local, ray, ray:ADDRESS, slurm or slurm:NAME=VALUE,...",
)
RUN = make_option(
    "run", help="a run: step-identity/seed, or enough of it to be the only one"
)


def parse_profile_and_parameters(
    args: argparse.Namespace,
) -> tuple[ProfileName, ParameterValues]:
    """Return (profile, {parameter of a notebook: value}) that a command line asks for.

    The profile is the size of the experiments, such as "mini". With --data or --model
    it is a ProfileWithUserData, a str whose attributes are the user's data and model.
    The parameters are those that notebooks get in place of their defaults, such as
    seeds.

    args: the parsed command line, with profile, data, model, length, methods, budgets
    and seeds."""
    from lib.papers import grids

    grids.find_profile_settings(args.profile)  # An unknown profile is refused.
    scope = grids.make_profile_from_notebook_parameters(vars(args))
    lists = {name: getattr(args, name) for name in LISTS if getattr(args, name)}
    return scope, grids.get_notebook_parameters(scope) | lists


def list_planned_runs_of_notebooks(
    args: argparse.Namespace,
) -> tuple[RowsByVariableByNotebook, ErrorByNotebook, Store]:
    """Return the planned runs of the notebooks that a command names.

    The result is (grids, errors, store). `grids` is {notebook's path: {variable of the
    notebook: Rows}}, where a Row is one planned experiment with labels. `errors` is
    {notebook's path: error} of those whose runs cannot be listed, such as for missing
    data. `store` finds the results of the runs. Notebooks without runs at the profile
    are left out, and a line on stdout counts them. So are notebooks that lack a
    parameter which the command sets; a line names each.

    args: the parsed command line; `pattern` has the parts of notebooks' names."""
    from lib.claims import notebook, planned
    from lib.core.memo import enable_result_cache
    from lib.core.store import Store
    from lib.papers.grids import (
        describe_user_data_and_model,
        get_user_data_attribute,
    )

    print_changed_table_warnings()
    grids, absent = {}, {}
    args.profile, values = parse_profile_and_parameters(args)
    lines = describe_user_data_and_model(args.profile)[1:]
    if full := get_user_data_attribute(args.profile, "data"):
        lines.append(f"in full: --data {shlex.quote(full)}")
    print(*lines, sep="\n", end="\n" * bool(lines))
    matches = notebook.find_notebooks(args.pattern)
    suited, left_out = {}, ""
    for path in matches:
        name = notebook.make_notebook_id(path)
        if planned.notebook_lists_runs_at_profile(args.profile, name):
            suited[path] = name
    if without := len(matches) - len(suited):
        page_names = ", ".join(planned.list_planned_notebook_ids(args.profile))
        print(
            f"  left out {without} notebooks without rows at {args.profile[:]}, "
            f"as {page_names} have"
        )
    with enable_result_cache():
        for path, name in suited.items():
            try:
                declared = notebook.read_parameter_declarations(path)
                if lacking := values.keys() - declared.keys():
                    parameters = " or ".join(sorted(lacking))
                    left_out = f"{name}: it takes no {parameters}"
                    print(f"  left out {left_out}")
                    continue
                grids[path] = notebook.execute_grid_cell_and_list_rows_by_variable(
                    path, values, include_rows_of_recorded_runs=False
                )
            except Refused as error:
                absent[path] = error
                print(f"  cannot   {name}: {str(error).removeprefix(f'{name}: ')}")
    if left_out and not grids and not absent:
        raise Refused(f"nothing is left to do ({left_out}); fix: leave that out")
    return grids, absent, Store()


def describe_first_training_on_user_data(
    profile: ProfileName, missing_specs: list[Spec], time_forecast: TimeForecast
) -> str:
    """Return a line on the first training on a user's data and how long it takes.

    The user sees it before a long wait. The line is "" where the user brings no data,
    and where the first training is not the fine-tuning of the whole (unpruned) model.

    profile: the size of the experiments, such as "mini", as a ProfileWithUserData: a
    str whose attribute `data` names the user's data.
    missing_specs: the descriptions of the runs that are still to do, in their order.
    time_forecast: predicts the time of a run."""
    from lib.papers import grids

    trainings = [spec for spec in missing_specs if "train" in spec.args]
    task = grids.get_user_data_attribute(profile, "task_title")
    if not (task and trainings):
        return ""
    whole_model = grids.teacher_spec(profile, task).float32_spec
    if trainings[0].float32_spec.id != whole_model.id:
        return ""
    train, rows = trainings[0].args["train"], trainings[0].args["data"]["rows"]
    about = f"{train['epochs']} epochs of {rows:,} rows"
    about += f", {time_forecast.describe_expected_time(trainings[:1])}"
    return (
        f"first the whole model learns ({about}); other work on the cores adds to times"
    )


def run_bag_of_words_and_print_scores(
    profile: ProfileName, specs: list[Spec], time_forecast: TimeForecast
) -> None:
    """Score the bag-of-words baselines on a user's data, and print their scores.

    They are run before any encoder is trained, as they take seconds. A user may see
    that counting words already suffices. Nothing is done where the user brings no data.

    profile: the size of the experiments, such as "mini", as a ProfileWithUserData: a
    str whose attribute `data` names the user's data.
    specs: descriptions of runs; those of other kinds of work are skipped.
    time_forecast: predicts the time of a run, and has the store of results."""
    from lib.cluster import sweep
    from lib.papers import frontier, grids
    from lib.stats.paired import SHARES

    if not grids.get_user_data_attribute(profile, "data"):
        return
    for spec in specs:
        if spec.step != "bag_of_words":
            continue
        print_failure_reasons(
            sweep.execute_specs(
                [spec], time_forecast.store, 1, time_forecast=time_forecast
            )
        )
        if run := time_forecast.store.find_run(spec):
            (columns,) = grids.select_metrics_by_task(profile).values()
            is_share = columns[0].metric in SHARES
            print(
                frontier.format_majority_and_bag_of_words_scores(run.metrics, is_share),
                flush=True,
            )


def print_failure_reasons(
    error_by_spec: ErrorBySpec, rows_naming_models: Sequence[Row] = ()
) -> None:
    """Print why runs failed, one line for each reason, with the models that lack them.

    Runs that failed because the same input, such as a teacher, failed share a line.

    error_by_spec: {Spec, the description of a run: why the run failed}.
    rows_naming_models: Rows (experiments) whose labels say for which model and task a
    run is needed. Without them the lines name no models."""
    reasons = {}
    for spec, why in error_by_spec.items():
        names = reasons.setdefault(why.rpartition("could not be made: ")[2], {})
        names[spec.float32_spec] = spec.name
    for why, names in reasons.items():
        labels = dict.fromkeys(
            " on ".join(str(row[key]) for key in ("model", "task") if row.get(key))
            for row in rows_naming_models
            if row.spec.float32_spec in names
        )
        first, *others = names.values()
        more = f" and {len(others)} other runs" * bool(others)
        models = ", ".join([*labels][:3]) + ", ..." * (len(labels) > 3)
        print(f"  not made {first}{more}{f' ({models})' * bool(models)}: {why}")


@register_command("run", *PAGES, WORKERS, BACKEND)
def make_missing_runs_and_pages(
    args: argparse.Namespace, execute_missing_runs: bool = True
) -> HasFailed:
    """Make the missing runs of notebooks, and their pages with tables and figures.

    A run is one training or measurement. A page, the HTML of a notebook, is made as
    soon as its runs are finished. Without `execute_missing_runs`, as in the command
    `report`, pages are made from the runs that exist. Where the runs of no notebook can
    be listed, nothing is written. The exit status is 1 (True) where a run or a page
    failed."""
    from lib.claims import notebook
    from lib.cluster import sweep
    from lib.papers.grids import make_run_time_estimator
    from lib.report.site import Report

    began = time.monotonic()
    lost = {}
    scope, values = parse_profile_and_parameters(args)
    grids, absent, store = list_planned_runs_of_notebooks(args)
    if not grids:
        return bool(absent)
    with closing(Report(scope, values, grids, absent, store)) as pages:
        for builder in pages.builders:
            builder.workers = getattr(args, "workers", None)
            builder.backend = getattr(args, "backend", "local")
        print(pages.describe_where_results_appear(), flush=True)
        if execute_missing_runs:
            specs = notebook.list_specs_of_grid_variables(
                *(builder.rows_by_variable for builder in pages.builders)
            )
            clock = sweep.TimeForecast(store, make_run_time_estimator(scope))
            run_bag_of_words_and_print_scores(scope, specs, clock)
            missing = store.plan_missing_runs(specs)
            todo = sweep.describe_missing_runs(missing, clock, args.workers)
            print(f"{len(grids)} notebooks, {len(specs)} results; {todo}", flush=True)
            if missing and (line := pages.describe_pages_ready_to_render()):
                print(line, flush=True)
            if line := describe_first_training_on_user_data(
                scope, list(missing), clock
            ):
                print(line, flush=True)
            with pages.render_pages_during_runs():
                lost = sweep.execute_specs(
                    specs,
                    store,
                    args.workers,
                    call_after_run=pages.mark_run_finished,
                    backend=args.backend,
                    time_forecast=clock,
                )
            rows = chain.from_iterable(v.get("grid", ()) for v in grids.values())
            print_failure_reasons(lost, [*rows])
        failed = pages.render_all_pages()
    print(
        *pages.iterate_main_result_lines(),
        f"{pages.path_to_open}  ({time.monotonic() - began:.0f} s)",
        sep="\n",
    )
    return failed or bool(lost)


@register_command("report", *PAGES)
def make_pages_of_finished_runs(args: argparse.Namespace) -> HasFailed:
    """Make the pages of notebooks, with tables and figures, from the runs that exist.

    A page is the HTML of a notebook. A run is one training or measurement; missing ones
    are not made. The exit status is 1 (True) where a page failed."""
    return make_missing_runs_and_pages(args, execute_missing_runs=False)


@register_command("plan", *PAGES, WORKERS)
def print_missing_runs_and_time(args: argparse.Namespace) -> HasFailed:
    """Print how many runs notebooks lack and how long they would take.

    A run is one training or measurement. Runs of these notebooks that began and did not
    finish are listed, and all that are running. Nothing is run but quick baselines on
    your own rows. The exit status is 1 (True) where the runs of a notebook cannot be
    listed."""
    from lib import data
    from lib.claims import notebook, planned
    from lib.cluster import sweep
    from lib.papers.grids import make_run_time_estimator

    with data.plan_with_missing_data() as absent:
        grids, cannot, store = list_planned_runs_of_notebooks(args)
        clock = sweep.TimeForecast(store, make_run_time_estimator(args.profile))
        every = {}
        if not absent:
            run_bag_of_words_and_print_scores(
                args.profile,
                notebook.list_specs_of_grid_variables(*grids.values()),
                clock,
            )
        steps = planned.read_planned_core_hours_by_step(args.profile)
        for path, variables in grids.items():
            specs = notebook.list_specs_of_grid_variables(variables)
            missing = store.plan_missing_runs(specs)
            every |= missing
            about = f", {clock.describe_expected_time(missing)}" * (not steps)
            counts = f"{len(specs)} results, {len(missing)} runs missing{about}"
            print(f"{notebook.make_notebook_id(path)}: {counts}")
    # For a profile with a plan (a committed table of the runs to make), the core-hours
    # in the plan are printed. The forecast is not, since it rests on the run times of
    # smaller encoders.
    about = clock.describe_expected_time(
        every, args.workers or sweep.count_workers(every)
    )
    if steps:
        parts = ", ".join(f"step {step} {hours:.1f}" for step, hours in steps.items())
        about = f"{sum(steps.values()):.1f} core-hours in bfloat16 for all of the plan ({parts})"
    if grids:
        print(f"together {len(every)} runs missing, {about}")
    of_notebooks = {store.get_unfinished_folder_path(spec) for spec in every}
    for part in store.list_unfinished_folders():
        s = store.read_status_and_check_lock(part)
        if part not in of_notebooks and s["state"] != "running":
            continue
        far = f"{s.get('progress', 0):.0%} after {sweep.format_seconds(s['seconds'])}"
        print(
            f"{s['state']:9} {part.parent.name}/{part.stem}  {far}  {s.get('error', '')}"
        )
    if absent and every:
        fix = "`python -m lib fetch NAME` brings each, or data/README.md says how"
        print(f"not at hand: {', '.join(sorted(absent))}; {fix}")
    return bool(cannot)


@register_command("show", RUN)
def print_run_summary(args: argparse.Namespace) -> None:
    """Print the scores, status and metrics of one run, and the earlier runs it used.

    A run is one training or measurement. With a notebook's name in place of a run,
    print the sentences that sum up the notebook's results. Raises Refused where neither
    a run nor a notebook has this name."""
    from lib.core.spec import make_spec_from_json
    from lib.export import card, opened
    from lib.report import site

    try:
        run = opened.find_run_by_name(args.run)
    except Refused:
        if not (lines := site.describe_main_results_of_notebooks(args.run)):
            raise
        print(*lines, sep="\n")
        return
    task = None
    # The file of a user's data may have changed since, or lie elsewhere.
    with suppress(Refused, FileNotFoundError):
        task = opened.find_task_of_run(run)
    scores = card.select_scores_of_task(run, task).items()
    print(
        f"{run.name}: {', '.join(f'{k} {100 * v:.1f}' for k, v in scores) or 'no score'}"
    )
    print(*card.describe_provenance(make_spec_from_json(run.spec)), sep="\n")
    print(f"status {json.dumps(run.status)}")
    print(f"metrics {json.dumps(run.metrics)}")
    files = ", ".join(sorted(path.name for path in run.folder.iterdir()))
    print(f"{run.origin} in {paths.format_project_path(run.folder)}: {files}")


@register_command(
    "export",
    RUN,
    make_option("--onnx", action="store_true", help="also as ONNX"),
    make_option("--to", help="a new folder (default: below data/export)"),
    make_option(
        "--keep",
        action="store_true",
        help="make the run again where it kept no weights",
    ),
)
def export_model_of_run(args: argparse.Namespace) -> None:
    """Write a run's trained model to a folder that transformers opens, and check it.

    The check opens the model from the new folder, and compares its outputs with those
    of the run's model. The folder also gets a model card, README.md. With --onnx the
    model is written as ONNX too, and checked alike."""
    from lib.export import (
        card,
        check_export_folder_is_empty,
        check_onnx_packages,
        opened,
    )

    if args.onnx:
        check_onnx_packages()
    run = opened.find_run_by_name(args.run)
    from lib.export import writer  # Imported late: it loads torch, which takes seconds.

    folder = paths.make_absolute_path(
        args.to or paths.DATA / "export" / run.name.replace("/", "-")
    )
    check_export_folder_is_empty(folder)
    task = opened.find_task_of_run(run)
    run = opened.find_run_with_weights(run, args.keep)
    labels = task.labels if task and not task.span else None
    with disk.raise_full_disk_as_oserror(folder), disk.write_atomically(folder) as made:
        exported = writer.export_model(run.model_folder, made, labels, args.onnx)
        card.make_model_card(run, exported).save(made / "README.md")
    for form, most in exported["forms"].items():
        print(f"  {form:18} differs from the run's model by {most:.1e}")
    print(
        f"{paths.format_project_path(folder)}: "
        f"transformers.{exported['auto']}.from_pretrained(FOLDER"
        f"{', trust_remote_code=True' * exported['remote']}) opens it"
    )


@register_command(
    "evidence",
    WORKERS,
    BACKEND,
    make_option(
        "--claims",
        type=parse_names,
        default=[],
        help="claims whose runs are made, such as G1,N1; else all",
    ),
    make_option(
        "--pages",
        type=parse_names,
        default=[],
        help="make the runs of these pages instead, such as nas_t02,bermo_t02",
    ),
    make_option(
        "--list",
        action="store_true",
        help="make no run: print what is done, what is left, and the verdicts",
    ),
    make_option(
        "--profile",
        "-p",
        default="mini",
        help="mini, or base, whose runs are made in the order of plan_base.csv",
    ),
)
def execute_and_record_runs_of_claims(args: argparse.Namespace) -> HasFailed:
    """Make the runs that the papers' central claims still need, and record each.

    A run is one training or measurement. Its record is a copy without weights in a
    folder that is committed to git. With --list only the progress is printed. The exit
    status is 1 where a run failed."""
    from lib.claims import evidence as queue
    from lib.core.store import Store

    if args.pages and (args.claims or args.list):
        raise Refused("--pages stands alone: without --claims and without --list")
    print_changed_table_warnings()
    store, profile = Store(), args.profile
    claims: Any = (
        queue.select_claims_to_run(args.claims)
        if profile == queue.SCALE
        else queue.select_plan_lines(profile, args.claims)
    )
    if args.list:
        board = (
            queue.describe_claim_progress(claims, store)
            if profile == queue.SCALE
            else queue.describe_plan_progress(claims, store, profile)
        )
        print(*board, sep="\n")
        return False
    os.nice(10)  # Run at low priority; workers inherit it.
    lost = queue.execute_and_record_missing_runs(
        claims, store, args.workers, args.backend, profile, args.pages
    )
    print_failure_reasons(lost)
    return bool(lost)


@register_command(
    "verify",
    make_option(
        "--write", action="store_true", help="write the files of what is there"
    ),
)
def verify_committed_files(args: argparse.Namespace) -> HasFailed:
    """Check the results committed to git: compute them again, print what differs.

    Metrics are computed from the stored predictions. The table of runs and the table of
    the papers' tested claims are computed from the metrics. The exit status is 1 (True)
    where a file differs or a run is damaged. With --write the computed files replace
    the committed ones, if no run is damaged."""
    from lib.claims import verify as evidence
    from lib.core.store import Store

    store = Store()
    lines = evidence.verify_committed_results(store, rewrite_committed_files=args.write)
    count = len(store.list_recorded_runs())
    sound = f"{count} records, the runs of all grids and the verdicts agree"
    print(*(lines or [sound]), sep="\n")
    return bool(lines)


@register_command("fetch", make_option("name"))
def download_checkpoint_or_data(args: argparse.Namespace) -> None:
    """Download a pretrained checkpoint or a data set to data/, and print its folder.

    The argument `name` is a checkpoint (bert-base-uncased, ...) or a data set with its
    benchmark (glue/CoLA, squad/SQuAD1). A checkpoint that is there already is not
    downloaded again; a data set is, and replaces its files. `name` may also be a folder
    with a checkpoint in pickled form: it gets the weights as safetensors too."""
    from lib.data import models, read

    source, _, task = args.name.partition("/")
    if task and source in read.SOURCES:
        folder = read.download_task_from_hub(task, paths.data_root() / source)
    else:
        folder = models.fetch_checkpoint(args.name)
    print(paths.format_project_path(folder))


@register_command("tidy")
def remove_notebook_outputs(args: argparse.Namespace) -> None:
    """Remove outputs from the notebooks, and record digests of their code.

    A notebook that later differs from its digest was changed by a user, and the page
    that is made of it says so."""
    from lib.claims import notebook

    for path in notebook.rewrite_notebooks_in_committed_form():
        print(f"  tidied   {paths.format_project_path(path)}")


def main(command_line: Sequence[str] | None = None) -> ExitStatus:
    parser = argparse.ArgumentParser(
        "python -m lib", description="Four papers on compressing BERT, reproduced."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    command_line = sys.argv[1:] if command_line is None else command_line
    epilog = ""
    if {"-h", "--help"} & {*command_line[1:]} and not list_missing_packages():
        with suppress(Refused):  # A wrong setting is told by the command itself.
            from lib.papers import frontier

            epilog = "\n".join(frontier.format_help_lines_for_method_comparison())
    for name, (function, arguments) in COMMANDS.items():
        has_choices = arguments[: len(PAGES)] == PAGES
        sub = commands.add_parser(
            name,
            help=function.__doc__,
            description=function.__doc__,
            epilog=epilog * has_choices,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for flags, keywords in arguments:
            sub.add_argument(*flags, **keywords)
    args = parser.parse_args(command_line)
    if fault := find_environment_fault():
        print(f"error: {fault}", file=sys.stderr)
        return 2
    # Hide messages of transformers that are only of use in a run's log. Workers and
    # notebook kernels inherit this variable.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # A termination signal ends a command as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with disk.raise_full_disk_as_oserror(), ExitStack() as stack:
            set_missing_home_and_user_variables(stack)
            return int(COMMANDS[args.command][0](args) or 0)
    except KeyboardInterrupt:
        # A second signal, as `timeout` sends, must not interrupt the end.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if "lib.cluster.executors" in sys.modules:
            sys.modules["lib.cluster.executors"].kill_fork_server()
        print(
            "stopped; the same command goes on from the last checkpoints",
            file=sys.stderr,
        )
        return 130
    # A missing folder or a full disk raises an OSError.
    except (Refused, OSError) as error:
        fix = paths.format_unwritable_file_advice(getattr(error, "filename", None))
        fix = fix * ("fix: " not in str(error))
        print(
            f"error: {error}{fix}",
            *describe_changed_published_tables(),
            sep="\n",
            file=sys.stderr,
        )
        return 2
    except Exception as error:
        from lib.claims import committed

        if not (
            lines := [
                *describe_changed_published_tables(),
                *committed.describe_uncommitted_changes(*TABLES),
            ]
        ):
            raise  # No edited file explains the error, so it is a fault of this code.
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{paths.format_project_path(place.filename)}:{place.lineno}"
        line = f"error: {format_error_in_one_line(error)} ({where})"
        print(line, *dict.fromkeys(lines), sep="\n", file=sys.stderr)
        return 2


def list_missing_packages() -> list[str]:
    """Return the packages of requirements.txt that this Python does not have.

    A command then ends with the way to install them instead of an ImportError. The list
    is empty where the file does not exist."""
    file = paths.ROOT / "requirements.txt"
    missing = []
    for line in file.read_text().splitlines() if file.exists() else ():
        name = line.partition("==")[0].strip()
        try:
            if name and not name.startswith("#"):
                metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    return missing


def find_environment_fault() -> str:
    """Return why no command can run on this machine, with the fix; "" where all can.

    Packages or notebooks may be missing, the locale may not be UTF-8, or a folder that
    a user moved may be a file. The fix for missing packages is to use the project's own
    Python, `.venv/bin/python`, if it exists, or else the command that installs them."""
    if missing := list_missing_packages():
        more = f" and {len(missing) - 3} more" * (len(missing) > 3)
        python = paths.ROOT / ".venv/bin/python"
        fix = "`make .venv/ready`, then `.venv/bin/python -m lib ...`; or `pip install -e .`"
        if python.exists():
            fix = f"{paths.format_project_path(python)} -m lib ..."
        return f"{sys.executable} has no {', '.join(missing[:3])}{more}; fix: {fix}"
    for name, root in paths.list_configurable_folders().items():
        if os.path.lexists(root) and not root.is_dir():
            return f"{root} is no folder; fix: set {name} to another folder"
    if locale.getpreferredencoding(False).lower() not in ("utf-8", "utf8"):
        return "files are UTF-8; fix: set PYTHONUTF8=1, or a UTF-8 locale"
    if not paths.NOTEBOOKS.is_dir():
        fix = "fix: go to a folder of one, or set NOTEBOOKS_ROOT"
        return f"no checkout has {paths.NOTEBOOKS}; {fix}"
    return ""


# Globs of the data files on which results and pages depend.
TABLES = (
    "lib/**/*.toml",
    "data/published/**",
    "data/unseen/*",
    "data/digests.json",
    "data/records/*.csv",
)


def print_changed_table_warnings() -> None:
    """Print a warning for each changed file of data on which results depend.

    Such files are settings, published numbers and digests of data sets. A file is
    changed if it differs from its committed version, and results may then differ from
    the published ones."""
    from lib.claims import committed

    for line in (
        committed.describe_uncommitted_changes(*TABLES)
        or describe_changed_published_tables()
    ):
        print(
            f"  changed  {line.partition(' is not ')[0]}: what rests on it may differ"
        )


def describe_changed_published_tables() -> list[str]:
    """Return an error message for each changed file of the papers' published numbers.

    A file is changed if its SHA-256 digest differs from the committed one. Commands
    print the messages beside an error that such a file may cause. The list is empty
    where no digests are committed."""
    from lib.claims import committed

    if not (paths.records_root() / committed.FILES).exists():
        return []
    return [
        line
        for line in committed.describe_digest_mismatches()
        if line.startswith("data/published/")
    ]


def set_missing_home_and_user_variables(exit_stack: ExitStack) -> None:
    """Set the environment variables HOME and USER for a time, where they are missing.

    In a container the user id may have no entry in the list of users. Packages that
    make pages need both variables. HOME becomes a temporary folder, USER the user id.

    exit_stack: removes the temporary folder and unsets the variables when it is
    closed."""
    if os.path.expanduser("~") == "~":
        home = tempfile.TemporaryDirectory(prefix="home-")
        os.environ["HOME"] = exit_stack.enter_context(home)
        exit_stack.callback(os.environ.pop, "HOME")
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = str(os.getuid())
        exit_stack.callback(os.environ.pop, "USER")


if __name__ == "__main__":
    sys.exit(main())
