"""Where the jobs of a log ran: by the names of nodes that it has, or in any way that is possible."""

import re
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import UNLIMITED, Cluster
from gpuyard.config import SimulationConfig
from gpuyard.native.inputs import prepare
from gpuyard.policies.grammar import parse_policy
from gpuyard.workload import Workload, make_workload
from gpuyard.workload.node_lists import SEPARATOR
from gpuyard.workload.recorded import MILLI, recorded_times_us, recorded_use

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]


@dataclass(frozen=True)
class Places:
    """Nodes of jobs, as a schedule has them; a job without any has an empty stretch.

    Attributes:
        gpu_index: GPU within its node for a shared job, -1 for others.
        node_offset: Job i's nodes are ``node_offset[i]:node_offset[i + 1]`` of the next two arrays.
        node: Node ids, ascending within a job.
        node_gpus: GPUs on that node.
        are_known: Whether the log says that it was these.
    """

    gpu_index: Ints32
    node_offset: Ints
    node: Ints32
    node_gpus: Ints32
    are_known: bool


def recorded_places(workload: Workload, jobs: Ints, cluster: Cluster) -> Places:
    """Nodes for jobs that start when the log says they did.

    * If the log names the nodes of all jobs and their GPUs fit there, in equal parts, these are known.
    * Else jobs get nodes in some way in which no node has more jobs than GPUs. Who may use a node, GPU types,
      CPUs and memory do not count: the log says that the jobs ran.
    * If more GPUs are in use than there are, no job has a node.

    Args:
        workload: The jobs.
        jobs: Positions of those that are placed, all with a recorded start.
        cluster: Where.
    """
    named = named_places(workload, jobs, cluster)
    if named is not None:
        return named
    if recorded_use(workload, jobs, cluster.total_gpus).peak_gpus > cluster.total_gpus:
        return _no_places(len(jobs))
    return _possible_places(workload, jobs, cluster)


def _no_places(count: int) -> Places:
    nothing = np.zeros(0, np.int32)
    return Places(np.full(count, -1, np.int32), np.zeros(count + 1, np.int64), nothing, nothing, False)


def named_places(workload: Workload, jobs: Ints, cluster: Cluster) -> Places | None:
    """Nodes by the log's names; None if it does not name all, or they cannot be those of the cluster."""
    if not workload.has("recorded_nodes") or (workload.frame["gpu_milli"] < MILLI).any():
        return None
    frame = workload.frame[jobs]
    if frame["recorded_nodes"].null_count():
        return None
    parts = _equal_parts(frame)
    names = sorted(parts["name"].unique().to_list(), key=_natural)
    sizes = cluster.node_columns()["gpus"]
    if len(names) > len(sizes):
        return None
    numbers = {name: number for number, name in enumerate(names)}
    number = parts["name"].replace_strict(numbers, return_dtype=pl.Int32).to_numpy()
    peaks = _peaks(workload, jobs, parts, number, len(names))
    node_of = _matched(peaks, sizes)
    if node_of is None:
        return None
    parts = parts.with_columns(node=node_of[number]).sort("job", "node")
    counts = np.bincount(parts["job"].to_numpy(), minlength=len(jobs))
    return Places(
        gpu_index=np.full(len(jobs), -1, np.int32),
        node_offset=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        node=parts["node"].to_numpy().astype(np.int32),
        node_gpus=parts["gpus"].to_numpy().astype(np.int32),
        are_known=True,
    )


def _equal_parts(frame: pl.DataFrame) -> pl.DataFrame:
    """``job``, ``name`` and ``gpus`` of each node of each job; a remainder goes to the first ones."""
    lists = frame.select(
        pl.int_range(pl.len()).alias("job"), "gpus", name=pl.col("recorded_nodes").str.split(SEPARATOR)
    )
    lists = lists.with_columns(count=pl.col("name").list.len().cast(pl.Int64))
    parts = lists.explode("name").with_columns(place=pl.int_range(pl.len()).over("job"))
    each = pl.col("gpus") // pl.col("count") + (pl.col("place") < pl.col("gpus") % pl.col("count"))
    split = parts.select("job", "name", total="gpus", gpus=each.cast(pl.Int64))
    return split.filter((pl.col("gpus") > 0) | (pl.col("total") == 0)).drop("total")


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A key by which n2 comes before n10."""
    texts = re.split(r"(\d+)", name)
    return [(1, int(text), text) if text.isdigit() else (0, 0, text) for text in texts]


def _peaks(workload: Workload, jobs: Ints, parts: pl.DataFrame, number: Ints32, names: int) -> Ints:
    """Most GPUs in use at once on each of the named nodes."""
    start_us, end_us = recorded_times_us(workload, jobs)
    job, gpus = parts["job"].to_numpy(), parts["gpus"].to_numpy()
    times = np.concatenate((end_us[job], start_us[job]))
    of = np.concatenate((number, number))
    order = np.lexsort((np.arange(len(of)), times, of))  # at one instant, jobs end before others start
    busy = np.cumsum(np.concatenate((-gpus, gpus))[order])  # 0 again where the next node begins
    peaks = np.zeros(names, np.int64)
    np.maximum.at(peaks, of[order], busy)
    return peaks


def _matched(peaks: Ints, sizes: Ints32) -> Ints32 | None:
    """A node for each name, in their order if that is possible, else by size; None if there is no way."""
    node_of: Ints32 = np.arange(len(peaks), dtype=np.int32)
    if (peaks <= sizes[: len(peaks)]).all():
        return node_of
    largest_names, largest_nodes = np.argsort(-peaks, kind="stable"), np.argsort(-sizes, kind="stable")
    node_of[largest_names] = largest_nodes[: len(peaks)]
    return node_of if (peaks <= sizes[node_of]).all() else None


def _possible_places(workload: Workload, jobs: Ints, cluster: Cluster) -> Places:
    """Some places: those that a first-come scheduler finds if every job arrives when it really started.

    Packed as schedulers do it, or, if then a job would have to wait, split in any way. A job that would
    have to wait even so has no place.
    """
    found = _arriving(workload, jobs, cluster, "consolidate")
    if found.has_place.sum() < len(jobs):
        found = _arriving(workload, jobs, cluster, "anywhere")
    return found.places(len(jobs))


@dataclass(frozen=True)
class _Arrived:
    """What became of jobs that arrived at their recorded starts: arrays of the core, and its rows."""

    arrays: dict[str, NDArray[np.int64]]
    job: Ints
    has_place: NDArray[np.bool_]

    def places(self, count: int) -> Places:
        held = np.diff(self.arrays["node_offset"])
        taken = np.repeat(self.has_place, held)
        entry = np.repeat(self.job, held)[taken]
        order = np.argsort(entry, kind="stable")
        gpu_index = np.full(count, -1, np.int32)
        gpu_index[self.job[self.has_place]] = self.arrays["gpu_index"][self.has_place]
        counts = np.bincount(entry, minlength=count)
        return Places(
            gpu_index=gpu_index,
            node_offset=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            node=self.arrays["node"][taken][order].astype(np.int32),
            node_gpus=self.arrays["node_gpus"][taken][order].astype(np.int32),
            are_known=False,
        )


def _arriving(workload: Workload, jobs: Ints, cluster: Cluster, placement: str) -> _Arrived:
    frame = workload.frame[jobs]
    arriving = make_workload(
        frame.select(
            submit_s=pl.col("recorded_start_s") - pl.col("recorded_start_s").min(),
            duration_s="duration_s",
            gpus="gpus",
            gpu_milli="gpu_milli",
            row=pl.int_range(pl.len(), dtype=pl.Int64),
        ),
    )
    policy = parse_policy(f"fifo+greedy/{placement}")
    config = SimulationConfig(oversize="drop", estimates="none")
    inputs = prepare(arriving, _counting_gpus(cluster), policy, config)
    native = policy.native()
    assert native is not None  # it is made of rules of the core
    arrays = _core.simulate(inputs.cluster, inputs.jobs, native, inputs.settings, None, inputs.past)
    ran = arriving.frame[inputs.kept]
    submit_us = np.rint(ran["submit_s"].to_numpy() * 1e6).astype(np.int64)
    return _Arrived(arrays, ran["row"].to_numpy(), arrays["start_us"] == submit_us)


def _counting_gpus(cluster: Cluster) -> Cluster:
    """The same nodes, of which only the number of GPUs counts, and no type is faster than another."""
    free = {"owner": None, "memory_mib": None, "type": "gpu"}
    nodes = [
        group.model_copy(update={**free, "cpus": UNLIMITED if group.gpus == 0 else None})
        for group in cluster.nodes
    ]
    return Cluster(name=cluster.name, nodes=tuple(nodes))
