"""Windows that begin with what was really running and waiting (docs/contract/windows.md)."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import JsonValue

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.native.beginning import Beginning, Ints, Nodes
from gpuyard.native.inputs import prepare
from gpuyard.policies.grammar import DEFAULT_PLACEMENT, PolicySpec, parse_policy
from gpuyard.policies.support import check_beginning
from gpuyard.simulation.recorded_nodes import Places, named_places
from gpuyard.simulation.windows import HeldOutWindow, Margins, WindowCutter
from gpuyard.units import plural
from gpuyard.workload import Workload, make_workload
from gpuyard.workload.recorded import MILLI, moment_text, recorded_jobs, recorded_times_us
from gpuyard.workload.schema import microseconds
from gpuyard.workload.shaping.derive import derived

NEVER_US = np.iinfo(np.int64).max
SPLITTING = "anywhere"
ORDERS = ("largest", "fifo")
"""In which jobs of unknown nodes are placed: the largest first; or, if jobs that share GPUs then find no room
in the order in which they started, in that order."""


class RecordedCutter(WindowCutter):
    """Cuts windows that begin with the cluster as it was when their first own job came.

    Attributes:
        silent: Jobs of which the log has no start: they neither run nor wait when a window begins.

    Args:
        workload: All jobs, with recorded starts.
        cluster: What they run on.
        simulation: Settings.
        placement: By which jobs are placed that ran on unknown nodes.

    Raises:
        InputError: if the log has no starts, or the settings do not go with a given beginning.
    """

    begins_recorded = True

    def __init__(
        self, workload: Workload, cluster: Cluster, simulation: SimulationConfig, placement: str
    ) -> None:
        known = recorded_jobs(workload)
        if not len(known):
            raise InputError(
                f"{setting('window_start', 'recorded')}: workload {workload.metadata.name} does not say when "
                "its jobs really started (column recorded_start_s); import a log that has starts, before its "
                f"arrivals, durations or gangs are changed, or use {setting('window_start', 'busy')}"
            )
        check_beginning(simulation, workload)
        super().__init__(workload, cluster, simulation, placement)
        self._placed = _Placer(cluster, placement, simulation)
        known = recorded_jobs(self.jobs)
        self.silent = len(self.jobs) - len(known)
        count = len(self.jobs)
        self._start_us, self._end_us = np.full(count, NEVER_US), np.full(count, -1)
        self._start_us[known], self._end_us[known] = recorded_times_us(self.jobs, known)
        self._has_start = self._start_us < NEVER_US
        self._submit_us = microseconds(self.jobs.frame["submit_s"])
        self._entry = np.cumsum(self._has_start) - 1
        self._places = named_places(self.jobs, known, cluster)

    def _at(self, row: int, size: int, margins: Margins) -> HeldOutWindow:
        moment_us = int(self._submit_us[row])
        came = np.arange(row, dtype=np.int64)
        ran = came[(self._start_us[:row] < moment_us) & (self._end_us[:row] > moment_us)]
        waited = came[self._has_start[:row] & (self._start_us[:row] >= moment_us)]
        early = np.union1d(ran, waited)
        end = row + size + margins.after
        rows = np.concatenate((early, np.arange(row, end, dtype=np.int64)))
        settings: dict[str, JsonValue] = {"start_row": row, "count": end - row, "before": len(early)}
        jobs = derived(self.jobs, self.jobs.frame[rows], "recorded-window", settings)
        own = range(len(early), len(early) + size)
        where = moment_text(self.jobs, moment_us / 1e6)
        beginning = self._beginning(jobs, np.searchsorted(early, ran), own.start, ran, where)
        return HeldOutWindow(row, jobs, own, self.jobs, beginning)

    def _beginning(self, jobs: Workload, running: Ints, first: int, rows: Ints, where: str) -> Beginning:
        """What ran when a window's first own job came; ``rows`` are those of all jobs."""
        moment_us = int(microseconds(jobs.frame["submit_s"])[first])
        start_us, _ = recorded_times_us(jobs, running)
        nodes = self._named(rows)
        if nodes is None:
            nodes = self._placed.found(jobs.frame[running], start_us, where)
        else:
            self._placed.check(jobs.frame[running], start_us, nodes, where)
        return Beginning(moment_us, running, start_us, nodes)

    def _named(self, rows: Ints) -> tuple[Nodes, ...] | None:
        """The nodes that the log names."""
        return None if self._places is None else _nodes_of(self._places, self._entry[rows])


def _nodes_of(places: Places, entries: Ints) -> tuple[Nodes, ...]:
    spans = zip(places.node_offset[entries].tolist(), places.node_offset[entries + 1].tolist(), strict=True)
    return tuple(
        tuple(zip(places.node[a:b].tolist(), places.node_gpus[a:b].tolist(), strict=True)) for a, b in spans
    )


@dataclass(frozen=True)
class _Placer:
    """Finds nodes for jobs that all ran at one moment, and makes sure that they could."""

    cluster: Cluster
    placement: str
    simulation: SimulationConfig

    def found(self, frame: pl.DataFrame, start_us: Ints, where: str) -> tuple[Nodes, ...]:
        """Nodes for jobs that started then.

        Raises:
            InputError: with the moment and how many GPUs were in use, if there is no way to place all.
        """
        if not frame.height:
            return ()
        rule = DEFAULT_PLACEMENT if parse_policy(f"fifo/{self.placement}").is_optimised else self.placement
        short = 0
        for order in ORDERS:
            for placement in dict.fromkeys((rule, SPLITTING)):
                nodes = self._placed(frame, start_us, PolicySpec(order, "greedy", placement=placement))
                short = nodes.count(())
                if short == 0 and self._fits(frame, start_us, nodes):
                    return nodes
        raise self._impossible(frame, f"{short:,} of them find no room", where)

    def check(self, frame: pl.DataFrame, start_us: Ints, nodes: tuple[Nodes, ...], where: str) -> None:
        """Refuse jobs that cannot have run on these nodes together.

        Raises:
            InputError: with the moment and how many GPUs were in use.
        """
        if not self._fits(frame, start_us, nodes):
            why = "who may use a node, its GPU type, CPUs and memory rule out the nodes that the log names"
            raise self._impossible(frame, why, where)

    def _impossible(self, frame: pl.DataFrame, why: str, where: str) -> InputError:
        used = float((frame["gpus"].cast(pl.Int64) * frame["gpu_milli"]).sum()) / MILLI
        return InputError(
            f"{setting('window_start', 'recorded')}: impossible on {self.cluster.name}: at {where} "
            f"{plural(frame.height, 'job')} ran on {used:,.10g} of {self.cluster.total_gpus:,} GPUs, and "
            f"{why}; use the cluster of the log (an audit of the log shows where it contradicts itself), or "
            f"{setting('window_start', 'busy')}"
        )

    def _placed(self, frame: pl.DataFrame, start_us: Ints, policy: PolicySpec) -> tuple[Nodes, ...]:
        """Where a policy puts jobs that all come at once; nowhere if one does not fit beside the others."""
        by_start = np.lexsort((np.arange(len(start_us)), start_us))
        config = SimulationConfig(estimates="none", oversize="drop", seed=self.simulation.seed)
        try:
            inputs = prepare(_at_once(frame[by_start]), self.cluster, policy, config)
        except InputError:  # none of them can ever run by this rule
            return ((),) * frame.height
        arrays = _core.simulate(inputs.cluster, inputs.jobs, policy.compile(), inputs.settings)
        offset, node, gpus = (arrays[name].tolist() for name in ("node_offset", "node", "node_gpus"))
        nodes: list[Nodes] = [()] * frame.height
        for i, kept in enumerate(inputs.kept.tolist()):
            if arrays["start_us"][i] == 0:
                span = slice(offset[i], offset[i + 1])
                nodes[by_start[kept]] = tuple(zip(node[span], gpus[span], strict=True))
        return tuple(nodes)

    def _fits(self, frame: pl.DataFrame, start_us: Ints, nodes: tuple[Nodes, ...]) -> bool:
        """Whether jobs can hold these nodes together."""
        if not frame.height:
            return True
        policy, config = PolicySpec("fifo", "strict", placement=SPLITTING), SimulationConfig(estimates="none")
        rank = np.argsort(np.lexsort((np.arange(len(start_us)), start_us)))
        try:
            inputs = prepare(_at_once(frame), self.cluster, policy, config)
            starts = zip(range(frame.height), rank.tolist(), map(list, nodes), strict=True)
            given = _core.Beginning(inputs.jobs, frame.height, list(starts))
            _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, _core.Past(), given)
        except InputError:
            return False
        return True


def _at_once(frame: pl.DataFrame) -> Workload:
    """Jobs that all come at 0 and run so long that none has ended when the last one starts."""
    day_s = pl.lit(86400.0)
    jobs = frame.drop("recorded_start_s", "recorded_nodes", strict=False)
    return make_workload(jobs.with_columns(submit_s=0.0, duration_s=day_s, deadline_s=None))
