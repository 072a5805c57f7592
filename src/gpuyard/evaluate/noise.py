"""Noisy estimates drawn several times: a window's figures are means over the draws.

One draw of the noise is shared by all windows of a comparison, and a policy may look good or bad by it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.evaluate.tables import CLASS_SCHEMA

_KEYS = ("policy", "window", "by", "class")
_LARGEST_SEED = 2**63 - 1


def drawn_noise(simulation: SimulationConfig, count: int) -> tuple[SimulationConfig, ...]:
    """The settings with so many seeds of the noise, their own first.

    Raises:
        InputError: if estimates are not noisy, so that all draws would be the same.
    """
    if count > 1 and simulation.estimates != "noisy":
        raise InputError(
            f"noise is drawn {count} times, but estimates are {simulation.estimates}: use estimates noisy, "
            f"or leave {setting('noise_draws')} out"
        )
    seeds = [(simulation.seed + i) % _LARGEST_SEED for i in range(count)]
    return tuple(simulation.model_copy(update={"seed": seed}) for seed in seeds)


def mean_row(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row of the table of windows out of those of all draws; what one of them lacks is not known."""
    if len(rows) == 1:
        return dict(rows[0])
    names = [name for name in rows[0] if name not in ("policy", "window")]
    known = {name: [row.get(name) for row in rows] for name in names}
    means = {
        name: None if None in values else float(np.mean(np.array(values, dtype=np.float64)))
        for name, values in known.items()
    }
    return {"policy": rows[0]["policy"], "window": rows[0]["window"], **means}


def mean_figures(found: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Metrics by policy, a value a window, out of those of all draws."""
    return {
        policy: {name: np.mean([draw[policy][name] for draw in found], axis=0) for name in figures}
        for policy, figures in found[0].items()
    }


def mean_classes(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Metrics of classes of jobs out of those of all draws; their jobs are the same in all."""
    if len(frames) == 1:
        return frames[0]
    merged = pl.concat(frames).group_by(_KEYS, maintain_order=True)
    return merged.agg(pl.col("jobs").first(), pl.col(pl.Float64).mean()).select(CLASS_SCHEMA.names())
