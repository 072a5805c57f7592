"""Farms of hosts without GPUs, as chip designers use them: jobs ask for cores and memory, tick by tick."""

from typing import Annotated, ClassVar, Self

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gpuyard.cluster.model import Cluster, NodeGroup
from gpuyard.registry import register
from gpuyard.workload.formats import Trace
from gpuyard.workload.generators.base import GeneratorConfig, Positive
from gpuyard.workload.generators.draws import (
    Floats,
    Integers,
    blend,
    integers,
    normals,
    reordered,
    uniforms,
)
from gpuyard.workload.generators.users import draw_users, named
from gpuyard.workload.schema import make_workload

_HOSTS_STREAM = 96
_HOST_CORES_STREAM = 97
_HOST_MEMORY_STREAM = 98
_ARRIVALS_STREAM = 99
_CORES_STREAM = 100
_MEMORY_STREAM = 101
_CORES_SCORE_STREAM = 102
_MEMORY_SCORE_STREAM = 103
_DURATION_STREAM = 104

MIB_PER_GIB = 1024

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Range = tuple[Count, Count]
"""Smallest and largest, both included."""


@register("workload-generator", "host-farm")
class HostFarmConfig(GeneratorConfig):
    """Ranges from which hosts and jobs are drawn uniformly."""

    step: ClassVar[str] = "host-farm"

    name: str = "host-farm"
    jobs: Annotated[int, Field(ge=1, le=100_000_000)] = 5_000
    hosts: Range = (28, 36)
    host_cores: Range = (8, 128)
    host_memory_gib: Range = (32, 1024)
    tick_s: Positive = 60.0
    max_arrivals_a_tick: Count = 12
    """From 0 to this many jobs arrive at the start of each tick, all numbers equally likely."""
    cores: Range = (1, 16)
    memory_gib: Range = (1, 128)
    memory_with_cores: Annotated[float, Field(ge=-1, le=1)] = 0.7
    """Correlation of the normal scores of memory and cores."""
    duration_s: tuple[Positive, Positive] = (60.0, 3_600.0)
    users: Count = 20

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        for name in ("hosts", "host_cores", "host_memory_gib", "cores", "memory_gib", "duration_s"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name}: the smallest, {low}, exceeds the largest, {high}")
        return self

    def generate(self) -> Trace:
        """Draw hosts and jobs; every job fits on some host."""
        host_cores, host_memory_gib = _hosts(self)
        cores, memory_gib = _fitting(*_demands(self), host_cores, host_memory_gib)
        low_s, high_s = self.duration_s
        user = draw_users(self.seed, self.jobs, self.users, "zipf")
        frame = pl.DataFrame(
            {
                "submit_s": arrival_ticks(self) * self.tick_s,
                "duration_s": low_s + uniforms(self.seed, _DURATION_STREAM, self.jobs) * (high_s - low_s),
                "gpus": np.zeros(self.jobs, dtype=np.int32),
                "cpus": cores,
                "memory_mib": memory_gib * MIB_PER_GIB,
                "user": named("u", self.users, user),
            }
        )
        workload = make_workload(frame, name=self.name, source="host-farm", history=self.history())
        return Trace(workload, _cluster(self.name, host_cores, host_memory_gib))


def arrival_ticks(config: HostFarmConfig) -> Floats:
    """The tick in which each job arrives, from 0, rising."""
    per_tick = config.max_arrivals_a_tick
    ticks = max(16, 4 * config.jobs // per_tick)
    while True:
        total = np.cumsum(integers(config.seed, _ARRIVALS_STREAM, ticks, 0, per_tick))
        if total[-1] >= config.jobs:
            return np.searchsorted(total, np.arange(config.jobs), side="right").astype(np.float64)
        ticks *= 2


def _hosts(config: HostFarmConfig) -> tuple[Integers, Integers]:
    """Cores and GiB of each host."""
    count = int(integers(config.seed, _HOSTS_STREAM, 1, *config.hosts)[0])
    cores = integers(config.seed, _HOST_CORES_STREAM, count, *config.host_cores)
    return cores, integers(config.seed, _HOST_MEMORY_STREAM, count, *config.host_memory_gib)


def _demands(config: HostFarmConfig) -> tuple[Integers, Integers]:
    """Cores and GiB of each job, correlated by the order of their scores."""
    cores = integers(config.seed, _CORES_STREAM, config.jobs, *config.cores)
    memory = integers(config.seed, _MEMORY_STREAM, config.jobs, *config.memory_gib)
    score = normals(config.seed, _CORES_SCORE_STREAM, config.jobs)
    chance = normals(config.seed, _MEMORY_SCORE_STREAM, config.jobs)
    cores_given = reordered(cores.astype(np.float64), score)
    memory_given = reordered(memory.astype(np.float64), blend(score, chance, config.memory_with_cores))
    return cores_given.astype(np.int64), memory_given.astype(np.int64)


def _fitting(
    cores: Integers, memory_gib: Integers, host_cores: Integers, host_memory_gib: Integers
) -> tuple[Integers, Integers]:
    """Demands cut to what some host has: cores to the largest host, memory to the most beside those cores."""
    order = np.argsort(host_cores, kind="stable")
    most_memory = np.maximum.accumulate(host_memory_gib[order][::-1])[::-1]
    cores = np.minimum(cores, host_cores.max())
    first_large_enough = np.searchsorted(host_cores[order], cores, side="left")
    return cores, np.minimum(memory_gib, most_memory[first_large_enough])


def _cluster(name: str, cores: Integers, memory_gib: Integers) -> Cluster:
    hosts = (
        NodeGroup(count=1, gpus=0, type="cpu", cpus=host_cores, memory_mib=host_gib * MIB_PER_GIB)
        for host_cores, host_gib in zip(cores.tolist(), memory_gib.tolist(), strict=True)
    )
    return Cluster(name=name, nodes=tuple(hosts))
