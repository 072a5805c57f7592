"""Runs and decisions of the random cases of `differential.lifecycle_cases`, for tests of properties."""

from collections.abc import Callable, Iterator
from typing import Any

from differential.cases import Case
from differential.core_runs import cluster_of, config_of, history_of, policy_of, runs, workload_of
from gpuyard import _core
from gpuyard.native.inputs import prepare
from gpuyard.simulation.run import SimulationResult, simulate
from reference.simulator.simulator import Run

MakeCase = Callable[[int], Case]


def result(case: Case) -> SimulationResult:
    return simulate(
        workload_of(case), cluster_of(case), policy_of(case), config_of(case), history=history_of(case)
    )


def runs_by_job(case: Case) -> dict[int, list[Run]]:
    """Each job's runs in order of time."""
    by_job: dict[int, list[Run]] = {}
    for run in runs(result(case).schedule):
        by_job.setdefault(run.job, []).append(run)
    return by_job


def decisions(case: Case) -> Iterator[tuple[Any, Any]]:
    """Every decision point at which some job waits: the snapshot before it, and the decision."""
    policy = policy_of(case)
    inputs = prepare(workload_of(case), cluster_of(case), policy, config_of(case), history_of(case))
    simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past)
    native = policy.compile()
    while simulator.advance():
        if len(simulator.waiting):
            snapshot = simulator.snapshot()
            decision = _core.decide(snapshot, native)
            yield snapshot, decision
            simulator.apply(decision)


def now_us(snapshot: Any) -> int:
    return round(snapshot.now_s * 1e6)
