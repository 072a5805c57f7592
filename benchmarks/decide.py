"""How long a learned policy takes for one decision, beside torch, and for a workload of 10,000 jobs.

A decision is to observe, to compute the network and to choose, one state at a time and natively. In the
states that count, the window of 64 jobs is full, on 64 nodes of 8 GPUs with all columns. torch computes and
chooses on such a state in the same process, with one thread and without observing. Kinds take turns; the best
of the rounds counts on either side.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from gpuyard.registry import register
from harness import BenchResult, measure_apart

ROUNDS = 3
WINDOW = 64
DECISIONS = 4_000
REPLAYED = 10_000
REPLAY_LIMIT_S = 3.0
KINDS: dict[str, tuple[dict[str, Any], float]] = {
    "job-scorer": ({"kind": "job-scorer", "width": 32}, 15.0),
    "cross-attention": ({"kind": "cross-attention", "width": 64, "depth": 1}, 80.0),
}
"""Networks, and the microseconds that half of their decisions may take at most."""


@register("benchmark", "decide")
def decisions() -> Iterator[BenchResult]:
    """Microseconds a decision of learned policies, natively and by torch; a replay of 10,000 jobs."""
    rounds = [{kind: measure_apart(__file__, kind) for kind in KINDS} for _ in range(ROUNDS)]
    for kind, (_, limit_us) in KINDS.items():
        best = {name: min(figures[kind][name] for figures in rounds) for name in rounds[0][kind]}
        width = KINDS[kind][0]["width"]
        name = f"decide {kind}, width {width}"
        yield _limited(f"{name}, p50", best["p50_us"], "us", limit_us)
        yield BenchResult(f"{name}, p50", best["p50_us"], "us", "torch, the network alone", best["torch_us"])
        yield BenchResult(f"{name}, p99", best["p99_us"], "us", "its own p50", best["p50_us"])
        yield BenchResult(f"{name}, simulator's step", best["step_us"], "us", "its own p50", best["p50_us"])
    replay_s = min(measure_apart(__file__, "replay")["replay_s"] for _ in range(ROUNDS))
    yield _limited("replay 10,000 jobs, job-scorer", replay_s, "s", REPLAY_LIMIT_S)


def _limited(name: str, value: float, unit: str, limit: float) -> BenchResult:
    return BenchResult(name, value, unit, f"the limit of {limit:g} {unit}", limit, 1.0, lower_is_better=True)


def make_environment(jobs: int, *, at_once: bool) -> Any:
    """An environment on 64 x 8 GPUs whose one episode are these jobs."""
    from gpuyard.env import SchedulingVectorEnv
    from gpuyard.workload import SynthConfig, synthesize
    from gpuyard.workload.generators.shapes import AllAtOnce, Poisson

    arrivals = AllAtOnce() if at_once else Poisson()
    workload = synthesize(SynthConfig(jobs=jobs, cluster_gpus=512, load=1.0, arrivals=arrivals))
    return SchedulingVectorEnv(
        "select-job", 1, workload=workload, cluster="64x8", jobs_per_episode=jobs, window=WINDOW, threads=1
    )


def measure(kind: str) -> dict[str, float]:
    import numpy as np
    import torch

    from gpuyard import _core
    from gpuyard.learn.networks.heads import make_network
    from gpuyard.network.config import NetworkConfig
    from gpuyard.network.rollout import native_network
    from gpuyard.network.sizes import NetworkSizes

    torch.set_num_threads(1)
    env = make_environment(DECISIONS, at_once=True)
    config, sizes = NetworkConfig.model_validate(KINDS[kind][0]), NetworkSizes.of(env.model)
    network = make_network(config, sizes, seed=0)
    native = native_network(config, sizes, {name: t.numpy() for name, t in network.state_dict().items()})
    decide_us, step_us, waiting = _core.time_decisions(
        env.model.spec, env.model.episode(0)[0], native, DECISIONS
    )
    full = waiting >= WINDOW
    full[: len(full) // 10] = False  # caches and clocks warm up
    state, _ = env.reset(seed=0)
    return {
        "p50_us": float(np.median(decide_us[full])),
        "p99_us": float(np.quantile(decide_us[full], 0.99)),
        "step_us": float(np.median(step_us[full])),
        "torch_us": _median_us(_by_torch(network, state)),
    }


def _by_torch(network: Any, state: dict[str, Any]) -> Callable[[], Any]:
    import torch

    observation = {name: torch.from_numpy(part) for name, part in state.items()}
    illegal = observation["mask"] == 0

    def decide() -> int:
        with torch.inference_mode():
            logits, _ = network(observation)
            return int(logits.masked_fill(illegal, -torch.inf).argmax(1))

    return decide


def _median_us(work: Callable[[], Any], seconds: float = 1.0) -> float:
    times: list[float] = []
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    times = sorted(times[len(times) // 10 :])
    return 1e6 * times[len(times) // 2]


def measure_replay() -> dict[str, float]:
    from gpuyard.learn.networks.heads import make_network
    from gpuyard.network.config import NetworkConfig
    from gpuyard.network.model_file import ModelFile
    from gpuyard.network.policy import LearnedPolicy
    from gpuyard.network.sizes import NetworkSizes
    from gpuyard.simulation.run import simulate

    env = make_environment(REPLAYED, at_once=False)
    config = NetworkConfig.model_validate(KINDS["job-scorer"][0] | {"residual": "base"})
    network = make_network(config, NetworkSizes.of(env.model), seed=0)
    tensors = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    policy = LearnedPolicy("job-scorer", ModelFile.of(env.model, config, tensors, {}))
    source = env.model.source
    return {"replay_s": simulate(source.workload, source.cluster, policy).elapsed_s}


if __name__ == "__main__":
    print(json.dumps(measure_replay() if sys.argv[1] == "replay" else measure(sys.argv[1])))
