"""An order and a metric about patience. gpuyard imports this module when it looks something up."""

from typing import Any

import numpy as np

import gpuyard as gy
from gpuyard.metrics import Outcome, metric


@gy.register("order", "impatient")
def impatient(queue: dict[str, Any]) -> Any:
    """Smallest estimate first, but an hour of waiting makes up for half an hour of running."""
    estimate_s = np.nan_to_num(queue["estimate_s"], nan=np.inf)  # nan: unknown
    return estimate_s - queue["wait_s"] / 2


@metric("patient_share", "1", "lower", "Share of jobs that waited longer than they ran")
def patient_share(outcome: Outcome) -> float | None:
    """None without jobs."""
    jobs = outcome.jobs
    if not len(jobs.wait_s):
        return None
    return float(np.mean(jobs.wait_s > jobs.jct_s - jobs.wait_s))
