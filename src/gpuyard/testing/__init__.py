"""Tests that every adapter of a live scheduler must pass, also those of other packages.

Describe your scheduler by a ``SchedulerDouble``, and inherit from ``AdapterConformance`` in a test file. It
is imported without pytest; pytest and unittest both run it. Imports ``serve``; nothing imports it.
"""

from gpuyard.testing.conformance import AdapterConformance
from gpuyard.testing.double import SchedulerDouble

__all__ = ["AdapterConformance", "SchedulerDouble"]
