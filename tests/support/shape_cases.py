"""Small workloads made by hand, and what was done to them."""

import polars as pl

from gpuyard.workload import Workload, make_workload

DAY_S = 86400.0

SEPTEMBER_S = 1_598_918_400.0  # 2020-09-01 00:00, a Tuesday


def make_jobs(
    submit_s, duration_s=10.0, gpus=1, *, epoch_s=0.0, origin_s=0.0, name="jobs", **columns
) -> Workload:
    """Jobs with these columns, a single value standing for all."""
    count = len(submit_s)
    frame = {
        "submit_s": submit_s,
        "duration_s": duration_s if isinstance(duration_s, list) else [float(duration_s)] * count,
        "gpus": gpus if isinstance(gpus, list) else [gpus] * count,
    }
    return make_workload(pl.DataFrame(frame | columns), epoch_s=epoch_s, origin_s=origin_s, name=name)


def ten_jobs() -> Workload:
    """Jobs at 0, 10, ... 90 s in a slice that begins 1,000 s into its trace."""
    return make_jobs([10.0 * k for k in range(10)], origin_s=1000.0, epoch_s=SEPTEMBER_S)


def mixed_jobs() -> Workload:
    """Four jobs that differ in everything."""
    return make_jobs(
        [0.0, 1.0, 2.0, 3.0],
        [10.0, 100.0, 1000.0, 100.0],
        [1, 8, 16, 8],
        user=["ann", "bob", "ann", "eve"],
        group=["x", "y", "y", ""],
        status=["completed", "failed", "completed", "unknown"],
    )


def last_step(workload: Workload) -> tuple[str, dict]:
    """Name and settings of what was done last."""
    step = workload.metadata.history[-1]
    return step.name, step.settings
