"""A policy that decides for itself: any object with decide(snapshot) -> Decision.

This one passes over jobs that do not fit, as ``fifo+greedy`` does, until one has waited too long; from then
on nothing may pass that job. No name of the form ORDER+BACKFILL/PLACEMENT says that.
"""

from typing import Any

import gpuyard as gy
from gpuyard.workload import SynthConfig


class GreedyUntilLate:
    """First come, first served; jobs pass those that do not fit, but none that has waited ``patience_s``.

    Every job must fit on one node.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s

    def decide(self, snapshot: Any) -> gy.Decision:
        """Start what fits, on the node it fills best."""
        decision = gy.Decision()
        free = snapshot.nodes["empty_gpus"].tolist()
        queue = snapshot.queue
        for job, gpus, wait_s in zip(queue["job"], queue["gpus"], queue["wait_s"], strict=True):
            fitting = [(left, node) for node, left in enumerate(free) if left >= gpus]
            if fitting:
                _, node = min(fitting)
                free[node] -= int(gpus)
                decision.start(int(job), [(node, int(gpus))])
            elif wait_s >= self.patience_s:
                break
        return decision


def main() -> None:
    """Compare it with the two policies that it lies between."""
    jobs = gy.synthesize(SynthConfig(jobs=2_000, cluster_gpus=64, load=0.95))
    results = [gy.simulate(jobs, "8x8", policy) for policy in ("fifo", "fifo+greedy")]
    results.append(gy.simulate(jobs, "8x8", GreedyUntilLate(patience_s=4 * 3600.0)))
    for result in results:
        metrics = result.metrics()
        mean_s, longest_s = metrics["mean_wait_s"], metrics["max_wait_s"]
        print(f"{result.policy:25} mean wait {mean_s:8.1f} s   longest wait {longest_s:9.1f} s")


if __name__ == "__main__":
    main()
