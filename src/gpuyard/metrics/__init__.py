"""Metrics: pure functions of a schedule, each with a name, a unit and a direction.

See docs/contract/metrics.md. ``metric`` and ``Outcome`` are what a metric of yours needs.
"""

from typing import TYPE_CHECKING

from gpuyard.registry import loaded_on_use

if TYPE_CHECKING:
    from gpuyard.metrics.catalogue import Outcome, metric

__all__ = ["Outcome", "metric"]

__getattr__ = loaded_on_use(__name__, {"Outcome": "catalogue", "metric": "catalogue"})
