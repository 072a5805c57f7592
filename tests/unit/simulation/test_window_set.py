"""Many policies on many windows: a race finds what running all of them finds."""

import numpy as np
import pytest

import gpuyard as gy
from gpuyard.config import SimulationConfig
from gpuyard.policies.family import fixed_heuristics
from gpuyard.simulation.window_set import FIGURES, WindowSet, race
from gpuyard.simulation.windows import Margins
from support.evaluation_cases import CLUSTER, some_jobs

EXACT = SimulationConfig(estimates="exact")
MACHINES = gy.parse_cluster(CLUSTER)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("metric", ["mean_bounded_slowdown", "mean_jct_s"])
def test_a_race_finds_the_best_of_all(seed: int, metric: str) -> None:
    family = fixed_heuristics(MACHINES, EXACT, "consolidate")
    jobs = some_jobs(seed=seed, load=0.95)
    windows = WindowSet.of(jobs, MACHINES, EXACT, "train", count=10, jobs=30, margins=Margins(100, 20))
    offset = 1.0 if metric.endswith("_s") else 0.0
    levels = [float(np.log(one[metric] + offset).mean()) for one in windows.run(family)]
    (best, figures), *others = race(windows, family, metric)
    assert levels[family.index(best)] == pytest.approx(min(levels), abs=1e-12)
    assert float(np.log(figures[metric] + offset).mean()) == pytest.approx(min(levels))
    assert 7 <= len(others) < len(family) / 2, "most ran to the end, so little was saved"


def test_a_race_of_few_runs_them_all_and_reports_progress() -> None:
    family = fixed_heuristics(MACHINES, EXACT, "consolidate")[:3]
    windows = WindowSet.of(some_jobs(), MACHINES, EXACT, "train", count=9, jobs=30)
    told: list[tuple[int, int]] = []
    last = race(windows, family, "mean_wait_s", progress=lambda done, of: told.append((done, of)))
    assert {spec.name for spec, _ in last} == {spec.name for spec in family}
    assert told[-1][0] == told[-1][1]
    assert all(set(figures) == set(FIGURES) and len(figures["mean_wait_s"]) == 9 for _, figures in last)
