"""What a cluster draws while it runs a schedule: energy, sleep, cost by time of day.

See docs/contract/metrics.md.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuyard.metrics.outcomes import Floats, Ints, System
from gpuyard.metrics.tariff import DAY_S, Tariff

J_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Spans:
    """Spans of time, each with the number of the node (or other thing) that it belongs to."""

    of: Ints
    from_us: Ints
    to_us: Ints

    def seconds(self, count: int) -> Floats:
        """Total length of the spans of each of so many nodes."""
        return np.bincount(self.of, self.to_us - self.from_us, count) / 1e6

    def clipped(self, from_us: int, to_us: int) -> "Spans":
        """The parts between two times."""
        begin, end = np.maximum(self.from_us, from_us), np.minimum(self.to_us, to_us)
        kept = begin < end
        return Spans(self.of[kept], begin[kept], end[kept])

    def union(self) -> "Spans":
        """The same times as disjoint spans, ordered by (of, from); spans that touch become one."""
        count = len(self.of)
        times = np.concatenate([self.from_us, self.to_us])
        # Stable sorts: at one time begins come before ends, which joins what touches.
        order = np.argsort(times, kind="stable")
        order = order[np.argsort(np.concatenate([self.of, self.of])[order], kind="stable")]
        is_begin = order < count
        depth = np.cumsum(np.where(is_begin, 1, -1))
        begins = order[is_begin & (depth == 1)]
        ends = order[depth == 0]
        return Spans(self.of[begins], times[begins], times[ends])


@dataclass(frozen=True)
class Draw:
    """Spans of time and the watts that each adds."""

    from_us: Ints
    to_us: Ints
    watts: Floats


@dataclass(frozen=True)
class Energy:
    """Energy of a cluster from the first submit to the last finish.

    Attributes:
        system: The cluster and what ran on it.
        sleep_after_s: A node that no run holds falls asleep after this long; None: never.
        epoch_s: What the clock showed at time 0, seconds; 0 is midnight.
    """

    system: System
    sleep_after_s: float | None = None
    epoch_s: float = 0.0

    @cached_property
    def down(self) -> Spans:
        """When nodes were down."""
        downtime = self.system.schedule.downtime
        if downtime is None:
            return _nothing()
        spans = Spans(downtime.node.astype(np.int64), downtime.from_us, downtime.to_us)
        return spans.clipped(self.system.from_us, self.system.to_us)

    @cached_property
    def asleep(self) -> Spans:
        """When nodes were asleep."""
        if self.sleep_after_s is None:
            return _nothing()
        runs, downtime, nodes = self.system.pieces, self.system.schedule.downtime, len(self.system.nodes.gpus)
        run = np.repeat(np.arange(len(runs)), np.diff(runs.node_offset))
        every, first, last = np.arange(nodes), np.zeros(nodes, np.int64), np.full(nodes, self.system.to_us)
        of = [runs.node.astype(np.int64), every, every]
        begin, end = [runs.taken_us[run], first, last], [runs.released_us[run], first, last]
        if downtime is not None:  # also that before the first submit of a job that ran
            of.append(downtime.node.astype(np.int64))
            begin.append(downtime.from_us)
            end.append(downtime.to_us)
        used = Spans(np.concatenate(of), np.concatenate(begin), np.concatenate(end)).union()
        is_gap = used.of[:-1] == used.of[1:]
        drowsy_us = round(self.sleep_after_s * 1e6)
        gaps = Spans(used.of[:-1][is_gap], used.to_us[:-1][is_gap] + drowsy_us, used.from_us[1:][is_gap])
        return gaps.clipped(self.system.from_us, self.system.to_us)

    @property
    def asleep_s(self) -> float:
        """Node-seconds asleep."""
        return float(self.asleep.seconds(1).sum())

    @cached_property
    def kwh(self) -> float | None:
        """All of it; None if a GPU's watts, all watts, or the nodes that jobs ran on, are unknown."""
        if not self._watts_given or not self.system.nodes_known:
            return None
        nodes, count = self.system.nodes, len(self.system.nodes.gpus)
        asleep_s, down_s = self.asleep.seconds(count), self.down.seconds(count)
        # One sum over nodes first: without sleep and failures the result is what it always was.
        idle_j = self._idle_w.sum() * self.system.makespan_s
        saved_j = (self._idle_w * (asleep_s + down_s) - nodes.sleep_w * asleep_s).sum()
        joules = float(idle_j - saved_j + (self._gpu_extra_w * self._busy_s).sum())
        return None if np.isnan(joules) else joules / J_PER_KWH

    def cost(self, tariff: Tariff) -> float | None:
        """Energy times its price at each moment; None if energy is unknown."""
        if self.kwh is None:
            return None
        if tariff.flat is not None:
            return self.kwh * tariff.flat
        times_s, kwh = self._cumulative_kwh()
        from_s, to_s = self.system.from_us / 1e6, self.system.to_us / 1e6
        changes_s, prices = tariff.between(from_s, to_s, -(self.epoch_s % DAY_S))
        return float((np.diff(np.interp(changes_s, times_s, kwh)) * prices).sum())

    @cached_property
    def _watts_given(self) -> bool:
        return bool(self._idle_w.any() or self._gpu_extra_w.any())

    @cached_property
    def _idle_w(self) -> Floats:
        """Of each node with its GPUs, when nothing runs there."""
        nodes = self.system.nodes
        return nodes.idle_w + np.where(nodes.gpus > 0, nodes.gpus * nodes.gpu_idle_w, 0.0)

    @cached_property
    def _gpu_extra_w(self) -> Floats:
        """Of each node, what one of its GPUs draws more when it is in use."""
        nodes = self.system.nodes
        return np.where(nodes.gpus > 0, nodes.gpu_peak_w - nodes.gpu_idle_w, 0.0)

    @property
    def _busy_s(self) -> Floats:
        """Of each node, GPU-seconds in use."""
        system, runs, count = self.system, self.system.pieces, len(self.system.nodes.gpus)
        whole_us = np.where(runs.gpu_index < 0, runs.released_us - runs.begin_us, 0)
        held_us = runs.node_gpus * np.repeat(whole_us, np.diff(runs.node_offset))
        if system.schedule.runs is None:  # then the shared GPUs' part is known already
            return (np.bincount(runs.node, held_us, count) + system.time_means[2]) / 1e6
        return np.bincount(runs.node, held_us, count) / 1e6 + self._shared_busy().seconds(count)

    def _shared_busy(self) -> Spans:
        """When GPUs that jobs share were in use, one span after another of each GPU, by node."""
        runs, most = self.system.pieces, int(self.system.nodes.gpus.max(initial=1))
        shared = np.flatnonzero(runs.gpu_index >= 0)
        gpu = runs.node[runs.node_offset[shared]].astype(np.int64) * most + runs.gpu_index[shared]
        busy = Spans(gpu, runs.begin_us[shared], runs.released_us[shared]).union()
        return Spans(busy.of // most, busy.from_us, busy.to_us)

    def _draws(self) -> list[Draw]:
        """What is added to the draw of all nodes idle."""
        runs, nodes, idle_w, extra_w = self.system.pieces, self.system.nodes, self._idle_w, self._gpu_extra_w
        run = np.repeat(np.arange(len(runs)), np.diff(runs.node_offset))
        whole = np.flatnonzero((runs.gpu_index[run] < 0) & (runs.node_gpus > 0))
        whole_w = runs.node_gpus[whole] * extra_w[runs.node[whole]]
        shared, asleep, down = self._shared_busy(), self.asleep, self.down
        return [
            Draw(runs.begin_us[run[whole]], runs.released_us[run[whole]], whole_w),
            Draw(shared.from_us, shared.to_us, extra_w[shared.of]),
            Draw(asleep.from_us, asleep.to_us, nodes.sleep_w[asleep.of] - idle_w[asleep.of]),
            Draw(down.from_us, down.to_us, -idle_w[down.of]),
        ]

    def _cumulative_kwh(self) -> tuple[Floats, Floats]:
        """Times, ascending, and the energy used up to each; between two of them the draw is constant."""
        draws, ends = self._draws(), np.array([self.system.from_us, self.system.to_us])
        times = np.concatenate([ends, *(d.from_us for d in draws), *(d.to_us for d in draws)])
        steps = [np.array([self._idle_w.sum(), 0.0]), *(d.watts for d in draws), *(-d.watts for d in draws)]
        order = np.argsort(times, kind="stable")
        times_s = times[order] / 1e6
        watts = np.cumsum(np.concatenate(steps)[order])
        joules = np.concatenate([[0.0], np.cumsum(watts[:-1] * np.diff(times_s))])
        return times_s, joules / J_PER_KWH


def _nothing() -> Spans:
    none = np.zeros(0, np.int64)
    return Spans(none, none, none)
