"""Seeded generators of workloads (docs/guide/generators.md).

``gpuyard.workload.synthetic`` puts arrivals, durations, users and estimates together; ``bursty``, ``lublin``,
``host_farm`` and ``like`` are models of their own; ``presets`` names ready-made settings of all of them.
Names are loaded when they are first used, so that reading a workload does not load every generator.
"""

from typing import TYPE_CHECKING

from gpuyard.registry import loaded_on_use

if TYPE_CHECKING:
    from gpuyard.workload.generators.bursty import BurstyConfig
    from gpuyard.workload.generators.fitted import FittedTrace
    from gpuyard.workload.generators.fitting import fit_trace
    from gpuyard.workload.generators.host_farm import HostFarmConfig
    from gpuyard.workload.generators.like import LikeConfig, read_fitted, workload_like
    from gpuyard.workload.generators.lublin import LublinConfig
    from gpuyard.workload.generators.presets import (
        WorkloadPreset,
        preset_workload,
        preset_workloads,
        remake,
    )

__all__ = [
    "BurstyConfig",
    "FittedTrace",
    "HostFarmConfig",
    "LikeConfig",
    "LublinConfig",
    "WorkloadPreset",
    "fit_trace",
    "preset_workload",
    "preset_workloads",
    "read_fitted",
    "remake",
    "workload_like",
]

_HOMES = {
    "BurstyConfig": "bursty",
    "FittedTrace": "fitted",
    "HostFarmConfig": "host_farm",
    "LikeConfig": "like",
    "LublinConfig": "lublin",
    "WorkloadPreset": "presets",
    "fit_trace": "fitting",
    "preset_workload": "presets",
    "preset_workloads": "presets",
    "read_fitted": "like",
    "remake": "presets",
    "workload_like": "like",
}

__getattr__ = loaded_on_use(__name__, _HOMES)
