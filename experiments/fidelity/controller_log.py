"""Times of jobs to the millisecond, from slurmctld's own log: accounting has whole seconds.

A second is a tenth of a job here, and Slurm looks for free GPUs once per second. Whole seconds say neither
which job came first nor how long GPUs stayed idle, so waits can only be compared with finer times.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from gpuyard.errors import InputError

_EVENTS = {
    "submit_s": re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+) "),
    "start_s": re.compile(r"(?:sched: Allocate|sched/backfill: _start_job: Started) JobId=(\d+) "),
    "end_s": re.compile(r"_job_complete: JobId=(\d+) done"),
}
_LINE = re.compile(r"\[(\S+)\] (.*)")


def exact_times(path: Path) -> pl.DataFrame:
    """When each job came, started and ended, seconds since 1970, in the order of their numbers.

    Raises:
        InputError: if a job lacks one of them.
    """
    found: dict[int, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        parts = _LINE.fullmatch(line)
        for name, pattern in _EVENTS.items():
            if parts and (event := pattern.match(parts[2])):
                found.setdefault(int(event[1]), {})[name] = _seconds(parts[1])
    lacking = next((job for job, times in found.items() if len(times) < len(_EVENTS)), None)
    if lacking is not None or not found:
        raise InputError(
            f"{path}: does not say when job {lacking or 1} came, started and ended; record it again"
        )
    return pl.DataFrame([{"job": job, **found[job]} for job in sorted(found)])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
