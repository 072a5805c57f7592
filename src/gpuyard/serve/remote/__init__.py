"""A cluster whose scheduler asks over HTTP: it sends its state, and is told what to do.

Imports the process and the decision; only the command line imports it.
"""

from gpuyard.serve.remote.service import RemoteService

__all__ = ["RemoteService"]
