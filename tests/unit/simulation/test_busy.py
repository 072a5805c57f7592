"""How many jobs windows need around them: two starts that must agree."""

import pytest

import gpuyard as gy
from gpuyard.config import SimulationConfig
from gpuyard.policies.grammar import parse_policy
from gpuyard.simulation.busy import BEFORE_IN_OVERLOAD, MOST_BEFORE, BusyTest, find_margins
from gpuyard.simulation.windows import WindowCutter
from gpuyard.workload import SynthConfig, Workload
from support.evaluation_cases import MIX

EXACT = SimulationConfig(estimates="exact")
MACHINES = gy.parse_cluster("4x4")


def workload(load: float, count: int = 3000, **settings: object) -> Workload:
    config = {"jobs": count, "cluster_gpus": 16, "gang_mix": MIX, "seed": 3, "load": load, **settings}
    return gy.synthesize(SynthConfig.model_validate(config))


def found(jobs: Workload, size: int = 50, policy: str = "fifo+easy") -> BusyTest:
    cutter = WindowCutter(jobs, MACHINES, EXACT, "consolidate")
    return find_margins(
        cutter, MACHINES, EXACT, "test", [parse_policy(policy)], jobs=size, placement="consolidate"
    )


def test_both_starts_agree_on_a_cluster_that_keeps_up() -> None:
    test = found(workload(0.6))
    assert test.agrees
    assert abs(test.gap) < 0.3
    assert 64 <= test.margins.before < MOST_BEFORE * 50
    assert test.margins.after >= 50 // 4
    assert test.policy == "fifo+easy/consolidate"
    assert 1 <= test.jam <= 4 * 50


def test_a_cluster_that_never_catches_up_remembers_how_it_began() -> None:
    test = found(workload(1.5))
    assert not test.agrees
    assert test.gap > 0.05
    assert test.margins.before == BEFORE_IN_OVERLOAD * 50


def test_a_cluster_that_forgets_slowly_needs_more_jobs_before_windows() -> None:
    before = [found(workload(load), 100).margins.before for load in (0.3, 1.02)]
    assert before[0] < before[1]


@pytest.mark.parametrize("metric", ["mean_wait_s", "gpu_utilization"])
def test_another_metric_may_decide_and_an_unknown_one_does_not(metric: str) -> None:
    cutter = WindowCutter(workload(0.6), MACHINES, EXACT, "consolidate")
    policies = [parse_policy("fifo+easy"), parse_policy("sjf+easy")]
    options = {"jobs": 50, "placement": "consolidate", "metric": metric}
    test = find_margins(cutter, MACHINES, EXACT, "test", policies, **options)
    assert test.policy in {one.name for one in policies}
