"""A network that collects experience computes what the torch network does."""

from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from gpuyard.learn.memory import actor as acting
from gpuyard.learn.memory.actor import COMPUTED_NATIVELY, Actor
from gpuyard.network.config import NetworkKind
from gpuyard.network.rollout import NativeNetwork, native_network
from gpuyard.network.tensors import HOST_KINDS
from support.network_cases import Case, all_cases, name_of, observation_of, trained_by_chance

CPU = torch.device("cpu")
PARTS = ("jobs", "nodes", "globals", "mask")
every_case = pytest.mark.parametrize("case", all_cases(), ids=name_of)
FIRST_OF_EACH_KIND = {case[0].kind: case for case in reversed(all_cases())}
each_native_kind = pytest.mark.parametrize("kind", COMPUTED_NATIVELY)


def arrays_of(observation: dict[str, Tensor]) -> dict[str, Any]:
    return {name: part.numpy() for name, part in observation.items()}


def native_of(case: Case, seed: int) -> NativeNetwork:
    weights = {name: part.numpy() for name, part in trained_by_chance(case, seed).state_dict().items()}
    return native_network(*case, weights)


@every_case
def test_logits_of_legal_actions_and_values_are_those_of_the_network(case: Case) -> None:
    network = trained_by_chance(case, seed=1)
    observation = observation_of(case[1], batch=24, seed=2)
    legal = observation["mask"] != 0
    if case[1].kind in HOST_KINDS:
        legal[0] = False  # no host is there, so that none can be chosen
    with torch.no_grad():
        logits, values = network(observation)
    own_logits, own_values = Actor(network, CPU)(arrays_of(observation))
    torch.testing.assert_close(own_logits[legal], logits[legal], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(own_values, values, rtol=1e-5, atol=1e-5)


@every_case
def test_a_batch_gives_what_its_rows_give_one_by_one_to_the_last_bit(case: Case) -> None:
    native = native_of(case, seed=3)
    parts = [arrays_of(observation_of(case[1], batch=17, seed=4))[name] for name in PARTS]
    logits, values = native.forward_batch(*parts)
    alone = [native.forward(*row) for row in zip(*parts, strict=True)]
    legal = parts[-1] != 0
    assert logits[legal].tobytes() == np.array([row for row, _ in alone], np.float32)[legal].tobytes()
    assert values.tobytes() == np.array([value for _, value in alone], np.float32).tobytes()


def test_every_kind_is_computed_natively_but_the_one_that_torch_is_quicker_at() -> None:
    assert {*COMPUTED_NATIVELY, "mlp"} == set(get_args(NetworkKind))


@each_native_kind
def test_torch_is_not_asked_where_the_core_computes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = trained_by_chance(FIRST_OF_EACH_KIND[kind])
    actor = Actor(network, CPU)
    monkeypatch.setattr(network, "forward", lambda *_: pytest.fail("torch was asked"))
    actor(arrays_of(observation_of(network.sizes, batch=3)))


def test_a_network_on_another_device_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "native_network", lambda *_: pytest.fail("the core was asked"))
    Actor(trained_by_chance(FIRST_OF_EACH_KIND["job-scorer"]), torch.device("meta"))


@each_native_kind
def test_weights_that_change_later_do_not_count(kind: str) -> None:
    network = trained_by_chance(FIRST_OF_EACH_KIND[kind], seed=5)
    observation = arrays_of(observation_of(network.sizes, batch=4))
    actor = Actor(network, CPU)
    before = actor(observation)
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.add_(1.0)
    for old, new in zip(before, actor(observation), strict=True):
        assert old.numpy().tobytes() == new.numpy().tobytes()


@each_native_kind
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("change", ["a row too few", "a column too many"])
def test_observations_of_another_size_are_refused(kind: str, part: str, change: str) -> None:
    network = trained_by_chance(FIRST_OF_EACH_KIND[kind])
    observation = arrays_of(observation_of(network.sizes, batch=4))
    array = observation[part]
    smaller, larger = array[:-1], np.concatenate([array, array[..., :1]], -1)
    observation[part] = smaller.copy() if change == "a row too few" else larger
    # How many states there are is read off the masks: with a mask too few the others have too many entries.
    wrong = "jobs" if part == "mask" and change == "a row too few" else part
    with pytest.raises(ValueError, match=rf"^{wrong} has \d+ entries; expected \d+"):
        Actor(network, CPU)(observation)
