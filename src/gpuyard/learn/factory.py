"""Networks, algorithms and models from the settings of a run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.learn.clone import Clone, CloneConfig
from gpuyard.learn.config import RuleSection, TrainConfig
from gpuyard.learn.learner import Learner, Setup
from gpuyard.learn.networks.heads import SchedulingNetwork, make_network
from gpuyard.learn.process.checkpoint import load_weights
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.learn.process.validation import Judgement
from gpuyard.learn.rates import Schedule
from gpuyard.network.config import RULE_KINDS, NetworkConfig
from gpuyard.network.model_file import ModelFile, find_model, read_model
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import expected_tensors
from gpuyard.observation.spec import EnvModel, column_names
from gpuyard.registry import suggest

READS_NODES = frozenset({"mlp", "cross-attention", "host-attention"})
"""Networks that read the columns of nodes; all read those of jobs and globals."""


def make_policy_network(config: TrainConfig, model: EnvModel, start: Path | None = None) -> SchedulingNetwork:
    """The network that training starts with, the same in every process.

    Args:
        config: Of the run.
        model: The environment.
        start: The file to start from if that is not ``config.init_from`` itself but a copy of it.

    Raises:
        InputError: if the model to start from is of another network or environment.
    """
    sizes = NetworkSizes.of(model)
    seed = config.training.seed
    if config.init_from is None:
        if _needs_rule(config.network) and config.rule is None:
            raise InputError(
                "a network that is or starts from a rule needs one: --init-from and a run of train search, "
                "or first weights by column, such as --rule.score.area -1.0 (the smallest area first)"
            )
        rule = None if config.rule is None else rule_tensors(config.rule, model)
        return make_network(config.network, sizes, seed=seed, rule=rule)
    first = read_model(start or find_model(config.init_from))
    tensors = {name: torch.from_numpy(array.copy()) for name, array in first.tensors.items()}
    if first.network.kind == "rule":
        if not _needs_rule(config.network):
            raise InputError(f"{config.init_from} holds a rule; start from it with network.residual = 'rule'")
        rule = rule_for_columns(first, model, config.init_from)
        return make_network(config.network, sizes, seed=seed, rule=rule)
    check_network(first, config.network, sizes, config.init_from)
    check_columns(first, model, config.network, config.init_from)
    network = make_network(config.network, sizes, seed=seed, rule=_rule_of(tensors))
    load_weights(network, tensors, config.init_from)
    return network


def _needs_rule(network: NetworkConfig) -> bool:
    """Whether it is a rule or starts from one."""
    return network.kind in RULE_KINDS or network.residual == "rule"


def rule_for_columns(first: ModelFile, model: EnvModel, source: str) -> dict[str, Tensor]:
    """The weights of a rule for the columns of another environment, by name; new columns have none.

    Args:
        first: The rule.
        model: The environment.
        source: What to call the rule in messages.

    Raises:
        InputError: if the environment lacks a column that the rule goes by.
    """
    if first.sizes.kind != model.kind:
        raise InputError(f"{source} was made for {first.sizes.kind}, but the environment is {model.kind}")
    there = column_names(first.environment, first.cluster, first.sizes.pools)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in first.tensors.items()}
    for name, part in (("score", "jobs"), ("gate_jobs", "jobs"), ("gate_globals", "globals")):
        weights = tensors.pop(f"{name}.weight", torch.zeros(1, 0))
        here = model.parts[part].names
        if here:
            moved = _moved_weights(weights[0].tolist(), there[part], here, part, source)
            tensors[f"{name}.weight"] = torch.tensor([moved])
        elif weights.any():
            raise InputError(f"{source} goes by columns of {part}, but the environment has none")
    return tensors


def _moved_weights(
    weights: Sequence[float], there: Sequence[str], here: Sequence[str], part: str, source: str
) -> list[float]:
    """Weights of columns in another order; the first of several columns of one name is the first again."""
    left: dict[str, list[float]] = {}
    for name, weight in zip(there, weights, strict=True):
        left.setdefault(name, []).append(weight)
    moved = [left[name].pop(0) if left.get(name) else 0.0 for name in here]
    lost = [name for name, unused in left.items() if any(unused)]
    if lost:
        features = part.rstrip("s") + "_features"
        raise InputError(
            f"{source}: the rule goes by columns of {part} that the environment does not show: "
            f"{', '.join(lost)}; name them too in --environment.{features}, or leave that out"
        )
    return moved


def rule_tensors(rule: RuleSection, model: EnvModel) -> dict[str, Tensor]:
    """A rule that is written down, as a network's tensors.

    Raises:
        InputError: for a column that the environment does not have.
    """
    jobs, overall = (list(model.parts[part].names) for part in ("jobs", "globals"))
    score, gate = torch.zeros(1, len(jobs)), torch.zeros(1, len(jobs))
    of_globals = torch.zeros(1, len(overall))
    for name, weight in rule.score.items():
        score[0, _column(name, jobs, "rule.score")] = weight
    for name, weight in rule.gate.items():
        if name.startswith("globals."):
            of_globals[0, _column(name.removeprefix("globals."), overall, "rule.gate")] = weight
        else:
            gate[0, _column(name, jobs, "rule.gate")] = weight
    tensors = {"score.weight": score, "gate_jobs.weight": gate, "gate_jobs.bias": torch.tensor([rule.bias])}
    return tensors | ({"gate_globals.weight": of_globals} if overall else {})


def _column(name: str, names: list[str], where: str) -> int:
    if name not in names:
        raise InputError(f"{where}: there is no column {name!r}{suggest(name, dict.fromkeys(names))}")
    return names.index(name)


def _rule_of(tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
    return {n.removeprefix("rule."): t for n, t in tensors.items() if n.startswith("rule.")} or None


def check_network(start: ModelFile, network: NetworkConfig, sizes: NetworkSizes, source: str) -> None:
    """Raise an InputError if weights were made for another network than this, naming what differs."""
    shapes = {name: array.shape for name, array in start.tensors.items()}
    if shapes == expected_tensors(network, sizes):
        return
    for name in ("kind", "width", "depth", "residual"):
        there, here = getattr(start.network, name), getattr(network, name)
        if there != here:
            raise InputError(
                f"{source} does not fit the network: network.{name} is {there} there and {here} here; leave "
                f"network.{name} out, or start from a model whose {name} is {here}"
            )
    for name in ("kind", "rows", "job_columns", "node_columns", "global_columns", "actions"):
        there, here = getattr(start.sizes, name), getattr(sizes, name)
        if there != here:
            raise InputError(
                f"{source} does not fit the environment: {name.replace('_', ' ')} {there} there and {here} "
                "here; train on the cluster and with the settings it was made for"
            )


def check_columns(start: ModelFile, model: EnvModel, network: NetworkConfig, source: str) -> None:
    """Raise an InputError if weights were made for other columns than these, or for another order of them.

    Columns that the network does not read may differ.
    """
    parts = column_names(start.environment, start.cluster, start.sizes.pools)
    for part, there in parts.items():
        here = model.parts[part].names
        if there == here or (part == "nodes" and network.kind not in READS_NODES):
            continue
        differ = _differing(Counter(there), Counter(here))
        raise InputError(
            f"{source} does not fit the environment: its columns of {part} are others ({differ}); set "
            f"--environment.{part.rstrip('s')}_features as it was trained, on as many pools of GPUs"
        )
    there_form, here_form = start.environment.lookahead, model.config.lookahead
    if "lookahead" in parts["globals"] and there_form != here_form:
        raise InputError(
            f"{source} does not fit the environment: its lookahead is {there_form} and not {here_form}; set "
            f"--environment.lookahead {there_form}"
        )


def _differing(there: Counter[str], here: Counter[str]) -> str:
    if there == here:
        return "the same ones in another order"
    lists = [
        ", ".join(f"{name} x{count}" if count > 1 else name for name, count in some.items()) or "none"
        for some in (there - here, here - there)
    ]
    return f"only there: {lists[0]}; only here: {lists[1]}"


def make_learner(
    config: TrainConfig, phase: int, network: SchedulingNetwork, env: SchedulingVectorEnv, group: ProcessGroup
) -> Learner:
    """The algorithm; in a run with a warm start, phase 0 imitates first."""
    seeds = np.random.SeedSequence([config.training.seed, 2, phase, group.rank])
    device = torch.device(config.training.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("training.device cuda: torch finds no GPU here; use cpu")
    network.to(device)
    warm = config.warm_start if phase == 0 else None
    setup = Setup(
        sizes=NetworkSizes.of(env.model),
        envs=env.num_envs,
        total_steps=warm.steps if warm else config.training.steps,
        learning_rate=Schedule(schedule="cosine", start=1e-3, end=1e-4) if warm else config.learning_rate,
        seed=int(seeds.generate_state(1, np.uint64)[0] >> np.uint64(1)),
        device=device,
        accumulate=config.training.accumulate,
        group=group,
    )
    if warm:
        return _clone(network, CloneConfig(policy=warm.policy), setup, env)
    settings: Any = config.settings
    if config.algorithm == "clone":
        return _clone(network, settings, setup, env)
    if config.algorithm == "ppo":
        from gpuyard.learn.ppo import PPO

        return PPO(network, settings, setup)
    if config.algorithm == "d3qn":
        from gpuyard.learn.d3qn import D3QN

        return D3QN(network, settings, setup)
    from gpuyard.learn.sac import SAC

    return SAC(network, settings, setup)


def _clone(network: SchedulingNetwork, config: CloneConfig, setup: Setup, env: SchedulingVectorEnv) -> Clone:
    return Clone(network, config, setup, lambda: env.expert_actions(config.policy))


def model_of(
    config: TrainConfig, model: EnvModel, network: SchedulingNetwork, step: int, judgement: Judgement
) -> ModelFile:
    """The network as a model, with what it was trained on and what it reached."""
    tensors = {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items()}
    return model_of_weights(config, model, tensors, step, judgement)


def model_of_weights(
    config: TrainConfig,
    model: EnvModel,
    tensors: Mapping[str, NDArray[np.float32]],
    step: int,
    judgement: Judgement,
) -> ModelFile:
    """The same of weights as arrays."""
    training = {
        "algorithm": config.algorithm,
        "steps": step,
        "seed": config.training.seed,
        "environment": config.to_document()["environment"],
        "validation": {"score": judgement.score, **judgement.values},
    }
    return ModelFile.of(model, config.network, tensors, training)
