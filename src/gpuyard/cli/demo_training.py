"""The second half of ``gpuyard demo``: train a policy for a minute and test it on jobs it has not seen."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.runs.directory import Run, open_run
from gpuyard.units import duration, number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gpuyard.evaluate import Comparison

METRIC = "mean_bounded_slowdown"
SHOWN = (METRIC, "mean_jct_s", "p99_wait_s", "max_wait_s")
WINDOWS = 96
USUAL = "sjf+easy/consolidate"
LEARNED = "learned"


@dataclass(frozen=True)
class DemoTraining:
    """A trained policy and its test.

    Attributes:
        run: How it was trained.
        test: What it and heuristics reached on test draws; the reference is the heuristic that was best in
            validation.
        policy: Name of the trained policy in the test.
    """

    run: Run
    test: "Comparison"
    policy: str

    @property
    def rival(self) -> str:
        """The heuristic that was best in validation."""
        assert self.test.reference is not None
        return self.test.reference

    def words(self) -> list[str]:
        """Whether the learned policy won, by how much, and at what price."""
        found = self.test.difference(self.policy, metric=METRIC)
        rival, size = self.rival, abs(100 * found.ratio)
        verdict = {
            "better": f"The learned policy won: {size:.0f} % lower mean bounded slowdown than {rival}",
            "worse": f"The learned policy lost: {size:.0f} % higher mean bounded slowdown than {rival}",
            "tie": f"A tie: {100 * found.ratio:+.1f} % mean bounded slowdown against {rival}",
        }[found.verdict]
        jct = self.test.difference(self.policy, metric="mean_jct_s")
        worst = self.test.difference(self.policy, metric="p99_wait_s")
        usual = self.test.difference(self.policy, USUAL, METRIC)
        return [
            f"{verdict}, the best heuristic on validation draws ({number(found.own)} against "
            f"{number(found.other)}; 95 % interval {100 * found.low:+.0f} to {100 * found.high:+.0f} %), on "
            f"{len(self.test.setting.windows)} draws of jobs that neither had seen.",
            f"Beside it: mean completion time {duration(jct.own)} against {duration(jct.other)} "
            f"({100 * jct.ratio:+.1f} %), and one job in a hundred waits {duration(worst.own)} or "
            f"longer, against {duration(worst.other)}.",
            f"Against {USUAL}, what many clusters would try first, its mean bounded slowdown is "
            f"{100 * usual.ratio:+.0f} % ({100 * usual.low:+.0f} to {100 * usual.high:+.0f} %).",
        ]

    def table(self) -> "Table":
        """Means over the test draws, best first."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False, title="On test draws", title_justify="left")
        table.add_column("policy")
        for name in ("mean bounded slowdown", "mean completion", "p99 wait", "max wait"):
            table.add_column(name, justify="right")
        for name in self.test.ranking(METRIC):
            means = [self.test.mean(name, metric) for metric in SHOWN]
            own = name == self.policy
            times = (duration(mean) for mean in means[1:])
            table.add_row(LEARNED if own else name, number(means[0]), *times, style="bold" if own else "")
        return table

    def document(self) -> dict[str, Any]:
        """As JSON."""
        found = self.test.difference(self.policy, metric=METRIC)
        return {
            "run": str(self.run.directory),
            "rival": self.rival,
            "draws": len(self.test.setting.windows),
            "difference": found.ratio,
            "interval": [found.low, found.high],
            "results": [
                {
                    "policy": LEARNED if entry.name == self.policy else entry.name,
                    "metrics": {metric: self.test.mean(entry.name, metric) for metric in SHOWN},
                }
                for entry in self.test.policies
            ],
        }


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
    return DemoTraining(run, test, str(directory))
