"""Workloads: one job table, its native files, generators and descriptions."""

from gpuyard.workload.describe import describe
from gpuyard.workload.formats import import_trace, read_workload, workload_formats
from gpuyard.workload.job_table import write_workload
from gpuyard.workload.schema import SCHEMA, Step, Where, Workload, WorkloadMetadata, make_workload
from gpuyard.workload.synthetic import SynthConfig, demo_workload, synthesize

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
