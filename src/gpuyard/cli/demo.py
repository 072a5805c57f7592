"""``gpuyard demo``: known policies on a small busy cluster, in words, and one trained to beat them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gpuyard.cli.inputs import check_output, open_console, print_json
from gpuyard.cli.parameters import Json
from gpuyard.cli.simulate import replayed, show_comparison
from gpuyard.cli.train import next_directory
from gpuyard.config import SimulationConfig
from gpuyard.policies.grammar import DEFAULT_BACKFILL, DEFAULT_PLACEMENT
from gpuyard.runs.directory import Run, open_run
from gpuyard.terminal.console import errors, save_picture
from gpuyard.terminal.live import watch_training
from gpuyard.terminal.tables import COMPARED
from gpuyard.units import duration, number

if TYPE_CHECKING:
    from rich.console import Console

    from gpuyard.evaluate import Comparison
    from gpuyard.evaluate.replay import PolicyRun

FIFO = "fifo+strict/consolidate"
COUNTING = "fifo+strict/anywhere"
FIFO_EASY = "fifo+easy/consolidate"

POLICIES = (
    FIFO,
    COUNTING,
    FIFO_EASY,
    "sjf+strict/consolidate",
    "sjf+easy/consolidate",
    "saf+easy/consolidate",
    "wspt+easy/consolidate",
    "wspt+easy+express:600:0.1/consolidate",
)

NEXT_STEPS = (
    (
        "policies know only what users asked for",
        "gpuyard simulate demo --policy sjf+easy --estimates requested",
    ),
    ("who gains and who loses", "gpuyard simulate demo --policy fifo --policy sjf+easy --by gpus"),
    ("your own log: Slurm, LSF, SWF and public traces", "gpuyard workload import sacct.txt --out jobs.csv"),
    ("your own jobs, your own cluster", "gpuyard simulate jobs.csv --cluster 64x8 --policy sjf+easy"),
    ("every rule there is", "gpuyard policies"),
)

Metrics = Mapping[str, Any]

METRIC = "mean_bounded_slowdown"
WINDOWS = 96
LEARNED = "learned"
ANSWERS = ("all-alike", "best", "ties")
"""Findings that are shown whoever they are about; others only if they are about the learned policy."""


def demo(
    *,
    minutes: Annotated[float, Parameter(help="Time to train for; 0 leaves training out.")] = 1.0,
    out: Annotated[
        Path | None, Parameter(help="Directory of the training run. (default: the next in runs/)")
    ] = None,
    svg: Annotated[Path | None, Parameter(help="Also save what is shown as an SVG picture.")] = None,
    json: Json = False,
) -> int:
    """Compare policies on a small built-in workload, then train one and test it.

    Takes a second, and a minute of training.

    Example: gpuyard demo --minutes 2
    """
    from gpuyard.evaluate.replay import replay_document

    check_output("--svg", svg, (".svg",))
    runs = run_demo()
    sentences = findings({run.policy: run.metrics for run in runs})
    console = open_console(record=svg is not None, width=100 if svg else None, quiet=json)
    show_comparison(console, "demo", runs, COMPARED)
    for sentence in sentences:
        console.print(sentence, end="\n\n")
    training = _train_demo(minutes, out, console)
    if json:
        document = {**replay_document("demo", runs, ()), "findings": sentences}
        print_json({**document, "training": training.document() if training else None})
        return 0
    console.print("What to try next", style="bold")
    for what, command in NEXT_STEPS:
        console.print(f"  {command}", style="cyan")
        console.print(f"      {what}", style="dim")
    if svg:
        save_picture(console, svg)
    return 0


def _train_demo(minutes: float, out: Path | None, console: "Console") -> "DemoTraining | None":
    """Train and test, if that is asked for and possible."""
    if minutes <= 0:
        return None
    if find_spec("torch") is None or find_spec("safetensors") is None:
        console.print("Training needs torch: pip install 'gpuyard[learn]'", end="\n\n")
        return None
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


def run_demo() -> "list[PolicyRun]":
    """Simulate every policy of the demo on its workload and cluster."""
    from gpuyard.cluster.model import parse_cluster
    from gpuyard.workload import demo_workload

    return replayed(demo_workload(), parse_cluster("demo"), POLICIES, SimulationConfig(), current="none")


def findings(values: Mapping[str, Metrics]) -> list[str]:
    """Three sentences, made from the metrics of each policy by its full name."""
    return [_on_placement(values), _on_backfill(values), _on_order(values)]


def _on_placement(values: Mapping[str, Metrics]) -> str:
    placed, counted = (values[name]["mean_wait_s"] for name in (FIFO, COUNTING))
    return (
        f"Nodes matter: first come, first served makes jobs wait {duration(placed)} on average when gangs "
        f"are kept on as few nodes as possible, {_ratio(placed, counted)} {duration(counted)} that "
        "counting free GPUs wherever they are (fifo/anywhere) would have you expect."
    )


def _on_backfill(values: Mapping[str, Metrics]) -> str:
    before, after = values[FIFO], values[FIFO_EASY]
    use = 100 * (after["gpu_utilization"] - before["gpu_utilization"])
    return (
        f"Backfilling: letting later jobs into gaps where they do not delay the first (fifo+easy) takes the "
        f"mean wait from {duration(before['mean_wait_s'])} to {duration(after['mean_wait_s'])} and "
        f"{'raises' if use >= 0 else 'lowers'} GPU use by {abs(use):.1f} points."
    )


def _on_order(values: Mapping[str, Metrics]) -> str:
    kindest = min(values, key=lambda name: values[name]["mean_bounded_slowdown"])
    quickest = min(values, key=lambda name: values[name]["mean_wait_s"])
    start = (
        f"Order: {short_name(kindest)} has the lowest mean bounded slowdown, "
        f"{number(values[kindest]['mean_bounded_slowdown'])} against "
        f"{number(values[FIFO]['mean_bounded_slowdown'])} of fifo"
    )
    if kindest == quickest:
        return f"{start}, and the lowest mean wait, {duration(values[quickest]['mean_wait_s'])}."
    p99 = [values[name]["p99_wait_s"] for name in (kindest, quickest)]
    price = "at a price" if p99[0] > p99[1] else "and that at no price"
    return (
        f"{start}, {price}: one job in a hundred waits {duration(p99[0])} or longer, against "
        f"{duration(p99[1])} under {short_name(quickest)}, which has the lowest mean wait "
        f"({duration(values[quickest]['mean_wait_s'])})."
    )


def short_name(policy: str) -> str:
    """A policy's name without the parts that are the default anyway."""
    order, *options = policy.removesuffix(f"/{DEFAULT_PLACEMENT}").split("+")
    if options and options[0].partition("/")[0] == DEFAULT_BACKFILL:
        options[0] = options[0].removeprefix(DEFAULT_BACKFILL)
        return order + "+".join([options[0], *options[1:]])
    return "+".join([order, *options])


def _ratio(value: float, other: float) -> str:
    return f"{number(value / other)} times the" if other > 0 else "not the"


NO_ADVICE = (
    "This shows how training goes, on short draws whose run times are known. It recommends nothing: for a "
    "cluster of yours gpuyard evaluate checks limits on waits in a replay of the whole log."
)


@dataclass(frozen=True)
class DemoTraining:
    """A trained policy and its test.

    Attributes:
        run: How it was trained.
        test: What it and heuristics reached on test draws; the reference is the heuristic that was best in
            validation.
    """

    run: Run
    test: "Comparison"

    def show(self, console: "Console") -> None:
        """The policies on the test draws, and in words whether the learned one won."""
        from gpuyard.evaluate.findings import findings as found_by
        from gpuyard.evaluate.wording import sentences
        from gpuyard.terminal.evaluation import evaluation_table

        console.print(evaluation_table(console, self.test), "", sep="\n")
        told = [
            one
            for one in found_by(self.test)
            if one.kind in ANSWERS or not one.policies or one.policies[0] == LEARNED
        ]
        for sentence in (*sentences(self.test, told), NO_ADVICE):
            console.print(sentence, end="\n\n")

    def document(self) -> dict[str, Any]:
        """As JSON."""
        from gpuyard.terminal.evaluation import evaluation_document

        return {"run": str(self.run.directory), **evaluation_document(self.test)}


def train_and_test(directory: Path, minutes: float, console: "Console") -> DemoTraining | None:
    """Train the demo's policy, then test it; None if training was interrupted.

    Raises:
        InputError: if learning is not installed, or the directory is taken.
    """
    from gpuyard.evaluate import evaluate_run
    from gpuyard.learn.run import start_run
    from gpuyard.learn.settings import assemble

    config = assemble("ppo", {"training": {"minutes": minutes}}, preset="demo")
    if start_run(directory, config, partial(watch_training, console=console)):
        return None
    run = open_run(directory)
    best = run.best_heuristic()
    heuristics = config.validation.heuristics
    rival = best[0] if best else heuristics[0]
    test = evaluate_run(directory, heuristics, WINDOWS, metric=METRIC, current=rival, all_heuristics=False)
    return DemoTraining(run, _labelled(test, str(directory)))


def _labelled(test: "Comparison", policy: str) -> "Comparison":
    """The trained policy goes by what it is; its directory has a name that nobody chose."""
    entries = (replace(one, label=LEARNED) if one.name == policy else one for one in test.policies)
    return replace(test, policies=tuple(entries))
