"""``gpuyard train --check``: can this network learn this task at all, and are masks and gradients in order?

One window is trained on again and again. A network that cannot even learn one window by heart has a mistake
in its settings, its reward or its inputs; better to know that before a long run.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.learn.algorithm import NotFiniteError
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.learner import Learner, make_learner, to_tensors
from gpuyard.learn.memory.collector import Collector
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.networks.heads import SchedulingNetwork, masked_logits
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.learn.start import make_policy_network

ENVS = 16
CHECK_S = 40.0
"""Time to learn the window by heart."""
CLEAR = 2.0
"""Standard errors by which the return must have changed not to be chance."""

Verdict = Literal["learns", "did not move", "broken"]


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
        change_error: Standard error of the difference between the two.
        base_return: What the base policy reaches on the window.
        episodes: How many were played.
        seconds: How long it took.
        legal_share: Share of actions that were legal, on average.
        illegal_probability: Largest probability that an illegal action had.
        illegal_gradient: Largest gradient at the logit of an illegal action.
        unused_columns: Columns of observations that were the same in every state seen.
        gradients: By tensor.
        not_finite: Names of tensors with a number that is not finite.
        stopped_by: What ended training before its time, if something did.
    """

    first_return: float
    last_return: float
    change_error: float
    base_return: float
    episodes: int
    seconds: float
    legal_share: float
    illegal_probability: float
    illegal_gradient: float
    unused_columns: list[str]
    gradients: list[GradientReport]
    not_finite: list[str]
    stopped_by: str = ""

    @property
    def verdict(self) -> Verdict:
        """Broken if masks, gradients or numbers are wrong or the return fell, else whether it rose."""
        if _complaints(self):
            return "broken"
        return "learns" if self.rose > self.least_change else "did not move"

    @property
    def rose(self) -> float:
        """By how much the return is higher at last than at first."""
        return self.last_return - self.first_return

    @property
    def least_change(self) -> float:
        """A change of the return that is not chance."""
        return max(CLEAR * self.change_error, 1e-6 * max(abs(self.first_return), abs(self.last_return)))

    @property
    def passed(self) -> bool:
        """Whether it learns."""
        return self.verdict == "learns"

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"verdict": self.verdict, "passed": self.passed, **asdict(self)}


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

    stopped_by = ""
    try:
        while time.monotonic() - began < seconds or not (first_gradients and returns):
            _one_step(learner, collector, step, note)
            step += ENVS
            if len(states) < 64:
                states.append(collector.observation)
            returns += collector.finished.pop("return", [])
            collector.finished.clear()
    except NotFiniteError as error:
        stopped_by = str(error)
    first, last, change_error = _ends(returns)
    probability, gradient, legal = _mask_report(network, states[-1])
    return CheckResult(
        first_return=first,
        last_return=last,
        change_error=change_error,
        base_return=base,
        episodes=len(returns),
        seconds=time.monotonic() - began,
        legal_share=legal,
        illegal_probability=probability,
        illegal_gradient=gradient,
        unused_columns=_constant_columns(env, states),
        gradients=_gradients(network, first_gradients),
        not_finite=[n for n, t in network.state_dict().items() if not torch.isfinite(t).all()],
        stopped_by=stopped_by,
    )


def _ends(returns: Sequence[float]) -> tuple[float, float, float]:
    """Mean returns of the first and the last episodes, and the standard error of their difference."""
    if not returns:
        return float("nan"), float("nan"), float("nan")
    count = max(1, min(len(returns) // 2, max(ENVS, len(returns) // 10)))
    first, last = np.array(returns[:count]), np.array(returns[-count:])
    error = np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / count) if count > 1 else 0.0
    return float(first.mean()), float(last.mean()), float(error)


def _gradients(network: SchedulingNetwork, first: dict[str, float]) -> list[GradientReport]:
    return [
        GradientReport(name, parameter.numel(), float(parameter.detach().norm()), first.get(name))
        for name, parameter in network.named_parameters()
    ]


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
    lines = [
        f"One window, {result.episodes} episodes in {result.seconds:.0f} s: return {result.first_return:.4g} "
        f"at first, {result.last_return:.4g} at last ({result.rose:+.4g}; by chance up to "
        f"{result.least_change:.2g}); the base policy reaches {result.base_return:.4g}.",
        f"Masks: {100 * result.legal_share:.0f} % of actions legal; an illegal one has probability "
        f"{result.illegal_probability:g} and gradient {result.illegal_gradient:g}.",
    ]
    if result.unused_columns:
        lines.append(f"The same in every state seen: {', '.join(result.unused_columns)}.")
    lines += ["", f"{'tensor':<28}{'numbers':>9}{'weights':>11}{'gradient':>12}"]
    for one in result.gradients:
        gradient = "none" if one.gradient_norm is None else f"{one.gradient_norm:.3g}"
        lines.append(f"{one.name:<28}{one.size:>9,}{one.weight_norm:>11.3g}{gradient:>12}")
    return "\n".join([*lines, "", _conclusion(result)])


def _conclusion(result: CheckResult) -> str:
    if result.verdict == "broken":
        return "Broken: " + "; ".join(_complaints(result)) + "."
    if result.verdict == "learns":
        return "It learns: the return rose, and masks and gradients are in order."
    return (
        "Did not move: masks and gradients are in order, but the return did not rise. Either what it starts "
        "from is the best there is for this window, or it learns too slowly: try a larger "
        "learning_rate.start, a smaller network.strength, or other rewards."
    )


def _complaints(result: CheckResult) -> list[str]:
    complaints = []
    if result.stopped_by or result.not_finite:
        what = result.stopped_by or f"not finite: {', '.join(result.not_finite)}"
        complaints.append(f"{what} (a smaller learning_rate.start)")
    if result.illegal_probability or result.illegal_gradient:
        complaints.append("illegal actions are not masked by this network")
    if not any(g.gradient_norm for g in result.gradients):
        complaints.append("no gradient arrives")
    if result.rose < -result.least_change and result.last_return < result.base_return:
        complaints.append(
            "the return fell: try a smaller learning_rate.start, less entropy, or other rewards"
        )
    return complaints
