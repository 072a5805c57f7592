"""Records that appear twice in accounting logs, as where two dumps overlap."""

from collections.abc import Sequence

import polars as pl

from gpuyard.workload.importing import ImportLog


def merge_repeats(jobs: pl.DataFrame, keys: Sequence[str], log: ImportLog) -> pl.DataFrame:
    """Only the first of jobs that agree in all ``keys``; the others count as merged into it."""
    once = jobs.unique(subset=list(keys), keep="first", maintain_order=True)
    log.merge(jobs.height - once.height)
    if once.height < jobs.height:
        again = jobs.height - once.height
        log.assume(f"{again} records agree with an earlier one in job and times: taken as the same run")
    return once
