"""Jobs whose run times are predicted from jobs that had finished before, as one workload."""

import math

import numpy as np
import polars as pl

from gpuyard.workload import Workload


def after_history(workload: Workload, history: Workload) -> tuple[Workload, float]:
    """The jobs of a history, and after the last of them has ended those of a workload; when those begin."""
    ends = history.frame["submit_s"] + history.frame["duration_s"]
    begin_s = math.ceil(float(ends.max())) + 1.0  # type: ignore[arg-type]
    # Rounded to what the core counts in, a whole number of seconds more leaves times as they are.
    submit_s = pl.Series("submit_s", np.rint(workload.frame["submit_s"].to_numpy() * 1e6) / 1e6 + begin_s)
    later = workload.frame.with_columns(submit_s, pl.col("deadline_s") + begin_s)
    metadata = workload.metadata.model_copy(
        update={
            "origin_s": workload.metadata.origin_s - begin_s,
            "epoch_s": workload.metadata.epoch_s - begin_s,
        }
    )
    return Workload(pl.concat([history.frame, later]), metadata), begin_s
