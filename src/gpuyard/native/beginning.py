"""A schedule that is given up to a moment, from which on a policy decides."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.errors import InputError
from gpuyard.native.inputs import CoreInputs

Ints = NDArray[np.int64]
Nodes = tuple[tuple[int, int], ...]
"""Node ids, ascending, each with the GPUs that a job has there."""


@dataclass(frozen=True)
class Beginning:
    """What is known to have run before a policy decides (docs/contract/simulator.md, section 7).

    Attributes:
        decides_from_us: The moment, on the workload's clock in microseconds.
        job: Rows of the workload whose start is given. Other jobs that come before the moment wait.
        start_us: When each of them started, before the moment and not before its submit.
        nodes: Where.
    """

    decides_from_us: int
    job: Ints
    start_us: Ints
    nodes: tuple[Nodes, ...]

    def for_core(self, inputs: CoreInputs) -> _core.Beginning:
        """The same as the core takes it.

        Raises:
            InputError: if a job that started is none of those that are simulated, or cannot have started so.
        """
        kept = inputs.kept
        core_id = np.searchsorted(kept, self.job)
        known = (core_id < len(kept)) & (kept[np.minimum(core_id, len(kept) - 1)] == self.job)
        if not known.all():
            raise InputError(
                f"the job in row {int(self.job[~known][0])} was running at the beginning, but can never run "
                "on this cluster under this policy; use another placement"
            )
        starts = zip(core_id.tolist(), self.start_us.tolist(), map(list, self.nodes), strict=True)
        return _core.Beginning(inputs.jobs, self.decides_from_us, list(starts))
