"""An order written in Python: a score over the columns of the queue, smallest first.

The rest (backfill, placement, the event loop) stays native, so this is still quick.
"""

from typing import Any

import numpy as np

import gpuyard as gy
from gpuyard.workload import SynthConfig


@gy.register("order", "patient-sjf")
def patient_sjf(queue: dict[str, Any]) -> Any:
    """Shortest job first, but waiting an hour makes up for being ten minutes longer."""
    estimate_s = np.nan_to_num(queue["estimate_s"], nan=np.inf)  # nan: unknown
    return estimate_s - queue["wait_s"] / 6


def main() -> None:
    """Compare it with sjf: the mean says one thing, the longest wait another."""
    jobs = gy.synthesize(SynthConfig(jobs=3_000, cluster_gpus=64, load=0.95))
    for policy in ("sjf+easy", "patient-sjf+easy"):
        metrics = gy.simulate(jobs, "8x8", policy).metrics()
        mean_s, longest_s = metrics["mean_wait_s"], metrics["max_wait_s"]
        print(f"{policy:20} mean wait {mean_s:8.1f} s   longest wait {longest_s:9.1f} s")


if __name__ == "__main__":
    main()
