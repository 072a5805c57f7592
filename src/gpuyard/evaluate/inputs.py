"""``gpuyard.compare``: policies on a workload, in one call; and how long windows may be."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.evaluate.bootstrap import FEWEST_DISJOINT
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.config import EvaluationConfig, read_evaluation
from gpuyard.evaluate.engine import Progress
from gpuyard.evaluate.windows import Policies, evaluate_draws, evaluate_windows
from gpuyard.simulation.windows import Part, part_bounds
from gpuyard.workload import Workload, read_workload
from gpuyard.workload.generators.base import GeneratorConfig
from gpuyard.workload.generators.presets import WorkloadPreset, preset_workloads

ENOUGH = 8
"""Windows side by side: intervals are weak with fewer than five."""
LEAST_JOBS = 16
"""Of a window: shorter ones rarely see a queue."""


_CLUSTER = re.compile(r"\d+x\d+[\w,:@.-]*")


def _check_order(workload: str | Path) -> None:
    """Refuse a cluster in the place of jobs: ``simulate`` takes jobs first, a comparison its policies.

    Raises:
        InputError: saying in which order they come.
    """
    if isinstance(workload, str) and _CLUSTER.fullmatch(workload) and not Path(workload).exists():
        raise InputError(
            f"workload {workload!r} is a cluster, and no file; give policies, then jobs, then the cluster: "
            f"compare(['sjf+easy'], 'jobs.parquet', {workload!r})"
        )


def compare(
    policies: Policies | str,
    workload: Workload | GeneratorConfig | str | Path,
    cluster: Cluster | str | None = None,
    config: SimulationConfig | None = None,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Comparison:
    """Compare policies on windows that nothing was chosen by, against what runs today.

    Args:
        policies: Names such as ``sjf+easy``, run directories or model files; a single name is one policy.
        workload: Jobs, a file of them in any known format, the name of a built-in workload, or a generator,
            whose fresh draws are the windows.
        cluster: A cluster, or what ``parse_cluster`` takes, such as ``64x8``; None: that of a built-in
            workload.
        config: Settings of the simulation, ``estimates`` among them, the same for all policies.
        progress: Told what is being done, how much of it is done, and of how much.
        settings: Fields of ``EvaluationConfig``, such as ``windows=20`` or ``current="sjf+easy"``. With
            ``draws`` the windows are fresh draws: of the generator, or like the compared part of the jobs.

    Raises:
        InputError: if a policy cannot run here, or would not be compared fairly, or a part of the workload
            has too few jobs for a window.
    """
    evaluation = read_evaluation(settings)
    policies = [policies] if isinstance(policies, str) else policies
    machines = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    preset: WorkloadPreset | None = None
    if isinstance(workload, str) and workload in preset_workloads():
        preset = preset_workloads()[workload]()
        machines = machines or (parse_cluster(preset.cluster) if preset.cluster else None)
        workload = preset.config
    if isinstance(workload, str | Path):
        _check_order(workload)
        workload = read_workload(workload)
    if machines is None:
        raise InputError(f"name the cluster that the jobs run on, such as {setting('cluster', '64x8')}")
    draws = evaluation.draws or (preset is None and isinstance(workload, GeneratorConfig))
    if isinstance(workload, GeneratorConfig) and not draws:
        workload = workload.generate().workload
    if isinstance(workload, GeneratorConfig):
        if evaluation.part != "test":
            raise InputError(f"part {evaluation.part}: draws of a generator have no parts; leave it out")
        return evaluate_draws(workload, machines, policies, evaluation, config, progress=progress)
    if draws:
        like = _generator_like(workload, evaluation)
        return evaluate_draws(like, machines, policies, evaluation, config, progress=progress)
    return evaluate_windows(workload, machines, policies, evaluation, config, progress=progress)


def _generator_like(workload: Workload, evaluation: EvaluationConfig) -> GeneratorConfig:
    """A generator of jobs like those of the compared part of a workload."""
    from gpuyard.workload.generators.fitting import fit_trace
    from gpuyard.workload.generators.like import LikeConfig
    from gpuyard.workload.shaping.slices import split_by_time

    jobs = workload if evaluation.part == "all" else getattr(split_by_time(workload), evaluation.part)
    fitted = fit_trace(jobs)
    return LikeConfig(name=f"like-{fitted.name}", jobs=evaluation.jobs_per_window or len(jobs), fitted=fitted)


def fitting_size(workload: Workload, parts: Sequence[Part]) -> int | None:
    """Jobs of a window such that each part holds enough of them side by side; None if it has too few jobs."""
    fewest = min(_jobs(workload, part) for part in parts)
    size = max(LEAST_JOBS, fewest // ENOUGH)
    return size if fewest >= FEWEST_DISJOINT * size else None


def few_windows(workload: Workload, part: Part, jobs: int | None) -> str:
    """That a part holds so few windows side by side that intervals will be weak, and what to do.

    Args:
        workload: All jobs.
        part: On which policies are to be compared.
        jobs: Of a window; None: the whole part is one.

    Returns:
        A sentence; empty if there are enough, or not one, which is refused elsewhere.
    """
    there = _jobs(workload, part)
    if jobs is None or not jobs <= there < FEWEST_DISJOINT * jobs:
        return ""
    size = fitting_size(workload, [part])
    what_to_do = f"compare on draws like these jobs ({setting('draws', True)})"
    if size is not None:
        what_to_do = f"{setting('jobs_per_window', size)} would make it {there // size}"
    return (
        f"the {part} part of {workload.metadata.name} has {there:,} jobs, {there / jobs:.1f} windows of "
        f"{jobs:,} side by side, so intervals will be weak; {what_to_do}"
    )


def refuse_long_windows(workload: Workload, parts: Sequence[Part], jobs: int | None) -> None:
    """Refuse windows that are longer than a part, with the size that would do.

    Args:
        workload: All jobs.
        parts: All that windows are to be taken from.
        jobs: Of a window; None: a whole part is one.

    Raises:
        InputError: naming the part.
    """
    size = fitting_size(workload, parts)
    what_to_do = f"compare on draws like these jobs ({setting('draws', True)})"
    if size is not None:
        what_to_do = f"use shorter windows, such as {setting('jobs_per_window', size)}"
    for part in parts:
        there = _jobs(workload, part)
        if there < (jobs or 1):
            raise InputError(
                f"windows of {jobs or 1:,} jobs: the {part} part of {workload.metadata.name} has {there:,}; "
                f"{what_to_do}"
            )


def _jobs(workload: Workload, part: Part) -> int:
    begin, end = part_bounds(workload, part)
    return end - begin
