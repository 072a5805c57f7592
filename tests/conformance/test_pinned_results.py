"""Schedules, observations and shipped models give the same bytes as when they were pinned.

`tests/data/pinned/hashes.json` holds SHA-256 digests. A change of layout must not move one of them; a change
of meaning moves some on purpose, and then `python tests/conformance/test_pinned_results.py` writes them anew.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.policy_cases import LEGAL, legal, mixed_cluster
from gpuyard import SimulationConfig, parse_cluster, read_workload, simulate, synthesize
from gpuyard.workload import SynthConfig, Workload
from support.paths import model_path
from support.small_environments import KIND_NAMES, as_bytes, rest_of_episode, single

PINNED = Path(__file__).parents[1] / "data" / "pinned" / "hashes.json"
ORACLE_JOBS = Path(__file__).parents[3] / "shared" / "conformance" / "w10k.csv"
ORACLE_POLICIES = (
    "fifo",
    "fifo/anywhere",
    "fifo+greedy",
    "fifo+easy",
    "fifo+conservative",
    "sjf+easy",
    "wspt+easy+express:600:0.1",
    "saf+conservative",
    "f3+easy-sjf/best-fit",
    "wfp3+greedy",
    "fair-share+easy",
    "multifactor+easy",
    "las-2d+greedy",
    "gittins+greedy",
    "tiresias+greedy",
    "fifo+easy/fgd",
    "fifo+easy/tier",
)
MODELS = ("venus-order", "philly-order", "ricc-order", "lublin-order", "venus-long-order")
EXACT = SimulationConfig(estimates="exact")
NATIVE = [policy for policy in LEGAL if not policy.endswith("/milp")]


def busy_jobs() -> Workload:
    """Two thousand jobs of up to 8 GPUs at a load of 1.1 on 16 nodes of 8 GPUs."""
    return synthesize(SynthConfig(jobs=2000, cluster_gpus=128, load=1.1, overestimation=2))


def schedule_of_heuristic(policy: str) -> str:
    how = legal(policy)
    return simulate(how.workload, mixed_cluster(), policy, how.config).schedule.hash()


def schedule_of_model(name: str) -> str:
    return simulate(busy_jobs(), parse_cluster("16x8"), model_path(name), EXACT).schedule.hash()


def schedule_of_oracle(policy: str) -> str:
    name = model_path(policy.removeprefix("model:")) if policy.startswith("model:") else policy
    return simulate(read_workload(ORACLE_JOBS), "64x8", name, EXACT).schedule.hash()


def episode(kind: str) -> str:
    env = single(kind)
    first = as_bytes(env.reset(seed=3))
    return hashlib.sha256(repr((_plain(first), _plain(rest_of_episode(env, seed=5)))).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Without the clock of the machine, which no two runs share, and what schedules did not state then."""
    if isinstance(value, dict):
        kept = {name: part for name, part in sorted(value.items()) if "elapsed" not in name}
        return {name: _plain(part) for name, part in kept.items() if name != "cooldown"}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


CASES = {
    **{f"schedule {policy}": (schedule_of_heuristic, policy) for policy in NATIVE},
    **{f"model {name}": (schedule_of_model, name) for name in MODELS},
    **{f"episode {kind}": (episode, kind) for kind in KIND_NAMES},
    **{f"w10k {policy}": (schedule_of_oracle, policy) for policy in ORACLE_POLICIES},
    **{f"w10k model:{name}": (schedule_of_oracle, f"model:{name}") for name in MODELS},
}


@pytest.mark.parametrize("case", CASES)
def test_the_bytes_are_those_that_were_pinned(case: str) -> None:
    make, argument = CASES[case]
    if make is schedule_of_oracle and not ORACLE_JOBS.exists():
        pytest.skip("shared/conformance/w10k.csv lies beside the project, not in it")
    assert make(argument) == json.loads(PINNED.read_text(encoding="utf-8"))[case]


if __name__ == "__main__":
    PINNED.write_text(
        json.dumps({case: make(argument) for case, (make, argument) in CASES.items()}, indent=1) + "\n"
    )
