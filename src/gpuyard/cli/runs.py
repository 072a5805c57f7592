"""``gpuyard runs``: which training runs there are, what became of them, their curves, and those under way."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from gpuyard.cli.inputs import check_output, open_console, print_json, print_note, write_text
from gpuyard.cli.parameters import Json
from gpuyard.errors import InputError
from gpuyard.runs.directory import PROGRESS, STATE_TEXTS, Run, Validation, open_run, run_directories
from gpuyard.runs.summary import run_names, verdict
from gpuyard.terminal.live import TrainingView, WatchedProcess, follow
from gpuyard.terminal.runs import next_commands, run_description, runs_table

RunName = Annotated[str, Parameter(help="The directory of a run, or its name if it lies in the folder runs.")]
RunNames = Annotated[
    list[str], Parameter(negative=(), help="Directories of runs, or names in the folder runs.")
]

runs_app = App(name="runs")


@runs_app.command(name="list")
def list_runs(
    folder: Annotated[Path, Parameter(help="Where the runs are.")] = Path("runs"), /, *, json: Json = False
) -> None:
    """List the training runs in a folder, what became of them, and their best scores.

    Example: gpuyard runs list
    """
    runs, unreadable = [], []
    for directory in run_directories(folder):
        try:
            runs.append(open_run(directory))
        except InputError as error:
            unreadable.append({"directory": str(directory), "error": str(error)})
    if json:
        documents = [run_document(run) for run in runs]
        print_json({"folder": str(folder), "runs": documents, "unreadable": unreadable})
        return
    for entry in unreadable:
        print_note(f"left out: {entry['error']}")
    console = open_console()
    if not runs:
        console.print(f"There are no runs in {folder}. gpuyard train writes them there.")
        return
    console.print(runs_table(runs, [str(run.directory.relative_to(folder)) for run in runs]))
    console.print("", "gpuyard runs show RUN says more about one of them", sep="\n", style="dim")


@runs_app.command
def show(run: RunName, /, *, json: Json = False) -> None:
    """Say what became of a run, how it compares with heuristics, its settings, and what to do with it.

    Example: gpuyard runs show runs/ppo-1
    """
    opened = open_run(run)
    if json:
        commands = [{"command": command, "what": what} for command, what in next_commands(opened)]
        print_json(
            {
                **run_document(opened),
                "config": opened.config,
                "verdict": verdict(opened) or None,
                "next": commands,
            }
        )
        return
    console = open_console()
    console.print(run_description(opened, console.width))


@runs_app.command
def compare(runs: RunNames, /, *, json: Json = False) -> None:
    """Compare runs: algorithm, samples, minutes, best validation score, and how heuristics fare.

    Example: gpuyard runs compare runs/ppo-1 runs/sac-1
    """
    opened = _open_all(runs)
    if json:
        print_json({"runs": [run_document(run) for run in opened]})
        return
    console, names = open_console(), run_names(opened)
    console.print(runs_table(opened, names), "", sep="\n")
    for name, run in zip(names, opened, strict=True):
        if said := verdict(run):
            console.print(f"{name}: {said}")


@runs_app.command
def plot(
    runs: RunNames,
    /,
    *,
    out: Annotated[Path, Parameter(help="The page to write.")] = Path("curves.html"),
    over: Annotated[Literal["steps", "minutes"], Parameter(help="What curves are drawn over.")] = "steps",
    json: Json = False,
) -> None:
    """Draw the curves of runs, laid over each other, as one HTML page that needs nothing else.

    Example: gpuyard runs plot runs/ppo-1 runs/sac-1 --out curves.html
    """
    from gpuyard.report.pages.training import runs_page

    check_output("--out", out, (".html",))
    opened = _open_all(runs)
    write_text(out, runs_page(opened, across=over))
    if json:
        print_json({"out": str(out), "runs": [str(run.directory) for run in opened]})
        return
    open_console().print(f"Written to {out}: open it in a browser")


@runs_app.command
def watch(run: RunName, /, *, json: Json = False) -> None:
    """Watch a run that was started elsewhere, until it ends. Ctrl-C ends the watching, not the run.

    With --json it prints where the run stands now and does not wait.

    Example: gpuyard runs watch runs/ppo-1
    """
    opened = open_run(run)
    if json:
        print_json(run_document(opened))
        return
    console, log = open_console(), opened.directory / PROGRESS
    hint = "Ctrl-C ends the watching, not the run" if opened.state == "running" else ""
    try:
        with TrainingView(console, directory=opened.directory, hint=hint) as view:
            follow(log, WatchedProcess(log), view, wait_on_interrupt=False)
    except KeyboardInterrupt:
        console.print(
            f"{opened.directory} is still under way; gpuyard runs watch {opened.directory} shows it again"
        )
        return
    console.print(f"{opened.directory} {STATE_TEXTS[open_run(opened.directory).state]}")


def _open_all(names: list[str]) -> list[Run]:
    opened = [open_run(name) for name in names]
    places = [run.directory.resolve() for run in opened]
    for name, place in zip(names, places, strict=True):
        if places.count(place) > 1:
            raise InputError(f"{name}: is given twice; name each run once")
    return opened


def run_document(run: Run) -> dict[str, Any]:
    """A run as JSON: where it stands, its best validation and the best heuristic."""
    heuristic = run.best_heuristic()
    return {
        "directory": str(run.directory),
        "name": run.name,
        "algorithm": run.algorithm or None,
        "state": run.state,
        "step": run.last_step,
        "total_steps": run.total_steps,
        "elapsed_s": run.progress.elapsed_s,
        "model": None if run.model is None else str(run.model),
        "resumable": run.stopped,
        "metric": run.metric or None,
        "higher_is_better": run.higher_is_better if run.metric else None,
        "best": None if run.best is None else _validation(run.best),
        "best_heuristic": None if heuristic is None else {"policy": heuristic[0], "score": heuristic[1]},
        "recommendation": None if run.recommendation is None else asdict(run.recommendation),
    }


def _validation(done: Validation) -> dict[str, Any]:
    return {
        "step": done.step,
        "elapsed_s": done.elapsed_s,
        "score": done.score,
        "heuristic_scores": done.scores,
        "metrics": done.metrics,
        "broken": [asdict(one) for one in done.broken],
    }
