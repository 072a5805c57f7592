"""Policies on the same windows: what each reached, how far apart they are, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from gpuyard.config import GuardConfig
from gpuyard.errors import InputError
from gpuyard.evaluate.bootstrap import Difference, Floats, paired_difference
from gpuyard.evaluate.setting import PolicyEntry, Setting, has_direction, lower_is_better, offset_of
from gpuyard.metrics.classes import LOSING
from gpuyard.metrics.guards import BrokenLimit, broken_limits, wait_row
from gpuyard.policies.base import RECORDED
from gpuyard.policies.grammar import parse_policy
from gpuyard.registry import suggest
from gpuyard.simulation.recorded_waits import RecordedWaits
from gpuyard.units import metric_label

ChosenOn = Literal["validation", "given", "first"]
BESIDE = ("mean_jct_s", "p99_wait_s", "max_wait_s")
"""Metrics that stand beside whatever is compared: what a gain may have been bought with."""
TOLD_BESIDE = ("mean_jct_s", "mean_wait_s", "p99_wait_s", "max_wait_s")
"""The same where there is more room than in a table."""


@dataclass(frozen=True)
class Loser:
    """A class of jobs that fares worse.

    Attributes:
        by: What classes are made by: ``priority``, ``group``, ``gpus``, ``user`` or ``duration``.
        name: Of the class.
        jobs: In it, over all windows.
        metric: What rises.
        difference: By how much.
    """

    by: str
    name: str
    jobs: int
    metric: str
    difference: Difference


@dataclass(frozen=True)
class WholeReplay:
    """The whole part replayed in one go by every policy that is shown.

    Attributes:
        metrics: One row per policy: ``policy`` and metrics over all jobs of the part.
        classes: The same by class of jobs: ``policy``, ``by``, ``class``, ``jobs`` and metrics.
        windows: What jobs of the compared windows met in the replay: ``policy``, ``window`` and metrics.
        waits: Of all jobs and by class, medians and least over several replays: ``policy`` and the
            columns of ``typical_waits``.
    """

    metrics: pl.DataFrame
    classes: pl.DataFrame
    windows: pl.DataFrame
    waits: pl.DataFrame


@dataclass(frozen=True, repr=False)
class Comparison:
    """What policies reached on the same windows.

    Attributes:
        setting: What they were compared on.
        policies: Who they are.
        reference: Name of the policy that the others are measured against.
        chosen_on: How the reference was chosen: as the best fixed heuristic on ``validation`` windows,
            ``given`` by the user, or as the ``first`` policy that was named.
        rival: Name of the fixed heuristic that was best on windows of other parts; None without heuristics.
        hindsight: Name of the heuristic that was best on these very windows; None without heuristics.
        windows: One row a policy and window: ``policy``, ``window``, and a column a metric; metrics that the
            inputs do not tell, or that were not computed for the family of heuristics, are null.
        classes: One row a policy, window and class of jobs: ``policy``, ``window``, ``by``, ``class``,
            ``jobs`` and metrics.
        jobs: One row a policy, window and job, where they were kept.
        schedules: The schedule of the first window by policy, with nodes.
        executions: Of policies that stop jobs or whose nodes fail, each stay of a job on GPUs in that window.
        accounts: Of replays of a whole log, by policy: rows left out, counters, the hash of the schedule.
        whole: The whole part replayed in one go, where that was done.
        evaluated_by: The metric of the evaluation, by which a reference that was not given was chosen; None
            if it is that of the setting.
    """

    setting: Setting
    policies: tuple[PolicyEntry, ...]
    reference: str | None
    chosen_on: ChosenOn
    hindsight: str | None
    windows: pl.DataFrame
    classes: pl.DataFrame
    jobs: pl.DataFrame | None = None
    schedules: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    evaluated_by: str | None = None
    executions: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    accounts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rival: str | None = None
    whole: WholeReplay | None = None

    def __repr__(self) -> str:
        """Who is compared on how many windows; tables are too long for a line."""
        names = ", ".join(entry.label for entry in self.shown)
        others = len(self.policies) - len(self.shown)
        more = f" and {others} more" if others else ""
        reference = {entry.name: entry.label for entry in self.policies}.get(self.reference or "")
        these = "episodes" if self.setting.kind == "episodes" else "windows"
        return f"Comparison({names}{more}; {len(self.setting.windows)} {these}; reference {reference})"

    def _repr_html_(self) -> str:
        """For notebooks: a row per policy."""
        from gpuyard.evaluate.export.notebook import comparison_html

        return comparison_html(self)

    @property
    def shown(self) -> tuple[PolicyEntry, ...]:
        """Policies that have a row in tables: all but the family of heuristics."""
        return tuple(policy for policy in self.policies if policy.is_shown)

    def policy(self, name: str) -> PolicyEntry:
        """A policy by its full name, its label, or as short as names of policies may be.

        Raises:
            InputError: if it is not among them.
        """
        for asked in (name, in_full(name)):
            for policy in self.policies:
                if asked in (policy.name, policy.label):
                    return policy
        known = dict.fromkeys(policy.name for policy in self.policies)
        raise InputError(f"policy {name!r} was not compared{suggest(name, known)}")

    def values(self, policy: str, metric: str | None = None) -> Floats:
        """A metric of every window, in the order of the setting.

        Raises:
            InputError: if there is no such policy or metric, or a value is unknown.
        """
        metric = metric or self.setting.metric
        if metric not in self.windows.columns[2:]:
            known = dict.fromkeys(self.windows.columns[2:])
            raise InputError(f"metric {metric!r} was not computed{suggest(metric, known)}")
        name = self.policy(policy).name
        column = self.windows.filter(pl.col("policy") == name)[metric]
        if column.null_count() or not len(column):
            raise InputError(f"metric {metric} of policy {name} is not known on every window")
        return column.cast(pl.Float64).to_numpy()

    def knows(self, policy: str, metric: str) -> bool:
        """Whether a metric of a policy is known on every window."""
        try:
            return bool(np.isfinite(self.values(policy, metric)).all())
        except InputError:
            return False

    def mean(self, policy: str, metric: str | None = None) -> float:
        """A metric's mean over windows."""
        return float(self.values(policy, metric).mean())

    def difference(self, policy: str, against: str | None = None, metric: str | None = None) -> Difference:
        """How far a policy lies from another: the geometric mean of windows' ratios, with a 95 % interval.

        Args:
            policy: Its name or label.
            against: The other; None: the reference.
            metric: None: the one that policies are compared by.

        Raises:
            InputError: if there is no such policy or metric, or there is no reference.
        """
        metric = metric or self.setting.metric
        other = against or self.reference
        if other is None:
            raise InputError("this comparison has no reference; say against which policy")
        return paired_difference(
            self.values(policy, metric),
            self.values(other, metric),
            block=self.setting.block,
            disjoint=self.setting.disjoint,
            lower_is_better=self._lower(metric),
            offset=offset_of(metric),
        )

    def in_whole(
        self, policy: str, metric: str | None = None, against: str | None = None
    ) -> Difference | None:
        """How far a policy lies from another in the replay of the whole part; None if there is none.

        Args:
            policy: Its name or label.
            metric: None: the one that policies are compared by.
            against: The other; None: the reference.
        """
        other = against or self.reference
        rows = self.whole_rows()
        names = [self.policy(one).name for one in (policy, other) if one is not None]
        metric = metric or self.setting.metric
        if len(names) < 2 or any(rows.get(name, {}).get(metric) is None for name in names):
            return None
        own, theirs = (float(rows[name][metric]) for name in names)
        return Difference.without_interval(own, theirs)

    def in_whole_by_window(self, policy: str) -> Difference | None:
        """How far a policy lies from the reference on the same windows' jobs in the replay of the whole part.

        None where the part was not replayed, or the metric is not known window by window.
        """
        metric = self.setting.metric
        if self.whole is None or self.reference is None or metric not in self.whole.windows.columns:
            return None
        own, other = (
            self.whole.windows.filter(pl.col("policy") == self.policy(name).name)[metric].to_numpy()
            for name in (policy, self.reference)
        )
        return paired_difference(
            own,
            other,
            block=self.setting.block,
            disjoint=self.setting.disjoint,
            lower_is_better=self._lower(metric),
            offset=offset_of(metric),
        )

    def whole_rows(self) -> Mapping[str, Mapping[str, Any]]:
        """Metrics over all jobs of the part, by policy; where the one window is the whole part, of that."""
        table = self.whole.metrics if self.whole is not None else None
        if table is None and self.setting.kind == "whole":
            table = self.windows
        return {} if table is None else {row["policy"]: row for row in table.iter_rows(named=True)}

    def whole_classes(self, policy: str) -> pl.DataFrame:
        """The same by class of jobs, of one policy."""
        table = self.classes if self.whole is None else self.whole.classes
        return table.filter(pl.col("policy") == self.policy(policy).name)

    def broken_limits(self, policy: str) -> list[BrokenLimit]:
        """Limits on waits that a policy breaks in the replay of the whole part, the worst first."""
        reference, name = self.reference, self.policy(policy).name
        if reference is None or name == reference or not self.checks_limits(policy):
            return []
        limits = GuardConfig.model_validate(self.setting.guards)
        recorded = self.policy(reference).kind == "recorded"
        return broken_limits(self._waits(name), self._waits(reference), limits, recorded=recorded)

    @property
    def unexplained(self) -> RecordedWaits | None:
        """The waits of the log, if the modelled cluster does not explain them; else None."""
        waits = RecordedWaits.from_json(self.setting.recorded_waits)
        return waits if waits is not None and waits.is_unexplained else None

    def misleads(self, reference: str | None) -> bool:
        """Whether gains against a policy are no policy's: it is what a log recorded, and unexplained."""
        return reference == RECORDED and self.unexplained is not None

    def preempts(self, policy: str) -> bool:
        """Whether a policy stops running jobs: limits count waits for the first start, not those after it."""
        entry = self.policy(policy)
        if entry.kind != "heuristic":
            return False
        try:
            return parse_policy(entry.rules or entry.name).preempts
        except InputError:  # a policy of the user's own, of which nothing is known
            return False

    def checks_limits(self, policy: str) -> bool:
        """Whether limits on waits were held against a policy: both it and the reference replayed all jobs."""
        rows, setting = self.whole_rows(), self.setting
        replayed = self.reference in rows and self.policy(policy).name in rows
        return replayed and bool(setting.guards) and setting.kind != "episodes"

    def _waits(self, name: str) -> pl.DataFrame:
        """What limits on waits are held against."""
        if self.whole is not None:
            return self.whole.waits.filter(pl.col("policy") == name)
        return wait_row(self.whole_rows()[name], self.whole_classes(name))

    def by_metric(self, metric: str) -> "Comparison":
        """The same policies on the same windows with the same reference, compared by another metric.

        Which heuristic is best in hindsight is then not known: the family is run for few metrics only.

        Args:
            metric: Its name; its values must be among those of the windows.

        Raises:
            InputError: if it is not known for every policy that is shown and every window, or has no
                direction.
        """
        if metric == self.setting.metric:
            return self
        if not self._all_know(metric):
            usable = [
                name for name in self.windows.columns[2:] if has_direction(name) and self._all_know(name)
            ]
            raise InputError(
                f"metric {metric!r} is not known for every policy and window that was evaluated"
                f"{suggest(metric, dict.fromkeys(usable))}"
            )
        setting = replace(self.setting, metric=metric, lower_is_better=self._lower(metric))
        evaluated_by = self.evaluated_by or self.setting.metric
        note = f"best in hindsight by {metric_label(evaluated_by)}"
        policies = tuple(
            replace(entry, role="rival").noted(note) if entry.role == "hindsight" else entry
            for entry in self.policies
        )
        return replace(self, setting=setting, policies=policies, hindsight=None, evaluated_by=evaluated_by)

    def with_current(self, policy: str) -> "Comparison":
        """The same policies on the same windows, compared with another of them.

        Args:
            policy: The name or label of one that is shown.

        Raises:
            InputError: if it was not compared, or has no row.
        """
        name = self.policy(policy).name
        if not self.policy(name).is_shown:
            raise InputError(
                f"policy {name} was run for few metrics only; evaluate it by name to compare with it"
            )
        own = (one.beside() if one.name == self.reference else one for one in self.policies)
        policies = tuple(replace(one, role="reference") if one.name == name else one for one in own)
        return replace(self, reference=name, chosen_on="given", policies=policies)

    def _all_know(self, metric: str) -> bool:
        return all(self.knows(entry.name, metric) for entry in self.shown)

    def ranking(self, metric: str | None = None) -> list[str]:
        """Names of the policies for which the metric is known, the best first by ``typical``."""
        metric = metric or self.setting.metric
        known = [entry.name for entry in self.policies if self.knows(entry.name, metric)]
        sign = 1 if self._lower(metric) else -1
        return sorted(
            known, key=lambda name: (sign * self.typical(name, metric), sign * self.mean(name, metric))
        )

    def typical(self, policy: str, metric: str | None = None) -> float:
        """A metric's geometric mean over windows; its mean where values may be 0 or negative."""
        metric = metric or self.setting.metric
        values, offset = self.values(policy, metric), offset_of(metric)
        if offset is None or values.min() + offset <= 0.0:
            return float(values.mean())
        return float(np.exp(np.log(values + offset).mean())) - offset

    def who_loses(self, policy: str, against: str | None = None) -> list[Loser]:
        """Classes of jobs that fare worse than under another policy, the interval excluding zero.

        Means are over all jobs of a class, windows resampled as in ``difference``.

        Args:
            policy: Its name or label.
            against: The other; None: the reference.
        """
        other = against or self.reference
        if other is None or not len(self.classes):
            return []
        own, others = self._class_totals(policy), self._class_totals(other)
        found = []
        for (by, name), mine in own.items():
            theirs = others.get((by, name))
            if theirs is None:
                continue
            for metric in LOSING:
                difference = self._class_difference(mine, theirs, metric)
                if difference is not None and difference.verdict == "worse":
                    found.append(Loser(by, name, int(mine["jobs"].sum()), metric, difference))
        return found

    def _class_totals(self, policy: str) -> dict[tuple[str, str], Mapping[str, Floats]]:
        """Of each class, the number of jobs and the sums of metrics in every window, 0 where it has none."""
        rows = self.classes.filter(pl.col("policy") == self.policy(policy).name)
        place = {window: i for i, window in enumerate(self.setting.windows)}
        totals: dict[tuple[str, str], Mapping[str, Floats]] = {}
        for (by, name), part in rows.partition_by("by", "class", as_dict=True, maintain_order=True).items():
            at = [place[window] for window in part["window"]]
            jobs = part["jobs"].to_numpy().astype(np.float64)
            columns = {"jobs": jobs} | {m: part[m].fill_null(0.0).to_numpy() * jobs for m in LOSING}
            spread: dict[str, Floats] = {}
            for column, values in columns.items():
                spread[column] = np.zeros(len(place))
                spread[column][at] = values
            totals[(by, name)] = spread
        return totals

    def _class_difference(
        self, own: Mapping[str, Floats], other: Mapping[str, Floats], metric: str
    ) -> Difference | None:
        jobs = float(own["jobs"].sum())
        if not jobs or float(own[metric].sum()) <= float(other[metric].sum()):
            return None
        total = paired_difference(
            own[metric],
            other[metric],
            block=self.setting.block,
            disjoint=self.setting.disjoint,
            lower_is_better=True,
        )
        windows = len(own["jobs"])
        return Difference(
            total.ratio,
            total.low,
            total.high,
            total.verdict,
            total.own * windows / jobs,
            total.other * windows / jobs,
        )

    def _lower(self, metric: str) -> bool:
        if metric == self.setting.metric:
            return self.setting.lower_is_better
        return lower_is_better(metric, tuple(self.windows.columns[2:]))

    def summary(self) -> str:
        """In words: who is best, by how much, how sure that is, and what it costs."""
        from gpuyard.evaluate.wording import summary

        return summary(self)

    def write(self, directory: str | Path, *, csv: bool = False) -> None:
        """Write all files (docs/formats/result-directory.md) into a directory.

        Args:
            directory: Made if it does not exist.
            csv: Write schedules as CSV too.

        Raises:
            InputError: if the directory holds something else, or cannot be written.
        """
        from gpuyard.evaluate.storage import write_comparison

        write_comparison(self, Path(directory), csv=csv)

    @classmethod
    def read(cls, directory: str | Path) -> "Comparison":
        """Read what ``write`` wrote.

        Raises:
            InputError: if it is not there, is incomplete, or of another version.
        """
        from gpuyard.evaluate.storage import read_comparison

        return read_comparison(Path(directory))


def in_full(name: str) -> str:
    """The name of a heuristic with its backfill, but without a placement if it states none."""
    try:
        full = parse_policy(name).name
    except InputError:
        return name
    return full if "/" in name else full.rpartition("/")[0]
