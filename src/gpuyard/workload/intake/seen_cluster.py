"""The cluster that a log shows: the nodes that jobs ran on, each with the most that was in use there at once.

It is a lower bound. A node that no job used is not in the log, and one that was never full is larger than it
looks. Nodes of one name but for its number are taken as alike if most of them were seen equally large.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.units import plural
from gpuyard.workload.node_lists import SEPARATOR
from gpuyard.workload.readers.machines import cluster_of_machines
from gpuyard.workload.schema import Workload

ALIKE = 0.5
"""Share of the nodes of one name that must have been seen equally large for all of them to count as that."""

MOST_PAIRS = 50_000_000
"""Pairs of a job and a node that are looked at."""

_AMOUNTS = ("gpus", "cpus", "memory_mib")


@dataclass(frozen=True)
class SeenCluster:
    """A cluster and how sure it is.

    Attributes:
        cluster: At least as large as what was in use.
        notes: Sentences on what it rests on, most important first.
    """

    cluster: Cluster
    notes: tuple[str, ...]

    def to_toml(self) -> str:
        """The cluster as TOML, with the notes as comments."""
        comments = "".join(f"# {note}\n" for note in self.notes)
        return f"{comments}\n{self.cluster.to_toml()}"


def seen_cluster(workload: Workload, source: Path) -> SeenCluster:
    """The cluster that the jobs' own nodes show.

    Args:
        workload: With ``recorded_nodes``.
        source: The log, which gives the cluster its name.

    Raises:
        InputError: if the log does not say on which nodes jobs ran, and what to do instead.
    """
    if not workload.has("recorded_nodes"):
        raise InputError(
            f"{source}: does not say on which nodes jobs ran, so no cluster can be derived; export the nodes "
            "(Slurm: NodeList and AllocTRES in sacct's --format), or take the cluster from "
            "scontrol show node: gpuyard cluster import FILE --out cluster.toml"
        )
    frame = workload.frame
    placed = frame.filter(pl.col("recorded_nodes").is_not_null())
    shares = _shares(placed, source)
    nodes = _alike(_largest(shares).join(_types(shares), on="node", how="left", maintain_order="left"))
    unusable = nodes.filter((pl.col("gpus") == 0) & pl.col("cpus").is_null())
    nodes = nodes.join(unusable, on="node", how="anti", maintain_order="left")
    if nodes.height == 0:
        raise InputError(
            f"{source}: jobs had neither GPUs nor CPUs on their nodes; no cluster can be derived"
        )
    machines = nodes.select("type", *_AMOUNTS)
    cluster = cluster_of_machines(machines, source)
    return SeenCluster(cluster, tuple(_notes(nodes, cluster, placed.height / frame.height)))


def _shares(placed: pl.DataFrame, source: Path) -> pl.DataFrame:
    """One row per job and node: the job's share of what it had, in equal parts, rounded up."""
    names = pl.col("recorded_nodes").str.split(SEPARATOR)
    pairs = int(placed.select(names.list.len().sum()).item())
    if pairs > MOST_PAIRS:
        raise InputError(
            f"{source}: {pairs:,} pairs of jobs and nodes are too many to derive a cluster from; import a "
            "shorter part of the log, or take the cluster from scontrol show node: gpuyard cluster import"
        )
    count = names.list.len()
    start = pl.col("recorded_start_s") if "recorded_start_s" in placed.columns else pl.lit(None, pl.Float64)
    return placed.select(
        *((pl.col(name) / count).ceil().cast(pl.Int64).alias(name) for name in _AMOUNTS),
        start.alias("start_s"),
        (start + pl.col("duration_s")).alias("end_s"),
        "gpu_types",
        node=names,
    ).explode("node")


def _largest(shares: pl.DataFrame) -> pl.DataFrame:
    """Per node the most of each that one job had, or several had at once."""
    alone = shares.group_by("node", maintain_order=True).agg(pl.col(_AMOUNTS).max(), jobs=pl.len())
    begun = shares.select("node", *_AMOUNTS, at="start_s")
    ended = shares.select("node", *(-pl.col(name) for name in _AMOUNTS), at="end_s")
    # Whoever ends in the second in which another starts has made room for it.
    events = pl.concat([ended, begun]).drop_nulls("at").sort("node", "at", maintain_order=True)
    running = events.select("node", *(pl.col(name).cum_sum().over("node") for name in _AMOUNTS))
    together = running.group_by("node").agg(pl.col(_AMOUNTS).max().name.suffix("_at_once"))
    joined = alone.join(together, on="node", how="left", maintain_order="left")
    return joined.select(
        "node", "jobs", *(pl.max_horizontal(name, f"{name}_at_once").alias(name) for name in _AMOUNTS)
    )


def _types(shares: pl.DataFrame) -> pl.DataFrame:
    """Per node the type of GPU that most of its jobs had, if the import kept types."""
    typed = shares.filter((pl.col("gpus") > 0) & (pl.col("gpu_types").list.len() == 1))
    first = typed.select("node", type=pl.col("gpu_types").list.first())
    return first.group_by("node").agg(pl.col("type").mode().sort().first())


def _alike(nodes: pl.DataFrame) -> pl.DataFrame:
    """Nodes of one name and type get the size of the largest if most were seen so; else each its own.

    The size is the number of GPUs, or of CPUs on nodes without. Adds ``full``: whether it was seen. CPUs and
    memory are those of the largest node of the same size; 0 is taken as not known.
    """
    one_type = pl.when(pl.col("type").n_unique() - pl.col("type").has_nulls() == 1).then(pl.col("type").max())
    nodes = nodes.with_columns(prefix=pl.col("node").str.replace_all(r"\d+", "#"))
    nodes = nodes.with_columns(type=pl.col("type").fill_null(one_type.over("prefix")).fill_null("gpu"))
    nodes = nodes.with_columns(type=pl.when(pl.col("gpus") > 0).then("type").otherwise(pl.lit("cpu")))
    kind = ["prefix", "type"]
    size = pl.when(pl.col("gpus") > 0).then("gpus").otherwise("cpus")
    nodes = nodes.with_columns(size=size).with_columns(
        full=pl.col("size") == pl.col("size").max().over(kind), gpu=pl.col("gpus") > 0
    )
    most = pl.col("full").mean().over(kind) >= ALIKE
    nodes = nodes.with_columns(size=pl.when(most).then(pl.col("size").max().over(kind)).otherwise("size"))
    nodes = nodes.with_columns(gpus=pl.when("gpu").then("size").otherwise(0), full=pl.col("full") | ~most)
    largest = (pl.col(name).max().over([*kind, "size"]) for name in ("cpus", "memory_mib"))
    nodes = nodes.with_columns(pl.when(amount > 0).then(amount) for amount in largest)
    return nodes.sort("prefix", "size", "type", maintain_order=True)


def _notes(nodes: pl.DataFrame, cluster: Cluster, share: float) -> list[str]:
    said = [
        f"Derived from the nodes of {100 * share:.0f} % of the jobs: {plural(cluster.node_count, 'node')}, "
        f"{plural(cluster.total_gpus, 'GPU')}. This is a lower bound: compare it with your nodes.",
    ]
    groups = nodes.group_by("prefix", "gpus", "type", "cpus", maintain_order=True).agg(
        count=pl.len(), full=pl.col("full").sum(), jobs=pl.col("jobs").sum()
    )
    return said + [_note(group) for group in groups.sort("count", descending=True).iter_rows(named=True)]


def _note(group: dict[str, Any]) -> str:
    what = plural(group["gpus"], "GPU") if group["gpus"] else plural(group["cpus"], "CPU")
    seen = f"seen in use on {group['full']} of them" if group["count"] > 1 else "seen in use"
    nodes, jobs = plural(group["count"], "node"), plural(group["jobs"], "job")
    return f"{group['prefix']}: {nodes} of {what}, {seen}; {jobs}."
