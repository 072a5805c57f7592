"""What is in a workload, in numbers that fit on a page."""

from typing import Any

import numpy as np
import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.workload.schema import Workload

_QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.99)


def describe(workload: Workload, cluster: Cluster | None = None) -> dict[str, Any]:
    """Summarise a workload as plain JSON-able values.

    Args:
        workload: The jobs.
        cluster: If given, ``load`` is the work that arrives in the span, over the cluster's GPU time in it.

    Returns:
        Counts, span, GPU-hours, gang-size mix (share of jobs and of GPU time), quantiles of durations,
        sizes and gaps between arrivals, statuses, and how good estimates are. What makes no sense is None.
    """
    # numpy's division, because polars divides by a number through its reciprocal.
    milli = workload.frame["gpus"].to_numpy().astype(np.int64) * workload.frame["gpu_milli"].to_numpy()
    frame = workload.frame.with_columns(size=milli / 1000.0)
    frame = frame.with_columns(gpu_s=pl.col("size") * pl.col("duration_s"))
    span_s = float(frame["submit_s"][-1])
    gpu_s = float(frame["gpu_s"].sum())
    return {
        "name": workload.metadata.name,
        "jobs": len(workload),
        "origin_s": workload.metadata.origin_s,
        "span_s": span_s,
        "users": _distinct(frame["user"]),
        "groups": _distinct(frame["group"]),
        "cpu_only_jobs": int((frame["gpus"] == 0).sum()),
        "shared_gpu_jobs": int((frame["gpu_milli"] < 1000).sum()),
        "gpu_hours": gpu_s / 3600,
        "cluster": None if cluster is None else cluster.name,
        "load": _load(gpu_s, span_s, cluster),
        "gang_sizes": _gang_sizes(frame, gpu_s),
        "duration_s": _quantiles(frame["duration_s"]),
        "gpus": _quantiles(frame["size"]),
        "interarrival_s": _quantiles(frame["submit_s"].diff().drop_nulls()),
        "statuses": _counts(frame["status"].cast(pl.String)),
        "estimates": _estimates(frame),
    }


def _distinct(names: pl.Series) -> int:
    """How many names; the empty one stands for "not known" and does not count."""
    return int(names.filter(names != "").n_unique())


def _load(gpu_s: float, span_s: float, cluster: Cluster | None) -> float | None:
    if cluster is None or span_s == 0 or cluster.total_gpus == 0:
        return None
    return gpu_s / (span_s * cluster.total_gpus)


def _gang_sizes(frame: pl.DataFrame, gpu_s: float) -> list[dict[str, Any]]:
    mix = frame.group_by("size").agg(jobs=pl.len(), gpu_s=pl.col("gpu_s").sum()).sort("size")
    return [
        {
            "gpus": size,
            "jobs": jobs,
            "share_of_jobs": jobs / frame.height,
            "share_of_gpu_time": used / gpu_s if gpu_s else None,
        }
        for size, jobs, used in mix.iter_rows()
    ]


def _quantiles(values: pl.Series) -> dict[str, float] | None:
    """Quantiles by linear interpolation, largest and mean."""
    if values.len() == 0:
        return None
    named = {f"p{round(100 * q)}": pl.col("x").quantile(q, interpolation="linear") for q in _QUANTILES}
    summary = pl.DataFrame({"x": values}).select(**named, max=pl.col("x").max(), mean=pl.col("x").mean())
    return summary.row(0, named=True)


def _counts(names: pl.Series) -> dict[str, int]:
    counted = names.value_counts(sort=True, name="jobs").sort("jobs", names.name, descending=[True, False])
    return dict(counted.iter_rows())


def _estimates(frame: pl.DataFrame) -> dict[str, Any]:
    known = frame.filter(pl.col("estimate_s").is_not_null())
    ratio = (known["estimate_s"] / known["duration_s"]).median()
    return {"jobs": known.height, "median_estimate_over_duration": ratio}
