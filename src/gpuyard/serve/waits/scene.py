"""A live state as the simulator takes it: what runs is given, what waits is to be started.

A running job is put into the simulation node by node, so that any share of GPUs, CPUs and memory that a real
scheduler gave it can be said.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard.config import SimulationConfig
from gpuyard.native.beginning import Beginning, Nodes
from gpuyard.serve.decision.live_cluster import live_cluster
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Node, Partition
from gpuyard.serve.waits.run_times import RunTimes
from gpuyard.workload.schema import Workload, make_workload

Floats = NDArray[np.float64]

_RUNNING = "(running)"
_LONGEST_S = 1e8


def is_open(node: Node) -> bool:
    """Whether jobs will start on a node: also on one that the scheduler has planned another job for."""
    return not node.closed or node.closed.lower().startswith("planned")


class Homes:
    """Which partition each job of a state would start in."""

    def __init__(self, state: ClusterState) -> None:
        usable = {node.name for node in state.nodes if is_open(node)}
        self.any_open = bool(usable)
        self._types = {node.gpu_type for node in state.nodes if node.name in usable and node.gpus}
        self._partitions = {one.name: one for one in state.partitions}
        self._shut = {one.name: _shut(one, usable) for one in state.partitions}
        self._default = [one.name for one in state.partitions if one.default]

    def of(self, job: Job) -> tuple[str, str]:
        """The first partition of those that a job names in which it may start, or why there is none."""
        if job.gpus and job.gpu_types is not None and self._types.isdisjoint(job.gpu_types):
            return "", f"no open node has GPUs of type {' or '.join(job.gpu_types) or 'none'}"
        if not self._partitions:
            return "", ""
        asked = [name for part in job.partition.split(",") if (name := part.strip())]
        why = f"there is no partition {job.partition}" if asked else "it names no partition"
        for name in asked or self._default:
            if name in self._partitions:
                why = self._shut[name] or _beyond(job, self._partitions[name])
                if not why:
                    return name, ""
        return "", why


def _shut(partition: Partition, usable: set[str]) -> str:
    if not partition.open:
        return f"partition {partition.name} is closed"
    return f"no node of partition {partition.name} is open" if usable.isdisjoint(partition.nodes) else ""


def _beyond(job: Job, partition: Partition) -> str:
    if partition.max_time_s is not None and (job.limit_s or 0.0) > partition.max_time_s:
        return f"its time limit is above that of partition {partition.name}"
    if partition.max_nodes is not None and job.nodes > partition.max_nodes:
        return f"it asks for more nodes than partition {partition.name} allows"
    return ""


class Scene:
    """The state as the simulator takes it: open nodes, running jobs node by node, waiting jobs."""

    def __init__(
        self,
        state: ClusterState,
        waiting: Sequence[Job],
        settings: ServeSettings,
        predictions_s: Mapping[str, float],
    ) -> None:
        self._state, self._waiting = state, waiting
        homes = Homes(state)
        self._home = {job.id: homes.of(job)[0] for job in waiting}
        self._predictions_s = predictions_s if settings.estimates == "history" else None
        self.nodes = [node for node in state.nodes if is_open(node)]
        self._number = {node.name: number for number, node in enumerate(self.nodes)}
        self._now_us = round(state.now_s * 1e6)
        partitions = self._needed_partitions()
        plain = tuple(replace(node, gpu_type=_plain(node.gpu_type)) for node in self.nodes)
        self.cluster = live_cluster(replace(state, nodes=plain, partitions=partitions))
        self._types = {node.gpu_type for node in self.nodes}
        rows = [*self._running_rows(), *map(self._waiting_row, waiting)]
        rows.sort(key=lambda row: row["submit_us"])
        self._first_us = rows[0]["submit_us"]
        self._job = [row["job"] for row in rows]
        row_of = {row["job"].id: position for position, row in enumerate(rows) if row["place"] is None}
        self.waiting_rows = np.array([row_of[job.id] for job in waiting])
        self._workload = self._as_workload(rows)
        self.beginning = self._as_beginning(rows)
        self.config = self._as_config(settings)

    def durations(self, ratios: RunTimes, draws: int, seed: int) -> Floats:
        """Run times drawn for every row, one line per draw; parts of one job end together."""
        drawn: dict[str, Floats] = {}
        for job in self._job:
            if job.id not in drawn:
                key = zlib.crc32(job.id.encode("utf-8", "replace"))
                drawn[job.id] = _drawn(
                    job, self._state.now_s, ratios, draws, np.random.default_rng([seed, key])
                )
        found: Floats = np.stack([drawn[job.id] for job in self._job], axis=1)
        return found

    def workload(self, duration_s: Floats) -> Workload:
        """The jobs with these run times."""
        drawn = pl.Series("duration_s", np.clip(np.rint(duration_s * 1e6), 1e3, 1e6 * _LONGEST_S) / 1e6)
        return Workload(self._workload.frame.with_columns(drawn), self._workload.metadata)

    def on_clock(self, simulated_s: Floats) -> Floats:
        """Moments of the simulation on the cluster's clock."""
        moments: Floats = simulated_s + self._first_us / 1e6
        return moments

    def _needed_partitions(self) -> tuple[Partition, ...]:
        """The partitions of waiting jobs without limits, which have been checked, and one for what runs."""
        used = [one for one in self._state.partitions if one.name in {*self._home.values()}]
        nodes = [tuple(dict.fromkeys(name for name in one.nodes if name in self._number)) for one in used]
        found = [Partition(one.name, of, tier=one.tier) for one, of in zip(used, nodes, strict=True)]
        # Whatever runs may run where it does, also after its partition was changed.
        everywhere = Partition(_RUNNING, tuple(self._number), tier=found[0].tier) if found else None
        return (*found, everywhere) if everywhere else ()

    def _running_rows(self) -> list[dict[str, Any]]:
        """One row per running job and open node, cut to what the node has left."""
        left = [[node.gpus, max(1, node.cpus), max(1, node.memory_mib)] for node in self.nodes]
        rows = []
        for job in self._state.running:
            for share in job.shares:
                number = self._number.get(share.node)
                if number is None:
                    continue
                asked = (share.gpus, share.cpus, share.memory_mib)
                takes = [
                    has if job.exclusive else max(0, min(wants, has))
                    for wants, has in zip(asked, left[number], strict=True)
                ]
                left[number] = [has - taken for has, taken in zip(left[number], takes, strict=True)]
                if any(takes):
                    rows.append(self._row(job, takes, number))
        rows += self._unknown_rows(left)
        # Jobs of which none can ever start are refused unless there is another one.
        return rows or [self._row(Job("(nothing)", "ending", self._state.now_s), (0, 0, 0), 0)]

    def _unknown_rows(self, left: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """GPUs that a node says are in use and that no listed job holds: nobody knows for how long."""
        rows = []
        for number, (node, has) in enumerate(zip(self.nodes, left, strict=True)):
            unknown = (node.gpus_used or 0) - (node.gpus - has[0])
            if unknown > 0:
                stranger = Job(f"(unknown on {node.name})", "running", self._state.now_s)
                rows.append(self._row(stranger, (min(unknown, has[0]), 0, 0), number))
        return [row for row in rows if row["gpus"]]

    def _waiting_row(self, job: Job) -> dict[str, Any]:
        takes = [max(0, job.gpus), max(0, job.cpus), max(0, job.memory_mib)]
        if job.exclusive:
            # CPUs alone keep others away: every job has some. Where nodes differ, the smallest counts.
            fewest = max(job.nodes, math.ceil(job.gpus / max(1, max(node.gpus for node in self.nodes))), 1)
            takes[1] = max(takes[1], fewest * min(max(1, node.cpus) for node in self.nodes))
        return self._row(job, takes, None) | {"nodes": max(0, job.nodes) or None}

    def _row(self, job: Job, takes: Sequence[int], place: int | None) -> dict[str, Any]:
        before_us = self._now_us - 1
        submit_us = min(round(job.submit_s * 1e6), before_us)
        begin_us = before_us if job.begin_s is None else min(round(job.begin_s * 1e6), before_us)
        limit_s = job.limit_s
        if self._predictions_s is not None:
            limit_s = self._predictions_s.get(job.id, limit_s)
        home = self._home[job.id] if place is None else _RUNNING
        return {
            "job": job,
            "place": place,
            "begin_us": begin_us,
            "submit_us": submit_us if place is None else min(submit_us, begin_us),
            "gpus": takes[0],
            "cpus": takes[1],
            "memory_mib": takes[2],
            "nodes": None,
            "estimate_s": min(limit_s, _LONGEST_S) if limit_s is not None and limit_s > 0 else None,
            "gpu_types": None if place is not None else self._allowed(job),
            "priority": job.site_priority if math.isfinite(job.site_priority) else 1.0,
            "user": job.user.encode("utf-8", "replace").decode(),
            "group": job.group.encode("utf-8", "replace").decode(),
            "partition": home if self.cluster.partitions else "",
        }

    def _allowed(self, job: Job) -> list[str] | None:
        """Types that a waiting job may use, of those that there are."""
        if job.gpu_types is None or not job.gpus:
            return None
        return [_plain(name) for name in job.gpu_types if name in self._types]

    def _as_workload(self, rows: list[dict[str, Any]]) -> Workload:
        inner = ("job", "place", "begin_us", "submit_us")
        types = {
            "estimate_s": pl.Float64(), "nodes": pl.Int32(), "gpu_types": pl.List(pl.String()),
        }  # fmt: skip
        names = [name for name in rows[0] if name not in inner]
        columns = {
            name: pl.Series(name, [row[name] for row in rows], dtype=types.get(name)) for name in names
        }
        submit_s = [(row["submit_us"] - self._first_us) / 1e6 for row in rows]
        return make_workload(
            pl.DataFrame({"submit_s": submit_s, "duration_s": [1.0] * len(rows), **columns}),
            name="live",
            epoch_s=self._state.epoch_s + self._first_us / 1e6,
            where=f"state of {self._state.source}",
        )

    def _as_beginning(self, rows: list[dict[str, Any]]) -> Beginning:
        given = [position for position, row in enumerate(rows) if row["place"] is not None]
        places: list[Nodes] = [((rows[position]["place"], rows[position]["gpus"]),) for position in given]
        start_us = [rows[position]["begin_us"] - self._first_us for position in given]
        return Beginning(
            self._now_us - self._first_us,
            np.array(given, dtype=np.int64),
            np.array(start_us, dtype=np.int64),
            tuple(places),
        )

    def _as_config(self, settings: ServeSettings) -> SimulationConfig:
        """Settings of the agent's simulation without what cannot go on from a given beginning."""
        unknown = self._workload.frame["estimate_s"].null_count() == len(self._workload)
        return settings.simulation.model_copy(
            update={
                "estimates": "none" if unknown else "requested",
                "oversize": "drop",
                "defragment": False,
                "kill_at_estimate": False,
                **dict.fromkeys(
                    ("node_mtbf_s", "node_mttr_s", "checkpoint_every_s", "sleep_after_s", "wake_s")
                ),
            }
        )


def _plain(name: str) -> str:
    """The name of a GPU type as clusters may have it."""
    return "".join("-" if letter in "|,:@" or letter.isspace() else letter for letter in name)[:200] or "gpu"


def _drawn(job: Job, now_s: float, ratios: RunTimes, draws: int, random: np.random.Generator) -> Floats:
    """Run times of one job, each at least what it has run so far."""
    # One draw from each of equal parts of the distribution: fewer rollouts say as much.
    where = (random.permutation(draws) + random.random(draws)) / draws
    if job.waits:
        return ratios.run_s(job.user, job.limit_s, 0.0, where)
    elapsed_s = max(0.0, now_s - (job.begin_s if job.begin_s is not None else now_s))
    if job.phase == "ending":
        return np.asarray(elapsed_s + 1.0 + 9.0 * where)
    return ratios.run_s(job.user, job.limit_s, elapsed_s, where)
