"""Episodes run natively against the same episodes stepped from Python."""

import signal
from typing import Any

import numpy as np
import pytest

from gpuyard.env import SchedulingVectorEnv
from gpuyard.env.vector import METRICS
from gpuyard.errors import InputError
from gpuyard.network.config import NetworkConfig
from gpuyard.network.rollout import EpisodeResults, EpisodeRunner, native_network, run_episodes
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import expected_tensors
from support.env_runs import KINDS_AND_MODES
from support.small_environments import draws, vector, windows

NAMES = (0, 3, 17, 20, 33)
NETWORK_OF = {
    "select-job": "job-scorer",
    "select-job-and-pool": "cross-attention",
    "accept-or-skip": "job-scorer",
    "select-host": "host-attention",
    "rank-hosts": "host-attention",
}


def make_network(env: SchedulingVectorEnv, seed: int = 0, **settings: Any) -> Any:
    config = NetworkConfig(**{"kind": NETWORK_OF[env.model.kind], "width": 16} | settings)
    sizes = NetworkSizes.of(env.model)
    rng = np.random.default_rng(seed)
    shapes = expected_tensors(config, sizes)
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return native_network(config, sizes, tensors)


def step_to_the_ends(env: SchedulingVectorEnv, names: Any, choose: Any) -> EpisodeResults:
    """All episodes at once, each in its own environment, by Python."""
    observation, _ = env.reset(options={"episode": list(names)})
    returns = np.full(len(names), np.nan)
    lengths = np.zeros(len(names), np.int64)
    metrics = {name: np.full(len(names), np.nan) for name in METRICS}
    running = np.ones(len(names), bool)
    while running.any():
        observation, _, terminated, truncated, infos = env.step(choose(env, observation))
        for i in np.flatnonzero(running & (terminated | truncated)):
            ended = infos["final_info"]["episode_metrics"]
            returns[i], lengths[i] = ended["return"][i], ended["length"][i]
            for name in METRICS:
                metrics[name][i] = ended[name][i]
            running[i] = False
    return EpisodeResults(tuple(names), returns, lengths, metrics)


def by_forward(network: Any) -> Any:
    def choose(env: SchedulingVectorEnv, observation: Any) -> Any:
        actions = []
        for i in range(env.num_envs):
            jobs, nodes, overall, mask = (
                observation[name][i] for name in ("jobs", "nodes", "globals", "mask")
            )
            logits, _ = network.forward(jobs, nodes, overall, mask)
            actions.append(
                logits if env.model.kind == "rank-hosts" else np.argmax(np.where(mask, logits, -np.inf))
            )
        return np.array(actions)

    return choose


def assert_same(one: EpisodeResults, other: EpisodeResults) -> None:
    assert one.names == other.names
    np.testing.assert_array_equal(one.returns, other.returns)
    np.testing.assert_array_equal(one.lengths, other.lengths)
    for name in METRICS:
        np.testing.assert_array_equal(one.metrics[name], other.metrics[name], err_msg=name)


@pytest.mark.parametrize(("kind", "mode"), KINDS_AND_MODES)
def test_a_network_acts_natively_as_it_does_step_by_step(kind: str, mode: dict[str, Any]) -> None:
    env = vector(kind, len(NAMES), warmup_jobs=2, cooldown_jobs=3, **mode)
    for seed in range(3):
        network = make_network(env, seed)
        assert_same(
            run_episodes(env.model, NAMES, network), step_to_the_ends(env, NAMES, by_forward(network))
        )


@pytest.mark.parametrize("kind", ["mlp", "cross-attention", "rule", "state-rule"])
def test_every_network_that_selects_jobs_acts_natively_as_step_by_step(kind: str) -> None:
    env = vector("select-job", len(NAMES), base_policy="sjf+easy")
    network = make_network(env, kind=kind)
    assert_same(run_episodes(env.model, NAMES, network), step_to_the_ends(env, NAMES, by_forward(network)))


@pytest.mark.parametrize(("kind", "mode"), KINDS_AND_MODES)
def test_a_policy_acts_natively_as_an_expert_does(kind: str, mode: dict[str, Any]) -> None:
    env = vector(kind, len(NAMES), **mode)
    policy = "fifo+greedy/worst-fit" if kind.endswith("host") or kind.endswith("hosts") else "saf+easy"
    expected = step_to_the_ends(env, NAMES, lambda env, _: env.expert_actions(policy))
    assert_same(run_episodes(env.model, NAMES, policy), expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same(threads: int) -> None:
    env = vector("select-job", 1)
    network = make_network(env)
    names = tuple(range(40))
    runner = EpisodeRunner(env.model, threads)
    expected = run_episodes(env.model, names, network, threads=1)
    assert_same(runner.run(names, network), expected)
    assert_same(runner.run(names, network), expected)


def test_many_networks_are_run_as_each_alone() -> None:
    env = vector("select-job", 1)
    networks = [make_network(env, seed) for seed in range(4)]
    runner = EpisodeRunner(env.model, 2)
    for network, results in zip(networks, runner.run_many(NAMES, networks), strict=True):
        assert_same(results, runner.run(NAMES, network))


def test_drawn_episodes_are_named_by_their_seeds() -> None:
    env = SchedulingVectorEnv("select-job", 3, threads=1, **draws())
    network = make_network(env)
    names = (5, 1, 2**40)
    assert_same(run_episodes(env.model, names, network), step_to_the_ends(env, names, by_forward(network)))


def test_episodes_cut_off_by_a_step_limit_end_where_stepping_ends() -> None:
    env = vector("select-job", len(NAMES), max_steps=4)
    network = make_network(env)
    results = run_episodes(env.model, NAMES, network)
    assert (results.lengths == 4).all()
    assert_same(results, step_to_the_ends(env, NAMES, by_forward(network)))


def test_a_signal_stops_a_long_run() -> None:
    class RangError(Exception):
        pass

    def ring(*_: Any) -> None:
        raise RangError

    env = vector("select-job", 1)
    runner, network = EpisodeRunner(env.model, 2), make_network(env)
    expected = runner.run(NAMES, network)
    many = [env.model.episode(name) for name in NAMES] * 100_000
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(RangError):
            runner._rollouts.run(many, network)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert_same(runner.run(NAMES, network), expected)


def test_what_cannot_run_is_refused() -> None:
    env = vector("select-job", 1)
    network = make_network(env)
    with pytest.raises(InputError, match="windows start at rows 0 to 51"):
        run_episodes(env.model, [52], network)
    with pytest.raises(InputError, match="stops running jobs"):
        run_episodes(env.model, [0], "srtf")
    other = SchedulingVectorEnv("select-job", 1, threads=1, **windows(window=5))
    with pytest.raises(InputError, match="made for 84 numbers of jobs, the environment has 105"):
        run_episodes(other.model, [0], network)
    with pytest.raises(InputError, match="at least 1"):
        EpisodeRunner(env.model, 0)


def test_wrong_tensors_are_refused_by_name() -> None:
    env = vector("select-job", 1)
    config, sizes = NetworkConfig(width=8), NetworkSizes.of(env.model)
    good = {name: np.zeros(shape, np.float32) for name, shape in expected_tensors(config, sizes).items()}
    native_network(config, sizes, good)
    with pytest.raises(InputError, match=r"tensor noop.bias is missing"):
        native_network(config, sizes, {name: good[name] for name in good if name != "noop.bias"})
    with pytest.raises(InputError, match="it has no tensor extra"):
        native_network(config, sizes, good | {"extra": np.zeros(1, np.float32)})
    with pytest.raises(InputError, match=r"noop.weight has shape \[8\]; expected \[1, 8\]"):
        native_network(config, sizes, good | {"noop.weight": np.zeros(8, np.float32)})
    with pytest.raises(InputError, match=r"noop.bias holds numbers that are not finite"):
        native_network(config, sizes, good | {"noop.bias": np.array([np.inf], np.float32)})
