"""The lookahead of docs/contract/observation.md: when GPUs are expected to be released."""

import math

from reference.env.settings import LONGEST_LOOKAHEAD
from reference.env.state import EnvState
from reference.simulator.simulator import to_s


def remaining(state: EnvState, horizon_s: float) -> list[float]:
    """rem of every GPU in order of node and GPU."""
    latest: dict[tuple[int, int], float] = {}
    for run in state.running:
        for part in run.held:
            for index in part.gpu_indices:
                gpu = (part.node, index)
                latest[gpu] = max(latest.get(gpu, -math.inf), run.expected_end_us)
    gpus = [(id, index) for id, node in enumerate(state.nodes) for index in range(node.gpus)]
    return [share_of_horizon(state, latest[gpu], horizon_s) if gpu in latest else 0.0 for gpu in gpus]


def share_of_horizon(state: EnvState, time_us: float, horizon_s: float) -> float:
    """min(max((time - t) / h, 0), 1); 1 for an endless time."""
    if math.isinf(time_us):
        return 1.0
    return min(max(to_s(int(time_us) - state.now_us) / horizon_s, 0.0), 1.0)


def lookahead(state: EnvState, mode: str, length: int, horizon_s: float) -> list[float]:
    """The L numbers of the mode."""
    rem = remaining(state, horizon_s)
    count = len(rem)
    if mode == "off" or count == 0:
        return [0.0] * length
    if mode == "cdf":
        edges = [float(j + 1) / float(length) for j in range(length)]
        return [float(sum(1 for r in rem if r <= edge)) / float(count) for edge in edges]
    if mode == "sorted":
        rem.sort()
    else:
        assert mode == "per_gpu"
    if count > LONGEST_LOOKAHEAD:
        rem = [rem[(2 * j + 1) * count // 128] for j in range(LONGEST_LOOKAHEAD)]
    return rem + [0.0] * (length - len(rem))
