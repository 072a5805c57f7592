"""Every registered network: its tensors, its results, and what it must not depend on."""

import math
import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from gpuyard.errors import InputError
from gpuyard.learn.networks.heads import dueling, make_network, masked_logits
from gpuyard.learn.networks.row_layers import mean_and_largest, rectified_rows, rows_and_one_more
from gpuyard.network.config import RULE_KINDS, NetworkConfig, NetworkKind
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import HOST_KINDS, expected_tensors
from gpuyard.registry import registered
from reference.networks import ReferenceNetwork
from support.network_cases import (
    Case,
    all_cases,
    cases,
    name_of,
    observation_of,
    sizes_of,
    trained_by_chance,
)
from support.paths import DOCS

ALL_CASES = all_cases()
every_case = pytest.mark.parametrize("case", ALL_CASES, ids=name_of)
ROWS_IN_ANY_ORDER = ("job-scorer", "cross-attention", *RULE_KINDS)


def changed_rows(case: Case, observation: dict[str, Tensor]) -> dict[str, Tensor]:
    """The observation with numbers in absent rows, wherever ``present`` tells absence."""
    sizes, changed = case[1], dict(observation)
    for name, column in (("jobs", sizes.job_present), ("nodes", sizes.node_present)):
        if column >= 0:
            absent = observation[name][:, :, column] == 0
            if name == "jobs" and sizes.kind in HOST_KINDS:
                absent[:, 0] = False
            rows = observation[name].clone()
            rows[absent] = 3.0
            rows[:, :, column] = observation[name][:, :, column]
            changed[name] = rows
    return changed


def legal_part(logits: Tensor, observation: dict[str, Tensor]) -> Tensor:
    return logits.masked_fill(observation["mask"] == 0, 0.0)


def test_every_kind_of_network_is_registered() -> None:
    assert set(registered("network")) == set(get_args(NetworkKind))


@every_case
def test_tensors_are_those_that_are_expected(case: Case) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in make_network(*case).state_dict().items()}
    assert shapes == expected_tensors(*case)


@every_case
def test_results_are_those_of_the_definition_computed_plainly(case: Case) -> None:
    network = trained_by_chance(case, dtype=torch.float64)
    observation = observation_of(case[1], dtype=torch.float64)
    logits, value = network(observation)
    tensors = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    plain = ReferenceNetwork(*case, tensors)
    parts = [observation[name].numpy() for name in ("jobs", "nodes", "globals", "mask")]
    states = [plain.forward(*state) for state in zip(*parts, strict=True)]
    plain_logits, plain_value = (np.array(results) for results in zip(*states, strict=True))
    legal = observation["mask"].numpy() != 0
    assert logits.shape == observation["mask"].shape
    assert value.shape == (len(legal),)
    np.testing.assert_allclose(logits.detach().numpy()[legal], plain_logits[legal], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(value.detach().numpy(), plain_value, rtol=1e-10, atol=1e-10)


@every_case
def test_float32_agrees_with_float64_and_gradients_are_finite(case: Case) -> None:
    results, gradients = [], []
    for dtype in (torch.float32, torch.float64):
        network, observation = trained_by_chance(case, dtype=dtype), observation_of(case[1])
        observation |= {name: observation[name].to(dtype) for name in ("jobs", "nodes", "globals")}
        logits, value = network(observation)
        assert logits.dtype == value.dtype == dtype
        loss = masked_logits(logits, observation["mask"]).log_softmax(-1)[:, -1].clamp(min=-50).sum()
        (loss + value.square().sum()).backward()
        gradients.append([p.grad for p in network.parameters() if p.grad is not None])
        results.append((legal_part(logits, observation).detach().double(), value.detach().double()))
    for single, double in zip(*results, strict=True):
        torch.testing.assert_close(single, double, rtol=1e-4, atol=1e-4)
    assert all(gradient.isfinite().all() for both in gradients for gradient in both)


@every_case
def test_every_parameter_gets_a_gradient(case: Case) -> None:
    network = trained_by_chance(case)
    logits, value = network(observation_of(case[1]))
    (logits.square().sum() + value.square().sum()).backward()
    assert {name for name, parameter in network.named_parameters() if parameter.grad is None} == set()


@every_case
def test_illegal_actions_have_probability_zero_and_no_gradient(case: Case) -> None:
    observation = observation_of(case[1])
    logits, _ = trained_by_chance(case)(observation)
    logits.retain_grad()
    illegal = observation["mask"] == 0
    log_probabilities = masked_logits(logits, observation["mask"]).log_softmax(-1)
    probabilities = log_probabilities.exp()
    entropy = -(probabilities * log_probabilities).sum(-1)
    assert (probabilities[illegal] == 0).all()
    assert entropy.isfinite().all()
    (
        log_probabilities.gather(1, observation["mask"].argmax(1, keepdim=True)).sum() + entropy.sum()
    ).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (logits.grad[illegal] == 0).all()


@every_case
def test_content_of_absent_rows_changes_nothing(case: Case) -> None:
    network, observation = trained_by_chance(case), observation_of(case[1])
    observation["mask"][0] = 0  # where no host is present, one had to be legal
    observation["mask"][0, -1] = case[1].kind not in HOST_KINDS
    seen, values = network(observation)
    other, other_values = network(changed_rows(case, observation))
    assert torch.equal(legal_part(seen, observation), legal_part(other, observation))
    assert torch.equal(values, other_values)


@pytest.mark.parametrize("case", [c for c in cases() if c[0].kind in ROWS_IN_ANY_ORDER], ids=name_of)
def test_more_padding_rows_change_nothing(case: Case) -> None:
    sizes = case[1]
    network = trained_by_chance(case, dtype=torch.float64)
    observation = observation_of(sizes, dtype=torch.float64)
    logits, values = network(observation)
    pad = torch.nn.functional.pad
    more = observation | {name: pad(observation[name], (0, 0, 0, 3)) for name in ("jobs", "nodes")}
    if sizes.kind != "accept-or-skip":
        rows, noop = observation["mask"][:, :-1], observation["mask"][:, -1:]
        more["mask"] = torch.cat([pad(rows, (0, 3 * sizes.choices_per_row)), noop], 1)
    padded, padded_values = network(more)
    legal = observation["mask"] != 0
    torch.testing.assert_close(padded[more["mask"] != 0], logits[legal], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(padded_values, values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", [c for c in cases() if c[0].kind in ROWS_IN_ANY_ORDER], ids=name_of)
def test_jobs_in_another_order_have_their_logits_in_that_order(case: Case) -> None:
    sizes = case[1]
    network = trained_by_chance(case, dtype=torch.float64)
    observation = observation_of(sizes, dtype=torch.float64)
    order = torch.tensor([2, 0, 3, 1])
    moved = observation | {"jobs": observation["jobs"][:, order], "nodes": observation["nodes"].flip(1)}
    actions = torch.arange(sizes.actions)
    if sizes.kind != "accept-or-skip":
        rows = actions[:-1].view(sizes.rows, sizes.choices_per_row)[order].flatten()
        actions = torch.cat([rows, actions[-1:]])
    moved["mask"] = observation["mask"][:, actions]
    logits, values = network(observation)
    moved_logits, moved_values = network(moved)
    torch.testing.assert_close(moved_logits, logits[:, actions], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moved_values, values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("residual", ["none", "base"])
@pytest.mark.parametrize("kind", HOST_KINDS)
def test_host_attention_takes_any_number_of_hosts(kind: str, residual: str) -> None:
    case = NetworkConfig(kind="host-attention", residual=residual), sizes_of(kind)
    network = trained_by_chance(case, dtype=torch.float64)
    small = observation_of(case[1], dtype=torch.float64)
    logits, values = network(small)
    hosts = case[1].tokens
    more = small | {"nodes": torch.nn.functional.pad(small["nodes"], (0, 0, 0, 97))}
    many, many_values = network(more)
    assert many.shape == (len(values), hosts + 97)
    torch.testing.assert_close(many[:, :hosts], logits, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(many_values, values, rtol=1e-12, atol=1e-12)
    order = torch.randperm(hosts + 97, generator=torch.Generator().manual_seed(0))
    moved, moved_values = network(more | {"nodes": more["nodes"][:, order]})
    torch.testing.assert_close(moved, many[:, order], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moved_values, many_values, rtol=1e-12, atol=1e-12)


@every_case
def test_saved_tensors_give_the_same_network_again(case: Case) -> None:
    network, observation = trained_by_chance(case), observation_of(case[1])
    tensors = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    again = make_network(*case, seed=3)
    again.load_state_dict(tensors)
    for one, other in zip(network(observation), again(observation), strict=True):
        assert torch.equal(one, other)


@every_case
def test_rules_of_residuals_are_frozen(case: Case) -> None:
    names = {name for name, _ in make_network(*case).named_parameters()}
    assert names == {name for name in expected_tensors(*case) if not name.startswith("rule.")}


@pytest.mark.parametrize("case", [c for c in cases() if c[0].residual == "base"], ids=name_of)
def test_untrained_residual_chooses_what_the_base_policy_chooses(case: Case) -> None:
    config, sizes = case
    observation = observation_of(sizes, batch=64)
    logits, _ = make_network(*case, seed=1)(observation)
    chosen = masked_logits(logits, observation["mask"]).argmax(1)
    first_legal = observation["mask"].argmax(1)  # what the base policy of these observations chooses
    if sizes.kind == "accept-or-skip":
        first_legal = observation["mask"][:, 1].long()
    assert torch.equal(chosen, first_legal)
    assert set(logits.unique().tolist()) <= {0.0, config.strength}


@pytest.mark.parametrize("case", [c for c in cases() if c[0].residual == "rule"], ids=name_of)
def test_untrained_residual_equals_its_rule(case: Case) -> None:
    config, sizes = case
    rule = trained_by_chance((NetworkConfig(kind="rule", strength=config.strength), sizes))
    observation = observation_of(sizes, batch=64)
    logits, _ = make_network(*case, seed=1, rule=rule.state_dict())(observation)
    expected, _ = rule(observation)
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_seed_tells_the_weights_and_leaves_torchs_own_generator_alone(case: Case) -> None:
    before = torch.get_rng_state()
    one, same, other = (make_network(*case, seed=seed).state_dict() for seed in (5, 5, 6))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    if case[0].kind not in RULE_KINDS:
        assert any(not torch.equal(one[name], other[name]) for name in one)


def test_untrained_network_without_residual_is_nearly_undecided() -> None:
    for case in cases():
        if case[0].residual == "none" and case[0].kind not in RULE_KINDS:
            observation = observation_of(case[1])
            logits, _ = make_network(*case, seed=0)(observation)
            assert 0 < logits.std() < 0.2, name_of(case)


# --- The rule, by hand ---


def rule_choice(
    gates: list[float],
    scores: list[float],
    legal: list[int],
    *,
    running: float = 0.5,
    overall: float = 0.0,
    noop_legal: int = 1,
) -> int:
    """What a rule chooses among 3 jobs whose scores and gates are the two columns of ``jobs``."""
    sizes = NetworkSizes("select-job", 3, 2, 1, 1, 2, 1, 4, running=0)
    tensors = {
        "score.weight": torch.tensor([[1.0, 0.0]]),
        "gate_jobs.weight": torch.tensor([[0.0, 1.0]]),
        "gate_jobs.bias": torch.tensor([0.0]),
        "gate_globals.weight": torch.tensor([[0.0, 1.0]]),
    }
    network = make_network(NetworkConfig(kind="rule"), sizes, rule=tensors)
    observation = {
        "jobs": torch.tensor([scores, gates]).T[None],
        "nodes": torch.zeros(1, 1, 1),
        "globals": torch.tensor([[running, overall]]),
        "mask": torch.tensor([[*legal, noop_legal]]),
    }
    logits, value = network(observation)
    assert value.tolist() == [0.0]
    return int(masked_logits(logits, observation["mask"]).argmax())


def test_rule_starts_the_best_scored_job_that_it_admits() -> None:
    assert rule_choice([1.0, 1.0, 1.0], [0.1, 0.9, 0.5], [1, 1, 1]) == 1
    assert rule_choice([1.0, -1.0, 1.0], [0.1, 0.9, 0.5], [1, 1, 1]) == 2
    assert rule_choice([0.0, -1.0, -1.0], [-40.0, 0.9, 0.5], [1, 1, 1]) == 0
    assert rule_choice([1.0, 1.0, 1.0], [0.1, 0.9, 0.5], [1, 0, 0]) == 0


def test_rule_waits_if_it_admits_no_job() -> None:
    assert rule_choice([-1.0, -1e-9, -5.0], [0.1, 0.9, 0.5], [1, 1, 1]) == 3
    assert rule_choice([1.0, 1.0, 1.0], [0.1, 0.9, 0.5], [0, 0, 0]) == 3
    assert rule_choice([0.5, 0.5, 0.5], [0.1, 0.9, 0.5], [1, 1, 1], overall=-0.6) == 3


def test_rule_ignores_its_gate_while_nothing_runs() -> None:
    assert rule_choice([-1.0, -2.0, -5.0], [0.1, 0.9, 0.5], [1, 1, 1], running=0.0) == 1


def test_rule_that_may_not_wait_starts_what_its_gate_refuses_least() -> None:
    assert rule_choice([-1.0, -0.1, -5.0], [0.1, 0.0, 0.5], [1, 1, 1], noop_legal=0) == 1


def test_state_rule_starts_as_its_rule_and_orders_by_the_state_afterwards() -> None:
    sizes = NetworkSizes("select-job", 3, 2, 1, 1, 2, 1, 4, running=0)
    rule = {
        "score.weight": torch.tensor([[1.0, 0.0]]),
        "gate_jobs.weight": torch.zeros(1, 2),
        "gate_jobs.bias": torch.ones(1),
        "gate_globals.weight": torch.zeros(1, 2),
    }
    network = make_network(NetworkConfig(kind="state-rule"), sizes, rule=rule)
    jobs = torch.tensor([[[0.2, 0.9], [0.8, 0.5], [0.4, 0.1]]])

    def choice(state: float) -> int:
        globals_ = torch.tensor([[0.5, state]])
        seen = {"jobs": jobs, "nodes": torch.zeros(1, 1, 1), "globals": globals_, "mask": torch.ones(1, 4)}
        return int(network(seen)[0].argmax())

    assert [choice(0.0), choice(1.0)] == [1, 1]
    with torch.no_grad():
        network.state_dict()["score_state.weight"].copy_(torch.tensor([[0.0, -1.0], [0.0, 1.0]]))
    assert [choice(0.0), choice(1.0)] == [1, 0]  # by the first column, then by the second
    with torch.no_grad():
        network.state_dict()["gate_state.weight"].copy_(torch.tensor([[0.0, 0.0], [0.0, -2.0]]))
    assert [choice(0.0), choice(1.0)] == [1, 1]  # 1 - 2 x 0.9 is below 0: the first job must wait


def test_state_rule_without_columns_of_the_state_is_refused() -> None:
    sizes = sizes_of("select-job", global_features=())
    with pytest.raises(InputError, match="global_features"):
        make_network(NetworkConfig(kind="state-rule"), sizes)


# --- Values of actions, and refusals ---


def test_dueling_values_average_to_the_state_value_over_legal_actions() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 7, generator=draw, dtype=torch.float64)
    value = torch.randn(50, generator=draw, dtype=torch.float64)
    mask = torch.rand(50, 7, generator=draw) < 0.5
    mask[:, 3] = True
    actions = dueling(logits, value, mask)
    means = torch.stack([row[legal].mean() for row, legal in zip(actions, mask, strict=True)])
    torch.testing.assert_close(means, value)
    torch.testing.assert_close(actions - actions[:, 3:4], logits - logits[:, 3:4])


def test_dueling_ignores_logits_of_illegal_actions() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    dueling(logits, torch.zeros(1), torch.tensor([[1, 0, 1]]))[0, 0].backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0.5, 0.0, -0.5]]


def test_a_single_legal_action_is_certain() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    log_probabilities = masked_logits(logits, torch.tensor([[0, 1, 0]])).log_softmax(-1)
    assert log_probabilities[0, 1] == 0
    log_probabilities[0, 1].backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[0.0, 0.0, 0.0]]


def test_rule_of_other_features_is_refused() -> None:
    config, sizes = NetworkConfig(residual="rule"), sizes_of("select-job")
    tensors = make_network(NetworkConfig(kind="rule"), sizes).state_dict()
    with pytest.raises(InputError, match="same features"):
        make_network(config, sizes, rule=tensors | {"score.weight": torch.zeros(1, 2)})
    with pytest.raises(InputError, match="a rule has the tensors"):
        make_network(config, sizes, rule={"score.weight": tensors["score.weight"]})
    with pytest.raises(InputError, match="residual = 'rule'"):
        make_network(NetworkConfig(), sizes, rule=tensors)


def test_hosts_shown_as_classes_are_refused() -> None:
    with pytest.raises(InputError, match="tokens = 'nodes'"):
        make_network(NetworkConfig(kind="host-attention"), replace(sizes_of("select-host"), tokens=9))


def test_document_tells_how_many_parameters_networks_have() -> None:
    page = (DOCS / "contract" / "networks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| (\d+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert {kind for kind, *_ in rows} == set(registered("network"))
    for kind, width, depth, count in rows:
        environment, actions = ("select-host", 64) if kind == "host-attention" else ("select-job", 65)
        sizes = NetworkSizes(environment, 64, 21, 64, 11, 77, 1, actions)
        shapes = expected_tensors(NetworkConfig(kind=kind, width=width, depth=depth), sizes)
        assert sum(math.prod(shape) for shape in shapes.values()) == int(count.replace(",", ""))


# --- Steps with gradients of their own ---


def test_gradients_of_row_layers_are_those_of_numerical_differences() -> None:
    draw = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64, requires_grad=True)

    layer = torch.nn.Linear(3, 4).double()
    present = torch.tensor([[1, 0, 1], [1, 1, 1]], dtype=torch.float64)
    last, shared, weight, bias = some(2, 4), some(2, 4), layer.weight, layer.bias
    rows, numbers = some(2, 3, 3), some(2, 3, 4)

    for function, inputs in (
        (lambda rows, *_: rectified_rows(rows, layer), (rows, weight, bias)),
        (lambda rows, *_: rectified_rows(rows, layer, present=present), (rows, weight, bias)),
        (lambda rows, shared, *_: rectified_rows(rows, layer, shared=shared), (rows, shared, weight, bias)),
        (lambda numbers: mean_and_largest(numbers.relu() * present[:, :, None], present / 3), (numbers,)),
        (lambda rows, last, *_: rows_and_one_more(rows, layer, last), (rows, last, weight, bias)),
    ):
        assert torch.autograd.gradcheck(function, inputs)


def test_rows_that_are_equally_large_share_the_gradient_of_the_maximum() -> None:
    rows = torch.tensor([[[2.0], [1.0], [2.0]]], requires_grad=True)
    mean_and_largest(rows, torch.zeros(1, 3))[1].sum().backward()
    assert rows.grad is not None
    assert rows.grad.flatten().tolist() == [0.5, 0.0, 0.5]
