"""What a comparison shows, as records: who is best, by how much, how sure that is, and who pays for it.

Each is a kind, policies and numbers. ``gpuyard.evaluate.wording`` makes sentences of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Literal

import numpy as np

from gpuyard.evaluate.bootstrap import Difference, usable_block
from gpuyard.evaluate.comparison import TOLD_BESIDE, Comparison, Loser
from gpuyard.evaluate.setting import UNFINISHED
from gpuyard.policies.base import RECORDED
from gpuyard.policies.grammar import DEFAULT_PLACEMENT
from gpuyard.simulation.replays import REPLAYS

Advice = Literal[
    "recommended",
    "limits",
    "disagrees",
    "unexplained",
    "unknowable",
    "unchecked",
    "worse",
    "no gain",
    "unclear",
]
"""What to do about a policy: use it; not, because it breaks limits on waits; not, because the replay of the
whole part disagrees with the windows; not, because the gain is against waits that the modelled cluster does
not explain; not, because it is told what no scheduler knows; not yet, because limits on waits were not
checked; not, because it is worse, or not clearly better, or because too little is known."""
Kind = Literal[
    "all-alike",
    "verdict",
    "rival",
    "starts",
    "not-tried",
    "cold",
    "recorded-start",
    "best",
    "ties",
    "compared",
    "beside",
    "hindsight",
    "against-hindsight",
    "one-window",
    "weak",
    "overlap",
    "replays",
    "placement",
    "noise",
    "seen",
    "left-out",
    "unfinished",
    "losers",
    "unexplained",
    "calibrated",
]


NEARLY_NOTHING = 0.01
"""A relative difference of the whole replay up to this has no sign."""


@dataclass(frozen=True)
class Finding:
    """One thing that a comparison shows.

    Attributes:
        kind: What it is about.
        policies: Full names, the one that it is about first, then the one that it is compared with.
        numbers: What it rests on, by name.
    """

    kind: Kind
    policies: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready values."""
        numbers = {name: _plain(value) for name, value in self.numbers.items()}
        return {"kind": self.kind, "policies": list(self.policies), "numbers": numbers}


@dataclass(frozen=True)
class ByWindow:
    """A policy against the reference, window by window: whether a few windows carry the difference.

    Attributes:
        ahead: Windows in which it is better.
        behind: Windows in which it is worse.
        windows: How many there are.
        median: Relative difference in the median window.
        without_best: Relative difference of means without the window that favours the policy most.
    """

    ahead: int
    behind: int
    windows: int
    median: float
    without_best: float


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(one) for name, one in vars(value).items()}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def findings(comparison: Comparison) -> list[Finding]:
    """All of them, in the order in which they are told."""
    judged = judged_policies(comparison)
    gives_advice = comparison.setting.kind in ("windows", "draws") and comparison.reference is not None
    answer = [
        *_unexplained(comparison),
        *(_verdicts(comparison, judged) if gives_advice else _who_is_best(comparison)),
        *(one for name in judged for one in _beside(comparison, name)),
        *_replays(comparison, judged),
        *_rival(comparison, judged),
        *_hindsight(comparison),
        *_how_sure(comparison),
        *_how_busy(comparison),
        *_not_tried(comparison),
        *calibrated(comparison),
    ]
    return [
        *(_all_alike(comparison) or answer),
        *_placement(comparison),
        *_noise(comparison),
        *_what_was_seen(comparison),
        *_left_out(comparison),
        *_unfinished(comparison),
    ]


def _replays(comparison: Comparison, judged: Sequence[str]) -> list[Finding]:
    """How waits are counted of which limits are broken, as they differ from those of the one replay shown."""
    broken = any(comparison.broken_limits(name) for name in judged)
    is_recorded = comparison.reference == RECORDED
    return [Finding("replays", (), {"replays": REPLAYS, "recorded": is_recorded})] if broken else []


def calibrated(comparison: Comparison) -> list[Finding]:
    """How closely the reference reproduces a log, if it is a policy file that says so."""
    if comparison.reference is None:
        return []
    figures = comparison.policy(comparison.reference).calibration
    return [Finding("calibrated", (comparison.reference,), dict(figures))] if figures else []


def who_loses(comparison: Comparison) -> list[Finding]:
    """For each policy that was asked about: which classes of jobs fare worse than under the reference."""
    found = []
    for name in judged_policies(comparison):
        losers = worst_of_each_class(comparison.who_loses(name)) if len(comparison.classes) else []
        broken = comparison.broken_limits(name)
        if len(comparison.classes) or broken:
            found.append(Finding("losers", _pair(comparison, name), {"losers": losers, "broken": broken}))
    return found


def worst_of_each_class(losers: Sequence[Loser]) -> list[Loser]:
    """One entry per class, those with the largest rise first."""
    found: dict[tuple[str, str], Loser] = {}
    for one in sorted(losers, key=lambda loser: -loser.difference.ratio):
        found.setdefault((one.by, one.name), one)
    return list(found.values())


def judged_policies(comparison: Comparison) -> list[str]:
    """Policies that deserve a sentence of their own: those asked about, else the best one."""
    given = [entry.name for entry in comparison.shown if entry.role == "given"]
    return [name for name in given or _shown(comparison)[:1] if name != comparison.reference]


def _shown(comparison: Comparison) -> list[str]:
    """Policies that are shown, the best first; what was recorded beside another reference is no choice."""
    known = {entry.name for entry in comparison.shown if entry.role != "recorded"}
    return [name for name in comparison.ranking() if name in known]


def _pair(comparison: Comparison, policy: str) -> tuple[str, ...]:
    return (policy, comparison.reference) if comparison.reference else (policy,)


def advice(comparison: Comparison, policy: str) -> Advice:
    """What to do about a policy.

    Args:
        comparison: Policies on windows, against what runs today.
        policy: The name of one of them.
    """
    setting = comparison.setting
    difference, whole = comparison.difference(policy), comparison.in_whole(policy)
    if difference.verdict in ("better", "worse") and whole is not None and _disagree(difference, whole):
        return "disagrees"
    if difference.ratio != 0.0 and (setting.has_weak_intervals or difference.verdict == "one run"):
        return "unclear"
    if difference.verdict != "better":
        return "worse" if difference.verdict == "worse" else "no gain"
    if comparison.broken_limits(policy):
        return "limits"
    if comparison.misleads(comparison.reference):
        return "unexplained"
    if setting.knows_the_future:
        return "unknowable"
    checked = comparison.checks_limits(policy) and not comparison.preempts(policy)
    return "recommended" if checked else "unchecked"


def _disagree(windows: Difference, whole: Difference) -> bool:
    """Whether one of them says more and the other less; what is nearly nothing says neither."""
    return windows.ratio * whole.ratio < 0.0 and abs(whole.ratio) > NEARLY_NOTHING


def _verdicts(comparison: Comparison, policies: Sequence[str]) -> list[Finding]:
    """What to do about each policy, those first of which windows and whole replay disagree."""
    found = []
    for name in policies:
        numbers = {
            "advice": advice(comparison, name),
            "difference": comparison.difference(name),
            "whole": comparison.in_whole(name),
            "broken": comparison.broken_limits(name),
        }
        found.append(Finding("verdict", _pair(comparison, name), numbers))
    return sorted(found, key=lambda one: one.numbers["advice"] != "disagrees")


def _unexplained(comparison: Comparison) -> list[Finding]:
    """That the log's waits are not those of the modelled cluster, if so."""
    waits = comparison.unexplained
    return [] if waits is None else [Finding("unexplained", (RECORDED,), {"waits": waits})]


def _rival(comparison: Comparison, policies: Sequence[str]) -> list[Finding]:
    """How policies stand against the fixed heuristic that was best beforehand."""
    rival = comparison.rival
    if rival is None or rival == comparison.reference:
        return []
    others = [name for name in policies if name != rival]
    numbers: dict[str, Any] = {name: comparison.difference(name, rival) for name in others}
    return [Finding("rival", (*others, rival), numbers)]


def _how_busy(comparison: Comparison) -> list[Finding]:
    """What the cluster was like when windows began."""
    setting = comparison.setting
    if setting.start == "recorded":
        return [Finding("recorded-start", (), {"after": setting.margins[1], "silent": setting.silent})]
    if setting.kind not in ("windows", "draws"):
        return []
    if setting.is_cold:
        return [Finding("cold")]
    numbers = {"before": setting.margins[0], "after": setting.margins[1], **(setting.starts or {})}
    return [Finding("starts", (), numbers)]


def _not_tried(comparison: Comparison) -> list[Finding]:
    backfills = comparison.setting.not_tried
    return [Finding("not-tried", (), {"backfills": list(backfills)})] if backfills else []


def _all_alike(comparison: Comparison) -> list[Finding]:
    """That no policy which is shown differs from another in any window, if so."""
    metrics = (comparison.setting.metric, *TOLD_BESIDE)
    rows = [
        [comparison.values(entry.name, metric) for metric in metrics if comparison.knows(entry.name, metric)]
        for entry in comparison.shown
    ]
    alike = len(rows) > 1 and all(np.array_equal(row, rows[0], equal_nan=True) for row in rows[1:])
    return [Finding("all-alike", tuple(entry.name for entry in comparison.shown))] if alike else []


def _who_is_best(comparison: Comparison) -> list[Finding]:
    setting, reference = comparison.setting, comparison.reference
    shown = _shown(comparison)
    if not shown:
        return []
    best = shown[0]
    ties = tied_with(comparison, best) if reference is not None and not setting.has_weak_intervals else []
    numbers = {
        "value": comparison.mean(best),
        "policies": len(shown),
        "is_alone": not ties and not setting.has_weak_intervals,
        "difference": None if reference in (None, best) else comparison.difference(best),
    }
    found = [Finding("best", _pair(comparison, best), numbers)]
    if reference is None:
        return found
    found += [Finding("ties", (best, *ties))] if ties else []
    others = [name for name in judged_policies(comparison) if name != best]
    return found + [_compared(comparison, name) for name in others]


def _compared(comparison: Comparison, policy: str) -> Finding:
    return Finding("compared", _pair(comparison, policy), {"difference": comparison.difference(policy)})


def tied_with(comparison: Comparison, best: str) -> list[str]:
    """Names of shown policies that the windows do not tell apart from the best one, the better first."""
    one_window = len(comparison.setting.windows) < 2
    found = {name: comparison.difference(name, best) for name in _shown(comparison) if name != best}
    return [name for name, one in found.items() if (one.ratio == 0.0 if one_window else one.verdict == "tie")]


def _beside(comparison: Comparison, policy: str) -> list[Finding]:
    """Completion time and the longest waits, which a gain may have been bought with.

    In the replay of the whole part, where there is one: in windows, jobs that starve wait until arrivals
    stop.
    """
    reference = comparison.reference
    if reference is None:
        return []
    found = {}
    for metric in TOLD_BESIDE:
        if metric == comparison.setting.metric:
            continue
        whole = comparison.in_whole(policy, metric)
        if whole is not None:
            found[metric] = whole
        elif comparison.knows(policy, metric) and comparison.knows(reference, metric):
            found[metric] = comparison.difference(policy, metric=metric)
    return [Finding("beside", (policy, reference), found)] if found else []


def by_window(comparison: Comparison, policies: Sequence[str]) -> ByWindow | None:
    """How policies did in single windows.

    Args:
        comparison: Whose windows.
        policies: Names; of several the mean in every window counts.

    Returns:
        None if there are fewer than three windows, or nothing to compare with.
    """
    setting, reference = comparison.setting, comparison.reference
    count = len(setting.windows)
    if reference is None or reference in policies or count < 3:
        return None
    own = np.mean([comparison.values(name) for name in policies], axis=0)
    other = comparison.values(reference)
    if not (np.isfinite(own).all() and (other > 0).all()):
        return None
    sign = 1.0 if setting.lower_is_better else -1.0
    without = [np.delete(own, i).mean() / np.delete(other, i).mean() - 1.0 for i in range(count)]
    return ByWindow(
        ahead=int((sign * own < sign * other).sum()),
        behind=int((sign * own > sign * other).sum()),
        windows=count,
        median=float(np.median(own / other - 1.0)),
        without_best=float(max(without, key=lambda ratio: sign * ratio)),
    )


def _hindsight(comparison: Comparison) -> list[Finding]:
    best, beforehand = comparison.hindsight, comparison.rival or comparison.reference
    if best is None:
        return []
    if best == beforehand:
        return [Finding("hindsight", (best, best))]
    numbers = {"value": comparison.mean(best), "difference": comparison.difference(best)}
    others = [name for name in judged_policies(comparison) if name != best]
    against: dict[str, Difference] = {name: comparison.difference(name, best) for name in others}
    found = [Finding("hindsight", _pair(comparison, best), numbers)]
    return found + ([Finding("against-hindsight", (*others, best), against)] if against else [])


def _how_sure(comparison: Comparison) -> list[Finding]:
    setting = comparison.setting
    count = len(setting.windows)
    if count < 2:
        return [Finding("one-window")]
    if setting.is_weak:
        return [Finding("weak", (), {"windows": count, "disjoint": setting.disjoint})]
    if setting.block > 1:
        return [Finding("overlap", (), {"block": usable_block(setting.block, count)})]
    return []


def _placement(comparison: Comparison) -> list[Finding]:
    """Where jobs go, if that is the same for all and not what names of policies leave out."""
    placements = {entry.placement for entry in comparison.shown}
    if len(placements) != 1 or placements == {DEFAULT_PLACEMENT}:
        return []
    return [Finding("placement", (), {"placement": placements.pop()})]


def _noise(comparison: Comparison) -> list[Finding]:
    draws = comparison.setting.noise_draws
    return [Finding("noise", (), {"draws": draws})] if draws > 1 else []


def _what_was_seen(comparison: Comparison) -> list[Finding]:
    """That policies may have been trained, or chosen, on the very jobs that they are compared on."""
    setting = comparison.setting
    learned = tuple(entry.name for entry in comparison.shown if entry.kind == "learned")
    if not learned or setting.part == "test" or setting.kind == "draws":
        return []
    return [Finding("seen", learned)]


def _left_out(comparison: Comparison) -> list[Finding]:
    count = comparison.setting.left_out
    return [Finding("left-out", (), {"jobs": count})] if count else []


def _unfinished(comparison: Comparison) -> list[Finding]:
    """That episodes were cut off: means over finished jobs favour a policy that leaves the worst undone."""
    if UNFINISHED not in comparison.windows.columns:
        return []
    means = {
        entry.name: comparison.mean(entry.name, UNFINISHED)
        for entry in comparison.shown
        if comparison.knows(entry.name, UNFINISHED)
    }
    if not any(means.values()):
        return []
    most = dict(sorted(means.items(), key=lambda one: -one[1]))
    return [Finding("unfinished", tuple(most), most)]
