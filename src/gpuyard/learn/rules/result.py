"""What a search found: how policies did on both sets of windows, and which of them to use."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpuyard.learn.rules.cma import Generation
from gpuyard.learn.rules.grid import Objective
from gpuyard.learn.rules.rule import RuleModel
from gpuyard.metrics.guards import BrokenLimit
from gpuyard.simulation.busy import BusyTest
from gpuyard.simulation.window_set import Figures

Choice = Literal["current", "heuristic", "grid", "rule"]
KINDS: tuple[Choice, ...] = ("current", "heuristic", "grid", "rule")
"""From what runs already to what is most complicated."""


@dataclass(frozen=True)
class Judged:
    """A policy on the training and the validation windows.

    Attributes:
        name: Of the policy, or ``rule``.
        train_loss: The objective on the training windows.
        validation_loss: The same on the validation windows.
        train: Mean metrics by name.
        validation: The same.
        broken: Limits on waits that it breaks in the whole training or validation part, the worst first.
    """

    name: str
    train_loss: float
    validation_loss: float
    train: dict[str, float]
    validation: dict[str, float]
    broken: tuple[BrokenLimit, ...] = ()


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        chosen: The kind of policy to use: the simplest that is not clearly worse on the validation windows,
            of those that keep the limits on waits.
        current: Name of what runs today, which limits on waits are counted from.
        reference: Full name of the best fixed heuristic.
        grid_policy: Full name of the best policy of the grid that keeps the limits on waits; the best of all
            if none does.
        unguarded: The best policy of the grid whatever it does to waits, and what it breaks.
        judged: What runs today, heuristic, grid and rule on both sets of windows, by kind.
        grid_rule: The best policy of the grid as a rule: what CMA-ES and networks start from.
        rule: What CMA-ES made of it; None without CMA-ES.
        history: Its generations.
        grid: What was tried first: name, windows, loss and charge for exceeding limits, the best first.
        seconds: Wall time of each stage.
        starts: How windows begin: what the test of two starts found; None: with an empty cluster.
    """

    chosen: Choice
    current: str
    reference: str
    grid_policy: str
    unguarded: Judged
    judged: Mapping[Choice, Judged]
    grid_rule: RuleModel
    rule: RuleModel | None
    history: tuple[Generation, ...]
    grid: tuple[tuple[str, int, float, float], ...]
    seconds: Mapping[str, float]
    starts: BusyTest | None

    @property
    def policy(self) -> str | None:
        """Name of the chosen policy; None if it is a rule."""
        names = {"current": self.current, "heuristic": self.reference, "grid": self.grid_policy}
        return names.get(self.chosen)

    @property
    def best_rule(self) -> RuleModel:
        """The rule to start a network from: what CMA-ES made, if that was chosen, else the grid's policy."""
        return self.rule if self.chosen == "rule" and self.rule is not None else self.grid_rule

    def summary(self) -> dict[str, Any]:
        """As JSON-ready values, without weights."""
        return {
            "chosen": self.chosen,
            "policy": self.policy,
            "current": self.current,
            "reference": self.reference,
            "grid_policy": self.grid_policy,
            "unguarded": asdict(self.unguarded),
            "judged": {kind: asdict(one) for kind, one in self.judged.items()},
            "starts": None if self.starts is None else asdict(self.starts),
            "generations": len(self.history) - 1 if self.history else 0,
            "seconds": dict(self.seconds),
        }


def judged_by(
    name: str,
    figures: Sequence[Figures],
    objectives: tuple[Objective, Objective],
    broken: Sequence[BrokenLimit],
) -> Judged:
    """A policy by what it reached on the training and the validation windows.

    Args:
        name: Of the policy, or ``rule``.
        figures: Its metrics on both sets of windows.
        objectives: Of both.
        broken: Limits on waits that it breaks.
    """
    train, validation = ({metric: float(values.mean()) for metric, values in one.items()} for one in figures)
    on_train, on_validation = (
        objective.loss(one) for objective, one in zip(objectives, figures, strict=True)
    )
    return Judged(name, on_train, on_validation, train, validation, tuple(broken))


def choose(judged: Mapping[Choice, Judged], least_gain: float) -> Choice:
    """What runs today, unless one that keeps the limits on waits is better on the validation windows.

    A more complicated one must be better by ``least_gain`` than a simpler one.
    """
    chosen: Choice = "current"
    for kind in KINDS:
        one = judged.get(kind)
        if one is None or one.broken:
            continue
        if one.validation_loss <= judged[chosen].validation_loss - least_gain:
            chosen = kind
    return chosen
