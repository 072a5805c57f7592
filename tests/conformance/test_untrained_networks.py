"""An untrained network with a residual head makes the schedules of the rule it starts from, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.learn.networks.heads import make_network
from gpuyard.network.config import NetworkConfig
from gpuyard.network.model_file import ModelFile, write_model
from gpuyard.network.rollout import native_network, run_episodes
from gpuyard.network.sizes import NetworkSizes
from gpuyard.observation.config import EnvConfig
from gpuyard.observation.episodes import find_source
from gpuyard.observation.spec import EnvModel
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, read_workload
from gpuyard.workload.shaping.slices import window

JOBS = 512
TRACES = {
    "lublin": ("swf/lublin_256.swf.gz", "256x1"),
    "venus": ("helios/venus_gpu_jobs_clamped48h.csv.gz", "48x8"),
}
KINDS = ("job-scorer", "cross-attention", "mlp")
SEARCHED = "power:0.64+easy+express:1200:0.0769"
# A window that holds all waiting jobs: beyond it a policy of the environment does not see.
WHOLE = JOBS


@pytest.fixture(scope="module", params=TRACES)
def trace(request: pytest.FixtureRequest, shared_traces: Path) -> tuple[str, Workload, str]:
    file, cluster = TRACES[request.param]
    return request.param, read_workload(shared_traces / file), cluster


def environment(workload: Workload, cluster: str, base: str, **settings: Any) -> EnvModel:
    config = EnvConfig(base_policy=base, tokens="classes", lookahead="off", **settings)
    return EnvModel("select-job", config, find_source("select-job", config, workload, None, cluster))


def untrained(model: EnvModel, network: NetworkConfig, **rule: Any) -> ModelFile:
    made = make_network(network, NetworkSizes.of(model), seed=3, **rule)
    tensors = {name: tensor.detach().numpy() for name, tensor in made.state_dict().items()}
    return ModelFile.of(model, network, tensors, {})


def windows(workload: Workload, count: int) -> list[Workload]:
    rows = np.linspace(0, len(workload) - JOBS, count).astype(int)
    return [window(workload, int(row), JOBS) for row in rows]


def is_exact(name: str, policy: str) -> bool:
    """Whether episodes under a policy are exactly its simulations (docs/contract/mdp.md, "Experts")."""
    return "easy" not in policy or name == "lublin"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["sjf", "wspt+easy", SEARCHED])
def test_schedules_are_those_of_the_simulated_rule(
    trace: tuple[str, Workload, str], policy: str, kind: str, tmp_path: Path
) -> None:
    name, workload, cluster = trace
    if not is_exact(name, policy):
        pytest.skip("simulations plan a pass of backfilling at once; see the test of episodes below")
    network = NetworkConfig(kind=kind, width=16, residual="base")
    for jobs in windows(workload, 4):
        model = environment(jobs, cluster, policy, window=WHOLE)
        write_model(tmp_path / "model.safetensors", untrained(model, network))
        learned = simulate(jobs, cluster, str(tmp_path / "model.safetensors"))
        assert learned.schedule.hash() == simulate(jobs, cluster, policy).schedule.hash()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["sjf", "wspt+easy", SEARCHED])
def test_episodes_are_those_of_the_rule(trace: tuple[str, Workload, str], policy: str, kind: str) -> None:
    _, workload, cluster = trace
    model = environment(workload, cluster, policy, jobs_per_episode=JOBS)
    names = np.linspace(0, len(workload) - JOBS, 16).astype(int).tolist()
    made = untrained(model, NetworkConfig(kind=kind, width=16, residual="base"))
    by_network = run_episodes(model, names, native_network(made.network, made.sizes, made.tensors))
    by_rule = run_episodes(model, names, policy)
    assert (by_network.returns == by_rule.returns).all()
    assert (by_network.lengths == by_rule.lengths).all()
    for metric, values in by_rule.metrics.items():
        assert np.array_equal(by_network.metrics[metric], values, equal_nan=True), metric


def some_rule(model: EnvModel) -> dict[str, Any]:
    """A rule as a search finds them: small and short jobs first, long ones leave room."""
    import torch

    from gpuyard.learn.config import RuleSection
    from gpuyard.learn.start import rule_tensors

    score = {"area": -19.0, "estimate": 5.0, "wait": 0.8, "before_shadow": 0.4}
    gate = {"free_after": 1.0, "estimate": -1.1, "before_shadow": 0.5, "globals.queue": 0.1}
    return {
        name: tensor.to(torch.float32)
        for name, tensor in rule_tensors(RuleSection(score=score, gate=gate, bias=0.1), model).items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_schedules_are_those_of_a_tuned_rule(
    trace: tuple[str, Workload, str], kind: str, tmp_path: Path
) -> None:
    _, workload, cluster = trace
    for jobs in windows(workload, 4):
        model = environment(jobs, cluster, SEARCHED)
        rule = some_rule(model)
        hashes = []
        for network in (NetworkConfig(kind="rule"), NetworkConfig(kind=kind, width=16, residual="rule")):
            write_model(tmp_path / "model.safetensors", untrained(model, network, rule=rule))
            result = simulate(jobs, cluster, str(tmp_path / "model.safetensors"))
            hashes.append(result.schedule.hash())
        assert hashes[0] == hashes[1]
