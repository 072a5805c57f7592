"""GPUs in use and jobs waiting over time, of a schedule that is in memory."""

from typing import Any

import numpy as np

from gpuyard.dashboard.replay.index import ReplayIndex
from gpuyard.report.figures import BINS, rounded, time_means


def series(index: ReplayIndex, from_s: float, to_s: float) -> dict[str, Any]:
    """Means over equal spans of time: ``at_s``, ``in_use`` (share of all GPUs) and ``waiting`` (jobs)."""
    edges = np.linspace(from_s, max(to_s, from_s + 1.0), BINS + 1)
    held = time_means(index.held_from_s, index.held_to_s, index.held_gpus, edges)
    waiting = time_means(index.submit_s, index.start_s, np.ones(len(index)), edges)
    return {
        "at_s": rounded((edges[:-1] + edges[1:]) / 2, 7),
        "in_use": rounded(held / max(index.total_gpus, 1), 4),
        "waiting": rounded(waiting, 4),
    }
