"""The one way into and out of the native core: its inputs, its snapshots, its schedules."""

from gpuyard.native.snapshot import make_snapshot, snapshot_arrays

__all__ = ["make_snapshot", "snapshot_arrays"]
