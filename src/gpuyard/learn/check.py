"""``gpuyard train --check``: can this network learn this task at all, and are masks and gradients in order?

One window is trained on again and again. A network that cannot even learn one window by heart has a mistake
in its settings, its reward or its inputs; better to know that before a long run.
"""

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.learn.collector import Collector
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.environments import Environments
from gpuyard.learn.group import ProcessGroup
from gpuyard.learn.learner import Learner, to_tensors
from gpuyard.learn.making import make_learner, make_policy_network
from gpuyard.learn.networks import SchedulingNetwork, masked_logits

ENVS = 16
CHECK_S = 40.0
"""Time to learn the window by heart."""


@dataclass(frozen=True)
class GradientReport:
    """One tensor of the network.

    Attributes:
        name: Its name.
        size: Numbers in it.
        weight_norm: Length of the weights as a vector.
        gradient_norm: Length of its first gradient; None if it never got one.
    """

    name: str
    size: int
    weight_norm: float
    gradient_norm: float | None


@dataclass(frozen=True)
class CheckResult:
    """What the check found.

    Attributes:
        first_return: Mean return of the first episodes.
        last_return: Mean return of the last episodes.
        base_return: What the base policy reaches on the window.
        episodes: How many were played.
        seconds: How long it took.
        legal_share: Share of actions that were legal, on average.
        illegal_probability: Largest probability that an illegal action had.
        illegal_gradient: Largest gradient at the logit of an illegal action.
        unused_columns: Columns of observations that were the same in every state seen.
        gradients: By tensor.
        not_finite: Names of tensors with a number that is not finite.
    """

    first_return: float
    last_return: float
    base_return: float
    episodes: int
    seconds: float
    legal_share: float
    illegal_probability: float
    illegal_gradient: float
    unused_columns: list[str]
    gradients: list[GradientReport]
    not_finite: list[str]

    @property
    def passed(self) -> bool:
        """Whether everything is in order; a return that did not rise may have been the best already."""
        learned = self.last_return >= min(self.first_return, self.base_return) - 1e-9
        sound = not self.not_finite and self.illegal_probability == 0 and self.illegal_gradient == 0
        return learned and sound and any(g.gradient_norm for g in self.gradients)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"passed": self.passed, **asdict(self)}


def check_training(config: TrainConfig, seconds: float = CHECK_S) -> CheckResult:
    """Train on one window and look closely."""
    torch.set_num_threads(1)
    env = Environments(config.environment).one_window(ENVS)
    network = make_policy_network(config, env.model)
    learner = make_learner(config, 1, network, env, ProcessGroup(0, 1))
    base = _base_return(env)
    collector = Collector(env, list(range(ENVS)))
    began, step = time.monotonic(), 0
    returns: list[float] = []
    first_gradients: dict[str, float] = {}
    states = [collector.observation]

    def note(_: Any) -> None:
        for name, parameter in network.named_parameters():
            if parameter.grad is not None:
                first_gradients.setdefault(name, float(parameter.grad.norm()))

    while time.monotonic() - began < seconds or not (first_gradients and returns):
        _one_step(learner, collector, step, note)
        step += ENVS
        if len(states) < 64:
            states.append(collector.observation)
        returns += collector.finished.pop("return", [])
        collector.finished.clear()
    part = max(1, len(returns) // 10)
    probability, gradient, legal = _mask_report(network, states[-1])
    return CheckResult(
        first_return=float(np.mean(returns[:part])) if returns else float("nan"),
        last_return=float(np.mean(returns[-part:])) if returns else float("nan"),
        base_return=base,
        episodes=len(returns),
        seconds=time.monotonic() - began,
        legal_share=legal,
        illegal_probability=probability,
        illegal_gradient=gradient,
        unused_columns=_constant_columns(env, states),
        gradients=[
            GradientReport(n, p.numel(), float(p.detach().norm()), first_gradients.get(n))
            for n, p in network.named_parameters()
        ],
        not_finite=[n for n, t in network.state_dict().items() if not torch.isfinite(t).all()],
    )


def _one_step(learner: Learner, collector: Collector, step: int, note: Any) -> None:
    learner.observe(collector.step(learner.act(collector.observation, step)))
    learner.update(step, note)


def _base_return(env: SchedulingVectorEnv) -> float:
    env.reset(seed=0)
    while True:
        *_, infos = env.step(env.expert_actions(env.model.policy.name))
        if "final_info" in infos:
            metrics = infos["final_info"]["episode_metrics"]
            return float(metrics["return"][np.flatnonzero(infos["_final_info"])[0]])


def _mask_report(network: SchedulingNetwork, observation: dict[str, Any]) -> tuple[float, float, float]:
    """Largest probability and gradient of an illegal action, and the share of legal ones."""
    seen = to_tensors(observation, next(iter(network.state_dict().values())).device)
    logits, _ = network(seen)
    logits.retain_grad()
    mask = seen["mask"]
    logs = torch.log_softmax(masked_logits(logits, mask), -1)
    logs.gather(-1, logs.argmax(-1, keepdim=True)).sum().backward()  # type: ignore[no-untyped-call]
    illegal = mask == 0
    gradient: Tensor = logits.grad if logits.grad is not None else torch.zeros_like(logits)
    return (
        float(logs.detach().exp()[illegal].max()) if illegal.any() else 0.0,
        float(gradient[illegal].abs().max()) if illegal.any() else 0.0,
        float((~illegal).float().mean()),
    )


def _constant_columns(env: SchedulingVectorEnv, states: list[dict[str, Any]]) -> list[str]:
    constant = []
    for part, columns in env.model.parts.items():
        values = np.stack([state[part] for state in states]).reshape(-1, max(1, len(columns.names)))
        for i, name in enumerate(columns.names):
            if name not in ("present", "lookahead") and (values[:, i] == values[0, i]).all():
                constant.append(f"{part}.{name}")
    return constant


def report(result: CheckResult) -> str:
    """The findings in words."""
    rose = result.last_return - result.first_return
    lines = [
        f"One window, {result.episodes} episodes in {result.seconds:.0f} s: return {result.first_return:.4g} "
        f"at first, {result.last_return:.4g} at last ({rose:+.4g}); the base policy reaches "
        f"{result.base_return:.4g}.",
        f"Masks: {100 * result.legal_share:.0f} % of actions legal; an illegal one has probability "
        f"{result.illegal_probability:g} and gradient {result.illegal_gradient:g}.",
    ]
    if result.unused_columns:
        lines.append(f"The same in every state seen: {', '.join(result.unused_columns)}.")
    lines += ["", f"{'tensor':<28}{'numbers':>9}{'weights':>11}{'gradient':>12}"]
    for one in result.gradients:
        gradient = "none" if one.gradient_norm is None else f"{one.gradient_norm:.3g}"
        lines.append(f"{one.name:<28}{one.size:>9,}{one.weight_norm:>11.3g}{gradient:>12}")
    lines += ["", "In order." if result.passed else "Not in order: " + "; ".join(_complaints(result))]
    return "\n".join(lines)


def _complaints(result: CheckResult) -> list[str]:
    complaints = []
    if result.not_finite:
        complaints.append(f"not finite: {', '.join(result.not_finite)} (a smaller learning_rate.start)")
    if result.illegal_probability or result.illegal_gradient:
        complaints.append("illegal actions are not masked by this network")
    if not any(g.gradient_norm for g in result.gradients):
        complaints.append("no gradient arrives")
    if result.last_return < min(result.first_return, result.base_return):
        complaints.append(
            "the window was not learnt: try a larger learning_rate.start, less entropy, or other rewards"
        )
    return complaints
