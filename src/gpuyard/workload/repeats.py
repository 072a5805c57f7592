"""Records that appear twice in accounting logs, as where two dumps overlap."""

from collections.abc import Sequence

import polars as pl

from gpuyard.workload.importing import ImportLog


def merge_repeats(jobs: pl.DataFrame, keys: Sequence[str], log: ImportLog) -> pl.DataFrame:
    """Only the first of jobs that agree in all ``keys``; the others count as merged into it."""
    once = jobs.unique(subset=list(keys), keep="first", maintain_order=True)
    log.merge(jobs.height - once.height)
    if once.height < jobs.height:
        log.assume(f"{jobs.height - once.height} records that appear again unchanged are one job each")
    return once
