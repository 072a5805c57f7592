"""The second half of ``gpuyard demo``: train a policy for a minute and test it on jobs it has not seen."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.runs.directory import Run, open_run

if TYPE_CHECKING:
    from rich.console import Console

    from gpuyard.evaluate import Comparison

METRIC = "mean_bounded_slowdown"
WINDOWS = 96
LEARNED = "learned"


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
        from gpuyard.terminal.evaluation import evaluation_table

        console.print(evaluation_table(console, self.test), "", sep="\n")
        for sentence in self.test.summary().split("\n"):
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
    from gpuyard.terminal.live import watch_training

    config = assemble("ppo", {"training": {"minutes": minutes}}, preset="demo")
    if start_run(directory, config, partial(watch_training, console=console)):
        return None
    run = open_run(directory)
    best = run.best_heuristic()
    heuristics = config.validation.heuristics
    rival = best[0] if best else heuristics[0]
    test = evaluate_run(directory, heuristics, WINDOWS, metric=METRIC, against=rival, all_heuristics=False)
    return DemoTraining(run, _labelled(test, str(directory)))


def _labelled(test: "Comparison", policy: str) -> "Comparison":
    """The trained policy goes by what it is; its directory has a name that nobody chose."""
    entries = (replace(one, label=LEARNED) if one.name == policy else one for one in test.policies)
    return replace(test, policies=tuple(entries))
