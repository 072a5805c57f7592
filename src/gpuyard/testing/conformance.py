"""One class of tests for every adapter."""

from gpuyard.testing.acting import ActingTests
from gpuyard.testing.faults import FaultTests
from gpuyard.testing.observing import ObservingTests
from gpuyard.testing.returning import ReturningTests


class AdapterConformance(ObservingTests, ActingTests, FaultTests, ReturningTests):
    """Tests of one adapter: inherit, and set ``double_type`` to the class that plays your scheduler.

    pytest runs it as it stands; for unittest, inherit from ``unittest.TestCase`` as well.
    """
