"""Replays of a log under several policies, with progress on standard error."""

from collections.abc import Sequence
from typing import Any

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.evaluate.replay import PolicyRun, find_contenders, run_policies
from gpuyard.terminal.console import show_progress
from gpuyard.workload import Workload


def replayed(
    workload: Workload, cluster: Cluster, policies: Sequence[str], config: SimulationConfig, **options: Any
) -> list[PolicyRun]:
    """Simulate each policy on the same jobs; ``options`` are those of ``run_policies``.

    Raises:
        InputError: before anything is simulated if a policy's name or a combination is wrong.
    """
    contenders = find_contenders(policies)
    with show_progress(len(workload), len(contenders)) as progress:
        return run_policies(workload, cluster, contenders, config, start_run=progress.start_run, **options)
