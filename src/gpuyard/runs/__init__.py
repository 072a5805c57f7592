"""Training runs as directories of files. It knows nothing of how training works."""

from gpuyard.runs.directory import Run, Validation, open_run

__all__ = ["Run", "Validation", "open_run"]
