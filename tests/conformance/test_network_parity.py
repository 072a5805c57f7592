"""torch, the native core and onnxruntime decide alike on states that environments really reach."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.env import SchedulingVectorEnv
from gpuyard.learn.export_onnx import export_onnx
from gpuyard.learn.networks.heads import SchedulingNetwork, masked_logits
from gpuyard.network.config import RULE_KINDS, NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from support.network_cases import trained_by_chance

Arrays = dict[str, NDArray[Any]]
ENVS = 8
STEPS = 160
EVERY = 4
"""Steps between states that are kept."""
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
CLEAR = 1e-4
"""By how much the best action must be better than the second for all to choose it."""

TWO_TYPES: dict[str, Any] = {"generator": "bursty-8gpu", "cluster": "1x8:p100,2x8:v100", "window": 16}
ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bursty-8gpu": ("select-job", {"preset": "bursty-8gpu"}),
    "lublin-256": ("select-job", {"preset": "lublin-256"}),
    "demo": ("select-job", {}),
    "demo, classes": ("select-job", {"tokens": "classes", "window": 16, "global_features": ()}),
    "two types of GPUs": ("select-job-and-pool", TWO_TYPES),
    "demo, accept or skip": ("accept-or-skip", {}),
    "host-farm": ("select-host", {"preset": "host-farm"}),
    "host-farm, ranked": ("rank-hosts", {"preset": "host-farm"}),
    "14 hosts, all features": ("select-host", {}),
}
SHAPES = {
    "mlp": {"width": 256, "depth": 2},
    "job-scorer": {"width": 32, "depth": 2},
    "cross-attention": {"width": 64, "depth": 2, "heads": 4},
    "host-attention": {"width": 32},
    "rule": {},
    "state-rule": {},
}


@cache
def states_of(name: str) -> tuple[NetworkSizes, Arrays]:
    """States that random legal actions lead to."""
    kind, settings = ENVIRONMENTS[name]
    env = SchedulingVectorEnv(kind, ENVS, threads=1, **settings)
    observation, _ = env.reset(seed=11)
    kept = [observation]
    for step in range(1, STEPS):
        observation = env.step(env.random_actions())[0]
        if step % EVERY == 0:
            kept.append(observation)
    joined = {part: np.concatenate([each[part] for each in kept]) for part in kept[0]}
    return NetworkSizes.of(env.model), joined


def cases() -> list[Any]:
    """Networks and residuals that go with each environment; one residual each is fast, by turns."""
    found: list[Any] = []
    turns: Counter[str] = Counter()
    for name, (environment, settings) in ENVIRONMENTS.items():
        hosts = environment in ("select-host", "rank-hosts")
        rules = ["rule"] if environment == "select-job" else []
        few_features = "global_features" in settings or settings.get("preset") == "host-farm"
        residuals = ["none", *rules] if few_features else ["none", "base", *rules]
        networks = ["mlp", "host-attention"] if hosts else ["mlp", "job-scorer", "cross-attention"]
        pairs = [(kind, residual) for kind in networks for residual in residuals]
        own_rules = [kind for kind in RULE_KINDS if rules and (kind == "rule" or not few_features)]
        for kind, residual in pairs + [(rule, "none") for rule in own_rules]:
            config = NetworkConfig(kind=kind, residual=residual, **SHAPES[kind])
            fast = kind in RULE_KINDS or residuals[turns[kind] % len(residuals)] == residual
            marks = () if fast else pytest.mark.slow
            found.append(pytest.param(config, name, id=f"{kind}-{residual}-{name}", marks=marks))
        turns.update(networks)
    return found


def by_torch(network: SchedulingNetwork, states: Arrays) -> tuple[Arrays, NDArray[Any]]:
    """Logits, values and actions; and where the choice is clear."""
    observation = {name: torch.from_numpy(part) for name, part in states.items()}
    with torch.no_grad():
        logits, values = network(observation)
    masked = masked_logits(logits, observation["mask"])
    best = masked.topk(2, 1).values
    results = {"logits": logits.numpy(), "values": values.numpy(), "actions": masked.argmax(1).numpy()}
    return results, (best[:, 0] - best[:, 1]).numpy() > CLEAR


def by_core(network: SchedulingNetwork, states: Arrays) -> Arrays:
    tensors = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    native = _core.Network(network.config.model_dump(), network.sizes.to_json(), tensors)
    parts = [states[name] for name in ("jobs", "nodes", "globals", "mask")]
    forward = [native.forward(*state) for state in zip(*parts, strict=True)]
    return {
        "logits": np.array([logits for logits, _ in forward]),
        "values": np.array([value for _, value in forward]),
        "actions": np.array([native.choose(*state) for state in zip(*parts, strict=True)]),
    }


def by_onnxruntime(network: SchedulingNetwork, states: Arrays, directory: Path) -> Arrays:
    export_onnx(network, network.sizes, directory / "network.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(directory / "network.onnx", options)
    taken = {each.name for each in session.get_inputs()}
    logits, values = session.run(
        ["logits", "value"], {name: part for name, part in states.items() if name in taken}
    )
    return {"logits": logits, "values": values, "actions": logits.argmax(1)}


def same(seen: Arrays, expected: Arrays, legal: NDArray[np.bool_], clear: NDArray[np.bool_]) -> None:
    np.testing.assert_allclose(seen["logits"][legal], expected["logits"][legal], **CLOSE)
    np.testing.assert_allclose(seen["values"], expected["values"], **CLOSE)
    assert (seen["actions"] == expected["actions"])[clear].all()


@pytest.mark.parametrize(("config", "name"), cases())
def test_torch_core_and_onnxruntime_decide_alike(config: NetworkConfig, name: str, tmp_path: Path) -> None:
    sizes, states = states_of(name)
    network = trained_by_chance((config, sizes), seed=3)
    legal = states["mask"] != 0
    expected, clear = by_torch(network, states)
    assert clear[legal.sum(1) > 1].mean() > 0.5
    same(by_core(network, states), expected, legal, clear)
    same(by_onnxruntime(network, states, tmp_path), expected, legal, clear)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_states_are_worth_comparing(name: str) -> None:
    _, states = states_of(name)
    assert len(states["mask"]) >= 300
    assert ((states["mask"] != 0).sum(1) > 1).mean() > 0.2
    assert len(np.unique(states["jobs"].reshape(len(states["jobs"]), -1), axis=0)) > 100
    if name.startswith("host-farm"):  # episodes differ in their numbers of hosts
        assert (states["nodes"] == 0).all(2).any()
