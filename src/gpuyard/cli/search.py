"""``gpuyard train search``: progress and result of a search, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.cli.inputs import open_console, print_json, print_note
from gpuyard.errors import InputError
from gpuyard.units import duration, number

if TYPE_CHECKING:
    from gpuyard.learn.rules.run import SearchRun
    from gpuyard.learn.search import Choice, SearchProgress, SearchResult

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


def search_command(tables: Mapping[str, Any], file: Path | None, directory: Path, json: bool) -> int:
    """Search and show."""
    from gpuyard.learn.rules.run import prepare_search, run_search
    from gpuyard.terminal.console import StageProgress

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
    from rich.table import Table

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
