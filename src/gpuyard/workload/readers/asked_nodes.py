"""How many nodes the users of a log asked for, from how many their jobs got."""

import polars as pl


def with_asked_nodes(jobs: pl.DataFrame) -> pl.DataFrame:
    """``nodes`` as the job table has it, from ``nodes`` as stated and from ``allocated_nodes``.

    * A job without GPUs keeps the nodes that it got, as it would have to fit into one otherwise.
    * A stated number stands, but 1, which schedulers also write where nobody asked.
    * Where none is stated, GPUs in equal parts on more nodes than they need were asked for so. What they
      need is told by the most GPUs that any job of the log had on one node.
    * All else is the scheduler's choice, and left open.

    Args:
        jobs: With ``gpus``, ``nodes`` and ``allocated_nodes``, null where not known.
    """
    gpus, got = pl.col("gpus"), pl.col("allocated_nodes")
    each = jobs.select((gpus / got).filter(got > 0).ceil().max()).item() or 1.0
    uneven = (gpus % pl.max_horizontal(got, 1)) != 0
    chosen = pl.col("nodes").is_null() & (got > (gpus / max(each, 1.0)).ceil()) & ~uneven
    told = pl.when(((gpus == 0) & (got > 1)) | chosen).then(got).otherwise("nodes")
    return jobs.with_columns(nodes=pl.when(told > 1).then(told))
