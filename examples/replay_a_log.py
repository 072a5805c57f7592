"""Replay a log of jobs under other policies: who would have waited less, and who more?

    python examples/replay_a_log.py jobs.csv 64x8

Without arguments it makes up a log of 5,000 jobs for 16 nodes of 8 GPUs.
"""

import sys

import gpuyard as gy
from gpuyard.workload import SynthConfig


def main(path: str | None = None, cluster: str = "16x8") -> None:
    """Compare three policies on the log, then look at the best of them by gang size."""
    if path:
        jobs = gy.read_workload(path)
    else:
        jobs = gy.synthesize(SynthConfig(jobs=5_000, cluster_gpus=128, overestimation=3.0))
    # "requested": policies are told what users asked for, as in production. A log may have no requests.
    has_requests = jobs.frame["estimate_s"].null_count() < len(jobs)
    config = gy.SimulationConfig(estimates="requested" if has_requests else "exact", oversize="drop")

    results = [gy.simulate(jobs, cluster, policy, config) for policy in ("fifo", "fifo+easy", "sjf+easy")]
    for result in results:
        metrics = result.metrics()
        print(
            f"{result.policy:25} mean wait {metrics['mean_wait_s']:9.1f} s   "
            f"p99 wait {metrics['p99_wait_s']:9.1f} s   GPU use {metrics['gpu_utilization']:.1%}"
        )

    best = min(results, key=lambda result: result.metrics()["mean_wait_s"] or 0.0)
    print(f"\n{best.policy} by gang size:")
    print(best.breakdown("gpus").select("class", "jobs", "mean_wait_s", "p99_wait_s"))
    print(best.table().select("submit_s", "start_s", "end_s", "gpus", "nodes").head(3))


if __name__ == "__main__":
    main(*sys.argv[1:])
