"""Every network in every environment it is made for, with observations and weights by chance."""

from functools import cache
from itertools import product
from typing import Any, get_args

import torch
from torch import Tensor

from gpuyard.errors import InputError
from gpuyard.learn.networks.heads import SchedulingNetwork, make_network
from gpuyard.network.config import RULE_KINDS, NetworkConfig, NetworkKind, Residual
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import HOST_KINDS, check_suits
from support.small_environments import KIND_NAMES, single

Case = tuple[NetworkConfig, NetworkSizes]
ROW_KINDS = ("job-scorer", "cross-attention", *RULE_KINDS)
"""Networks in which a row's logit does not depend on its place."""


@cache
def sizes_of(kind: str, **features: tuple[str, ...]) -> NetworkSizes:
    """Of a small environment with 2 pools, 3 nodes and a window of 4 jobs."""
    return NetworkSizes.of(single(kind, **features).model)


def suits(config: NetworkConfig, sizes: NetworkSizes) -> bool:
    try:
        check_suits(config, sizes)
    except InputError:
        return False
    return True


@cache
def cases() -> list[Case]:
    """All kinds of networks, environments and residuals, each also with settings beside the defaults."""
    found: list[Case] = []
    for kind, residual, environment in product(get_args(NetworkKind), get_args(Residual), KIND_NAMES):
        for more in (
            {"width": 8, "depth": 2},
            {"width": 12, "depth": 3, "heads": 3},
            {"width": 8, "depth": 1},
        ):
            if residual != "none" and (kind in RULE_KINDS or more["depth"] == 1):
                continue
            config = NetworkConfig(kind=kind, residual=residual, **more)
            if suits(config, sizes_of(environment)):
                found.append((config, sizes_of(environment)))
    return found


def without_telling_columns() -> list[Case]:
    """Networks whose observations lack ``present`` and, for the second of each, all globals."""
    features = {"job_features": ("wait", "gpus", "base_choice"), "node_features": ("gpu_use", "count")}
    few = [sizes_of(kind, **features) for kind in KIND_NAMES]
    none = [sizes_of(kind, **features, global_features=()) for kind in KIND_NAMES]
    configs = [NetworkConfig(kind=kind, width=8) for kind in get_args(NetworkKind)]
    return [(config, sizes) for sizes in few + none for config in configs if suits(config, sizes)]


def all_cases() -> list[Case]:
    """Both."""
    return cases() + without_telling_columns()


def name_of(case: Case) -> str:
    config, sizes = case
    return (
        f"{config.kind}-{config.width}x{config.depth}-{config.residual}-{sizes.kind}-{sizes.global_columns}"
    )


def observation_of(
    sizes: NetworkSizes, batch: int = 16, seed: int = 0, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """Numbers of the right form: absent rows are zeros and illegal, one action at least is legal.

    In the first state nothing is present and nothing runs; in the second all rows are.
    """
    draw = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=draw, dtype=dtype)

    jobs_there = some(batch, sizes.rows) < 0.7
    nodes_there = some(batch, sizes.tokens) < 0.7
    jobs_there[0], nodes_there[0], jobs_there[1], nodes_there[1] = False, False, True, True
    if sizes.kind in HOST_KINDS:
        jobs_there[:, 0] = True
        nodes_there[1:, 0] = True
    jobs = some(batch, sizes.rows, sizes.job_columns)
    nodes = some(batch, sizes.tokens, sizes.node_columns)
    overall = some(batch, sizes.global_columns)
    mask = _legal_by_chance(sizes, jobs_there, nodes_there, some)
    _mark_base_choices(sizes, jobs, nodes, overall, mask, jobs_there)
    for rows, there, column in (
        (jobs, jobs_there, sizes.job_present),
        (nodes, nodes_there, sizes.node_present),
    ):
        if column >= 0:
            rows[:, :, column] = 1
        rows.mul_(there[:, :, None])
    if sizes.running >= 0:
        overall[0, sizes.running] = 0
    return {"jobs": jobs, "nodes": nodes, "globals": overall, "mask": mask.to(torch.int8)}


def _legal_by_chance(sizes: NetworkSizes, jobs_there: Tensor, nodes_there: Tensor, some: Any) -> Tensor:
    mask = some(len(jobs_there), sizes.actions) < 0.6
    if sizes.kind in HOST_KINDS:
        mask &= nodes_there
        mask[:, 0] |= ~mask.any(1)
    elif sizes.kind == "accept-or-skip":
        mask[:, 1] &= jobs_there.any(1)
        mask[:, 0] |= ~mask[:, 1]
    else:
        mask[:, :-1] &= jobs_there.repeat_interleave(sizes.choices_per_row, 1)
        mask[:, -1] |= ~mask.any(1)
    return mask


def _mark_base_choices(
    sizes: NetworkSizes, jobs: Tensor, nodes: Tensor, overall: Tensor, mask: Tensor, jobs_there: Tensor
) -> None:
    """Have the base policy choose the first legal action, or wait if that is the no-op."""
    first = mask.to(torch.int8).argmax(1)
    states = torch.arange(len(mask))
    if sizes.kind in HOST_KINDS:
        row, pool, waits = torch.zeros_like(first), torch.zeros_like(first), torch.zeros_like(mask[:, 0])
        if sizes.node_base_choice >= 0:
            nodes[:, :, sizes.node_base_choice] = 0
            nodes[states, first, sizes.node_base_choice] = 1
    elif sizes.kind == "accept-or-skip":
        row, pool, waits = jobs_there.to(torch.int8).argmax(1), torch.zeros_like(first), ~mask[:, 1]
    else:
        row, pool = first // sizes.choices_per_row, first % sizes.choices_per_row
        waits = first == sizes.actions - 1
    if sizes.job_base_choice >= 0:
        jobs[:, :, sizes.job_base_choice] = 0
        jobs[states[~waits], row[~waits], sizes.job_base_choice] = 1
    if sizes.base_pool >= 0:
        overall[:, sizes.base_pool : sizes.base_pool + sizes.pools] = 0
        overall[states[~waits], sizes.base_pool + pool[~waits]] = 1
    if sizes.base_waits >= 0:
        overall[:, sizes.base_waits] = waits.to(overall.dtype)


def trained_by_chance(case: Case, seed: int = 0, dtype: torch.dtype = torch.float32) -> SchedulingNetwork:
    """A network whose tensors, biases and frozen ones included, are about as large as after training."""
    network = make_network(*case).to(dtype)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            scale = tensor.shape[-1] ** -0.5 if tensor.ndim > 1 else 0.1
            middle = 1.0 if name.startswith("norm") and name.endswith("weight") else 0.0
            tensor.copy_(middle + scale * torch.randn(tensor.shape, generator=draw, dtype=torch.float64))
    return network
