"""Jobs that finished, from sacct."""

import calendar
import time
from typing import NamedTuple

from gpuyard.cluster.imports.slurm_units import tres_amounts
from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.slurm.commands import Commands

_FIELDS = ("JobID", "User", "Account", "AllocTRES", "ElapsedRaw", "End", "State")
_STATES = "CD,F,TO,CA,NF,PR,OOM,DL,BF"
_NONE_KEPT = ("accounting storage is disabled", "slurmdbd", "connection refused")


class Finished(NamedTuple):
    """A job that ended.

    Attributes:
        id: As Slurm calls it.
        user: Who submitted it.
        group: Account.
        gpus: That it had; 0 also where Slurm does not account for GPUs.
        run_s: How long it ran, s.
        end_s: When it ended, seconds since 1970.
        timeout: Whether its limit ended it.
    """

    id: str
    user: str
    group: str
    gpus: int
    run_s: float
    end_s: float
    timeout: bool


class NoAccountingError(Exception):
    """A Slurm that keeps no record of finished jobs; the text says so for people."""


def finished_since(commands: Commands, when_s: float) -> list[Finished]:
    """Jobs that ended since a time, in the order of their ends.

    Raises:
        NoAccountingError: if Slurm keeps no record of them.
        AdapterError: if sacct fails otherwise.
    """
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(max(0.0, when_s)))
    window = (f"--starttime={begin}", "--endtime=now", f"--state={_STATES}")
    form = ("--allusers", "--allocations", "--noheader", "--parsable2", f"--format={','.join(_FIELDS)}")
    try:
        text = commands.text("sacct", *window, *form)
    except AdapterError as error:
        said = str(error).lower()
        if error.code == "missing" or any(words in said for words in _NONE_KEPT):
            raise NoAccountingError(f"no history of finished jobs: {error}") from None
        raise
    found = [_finished(line) for line in text.splitlines() if line.strip()]
    kept = [job for job in found if job is not None and job.end_s >= when_s]
    return sorted(kept, key=lambda job: (job.end_s, job.id))


def _finished(line: str) -> Finished | None:
    """One line of sacct; None for a job that never ran or has not ended."""
    fields = line.split("|")
    if len(fields) != len(_FIELDS):
        raise AdapterError(f"sacct printed {len(fields)} fields where {len(_FIELDS)} were asked for", "parse")
    name, user, group, granted, elapsed, end, state = fields
    try:
        end_s = calendar.timegm(time.strptime(end, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
    gpus = tres_amounts(granted).get("gres/gpu", "0")
    if not elapsed.isdecimal():
        return None
    return Finished(
        name,
        user,
        group,
        int(gpus) if gpus.isdecimal() else 0,
        float(elapsed),
        float(end_s),
        state.startswith("TIMEOUT"),
    )
