"""Workloads: one job table, its native files, generators and descriptions.

Names are loaded when they are first used, so that settings can be read without what takes them.
"""

from typing import TYPE_CHECKING

from gpuyard.registry import loaded_on_use

if TYPE_CHECKING:
    from gpuyard.workload.description import describe
    from gpuyard.workload.formats import import_trace, read_workload, workload_formats
    from gpuyard.workload.job_table import write_workload
    from gpuyard.workload.schema import SCHEMA, Step, Where, Workload, WorkloadMetadata, make_workload
    from gpuyard.workload.synthetic import demo_workload, synthesize
    from gpuyard.workload.synthetic_config import SynthConfig

__all__ = [
    "SCHEMA",
    "Step",
    "SynthConfig",
    "Where",
    "Workload",
    "WorkloadMetadata",
    "demo_workload",
    "describe",
    "import_trace",
    "make_workload",
    "read_workload",
    "synthesize",
    "workload_formats",
    "write_workload",
]

_HOMES = {
    "SCHEMA": "schema",
    "Step": "schema",
    "SynthConfig": "synthetic_config",
    "Where": "schema",
    "Workload": "schema",
    "WorkloadMetadata": "schema",
    "demo_workload": "synthetic",
    "describe": "description",
    "import_trace": "formats",
    "make_workload": "schema",
    "read_workload": "formats",
    "synthesize": "synthetic",
    "workload_formats": "formats",
    "write_workload": "job_table",
}

__getattr__ = loaded_on_use(__name__, _HOMES)
