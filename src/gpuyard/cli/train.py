"""``gpuyard train`` and ``gpuyard export``: train a policy, search a rule, resume a run, write its model."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from gpuyard.cli.inputs import check_output, one_line, open_console, print_json, print_note
from gpuyard.cli.parameters import Flag, Json, settings
from gpuyard.cli.runs import run_document
from gpuyard.errors import InputError
from gpuyard.learn.config import EnvironmentSection, TrainConfig, TrainingSection
from gpuyard.learn.process.exit_codes import FAILED
from gpuyard.runs.directory import FOLDER, find_directory, open_run
from gpuyard.terminal.console import StageProgress, errors
from gpuyard.terminal.live import watch_training
from gpuyard.terminal.runs import outcome_in_words
from gpuyard.units import duration, number

if TYPE_CHECKING:
    from gpuyard.learn.rules.run import SearchRun
    from gpuyard.learn.search import Choice, SearchProgress, SearchResult

RUNS = Path(FOLDER)
Jobs = Annotated[
    EnvironmentSection,
    settings(EnvironmentSection, "Jobs", without=("id", "preset", "generator", "envs", "settings")),
]
Training = Annotated[TrainingSection, settings(TrainingSection, "Training")]
JOBS, TRAINING = EnvironmentSection(), TrainingSection()

STAGES = {
    "heuristics": "fixed heuristics",
    "grid": "grid of orders, backfilling and admission",
    "rule": "tuning the rule (CMA-ES)",
}

TITLES = {"heuristic": "best fixed heuristic", "grid": "grid", "rule": "tuned rule"}
METRICS = ("mean_bounded_slowdown", "mean_jct_s", "p99_wait_s", "max_wait_s")
RULE = "linear score and gate"
GAP = 2
LEAST_WINDOW = 16
"""Jobs of the shortest window that is chosen without being asked for."""


def train(
    algorithm: Annotated[str | None, Parameter(help="ppo, d3qn, sac, clone, evolve or search.")] = None,
    /,
    *tables: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="--TABLE.KEY VALUE, such as --ppo.clip 0.1 or --environment.window 32.",
        ),
    ],
    preset: Annotated[str | None, Parameter(help="Settings by name: bursty, demo, hosts.")] = None,
    config: Annotated[Path | None, Parameter(help="A TOML file of settings.")] = None,
    out: Annotated[Path | None, Parameter(help="The run's directory. (default: the next in runs/)")] = None,
    resume: Annotated[
        Path | None, Parameter(help="Resume this run, exactly as if it had not stopped.")
    ] = None,
    init_from: Annotated[
        str | None, Parameter(help="A run, or a model file: weights, or a rule, to start from.")
    ] = None,
    check: Annotated[
        bool, Flag, Parameter(help="Do not train: overfit one window, and report on gradients and masks.")
    ] = False,
    json: Json = False,
    jobs: Jobs = JOBS,
    training: Training = TRAINING,
) -> int:
    """Train a policy, or search for a rule.

    Settings come from a preset, a TOML file and options, the later ones taking precedence. The directory of
    the run holds its settings, its progress log, checkpoints and models; Ctrl-C leaves it ready for --resume.

    Example: gpuyard train ppo --preset bursty --minutes 4
    """
    given = {
        "training": training.model_dump(exclude_unset=True),
        "environment": {name: value for name, value in jobs if name in ("workload", "cluster") and value},
    }
    if resume is not None:
        others = (algorithm, tables, preset, config, out, init_from, given["environment"], check)
        if any(others) or set(given["training"]) - {"minutes"}:
            raise InputError("--resume resumes a run as it was set up; only --minutes can be given with it")
        return _run(find_directory(resume), None, training.minutes, json)
    if algorithm is None:
        raise InputError("which algorithm? gpuyard train ppo, d3qn, sac, clone, evolve or search")
    stated = parse_options(tables)
    for table, values in given.items():
        if values:
            stated[table] = {**stated.get(table, {}), **values}
    if algorithm == "search":
        if preset or init_from or check:
            raise InputError("--preset, --init-from and --check are not for a search")
        return _search(stated, config, out or next_directory("search"), json)
    from gpuyard.learn.settings import assemble, replaced_in_words

    resolved = assemble(algorithm, stated, preset=preset, file=config, init_from=init_from)
    if check:
        return _check(resolved, json)
    replaced = replaced_in_words(preset, algorithm, stated, config) if preset else ""
    return _run(out or next_directory(algorithm), resolved, None, json, [replaced] if replaced else [])


def parse_options(tokens: Sequence[str]) -> dict[str, Any]:
    """Nested tables from ``--TABLE.KEY VALUE`` and ``--TABLE.KEY=VALUE``.

    Raises:
        InputError: for what is neither.
    """
    tables: dict[str, Any] = {}
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        name, equals, value = token.partition("=")
        if not name.startswith("--") or "." not in name:
            raise InputError(
                f"cannot read {token!r}; settings are written --TABLE.KEY VALUE, such as --ppo.clip 0.1"
            )
        if not equals:
            if not rest:
                raise InputError(f"{name} needs a value")
            value = rest.pop(0)
        *path, key = name[2:].replace("-", "_").split(".")
        place = tables
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise InputError(f"{name}: {part} has been given a value already, and is no table")
        place[key] = _value(value)
    return tables


def _value(text: str) -> Any:
    """A number, true, false, a JSON list or object; else the text itself."""
    try:
        return json_text.loads(text)
    except ValueError:
        return text


def next_directory(algorithm: str) -> Path:
    """The first that is free among ``runs/ALGORITHM-1``, ``runs/ALGORITHM-2`` and so on."""
    taken = {path.name for path in RUNS.glob(f"{algorithm}-*")} if RUNS.is_dir() else set()
    number = 1
    while f"{algorithm}-{number}" in taken:
        number += 1
    return RUNS / f"{algorithm}-{number}"


def _run(
    directory: Path, config: TrainConfig | None, minutes: float | None, json: bool, notes: Sequence[str] = ()
) -> int:
    from gpuyard.learn.process.launch import TrainingFailedError
    from gpuyard.learn.run import resume_run, start_run

    watch = partial(watch_training, console=errors())
    try:
        if config is not None:
            code = start_run(directory, config, watch, notes)
        else:
            code = resume_run(directory, watch, minutes)
    except TrainingFailedError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return FAILED
    run = open_run(directory)
    if json:
        print_json(run_document(run))
        return code

    open_console().print(outcome_in_words(run), soft_wrap=True)  # commands are there to be copied
    return code


def _check(config: TrainConfig, json: bool) -> int:
    from gpuyard.learn.process.check import CHECK_S, check_training, report

    print(f"Training on one window again and again: takes about {CHECK_S:.0f} s.", file=sys.stderr)
    result = check_training(config)
    if json:
        print_json(result.document())
    else:
        open_console().print(report(result), soft_wrap=True)
    return 0 if result.passed else 1


def _search(tables: Mapping[str, Any], file: Path | None, directory: Path, json: bool) -> int:
    """Search and show."""
    from gpuyard.learn.rules.run import prepare_search, run_search

    run = with_windows_that_fit(prepare_search(tables, file))
    try:
        with StageProgress() as progress:

            def tell(said: SearchProgress) -> None:
                best = f"best so far {said.best}, loss {said.loss:.3f}"
                progress.update(STAGES[said.stage], said.done, said.total, best)

            result = run_search(run, directory, tell)
    except InputError as error:
        option = f"--search.jobs_per_window {fitting_window(run) or LEAST_WINDOW}"
        raise InputError(str(error).replace("(jobs_per_window)", f"({option})")) from None
    if json:
        print_json({"run": str(directory), **result.summary()})
        return 0
    console = open_console()
    console.print(_table(result, console.width), "", sep="\n", crop=False)
    for line in _words(result, directory):
        console.print(line, soft_wrap=True)  # commands are there to be copied
    return 0


def with_windows_that_fit(run: SearchRun) -> SearchRun:
    """With shorter windows than usual if the workload has too few jobs for those, and none were asked for."""
    usual, size = run.search.jobs_per_window, fitting_window(run)
    if "jobs_per_window" in run.search.model_fields_set or size is None or size >= usual:
        return run
    print_note(
        f"windows of {size} jobs instead of {usual:,}, as {run.source} has only {len(run.workload):,}; "
        f"--search.jobs_per_window sets another size"
    )
    return replace(run, search=run.search.model_copy(update={"jobs_per_window": size}))


def fitting_window(run: SearchRun) -> int | None:
    """The usual size if the workload has room for it, else what it has room for.

    That is the largest power of two which is at most three quarters of the smaller one of the training and
    the validation part, so that windows differ; None if that is too small to learn anything from.
    """
    from gpuyard.workload.shaping.slices import split_by_time

    train, validation, _ = split_by_time(run.workload)
    smaller = min(len(train), len(validation))
    usual: int = type(run.search).model_fields["jobs_per_window"].default
    if smaller >= usual:
        return usual
    size = 1 << max(smaller * 3 // 4, 1).bit_length() - 1
    return size if size >= LEAST_WINDOW else None


def _table(result: SearchResult, width: int) -> Any:
    """Names of policies are never cut: rather, metrics that find no room are left out."""
    shown = [name for name in METRICS if name in result.judged["heuristic"].validation]
    names = {kind: RULE if kind == "rule" else one.name for kind, one in result.judged.items()}
    rows = {
        kind: [_cell(name, one.validation[name]) for name in shown] for kind, one in result.judged.items()
    }
    table = Table(box=None, pad_edge=False, title="On validation windows", title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("policy", no_wrap=True, min_width=max(map(len, names.values())))
    taken = sum(max(len(text) for text in texts.values()) for texts in (TITLES, names)) + GAP
    columns: list[str] = []
    headings = [name.removesuffix("_s").replace("_", " ") for name in shown]
    values = [max(len(row[index]) for row in rows.values()) for index in range(len(shown))]
    if taken + sum(GAP + max(len(h), v) for h, v in zip(headings, values, strict=True)) > width:
        headings = [heading.replace(" ", "\n") for heading in headings]
    for heading, value in zip(headings, values, strict=True):
        wide = GAP + max(value, *map(len, heading.split("\n")))
        if columns and taken + wide > width:
            break
        table.add_column(heading, justify="right", no_wrap=True)
        taken += wide
        columns.append(heading)
    table.width = taken if taken > width else None  # on a terminal that is narrower still
    for kind, cells in rows.items():
        chosen = "bold" if kind == result.chosen else ""
        table.add_row(TITLES[kind], names[kind], *cells[: len(columns)], style=chosen)
    return table


def _cell(metric: str, value: float) -> str:
    return duration(value) if metric.endswith("_s") else number(value)


def _words(result: SearchResult, directory: Path) -> list[str]:
    took = f"{duration(sum(result.seconds.values()))} of searching."
    use = f"gpuyard simulate JOBS --cluster CLUSTER --policy {result.policy or directory}"
    start = f"gpuyard train ppo --init-from {directory}"
    if result.chosen == "heuristic":
        return [
            f"Nothing that keeps the limits was clearly better than {result.reference}. {took}",
            f"{result.grid_policy}, the best of the grid, {_against_reference(result, 'grid')}.",
            f"Use the heuristic: {use}",
            f"The run holds the best of the grid all the same; a network can start from it: {start}",
        ]
    what = "The tuned rule" if result.chosen == "rule" else result.grid_policy
    return [
        f"{what} {_against_reference(result, result.chosen)}. {took}",
        f"Use it: {use}",
        f"Train a network that starts from it: {start}",
    ]


def _against_reference(result: SearchResult, kind: Choice) -> str:
    own, usual = result.judged[kind].validation, result.judged["heuristic"].validation
    ratio, jct = (own[name] / usual[name] - 1 for name in ("mean_bounded_slowdown", "mean_jct_s"))
    return (
        f"has {100 * ratio:+.0f} % mean bounded slowdown and {100 * jct:+.1f} % mean completion time against "
        f"{result.reference} on validation windows"
    )


def export(
    model: Annotated[str, Parameter(help="A run's directory, a model file, or model:NAME.")],
    /,
    *,
    out: Annotated[Path, Parameter(help="The file to write: .onnx.")],
    json: Json = False,
) -> int:
    """Write a trained model as ONNX, and compare it with the model.

    Comparing needs onnxruntime.

    Example: gpuyard export runs/ppo-1 --out model.onnx
    """
    check_output("--out", out, (".onnx",))
    for package in ("torch", "onnx"):
        if find_spec(package) is None:
            raise InputError(f"writing ONNX needs the package {package}; run pip install 'gpuyard[onnx]'")
    from gpuyard.learn.export_model import ExportFailedError, export_model

    try:
        written = export_model(model, out)
    except ExportFailedError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return 1
    if json:
        print_json(written.document())
        return 0
    console = open_console()
    console.print(
        f"Written to {out}: {written.network} for {written.kind}, from {written.model}.", soft_wrap=True
    )
    if written.checked:
        console.print(
            f"onnxruntime decides as the model does on {written.states} states (logits differ by at most "
            f"{written.largest_difference:.1g}).",
            soft_wrap=True,
        )
    else:
        console.print("Not compared with the model: that needs pip install onnxruntime.", soft_wrap=True)
    return 0
