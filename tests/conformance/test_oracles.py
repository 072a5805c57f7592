"""Figures that independent simulators give for the same jobs (shared/conformance/README.md)."""

from pathlib import Path

import pytest

from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.workload import read_workload
from support.invariants import check_result


def run_w10k(conformance_dir: Path, policy: str) -> SimulationResult:
    return simulate(read_workload(conformance_dir / "w10k.csv"), "64x8", policy)


@pytest.mark.parametrize(
    ("policy", "figures"),
    [
        ("fifo+strict/anywhere", {"mean_wait_s": "6.2508"}),
        ("fifo+strict/consolidate", {"mean_wait_s": "789.5139", "mean_jct_s": "3503.3333"}),
    ],
)
def test_means_agree_with_other_simulators_to_all_digits_given(
    conformance_dir: Path, policy: str, figures: dict[str, str]
) -> None:
    result = run_w10k(conformance_dir, policy)
    metrics = result.metrics()
    assert {name: f"{metrics[name]:.4f}" for name in figures} == figures
    check_result(result)


def test_the_oracle_workload_is_the_one_described(conformance_dir: Path) -> None:
    workload = read_workload(conformance_dir / "w10k.csv")
    assert len(workload) == 10_000
    assert set(workload.frame["gpus"]) == {1, 2, 4, 8}
