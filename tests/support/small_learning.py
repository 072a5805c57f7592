"""Networks that are tables, steps that are numbers, and other small things to test algorithms with."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpuyard.learn.learner import Learner, Setup
from gpuyard.learn.memory.collector import Collector, Transition
from gpuyard.learn.memory.replay import Batch
from gpuyard.learn.networks.heads import make_network
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.learn.rates import Schedule
from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes

ACTIONS = 3
_ONE_EACH = dict.fromkeys(("job_columns", "tokens", "node_columns", "global_columns", "pools"), 1)
SIZES = NetworkSizes(kind="select-job", rows=2, actions=ACTIONS, **_ONE_EACH)
REPLAY = {"learning_starts": 40, "batch_size": 16, "capacity": 60, "target_share": 0.1}
"""Settings of algorithms with a replay buffer under which they learn after a few steps."""


class Table(nn.Module):
    """Logits and values of states whose number is the one entry of ``globals``."""

    def __init__(self, logits: Sequence[Sequence[float]], values: Sequence[float] | None = None) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits, dtype=torch.float64))
        self.values = nn.Parameter(torch.tensor(values or [0.0] * len(logits), dtype=torch.float64))

    def forward(self, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        states = observation["globals"][:, 0].long()
        return self.logits[states], self.values[states]


def states(numbers: Sequence[float], masks: Any = None) -> dict[str, Tensor]:
    """Observations of numbered states for a Table."""
    mask = torch.ones(len(numbers), ACTIONS) if masks is None else torch.tensor(masks)
    return {"globals": torch.tensor(numbers, dtype=torch.float64)[:, None], "mask": mask.to(torch.int8)}


def transitions(
    now: Sequence[float],
    actions: Sequence[int],
    returns: Sequence[float],
    after: Sequence[float],
    discounts: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    masks: Any = None,
    next_masks: Any = None,
) -> Batch:
    """A batch in float64."""

    def numbers(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return Batch(
        observation=states(now, masks),
        actions=torch.tensor(actions),
        returns=numbers(returns),
        next_observation=states(after, next_masks),
        discounts=numbers(discounts),
        weights=numbers(weights or [1.0] * len(now)),
        entries=torch.arange(len(now)),
    )


def observed(numbers: Sequence[float]) -> dict[str, Any]:
    """Arrays of observations, each full of its number."""
    column = np.array(numbers, dtype=np.float32)
    return {
        "jobs": np.tile(column[:, None, None], (1, 2, 1)),
        "nodes": column[:, None, None].copy(),
        "globals": column[:, None].copy(),
        "mask": np.ones((len(column), ACTIONS), np.int8),
    }


def step(
    numbers: Sequence[float],
    rewards: Sequence[float],
    *,
    terminated: Sequence[int] = (),
    truncated: Mapping[int, float] | None = None,
) -> Transition:
    """A step of environments in numbered states.

    Args:
        numbers: Of the states.
        rewards: Of the step.
        terminated: Environments whose episode ends.
        truncated: Environments whose episode is cut off, and the number of its last state.
    """
    cut = truncated or {}
    ended = sorted({*terminated, *cut})
    flags = np.arange(len(numbers))
    return Transition(
        observation=observed(numbers),
        actions=np.array([int(number) % ACTIONS for number in numbers]),
        rewards=np.array(rewards, dtype=np.float64),
        terminated=np.isin(flags, list(terminated)),
        truncated=np.isin(flags, list(cut)),
        next_observation={},
        ended=np.array(ended, dtype=np.int64),
        last_observation=observed([cut.get(env, -1.0) for env in ended]) if ended else {},
    )


def setup_of(sizes: NetworkSizes, envs: int, **changes: Any) -> Setup:
    """A run in this process alone."""
    values: dict[str, Any] = {
        "sizes": sizes,
        "envs": envs,
        "total_steps": 10_000,
        "learning_rate": Schedule(start=1e-3),
        "seed": 0,
        "device": torch.device("cpu"),
        "accumulate": 1,
        "group": ProcessGroup(0, 1),
    }
    return Setup(**values | changes)


def small_learner(
    algorithm: Any, config: Any, sizes: NetworkSizes = SIZES, envs: int = 4, **changes: Any
) -> Any:
    """A learner with a network of 8 numbers a layer.

    Args:
        algorithm: Its class.
        config: The class of its settings.
        sizes: Of the environment.
        envs: How many of it.
        changes: Settings, among them ``seed`` and ``accumulate`` of the run.
    """
    setup = {name: changes.pop(name) for name in ("seed", "accumulate") if name in changes}
    network = make_network(NetworkConfig(kind="mlp", width=8), sizes, seed=3)
    return algorithm(network, config(**changes), setup_of(sizes, envs, **setup))


def show_steps(learner: Learner, steps: int = 12) -> None:
    """Let a learner of four environments see so many steps."""
    for t in range(steps):
        learner.observe(step([t, t + 1, t + 2, t + 3], [1.0, 2.0, 3.0, 4.0]))


def alone(_: Iterable[nn.Parameter]) -> None:
    """The mean over one process."""


def learn_for(learner: Learner, collector: Collector, steps: int, done: int = 0) -> list[dict[str, float]]:
    """Act, observe and update; what updates reported."""
    reports = []
    for number in range(done, done + steps):
        count = number * len(collector.seeds)
        learner.observe(collector.step(learner.act(collector.observation, count)))
        values = learner.update(count + len(collector.seeds), alone)
        if values is not None:
            reports.append(values)
    return reports


def weights_of(learner: Learner) -> dict[str, bytes]:
    """All weights, to the last bit."""
    return {
        f"{name}.{part}": tensor.numpy().tobytes()
        for name, network in learner.networks.items()
        for part, tensor in network.state_dict().items()
    }


def resumed_run_differs(make: Any, env: Any, before: int, after: int) -> list[str]:
    """Weights that differ between a straight run and one that was saved and taken up on the way.

    Args:
        make: A new learner.
        env: A new vector of environments.
        before: Steps until it is saved.
        after: Steps from then on.
    """
    straight, collector = make(), Collector(env(), list(range(4)), keep_steps=before)
    learn_for(straight, collector, before)
    actions = collector.state()[1]["actions"]
    resumed, repeated = make(), Collector(env(), list(range(4)))
    for name, network in resumed.networks.items():
        network.load_state_dict(straight.networks[name].state_dict())
    for name, optimizer in resumed.optimizers.items():
        state = straight.optimizers[name].state_dict()
        optimizer.load_state_dict(copy.deepcopy(state))
    resumed.restore(straight.state())
    for number, row in enumerate(actions):
        transition = repeated.step(row.astype(np.int64))
        if number >= before - resumed.keep_steps:
            resumed.observe(transition)
    for learner, source in ((straight, collector), (resumed, repeated)):
        assert learn_for(learner, source, after, before)
    one, other = weights_of(straight), weights_of(resumed)
    return [name for name in one if one[name] != other[name]]
