"""The native forward pass against plain numpy, and its kernels against each other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.network.config import RULE_KINDS, NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import expected_tensors
from reference.networks import ReferenceNetwork

JOBS = NetworkSizes(
    kind="select-job",
    rows=13,
    job_columns=7,
    tokens=21,
    node_columns=5,
    global_columns=9,
    pools=2,
    actions=14,
    job_present=0,
    job_base_choice=3,
    node_present=0,
    node_base_choice=4,
    base_pool=2,
    base_waits=5,
    running=6,
)
SIZES = {
    "select-job": JOBS,
    "select-job-and-pool": replace(JOBS, kind="select-job-and-pool", actions=27),
    "accept-or-skip": replace(JOBS, kind="accept-or-skip", actions=2),
    "select-host": replace(JOBS, kind="select-host", actions=21),
    "rank-hosts": replace(JOBS, kind="rank-hosts", actions=21),
    "no present, no globals": replace(
        JOBS, global_columns=0, job_present=-1, node_present=-1, base_waits=-1, running=-1, base_pool=-1
    ),
}
KINDS = {
    "select-job": ("mlp", "job-scorer", "cross-attention", "rule", "state-rule"),
    "no present, no globals": ("mlp", "job-scorer", "cross-attention", "rule"),
    "select-job-and-pool": ("mlp", "job-scorer", "cross-attention"),
    "accept-or-skip": ("mlp", "job-scorer", "cross-attention"),
    "select-host": ("mlp", "host-attention"),
    "rank-hosts": ("mlp", "host-attention"),
}


def _cases() -> list[Any]:
    cases = []
    for sizes, kinds in KINDS.items():
        for kind in kinds:
            for width, depth, heads in ((24, 2, 1), (40, 3, 4), (16, 1, 2)):
                residuals = ["none"] if kind in RULE_KINDS else ["none", "base", "rule"]
                if sizes != "select-job" and "rule" in residuals:
                    residuals = ["none"] if sizes.startswith("no ") else ["none", "base"]
                cases += [
                    pytest.param(
                        sizes,
                        NetworkConfig(kind=kind, width=width, depth=depth, heads=heads, residual=r),
                        id=f"{sizes}-{kind}-{width}-{r}",
                    )
                    for r in residuals
                ]
    return cases


def make_tensors(config: NetworkConfig, sizes: NetworkSizes, seed: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    shapes = expected_tensors(config, sizes)
    return {
        name: (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in shapes.items()
    }


def make_input(sizes: NetworkSizes, seed: int) -> tuple[NDArray[Any], ...]:
    """Rows that are there stand anywhere; what is in the others must not matter."""
    rng = np.random.default_rng(seed)
    shares = ((0.0, 0.0), (1.0, 1.0), (0.5, 0.7), (0.5, 0.0), (0.0, 0.7), (0.1, 0.05))[seed % 6]
    parts = []
    for rows, columns, present, choice, share in (
        (sizes.rows, sizes.job_columns, sizes.job_present, sizes.job_base_choice, shares[0]),
        (sizes.tokens, sizes.node_columns, sizes.node_present, sizes.node_base_choice, shares[1]),
    ):
        part = rng.uniform(-1, 1, (rows, columns)).astype(np.float32)
        there = rng.random(rows) < share
        part[:, choice] = 0
        if there.any():
            part[rng.choice(np.flatnonzero(there)), choice] = 1
        if present >= 0:
            part[:, present] = there
        else:
            part[~there] = 0
        parts.append(part)
    overall = rng.uniform(0, 1, sizes.global_columns).astype(np.float32)
    if sizes.running >= 0 and seed % 2:
        overall[sizes.running] = 0
    mask = (rng.random(sizes.actions) < 0.6).astype(np.int8)
    jobs_there = (parts[0] != 0).any(1) if sizes.job_present < 0 else parts[0][:, sizes.job_present] != 0
    nodes_there = (parts[1] != 0).any(1) if sizes.node_present < 0 else parts[1][:, sizes.node_present] != 0
    if sizes.kind.startswith("select-job"):
        mask[:-1] &= np.repeat(jobs_there, sizes.choices_per_row).astype(np.int8)
        mask[-1] |= not mask.any()
    elif sizes.kind != "accept-or-skip":
        mask &= nodes_there.astype(np.int8)
    return (*parts, overall, mask)


@pytest.mark.parametrize(("sizes_name", "config"), _cases())
def test_native_networks_give_what_the_definition_says(sizes_name: str, config: NetworkConfig) -> None:
    sizes = SIZES[sizes_name]
    for seed in range(12):
        tensors = make_tensors(config, sizes, seed)
        state = make_input(sizes, seed)
        network = _core.Network(config.model_dump(), sizes.to_json(), tensors)
        logits, value = network.forward(*state)
        expected, expected_value = ReferenceNetwork(config, sizes, tensors).forward(*state)
        legal = state[3] != 0
        np.testing.assert_allclose(logits[legal], expected[legal], rtol=1e-5, atol=1e-5)
        assert value == pytest.approx(expected_value, rel=1e-5, abs=1e-5)
        chosen = network.choose(*state)
        if not legal.any():
            assert chosen == -1
            continue
        best = np.flatnonzero(legal)[np.argsort(-expected[legal], kind="stable")]
        if len(best) < 2 or expected[best[0]] - expected[best[1]] >= 1e-4:
            assert chosen == best[0]


@pytest.mark.parametrize(("sizes_name", "config"), _cases())
def test_all_kernels_give_the_same_bits(sizes_name: str, config: NetworkConfig) -> None:
    sizes = SIZES[sizes_name]
    for seed in range(6):
        tensors = make_tensors(config, sizes, seed)
        state = make_input(sizes, seed)
        results = []
        for kernels in _core.testing.NETWORK_KERNELS:
            logits, value = _core.Network(config.model_dump(), sizes.to_json(), tensors, kernels).forward(
                *state
            )
            results.append(logits.tobytes() + np.float32(value).tobytes())
        assert len(set(results)) == 1


def test_portable_kernels_are_always_there() -> None:
    assert _core.testing.NETWORK_KERNELS[-1] == "portable"
    with pytest.raises(ValueError, match="no kernels abacus"):
        _core.Network(
            NetworkConfig().model_dump(), JOBS.to_json(), make_tensors(NetworkConfig(), JOBS, 0), "abacus"
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("context.bias"), "tensor context.bias is missing"),
        (
            lambda tensors: tensors.update({"noop.weight": np.zeros((1, 31), np.float32)}),
            r"noop.weight has shape \[1, 31\]; expected \[1, 32\]",
        ),
        (lambda tensors: tensors["value.bias"].fill(np.nan), "value.bias holds numbers that are not finite"),
    ],
)
def test_wrong_tensors_are_refused(change: Any, message: str) -> None:
    config = NetworkConfig()
    tensors = make_tensors(config, JOBS, 0)
    change(tensors)
    with pytest.raises(ValueError, match=message):
        _core.Network(config.model_dump(), JOBS.to_json(), tensors)


def test_inputs_of_another_size_are_refused() -> None:
    config = NetworkConfig()
    network = _core.Network(config.model_dump(), JOBS.to_json(), make_tensors(config, JOBS, 0))
    jobs, nodes, overall, mask = make_input(JOBS, 1)
    with pytest.raises(ValueError, match="mask has 13 entries; expected 14"):
        network.forward(jobs, nodes, overall, mask[:-1])
    with pytest.raises(ValueError, match="nodes has 100 entries; expected 105"):
        network.forward(jobs, nodes[:-1], overall, mask)
