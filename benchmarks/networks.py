"""Width and depth of networks against their speed, to choose by before training.

States are those of 64 waiting jobs and 64 nodes with all columns. One thread, batches of 256, memory kept by
the process as the trainer keeps it; the best of the rounds counts. "Trained" is forward and backward of a
policy's and a value's loss, which is what most of a training run's time goes to.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from gpuyard.learn.process.launch import MALLOC
from gpuyard.registry import register
from harness import BenchResult, measure_apart

BATCH = 256
ROUNDS = 3
SECONDS = 0.12
"""Of a round."""
SHAPES = ((16, 1), (16, 2), (32, 2), (64, 1), (64, 2), (64, 3), (128, 2), (256, 2))
"""Widths and depths; the first is the peer of the others."""
KINDS = {
    "mlp": ("select-job", SHAPES),
    "job-scorer": ("select-job", SHAPES),
    "cross-attention": ("select-job", SHAPES),
    "host-attention": ("select-host", tuple((width, 2) for width in (16, 32, 64, 128, 256))),
}


@register("benchmark", "networks")
def networks() -> Iterator[BenchResult]:
    """Width and depth of every kind of network against its speed, alone and with gradients."""
    for kind, (_, shapes) in KINDS.items():
        rates = measure_apart(__file__, kind)
        smallest = "{}x{}".format(*shapes[0])
        for name, rate in rates.items():
            peer = rates[f"{smallest} {name.split()[1]}"]
            yield BenchResult(f"{kind} {name}", rate, "states/s", smallest, peer)


def measure(kind: str) -> dict[str, float]:
    import torch

    from gpuyard.learn.networks.heads import make_network, masked_logits
    from gpuyard.network.config import NetworkConfig

    torch.set_num_threads(1)
    environment, shapes = KINDS[kind]
    sizes, observation = make_states(environment)
    chosen = observation["mask"].argmax(1, keepdim=True)
    rates = {}
    for width, depth in shapes:
        config = NetworkConfig.model_validate({"kind": kind, "width": width, "depth": depth})
        network = make_network(config, sizes, seed=0)

        def decide(network: Any = network) -> None:
            with torch.no_grad():
                network(observation)

        def train(network: Any = network) -> None:
            network.zero_grad(set_to_none=True)
            logits, value = network(observation)
            likely = masked_logits(logits, observation["mask"]).log_softmax(1).gather(1, chosen)
            (likely.mean() + value.square().mean()).backward()

        rates[f"{width}x{depth} forward"] = rate(decide)
        rates[f"{width}x{depth} trained"] = rate(train)
    return rates


def make_states(environment: str) -> tuple[Any, Any]:
    """Sizes of an environment, and states of numbers by chance in which everything is present."""
    import torch

    from gpuyard.network.sizes import NetworkSizes

    actions = {"select-job": 65, "select-host": 64}[environment]
    sizes = NetworkSizes(
        environment, 64, 21, 64, 11, 77, 1, actions, job_present=0, node_present=0, running=6
    )
    draw = torch.Generator().manual_seed(0)
    jobs, nodes = torch.rand(BATCH, 64, 21, generator=draw), torch.rand(BATCH, 64, 11, generator=draw)
    jobs[:, :, 0] = nodes[:, :, 0] = 1
    mask = (torch.rand(BATCH, actions, generator=draw) < 0.5).to(torch.int8)
    mask[:, -1] = 1
    overall = torch.rand(BATCH, 77, generator=draw)
    return sizes, {"jobs": jobs, "nodes": nodes, "globals": overall, "mask": mask}


def rate(step: Callable[[], None]) -> float:
    """States a second."""
    step()
    best = 0.0
    for _ in range(ROUNDS):
        steps, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < SECONDS or steps == 0:
            step()
            steps += 1
        best = max(best, steps * BATCH / elapsed)
    return best


if __name__ == "__main__":
    if not MALLOC.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | MALLOC)
    print(json.dumps(measure(sys.argv[1])))
