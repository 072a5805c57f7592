"""``gpuyard train search``: progress and result of a search, for people."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.cli_parts import open_console, print_json
from gpuyard.quantities import duration, number

if TYPE_CHECKING:
    from gpuyard.learn.search import SearchProgress, SearchResult

STAGES = {
    "heuristics": "fixed heuristics",
    "grid": "grid of orders, backfilling and admission",
    "rule": "tuning the rule (CMA-ES)",
}


def search_command(tables: Mapping[str, Any], file: Path | None, directory: Path, json: bool) -> int:
    """Search and show."""
    from gpuyard.learn.searching import prepare_search, run_search

    run = prepare_search(tables, file)
    with _Progress() as progress:
        result = run_search(run, directory, progress.update)
    if json:
        print_json({"run": str(directory), **result.summary()})
        return 0
    console = open_console()
    console.print(_table(result), "", sep="\n")
    for line in _words(result, directory):
        console.print(line)
    return 0


def _table(result: SearchResult) -> Any:
    from rich.table import Table

    titles = {"heuristic": "best fixed heuristic", "grid": "grid", "rule": "tuned rule"}
    metrics = ("mean_bounded_slowdown", "mean_jct_s", "p99_wait_s", "max_wait_s")
    shown = [name for name in metrics if name in result.judged["heuristic"].validation]
    table = Table(box=None, pad_edge=False, title="On validation windows", title_justify="left")
    table.add_column("")
    table.add_column("policy")
    for name in shown:
        table.add_column(name.removesuffix("_s").replace("_", " "), justify="right")
    for kind, one in result.judged.items():
        cells = [
            duration(one.validation[name]) if name.endswith("_s") else number(one.validation[name])
            for name in shown
        ]
        policy = one.name if kind != "rule" else "linear score and gate"
        table.add_row(titles[kind], policy, *cells, style="bold" if kind == result.chosen else "")
    return table


def _words(result: SearchResult, directory: Path) -> list[str]:
    chosen, reference = result.judged[result.chosen], result.judged["heuristic"]
    took = sum(result.seconds.values())
    lines = []
    if result.chosen == "heuristic":
        lines.append(f"Nothing was clearly better than {result.reference}. {duration(took)} of searching.")
    else:
        ratio = chosen.validation["mean_bounded_slowdown"] / reference.validation["mean_bounded_slowdown"] - 1
        jct = chosen.validation["mean_jct_s"] / reference.validation["mean_jct_s"] - 1
        what = "The tuned rule" if result.chosen == "rule" else result.grid_policy
        lines.append(
            f"{what} has {100 * ratio:+.0f} % mean bounded slowdown and {100 * jct:+.1f} % mean completion "
            f"time against {result.reference} on validation windows. {duration(took)} of searching."
        )
    lines.append(f"Use it: gpuyard simulate JOBS --policy {result.policy or directory}")
    lines.append(f"Train a network that starts from it: gpuyard train ppo --init-from {directory}")
    return lines


class _Progress:
    """A bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        from gpuyard.terminal import errors

        self._console = errors()
        self._bar: Any = None
        self._last = time.monotonic()

    def __enter__(self) -> _Progress:
        if self._console.is_terminal:
            from rich import progress

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(bar_width=24),
                progress.MofNCompleteColumn(),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.fields[best]}"),
                console=self._console,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, said: SearchProgress) -> None:
        """Show where the search is."""
        best = f"{said.best}, loss {said.loss:.3f}"
        if self._bar is not None:
            names = {task.description: task.id for task in self._bar.tasks}
            title = STAGES[said.stage]
            if title not in names:
                names[title] = self._bar.add_task(title, total=said.total, best="")
            self._bar.update(names[title], completed=said.done, total=said.total, best=best)
        elif time.monotonic() - self._last >= 10:
            self._last = time.monotonic()
            line = f"{STAGES[said.stage]}: {said.done} of {said.total}; best so far {best}"
            print(line, file=sys.stderr, flush=True)
