"""What training starts from: a new network, a rule that is written down, or the weights of a model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from gpuyard.errors import InputError, setting
from gpuyard.learn.config import RuleSection, TrainConfig
from gpuyard.learn.networks.heads import SchedulingNetwork, make_network
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
                f"a network that is or starts from a rule needs one: {setting('init_from')} and a run of "
                f"train search, or first weights by column, such as {setting('rule.score.area', -1.0)} (the "
                "smallest area first)"
            )
        rule = None if config.rule is None else rule_tensors(config.rule, model)
        return make_network(config.network, sizes, seed=seed, rule=rule)
    first = read_model(start or find_model(config.init_from))
    tensors = {name: torch.from_numpy(array.copy()) for name, array in first.tensors.items()}
    if first.network.kind == "rule":
        if not _needs_rule(config.network):
            residual = setting("network.residual", "rule")
            raise InputError(f"{config.init_from} holds a rule; start from it with {residual}")
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
        raise InputError(
            f"{source}: the rule goes by columns of {part} that the environment does not show: "
            f"{', '.join(lost)}; name them too in {_features(part)}, or leave that out"
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
            f"{_features(part)} as it was trained, on as many pools of GPUs"
        )
    there_form, here_form = start.environment.lookahead, model.config.lookahead
    if "lookahead" in parts["globals"] and there_form != here_form:
        raise InputError(
            f"{source} does not fit the environment: its lookahead is {there_form} and not {here_form}; set "
            f"{setting('environment.lookahead', there_form)}"
        )


def _features(part: str) -> str:
    """The setting that chooses the columns of a part."""
    return setting(f"environment.{part.rstrip('s')}_features")


def _differing(there: Counter[str], here: Counter[str]) -> str:
    if there == here:
        return "the same ones in another order"
    lists = [
        ", ".join(f"{name} x{count}" if count > 1 else name for name, count in some.items()) or "none"
        for some in (there - here, here - there)
    ]
    return f"only there: {lists[0]}; only here: {lists[1]}"


def load_weights(network: torch.nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Set a network's weights.

    Raises:
        InputError: naming the first tensor that is missing, too many or of another shape.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(wanted.keys() | given.keys()):
        if wanted.get(name) != given.get(name):
            raise InputError(
                f"{source} does not fit the network: tensor {name} has shape {given.get(name)}, the network "
                f"asks for {wanted.get(name)}; network and environment must be those it was trained with"
            )
    network.load_state_dict(dict(tensors))
