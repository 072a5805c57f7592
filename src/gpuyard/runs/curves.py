"""Curves of a training run: which there are, what they are called, and which matter first."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpuyard.runs.progress import Record
from gpuyard.units import metric_label, metric_text

MOST_POINTS = 2048
"""A curve with more points than this is thinned to half of them."""

_FIRST = (
    *("episode/return", "entropy", "loss/policy", "loss/value", "loss/q", "kl", "explained_variance"),
    *("gradient_norm", "learning_rate", "clip_share"),
)
_WORDS = {"kl": "KL", "loss/q": "Q loss"}


@dataclass
class Curve:
    """Values over samples and minutes, thinned as they become many.

    Attributes:
        steps: Samples at each point.
        minutes: Minutes of training at each point.
        values: The values.
        last: The latest value, which thinning does not touch.
    """

    steps: list[float] = field(default_factory=list)
    minutes: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    last: float | None = None

    def append(self, step: float, elapsed_s: float, value: float | None) -> None:
        """Add a point; one without a value is left out."""
        if value is None or not math.isfinite(value):
            return
        self.steps.append(step)
        self.minutes.append(elapsed_s / 60)
        self.values.append(value)
        self.last = value
        if len(self.values) >= 2 * MOST_POINTS:
            self.steps, self.minutes, self.values = (
                _means_of_pairs(one) for one in (self.steps, self.minutes, self.values)
            )


def _means_of_pairs(values: Sequence[float]) -> list[float]:
    return [(a + b) / 2 for a, b in zip(values[::2], values[1::2], strict=False)]


def add_update(curves: dict[str, Curve], record: Record) -> None:
    """Add the values of an update to curves by name; those that are new get one."""
    for name, value in record["values"].items():
        curve = curves.setdefault(name, Curve())
        curve.append(record["step"], record.get("elapsed_s") or 0.0, value)


def update_curves(records: Iterable[Record]) -> dict[str, Curve]:
    """The curves of all updates by name, those that matter most first; those without a value are left out."""
    curves: dict[str, Curve] = {}
    for record in records:
        if record["event"] == "update":
            add_update(curves, record)
    return {name: curves[name] for name in by_importance(curves) if curves[name].values}


def by_importance(names: Iterable[str]) -> list[str]:
    """Names of curves, those that tell most about training first."""
    rank = {name: index for index, name in enumerate(_FIRST)}
    return sorted(
        names, key=lambda name: (rank.get(name, len(rank) - ("loss/" in name)), "episode/" in name, name)
    )


def curve_label(name: str) -> str:
    """The name of a curve in words: ``loss/policy`` is ``policy loss``."""
    if name in _WORDS:
        return _WORDS[name]
    group, _, rest = name.rpartition("/")
    words = metric_label(rest) if group == "episode" else rest.replace("_", " ")
    if group == "loss":
        return f"{words} loss"
    return f"{group} {words}" if rest in ("return", "length") or group not in ("", "episode") else words


def value_text(name: str, value: float | None) -> str:
    """A value of a curve, short."""
    group, _, rest = name.rpartition("/")
    if value is not None and group in ("episode", "validation") and rest.endswith("_s"):
        return metric_text(rest, value, short=True)
    return short_number(value)


def short_number(value: float | None) -> str:
    """Four digits at most: 0.5291, 12.3, 45,100, 2.5e-4."""
    if value is None or not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}" if size < 1e6 else f"{value / 1e6:.3g}M" if size < 1e9 else f"{value:.2e}"
    if value == 0 or size >= 0.001:
        return f"{value:.3f}" if 0 < size < 1 else f"{value:.4g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def compared_text(score: float, name: str, reference: float, higher: bool) -> str:
    """How a score stands beside another: ``5.7 % better than sjf+easy``."""
    if score == reference:
        return f"as good as {name}"
    word = "better" if (score > reference) == higher else "worse"
    if score * reference > 0:
        return f"{100 * abs(score / reference - 1):.1f} % {word} than {name}"
    return f"{short_number(abs(score - reference))} {word} than {name}"


def short_policy(name: str) -> str:
    """A policy's name without the placement that is meant if none is given."""
    return name.removesuffix("/consolidate")
