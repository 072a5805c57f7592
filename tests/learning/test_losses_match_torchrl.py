"""Losses and gradients are those of TorchRL, an implementation by others, on the same batches in float64.

Networks are tables with a row a state, so that both sides differentiate by the same numbers. TorchRL's
discrete SAC knows no masks: there every action is legal, and tests/unit/test_sac.py works masks out by hand.
"""

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictSequential,
)
from torch import Tensor, nn
from torchrl.modules import MaskedCategorical, QValueModule
from torchrl.objectives import ClipPPOLoss, DiscreteSACLoss, DQNLoss, ValueEstimators

from gpuyard.learn.algorithms.d3qn import D3QNConfig, d3qn_loss
from gpuyard.learn.algorithms.ppo import PPOConfig, discrete, ppo_loss
from gpuyard.learn.algorithms.sac import SACConfig, SACNetworks, sac_losses
from gpuyard.learn.memory.replay import Batch
from gpuyard.learn.networks.heads import dueling
from support.small_learning import ACTIONS, Table, transitions

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater has been associated:UserWarning")

STATES, SAMPLES, DISCOUNT = 12, 40, 0.9
EXACT: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}
FLOAT32: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6, "check_dtype": False}
"""TorchRL holds its coefficients in float32, and with them what is differentiated by one."""


def random_numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_table(seed: int) -> Table:
    table = Table([[0.0] * ACTIONS] * STATES)
    with torch.no_grad():
        table.logits.copy_(2 * random_numbers(seed, STATES, ACTIONS))
        table.values.copy_(2 * random_numbers(seed + 1000, STATES))
    return table


def random_masks(seed: int) -> Tensor:
    """Of which every row has a legal action, and some have one that is not."""
    masks = random_numbers(seed, SAMPLES, ACTIONS) > 0.3
    masks[torch.arange(SAMPLES), torch.arange(SAMPLES) % ACTIONS] = True
    assert not masks.all()
    return masks


def random_batch(seed: int, *, weights: bool = False, masks: bool = False) -> Batch:
    """Transitions of which some end an episode."""
    draws = torch.Generator().manual_seed(seed)

    def numbers(count: int) -> list[int]:
        return torch.randint(count, (SAMPLES,), generator=draws).tolist()

    share = random_numbers(seed, SAMPLES).abs() + 0.1
    return transitions(
        now=numbers(STATES),
        actions=[sample % ACTIONS for sample in range(SAMPLES)] if masks else numbers(ACTIONS),
        returns=(2 * random_numbers(seed + 1, SAMPLES)).tolist(),
        after=numbers(STATES),
        discounts=[0.0 if number == 0 else DISCOUNT for number in numbers(4)],
        # TorchRL divides by the sum of weights, gpuyard by their number: the same if their mean is 1.
        weights=(share / share.mean()).tolist() if weights else None,
        masks=random_masks(seed + 2).tolist() if masks else None,
        next_masks=random_masks(seed + 3).tolist() if masks else None,
    )


class Part(nn.Module):
    """One output of a table, for a network of TorchRL."""

    def __init__(self, table: Table, output: str) -> None:
        super().__init__()
        self.table, self.output = table, output

    def forward(self, state: Tensor, mask: Tensor) -> Tensor:
        logits, value = self.table({"globals": state})
        if self.output == "dueling":
            return dueling(logits, value, mask)
        return value[..., None] if self.output == "value" else logits


def network(table: Table, output: str, name: str) -> TensorDictModule:
    return TensorDictModule(Part(table, output), in_keys=["state", "mask"], out_keys=[name])


def policy(table: Table, kind: Any, inputs: list[str]) -> ProbabilisticTensorDictSequential:
    choice = ProbabilisticTensorDictModule(
        in_keys=inputs, out_keys=["action"], distribution_class=kind, return_log_prob=True
    )
    return ProbabilisticTensorDictSequential(network(table, "logits", "logits"), choice)


def as_tensordict(batch: Batch) -> TensorDict:
    """A batch as TorchRL takes it."""
    ended = (batch.discounts == 0)[:, None]
    after = {
        "state": batch.next_observation["globals"],
        "mask": batch.next_observation["mask"].bool(),
        "reward": batch.returns[:, None],
        "terminated": ended,
        "done": ended,
    }
    now = {
        "state": batch.observation["globals"],
        "mask": batch.observation["mask"].bool(),
        "action": batch.actions,
        "priority_weight": batch.weights,
        "next": TensorDict(after, [SAMPLES]),
    }
    return TensorDict(now, [SAMPLES])


def by_name(parameters: Any) -> dict[str, Tensor]:
    """Tensors that TorchRL holds, by their names in a table."""
    return {
        (name if isinstance(name, tuple) else name.split("."))[-1]: tensor
        for name, tensor in parameters.items(True, True)
    }


def fill(parameters: Any, *tables: Table) -> None:
    """Give TorchRL the numbers of tables, stacked if it holds several of them as one."""
    for name, tensor in by_name(parameters).items():
        numbers = [table.state_dict()[name] for table in tables]
        tensor.data.copy_(torch.stack(numbers) if len(numbers) > 1 else numbers[0])


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("duel", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_d3qn_is_torchrls_dqn(double: bool, duel: bool, weights: bool, masks: bool) -> None:
    online, target = random_table(1), random_table(2)
    batch = random_batch(3, weights=weights, masks=masks)
    values = network(random_table(1), "dueling" if duel else "logits", "action_value")
    chooser = QValueModule(action_space="categorical", action_mask_key="mask")
    theirs = DQNLoss(
        TensorDictSequential(values, chooser),
        action_space="categorical",
        double_dqn=double,
        delay_value=True,
        loss_function="smooth_l1",
    )
    theirs.make_value_estimator(ValueEstimators.TD0, gamma=DISCOUNT)
    fill(theirs.target_value_network_params, target)
    data = as_tensordict(batch)
    their_loss = theirs(data)["loss"]
    their_loss.backward()

    loss, errors, _ = d3qn_loss(online, target, batch, D3QNConfig(double=double, dueling=duel))
    loss.backward()
    torch.testing.assert_close(loss, their_loss, **EXACT)
    torch.testing.assert_close(errors.square()[:, None], data["td_error"], **EXACT)
    their_weights = by_name(theirs.value_network_params)
    torch.testing.assert_close(online.logits.grad, their_weights["logits"].grad, **EXACT)
    if duel:
        torch.testing.assert_close(online.values.grad, their_weights["values"].grad, **EXACT)


@pytest.mark.parametrize("duel", [False, True])
def test_sac_is_torchrls_discrete_sac(duel: bool) -> None:
    share, temperature = 0.6, 0.25
    actor, critics, targets = (
        random_table(1),
        [random_table(2), random_table(3)],
        [random_table(4), random_table(5)],
    )
    batch = random_batch(6)
    theirs = DiscreteSACLoss(
        policy(random_table(1), torch.distributions.Categorical, ["logits"]),
        network(random_table(2), "dueling" if duel else "logits", "action_value"),
        action_space="categorical",
        num_actions=ACTIONS,
        target_entropy_weight=share,
        alpha_init=temperature,
        use_prioritized_weights=False,
    )
    theirs.make_value_estimator(ValueEstimators.TD0, gamma=DISCOUNT)
    fill(theirs.qvalue_network_params, *critics)
    fill(theirs.target_qvalue_network_params, *targets)
    their_losses = theirs(as_tensordict(batch))
    (their_losses["loss_qvalue"] + their_losses["loss_actor"] + their_losses["loss_alpha"]).backward()

    log_temperature = torch.tensor(temperature, dtype=torch.float64).log().requires_grad_()
    networks = SACNetworks(actor, critics, targets, log_temperature)
    losses, stats = sac_losses(networks, batch, SACConfig(dueling=duel, target_entropy=share))
    sum(losses.values()).backward()  # type: ignore[union-attr]
    for name, their_name in (("critic", "qvalue"), ("actor", "actor"), ("temperature", "alpha")):
        torch.testing.assert_close(losses[name], their_losses[f"loss_{their_name}"], **FLOAT32)
    torch.testing.assert_close(stats["entropy"], their_losses["entropy"], **FLOAT32)
    torch.testing.assert_close(
        actor.logits.grad, by_name(theirs.actor_network_params)["logits"].grad, **EXACT
    )
    torch.testing.assert_close(log_temperature.grad, theirs.log_alpha.grad, **FLOAT32)
    their_critics = by_name(theirs.qvalue_network_params)
    for name in ("logits", "values") if duel else ("logits",):
        own = torch.stack([getattr(critic, name).grad for critic in critics])
        torch.testing.assert_close(own, their_critics[name].grad, **EXACT)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("value_clip", [None, 0.25])
def test_ppo_is_torchrls_clip_ppo(value_clip: float | None, masks: bool) -> None:
    clip, value_weight, entropy_weight = 0.25, 0.5, 0.125
    table, batch = random_table(1), random_batch(2, masks=masks)
    before = {
        # some ratios and values beyond what is allowed, to either side
        "log_probabilities": -random_numbers(3, SAMPLES).abs() - 0.3,
        "values": 2 * random_numbers(4, SAMPLES),
        "advantages": random_numbers(5, SAMPLES),
        "returns": 2 * random_numbers(6, SAMPLES),
    }
    copy = random_table(1)
    theirs = ClipPPOLoss(
        policy(copy, MaskedCategorical, ["logits", "mask"]),
        network(copy, "value", "state_value"),
        clip_epsilon=clip,
        clip_value=value_clip,
        entropy_coeff=entropy_weight,
        critic_coeff=value_weight,
        loss_critic_type="l2",
        normalize_advantage=False,
    )
    data = as_tensordict(batch)
    data["action_log_prob"] = before["log_probabilities"]
    names = {"values": "state_value", "advantages": "advantage", "returns": "value_target"}
    for name, their_name in names.items():
        data[their_name] = before[name][:, None]
    theirs.set_keys(sample_log_prob="action_log_prob")
    their_losses = theirs(data)
    their_loss = their_losses["loss_objective"] + their_losses["loss_critic"] + their_losses["loss_entropy"]
    their_loss.backward()

    config = PPOConfig(clip=clip, value_clip=value_clip, value_weight=value_weight)
    logits, values = table(batch.observation)
    logs, entropy = discrete(logits, batch.observation["mask"], batch.actions)
    loss, stats = ppo_loss(logs, entropy, values, before, config, entropy_weight)
    loss.backward()
    torch.testing.assert_close(loss, their_loss, **EXACT)
    torch.testing.assert_close(stats["loss/policy"], their_losses["loss_objective"].detach(), **EXACT)
    torch.testing.assert_close(stats["entropy"], their_losses["entropy"], **EXACT)
    torch.testing.assert_close(stats["clip_share"], their_losses["clip_fraction"], **EXACT)
    assert 0 < stats["clip_share"] < 1
    torch.testing.assert_close(
        table.logits.grad, by_name(theirs.actor_network_params)["logits"].grad, **EXACT
    )
    torch.testing.assert_close(
        table.values.grad, by_name(theirs.critic_network_params)["values"].grad, **EXACT
    )
