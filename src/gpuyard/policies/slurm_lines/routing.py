"""Which partition and QOS jobs get: what job_submit.lua does on the cluster, and the simulation here."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gpuyard.cluster.model import Partition
from gpuyard.workload import SCHEMA, Workload


@dataclass(frozen=True)
class ScoreClasses:
    """Jobs in classes by a score, (requested seconds) ^ exponent x GPUs; each class is a partition.

    Attributes:
        exponent: Of the time.
        by_gpus: Whether GPUs count.
        bounds: Largest scores of all classes but the last, ascending.
        suffixes: What names of the classes' partitions end in; the last also takes jobs that request no time.
        bases: The partitions that are split up.
        longest_first: Whether the last class comes first.
    """

    exponent: float
    by_gpus: bool
    bounds: tuple[float, ...]
    suffixes: tuple[str, ...]
    bases: tuple[Partition, ...]
    longest_first: bool = False

    def factor(self, number: int) -> int:
        """``PriorityJobFactor`` of a class, by its number from 0."""
        return number + 1 if self.longest_first else len(self.suffixes) - number

    @property
    def default(self) -> str:
        """The partition of jobs that name none; empty: there is none."""
        return next((base.name for base in self.bases if base.default), "")

    def partitions(self, workload: Workload, *, named: bool) -> pl.Series:
        """The partition of every job.

        Args:
            workload: The jobs.
            named: Whether partitions that jobs name are those that are split up.
        """
        number = np.searchsorted(np.array(self.bounds), scores(workload, self.exponent, by_gpus=self.by_gpus))
        suffix = pl.Series([self.suffixes[one] for one in number], dtype=pl.String)
        own = workload.column("partition")
        base = pl.Series([self.default], dtype=pl.String).new_from_index(0, len(workload))
        if named:
            base = pl.select(pl.when(own.fill_null("") == "").then(base).otherwise(own)).to_series()
        return (base + "-" + suffix).alias("partition")


def scores(workload: Workload, exponent: float, *, by_gpus: bool) -> np.ndarray:
    """Scores of jobs by what they request; infinite for those that request no time."""
    frame = workload.frame
    score = frame["estimate_s"].fill_null(float("inf")).to_numpy() ** exponent
    if by_gpus:
        gpus = frame["gpus"].to_numpy() * (frame["gpu_milli"].to_numpy() / 1000.0)
        score = np.where(np.isinf(score), score, score * np.where(np.isinf(score), 1.0, gpus))
    return np.asarray(score, dtype=np.float64)


@dataclass(frozen=True)
class Lane:
    """Long jobs have a QOS that limits what all of them hold together.

    Attributes:
        above_s: Jobs that request more than this, or nothing, are long.
        qos: Their QOS.
        gpus: Most GPUs of all of them.
    """

    above_s: float
    qos: str
    gpus: int

    def names(self, workload: Workload) -> pl.Series:
        """The QOS of every job; empty: none."""
        is_long = workload.frame["estimate_s"].fill_null(float("inf")) > self.above_s
        return pl.select(pl.when(is_long).then(pl.lit(self.qos)).otherwise(pl.lit(""))).to_series()


@dataclass(frozen=True)
class PriorityQos:
    """Each priority of the log is a QOS, which jobs ask for.

    Attributes:
        priorities: Of the log, ascending.
    """

    priorities: tuple[float, ...]

    @staticmethod
    def name(priority: float) -> str:
        """Of the QOS of a priority."""
        return f"priority{float(priority)!r}".removesuffix(".0").replace("-", "minus")

    def names(self, workload: Workload) -> pl.Series:
        """The QOS of every job."""
        return pl.Series([self.name(one) for one in workload.frame["priority"].to_list()], dtype=pl.String)


@dataclass(frozen=True)
class Routing:
    """What jobs are given when they are submitted.

    Attributes:
        classes: Their partition; None: as they name it.
        qos: Their QOS; None: as they name it.
        named: Whether partitions that jobs name are those of the cluster.
    """

    classes: ScoreClasses | None = None
    qos: Lane | PriorityQos | None = None
    named: bool = False

    def routed(self, workload: Workload) -> Workload:
        """The jobs with the partition and QOS that they get."""
        columns: list[pl.Series] = []
        if self.classes is not None:
            columns.append(self.classes.partitions(workload, named=self.named))
        if self.qos is not None:
            columns.append(self.qos.names(workload).alias("qos"))
        if not columns:
            return workload
        frame = workload.frame.with_columns(columns)
        return Workload(frame.select([name for name in SCHEMA if name in frame.columns]), workload.metadata)
