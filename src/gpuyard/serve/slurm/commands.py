"""Slurm's commands, and what their failures mean."""

from collections.abc import Mapping

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.commands import Runner

_GONE = ("invalid job id", "already completing or completed", "already finished", "no longer pending")
_UNREACHABLE = ("unable to contact", "connection refused", "timed out", "unexpected message", "zero bytes")


class Commands(Runner):
    """Runs squeue, sinfo, scontrol and sacct.

    Args:
        timeout_s: A command that takes longer is killed, s.
        environment: What commands see; None: a few variables of this process, such as PATH and SLURM_CONF.
    """

    def __init__(self, timeout_s: float = 10.0, environment: Mapping[str, str] | None = None) -> None:
        # Lists of an array's tasks are not cut off after 64 characters.
        fixed = {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "standard"}
        install = "install Slurm's client commands, or set PATH"
        super().__init__(timeout_s, environment, ("SLURM_CONF",), fixed, install)


def write_code(error: AdapterError) -> str:
    """The code of a write that failed: ``missing`` for a job that is gone, ``refused`` if Slurm said no."""
    said = str(error).lower()
    if error.code not in ("exit", "refused") or any(words in said for words in _UNREACHABLE):
        return error.code
    return "missing" if any(words in said for words in _GONE) else "refused"
