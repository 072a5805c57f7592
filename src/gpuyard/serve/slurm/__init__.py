"""Slurm as a live scheduler: its commands and slurmrestd, what they print, and what is written to jobs.

``SlurmAdapter`` is what the daemon uses. Only ``serve`` and the command line import this package.
"""

from gpuyard.serve.slurm.adapter import SlurmAdapter

__all__ = ["SlurmAdapter"]
