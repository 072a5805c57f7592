"""Search as an algorithm of runs, and the jobs that it searches on (docs/algorithms/search.md)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.errors import InputError, setting
from gpuyard.learn.algorithm import Algorithm
from gpuyard.learn.config import EnvironmentSection, TrainConfig
from gpuyard.learn.rules.config import SearchConfig
from gpuyard.registry import register
from gpuyard.workload import Workload, read_workload
from gpuyard.workload.generators import preset_workload, preset_workloads
from gpuyard.workload.shaping.slices import split_by_time

if TYPE_CHECKING:
    from gpuyard.learn.process.group import ProcessGroup
    from gpuyard.learn.process.loop import TrainingLoop

LEAST_WINDOW = 16
"""Jobs of the shortest window that is chosen unless a size is given."""


@register("algorithm", "search")
class Search(Algorithm):
    """Search as an algorithm of runs: one process, whose threads simulate."""

    summary = "the best heuristic, a grid over policies, CMA-ES over a linear rule; needs no torch"
    settings = SearchConfig
    unit = "generation"
    reads = {  # noqa: RUF012
        "environment": frozenset({"workload", "cluster", "estimates", "simulation"}),
        "training": frozenset({"seed", "minutes", "checkpoint_every_s"}),
    }

    @classmethod
    def resolve(cls, config: TrainConfig) -> TrainConfig:
        """The seed and the time that a run is given are those of the search; a step is a generation."""
        own: SearchConfig = config.settings
        given, training = config.training.model_fields_set, config.training
        changes: dict[str, Any] = {"seed": training.seed} if "seed" in given else {}
        if training.minutes is not None:
            changes["seconds"] = 60 * training.minutes
        own = own.model_copy(update=changes)
        steps = {"processes": 1, "steps": max(1, own.generations), "seed": own.seed, "minutes": None}
        return config.model_copy(update={"settings": own, "training": training.model_copy(update=steps)})

    @classmethod
    def prepare(cls, config: TrainConfig) -> tuple[TrainConfig, list[str]]:
        """Shorter windows than usual if the workload has too few jobs for those, and none were given."""
        workload, _ = jobs_of(config.environment)
        own: SearchConfig = config.settings
        usual: int = SearchConfig.model_fields["jobs_per_window"].default
        size = fitting_window(workload)
        if "jobs_per_window" in own.model_fields_set or size is None or size >= usual:
            if size is not None and size < own.jobs_per_window:
                _check_window(workload, own.jobs_per_window, size)
            return config, []
        fitting = own.model_copy(update={"jobs_per_window": size})
        remark = (
            f"windows of {size} jobs instead of {usual:,}, as {config.environment.workload} has only "
            f"{len(workload):,}; {setting('search.jobs_per_window')} sets another size"
        )
        return config.model_copy(update={"settings": fitting}), [remark]

    @classmethod
    def loop(cls, directory: Path, config: TrainConfig, group: "ProcessGroup") -> "TrainingLoop":
        """Searches, validates, writes."""
        from gpuyard.learn.process.search_loop import SearchLoop

        return SearchLoop(directory, config, group)


def jobs_of(environment: EnvironmentSection) -> tuple[Workload, Cluster]:
    """The jobs to search on, and what they run on.

    Raises:
        InputError: if either is missing or cannot be read.
    """
    source = environment.workload
    if source is None:
        raise InputError(
            f"which jobs? give {setting('environment.workload', 'FILE')} and "
            f"{setting('environment.cluster')}, such as 64x8"
        )
    machines = None if environment.cluster is None else parse_cluster(environment.cluster)
    if source in preset_workloads():
        trace = preset_workload(source)
        workload, machines = trace.workload, machines or trace.cluster
    else:
        workload = read_workload(source)
    if machines is None:
        raise InputError(
            f"which cluster shall run {source}? Give {setting('environment.cluster')}, such as 64x8"
        )
    return workload, machines


def fitting_window(workload: Workload) -> int | None:
    """The usual number of jobs per window if the workload has room for it, else what it has room for.

    That is the largest power of two which is at most three quarters of the smaller one of the training and
    the validation part, so that windows differ; None if that is too small to learn anything from.
    """
    smaller = _smaller_part(workload)
    usual: int = SearchConfig.model_fields["jobs_per_window"].default
    if smaller >= usual:
        return usual
    size = 1 << max(smaller * 3 // 4, 1).bit_length() - 1
    return size if size >= LEAST_WINDOW else None


def _smaller_part(workload: Workload) -> int:
    train, validation, _ = split_by_time(workload)
    return min(len(train), len(validation))


def _check_window(workload: Workload, size: int, fitting: int) -> None:
    smaller = _smaller_part(workload)
    if size > smaller:
        raise InputError(
            f"windows of {size:,} jobs: the smaller one of the training and the validation part has only "
            f"{smaller:,}; use shorter windows ({setting('search.jobs_per_window', fitting)})"
        )
