"""LSF as a live scheduler: its commands, what they print, and what is written to jobs.

``LsfAdapter`` is what the daemon uses. Only ``serve`` and the command line import this package.
"""

from gpuyard.serve.lsf.adapter import LsfAdapter

__all__ = ["LsfAdapter"]
