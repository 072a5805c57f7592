"""Where the jobs of episodes come from: windows of a workload, or draws of a generator."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.errors import InputError
from gpuyard.observation.config import HOST_KINDS, EnvConfig
from gpuyard.registry import registered
from gpuyard.workload import Workload, make_workload, read_workload
from gpuyard.workload.generators import HostFarmConfig, preset_workload
from gpuyard.workload.generators.base import GeneratorConfig
from gpuyard.workload.shaping.slices import split_by_time

DEFAULT_JOBS = 256
POOLS = "2x8:p100,4x8:v100,2x8:a100"
"""The default cluster where jobs choose among GPU types: 64 GPUs, like that of the demo."""


@dataclass(frozen=True)
class WindowedJobs:
    """Episodes are windows of a workload.

    Attributes:
        workload: All jobs, those of other splits included.
        cluster: What they run on.
        begin: First row to draw from.
        end: One past the last.
        jobs: Of an episode.
    """

    workload: Workload
    cluster: Cluster
    begin: int
    end: int
    jobs: int

    def sample(self) -> tuple[Workload, Cluster]:
        """Jobs and cluster of the kind that episodes have: all of them."""
        return self.workload, self.cluster


@dataclass(frozen=True)
class DrawnJobs:
    """Episodes are draws of a generator.

    Attributes:
        generator: Its settings, but the seed.
        cluster: What jobs run on; None: the generator draws the cluster too.
        seeds: To choose from; None: any.
        warmup: So many leading jobs of a draw are warm-up.
        cooldown: So many of the last jobs are cool-down.
    """

    generator: GeneratorConfig
    cluster: Cluster | None
    seeds: tuple[int, ...] | None
    warmup: int = 0
    cooldown: int = 0

    def sample(self) -> tuple[Workload, Cluster]:
        """Jobs and cluster of the kind that episodes have: the first draw."""
        return self.draw(self.seeds[0] if self.seeds else 0)

    def draw(self, seed: int) -> tuple[Workload, Cluster]:
        """The episode of a seed."""
        trace = self.generator.model_copy(update={"seed": seed}).generate()
        cluster = self.cluster or trace.cluster
        if cluster is None:
            raise InputError(f"generator {self.generator.name} draws no cluster; name one")
        return trace.workload, cluster

    def most_hosts(self) -> int | None:
        """Nodes of the largest cluster it may draw; None if the cluster is always the same."""
        if self.cluster is None and isinstance(self.generator, HostFarmConfig):
            return self.generator.hosts[1]
        return None


Source = WindowedJobs | DrawnJobs


def find_source(
    kind: str,
    config: EnvConfig,
    workload: Workload | pl.DataFrame | str | Path | None,
    generator: GeneratorConfig | Mapping[str, Any] | str | None,
    cluster: Cluster | str | Path | None,
) -> Source:
    """The source of episodes that the arguments ask for.

    Raises:
        InputError: if they contradict each other, or name what does not exist.
    """
    machines = parse_cluster(str(cluster)) if isinstance(cluster, str | Path) else cluster
    if generator is not None:
        if workload is not None:
            raise InputError("give a workload or a generator, not both")
        return _drawn(generator, machines, config)
    if config.generator_seeds is not None:
        raise InputError("generator_seeds need a generator, such as generator='bursty-8gpu'")
    if workload is None:
        return _windows(*_default(kind, machines), config)
    if isinstance(workload, pl.DataFrame):
        jobs = make_workload(workload)
    elif isinstance(workload, Workload):
        jobs = workload
    elif str(workload) in registered("workload-preset"):
        trace = preset_workload(str(workload))
        jobs, machines = trace.workload, machines or trace.cluster
    else:
        jobs = read_workload(workload)
    if machines is None:
        raise InputError("name the cluster that the workload runs on, such as cluster='64x8'")
    return _windows(jobs, machines, config)


def _default(kind: str, cluster: Cluster | None) -> tuple[Workload, Cluster]:
    # Few enough hosts that it matters which of them a job takes.
    farm = {"hosts": (14, 14)} if kind in HOST_KINDS else {}
    trace = preset_workload("host-farm" if kind in HOST_KINDS else "demo", **farm)
    usual = parse_cluster(POOLS) if kind == "select-job-and-pool" else trace.cluster
    machines = cluster or usual
    if machines is None:
        raise InputError("name a cluster, such as cluster='8x8'")
    return trace.workload, machines


def _drawn(
    generator: GeneratorConfig | Mapping[str, Any] | str, cluster: Cluster | None, config: EnvConfig
) -> DrawnJobs:
    if config.split != "all":
        raise InputError("split is for workloads; a generator draws every episode anew")
    if isinstance(generator, GeneratorConfig):
        settings = generator
    else:
        changes = {"preset": generator} if isinstance(generator, str) else dict(generator)
        name = changes.pop("preset", None)
        if not isinstance(name, str) or name not in registered("workload-preset"):
            known = ", ".join(registered("workload-preset"))
            raise InputError(f"generator {name!r} is no preset of a workload; known: {known}")
        preset = registered("workload-preset")[name]()
        settings = preset.changed(**changes)
        cluster = cluster or (parse_cluster(preset.cluster) if preset.cluster else None)
    own = config.jobs_per_episode or settings.jobs
    around = config.around
    if own + sum(around) != settings.jobs:
        settings = settings.model_copy(update={"jobs": own + sum(around)})
    return DrawnJobs(settings, cluster, config.generator_seeds, *around)


def _windows(workload: Workload, cluster: Cluster, config: EnvConfig) -> WindowedJobs:
    begin, end = 0, len(workload)
    if config.split != "all":
        parts = split_by_time(workload)
        sizes = {name: len(part) for name, part in zip(parts._fields, parts, strict=True)}
        for name, size in sizes.items():
            if name == config.split:
                end = begin + size
                break
            begin += size
    jobs = config.jobs_per_episode or min(DEFAULT_JOBS, end - begin)
    if jobs > end - begin:
        raise InputError(
            f"jobs_per_episode {jobs:,} is more than the {end - begin:,} jobs of the {config.split} part of "
            f"{workload.metadata.name}"
        )
    return WindowedJobs(workload, cluster, begin, end, jobs)
