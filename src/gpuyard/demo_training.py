"""The second half of ``gpuyard demo``: train a policy for a minute and test it on jobs it has not seen."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.quantities import duration, number
from gpuyard.runs import Run, open_run

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gpuyard.learn.final_test import FinalTest

METRIC = "mean_bounded_slowdown"
SHOWN = (METRIC, "mean_jct_s", "p99_wait_s", "max_wait_s")
WINDOWS = 96
USUAL = "sjf+easy/consolidate"


@dataclass(frozen=True)
class DemoTraining:
    """A trained policy and its test."""

    run: Run
    test: "FinalTest"

    def words(self) -> list[str]:
        """Whether the learned policy won, by how much, and at what price."""
        gain, low, high = self.test.difference()
        rival = self.test.rival
        own, other = (float(self.test.numbers(name).mean()) for name in ("learned", rival))
        if high < 0:
            verdict = f"The learned policy won: {-100 * gain:.0f} % lower mean bounded slowdown than {rival}"
        elif low > 0:
            verdict = f"The learned policy lost: {100 * gain:.0f} % higher mean bounded slowdown than {rival}"
        else:
            verdict = f"A tie: {100 * gain:+.1f} % mean bounded slowdown against {rival}"
        results = self.test.results
        jct = [float(results[name].metrics["mean_jct_s"].mean()) for name in ("learned", rival)]
        worst = [float(results[name].metrics["p99_wait_s"].mean()) for name in ("learned", rival)]
        count = len(results[rival].names)
        usual, usual_low, usual_high = self.test.difference(USUAL)
        return [
            f"{verdict}, the best heuristic on validation draws ({number(own)} against "
            f"{number(other)}; 95 % interval {100 * low:+.0f} to {100 * high:+.0f} %), on {count} draws of "
            "jobs that neither had seen.",
            f"Beside it: mean completion time {duration(jct[0])} against {duration(jct[1])} "
            f"({100 * (jct[0] / jct[1] - 1):+.1f} %), and one job in a hundred waits {duration(worst[0])} or "
            f"longer, against {duration(worst[1])}.",
            f"Against {USUAL}, what many clusters would try first, its mean bounded slowdown is "
            f"{100 * usual:+.0f} % ({100 * usual_low:+.0f} to {100 * usual_high:+.0f} %).",
        ]

    def table(self) -> "Table":
        """Means over the test draws, best first."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False, title="On test draws", title_justify="left")
        table.add_column("policy")
        for name in ("mean bounded slowdown", "mean completion", "p99 wait", "max wait"):
            table.add_column(name, justify="right")
        order = sorted(self.test.results, key=lambda name: float(self.test.numbers(name).mean()))
        for name in order:
            means = {metric: float(self.test.results[name].metrics[metric].mean()) for metric in SHOWN}
            times = (duration(means[metric]) for metric in SHOWN[1:])
            table.add_row(name, number(means[METRIC]), *times, style="bold" if name == "learned" else "")
        return table

    def document(self) -> dict[str, Any]:
        """As JSON."""
        gain, low, high = self.test.difference()
        return {
            "run": str(self.run.directory),
            "rival": self.test.rival,
            "draws": len(self.test.results[self.test.rival].names),
            "difference": gain,
            "interval": [low, high],
            "results": [
                {"policy": name, "metrics": {metric: float(r.metrics[metric].mean()) for metric in SHOWN}}
                for name, r in self.test.results.items()
            ],
        }


def train_and_test(directory: Path, minutes: float, console: "Console") -> DemoTraining | None:
    """Train the demo's policy, then test it; None if training was interrupted.

    Raises:
        InputError: if learning is not installed, or the directory is taken.
    """
    from gpuyard.learn.final_test import final_test
    from gpuyard.learn.settings import assemble
    from gpuyard.training import start_run

    config = assemble("ppo", {"training": {"minutes": minutes}}, preset="demo")
    if start_run(directory, config, console):
        return None
    run = open_run(directory)
    best = run.best_heuristic()
    heuristics = config.validation.heuristics
    rival = best[0] if best else heuristics[0]
    return DemoTraining(run, final_test(directory, heuristics, rival, WINDOWS))
