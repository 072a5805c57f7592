"""The command line. Every verb imports what it needs when it runs, so that ``--help`` is quick."""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from gpuyard.cli.env import env_app
from gpuyard.cli.evaluate import evaluate
from gpuyard.cli.experiments import experiments_app
from gpuyard.cli.export import export
from gpuyard.cli.inputs import (
    ClusterText,
    Flag,
    Json,
    WorkloadText,
    check_output,
    is_preset,
    one_line,
    open_console,
    open_trace,
    print_json,
    print_note,
)
from gpuyard.cli.policies import explain, policies_app
from gpuyard.cli.report import report
from gpuyard.cli.runs import runs_app
from gpuyard.cli.simulation_options import SimulationOptions
from gpuyard.cli.train import train
from gpuyard.cli.workload import workload_app
from gpuyard.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gpuyard.cli.demo_training import DemoTraining
    from gpuyard.evaluate.replay import PolicyRun

DONE, FAILED, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141


def _version() -> str:
    import gpuyard

    return gpuyard.__version__


app = App(
    name="gpuyard",
    help="Simulate and compare schedulers for GPU clusters.",
    help_epilogue="Exit codes: 0 done, 1 failed, 2 bad usage or bad input.",
    version=_version,
    suppress_keyboard_interrupt=False,
)
app.command(workload_app)
app.command(policies_app)
app.command(env_app)
app.command(runs_app)
app.command(experiments_app)
app.command(explain, sort_key=3)
app.command(train, sort_key=4)
app.command(export, sort_key=4)
app.command(evaluate, sort_key=4)
app.command(report, sort_key=4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Args:
        arguments: What follows the program's name; None takes the process's own.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(
            arguments,
            console=open_console(),
            exit_on_error=False,
            print_error=False,
            result_action="return_int_as_exit_code_else_zero",
        )
        sys.stdout.flush()
        return int(code)
    except (InputError, CycloptsError) as error:
        return _fail(str(error), BAD_INPUT)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at exit; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        if os.environ.get("GPUYARD_DEBUG"):
            raise
        return _fail(f"{_describe(error)} (GPUYARD_DEBUG=1 shows where it happened)", FAILED)


def _fail(message: str, code: int) -> int:
    print(f"error: {one_line(message)}", file=sys.stderr)
    return code


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}".rstrip(": ")


@app.command(sort_key=1)
def demo(
    *,
    minutes: Annotated[float, Parameter(help="Time to train for; 0 leaves training out.")] = 1.0,
    out: Annotated[
        Path | None, Parameter(help="Directory of the training run. (default: the next in runs/)")
    ] = None,
    svg: Annotated[Path | None, Parameter(help="Also save what is shown as an SVG picture.")] = None,
    json: Json = False,
) -> int:
    """Compare well-known policies on a small built-in workload, then train one that beats them.

    Takes a second, and a minute of training.
    """
    from gpuyard.cli import demo as story
    from gpuyard.evaluate.replay import replay_document
    from gpuyard.terminal.tables import COMPARED

    check_output("--svg", svg, (".svg",))
    runs = story.run_demo()
    sentences = story.findings({run.policy: run.metrics for run in runs})
    console = open_console(record=svg is not None, width=100 if svg else None, quiet=json)
    _show_comparison(console, "demo", runs, COMPARED)
    for sentence in sentences:
        console.print(sentence, end="\n\n")
    training = _train_demo(minutes, out, console)
    if json:
        document = {**replay_document("demo", runs, ()), "findings": sentences}
        print_json({**document, "training": training.document() if training else None})
        return DONE
    console.print("What to try next", style="bold")
    for what, command in story.NEXT_STEPS:
        console.print(f"  {command}", style="cyan")
        console.print(f"      {what}", style="dim")
    if svg:
        from gpuyard.terminal.console import save_picture

        save_picture(console, svg)
    return DONE


def _train_demo(minutes: float, out: Path | None, console: "Console") -> "DemoTraining | None":
    """Train and test, if that is asked for and possible."""
    from importlib.util import find_spec

    if minutes <= 0:
        return None
    if find_spec("torch") is None or find_spec("safetensors") is None:
        console.print("Training needs torch: pip install 'gpuyard[learn]'", end="\n\n")
        return None
    from gpuyard.cli.demo_training import train_and_test
    from gpuyard.cli.train import next_directory
    from gpuyard.terminal.console import errors

    directory = out or next_directory("demo")
    console.print(
        "Can learning do better? PPO starts from a rule like the last of these and trains for "
        f"{minutes:g} min on fresh draws of such jobs, twice as dense ({directory}).",
        end="\n\n",
    )
    training = train_and_test(directory, minutes, errors())
    if training is None:
        console.print(f"Training was interrupted; gpuyard train --resume {directory} resumes it.", end="\n\n")
        return None
    training.show(console)
    return training


@app.command(sort_key=2)
def simulate(
    workload: WorkloadText,
    /,
    *,
    cluster: ClusterText = None,
    policy: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="ORDER[+BACKFILL][+ADMISSION][/PLACEMENT], such as sjf+easy, or a learned policy: "
            "model:NAME (gpuyard policies), a run directory or model file; repeat it to compare. "
            "(default: fifo)",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Show this metric (docs/contract/metrics.md); repeat it for more."),
    ] = None,
    by: Annotated[
        Literal["priority", "group", "gpus"] | None, Parameter(help="Also show metrics by class of jobs.")
    ] = None,
    out: Annotated[Path | None, Parameter(help="Write schedules and metrics into this directory.")] = None,
    csv: Annotated[bool, Flag, Parameter(help="With --out: schedules as CSV too.")] = False,
    energy_price: Annotated[
        str | None,
        Parameter(
            help="Price of a kWh, in any currency, or prices by hour of the day, such as "
            "0-7:0.12,7-20:0.31,20-24:0.18: gives the metric energy_cost."
        ),
    ] = None,
    history: Annotated[
        Path | None,
        Parameter(help="Jobs that had finished before, for predictions from history: a file in any format."),
    ] = None,
    json: Json = False,
    options: SimulationOptions = SimulationOptions(),  # noqa: B008  (frozen)
) -> None:
    """Replay a workload under one or more policies and compare them.

    Example: gpuyard simulate jobs.csv --cluster 64x8 --policy fifo --policy sjf+easy
    """
    from gpuyard.cli.replay import replayed
    from gpuyard.evaluate.replay import replay_comparison, replay_document
    from gpuyard.metrics.tariff import parse_tariff
    from gpuyard.terminal.tables import COMPARED, OF_ONE_POLICY

    config = options.config()
    chosen = _check_metrics(metric or ())
    if csv and out is None:
        raise InputError("--csv needs --out DIR, the directory to write to")
    price = None if energy_price is None else parse_tariff(energy_price, "--energy-price")
    if out is not None:
        _check_out(out)
    _check_cluster(cluster, workload)
    jobs, machines, report = open_trace(workload, cluster)
    past = None if history is None else open_trace(str(history), None)[0]
    runs = replayed(jobs, machines, policy or ["fifo"], config, price_per_kwh=price, history=past)  # type: ignore[arg-type]
    for note in (note for run in runs for note in run.result.notes):
        print_note(note)
    if out is not None:
        replay_comparison(workload, runs, report).write(out, csv=csv)
    if json:
        document = replay_document(workload, runs, chosen, report)
        if by is not None:
            for result, run in zip(document["results"], runs, strict=True):
                result["breakdown"] = {"by": by, "classes": run.result.breakdown(by).to_dicts()}
        print_json(document)
        return
    console = open_console()
    usual = tuple(COMPARED if len(runs) > 1 else OF_ONE_POLICY)
    cost = () if price is None or "energy_cost" in usual else ("energy_cost",)
    _show_comparison(console, workload, runs, chosen or usual + cost)
    if by is not None:
        _show_classes(console, by, runs, chosen)
    if out is not None:
        console.print(
            f"Written to {out}: results.json, parquet tables, and a schedule per policy in schedules/"
        )


@app.command(sort_key=5)
def bench(
    names: Annotated[list[str] | None, Parameter(negative=(), help="Benchmarks to run; all if none.")] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """Measure speed, each figure beside that of a peer measured in the same run."""
    from gpuyard.cli.bench import run

    results = run(names or (), lambda line: print(line, file=sys.stderr, flush=True))
    if json:
        keys = ("name", "value", "unit", "peer", "peer_value", "ratio", "target", "met")
        print_json({"results": [{key: getattr(result, key) for key in keys} for result in results]})
        return
    from gpuyard.terminal.tables import bench_table

    open_console().print(bench_table(results))


@app.command(sort_key=6)
def doctor(*, json: Json = False) -> int:
    """Check the installation and say what to do about what is wrong."""
    from gpuyard.cli.doctor import run_checks

    checks = run_checks()
    code = FAILED if any(check.failed for check in checks) else DONE
    if json:
        print_json({"ok": code == DONE, "checks": [vars(check) for check in checks]})
        return code
    from gpuyard.terminal.tables import doctor_table

    console = open_console()
    console.print(doctor_table(checks))
    console.print("gpuyard works here." if code == DONE else "gpuyard does not work here as it should.")
    return code


def _check_cluster(text: str | None, workload: str) -> None:
    """Before a long file is read: only built-in workloads bring a cluster."""
    if text is None and not is_preset(workload):
        from gpuyard.cluster.model import GRAMMAR

        raise InputError(f"--cluster is missing: which cluster shall run {workload}? Expected {GRAMMAR}")


def _check_out(directory: Path) -> None:
    from gpuyard.evaluate.storage import check_free

    try:
        check_free(directory)
    except InputError as error:
        raise InputError(f"--out {error}") from None


def _check_metrics(names: Sequence[str]) -> tuple[str, ...]:
    from gpuyard.metrics.catalogue import metrics
    from gpuyard.registry import lookup

    for name in names:
        lookup("metric", name, known=metrics())
    return tuple(dict.fromkeys(names))


def _show_comparison(console: "Console", source: str, runs: "list[PolicyRun]", chosen: Sequence[str]) -> None:
    from gpuyard.metrics.catalogue import metrics
    from gpuyard.terminal.tables import comparison_notes, comparison_table, single_table

    shown = {name: metrics()[name] for name in chosen}
    heading, notes = comparison_notes(source, [run.result for run in runs])
    console.print(heading, "", sep="\n")
    if len(runs) == 1:
        console.print(single_table(runs[0].metrics, shown))
    else:
        names, values = [run.policy for run in runs], [run.metrics for run in runs]
        console.print(comparison_table(console, names, values, shown))
    console.print("", *notes, "", sep="\n", style="dim")


def _show_classes(console: "Console", by: str, runs: "list[PolicyRun]", chosen: Sequence[str]) -> None:
    from gpuyard.metrics.catalogue import metrics
    from gpuyard.terminal.tables import OF_CLASSES, class_table

    shown = {name: metrics()[name] for name in chosen or OF_CLASSES if metrics()[name].per_class}
    breakdowns = {run.policy: run.result.breakdown(by).to_dicts() for run in runs}
    console.print(class_table(console, by, breakdowns, shown))
