"""Slurm's job completion log as text (JobCompType=jobcomp/filetxt): Key=Value pairs, a line a job."""

import re
from pathlib import Path

import polars as pl

from gpuyard.registry import register
from gpuyard.workload.chunks import line_chunks
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.slurm_records import SlurmOptions, SlurmRecords

_FIRST_LINE = re.compile(rb"\s*JobId=\d+ UserId=[^\n]* JobState=[A-Z]")
_KEYS = {
    "jobid": "JobId",
    "user": "UserId",
    "state": "JobState",
    "partition": "Partition",
    "timelimitraw": "TimeLimit",
    "start": "StartTime",
    "end": "EndTime",
    "nnodes": "NodeCnt",
    "nodelist": "NodeList",
    "ncpus": "ProcCnt",
    "reqtres": "Tres",
    "reqgres": "Gres",
    "account": "Account",
    "qos": "QOS",
    "cluster": "Cluster",
    "submit": "SubmitTime",
    "array": "ArrayJobId",
    "task": "ArrayTaskId",
}


@register("workload-format", "slurm-jobcomp")
class SlurmJobcomp:
    """Slurm's job completion log (jobcomp/filetxt): lines of JobId=... UserId=... Name=... JobState=..."""

    Options = SlurmOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """A first line that starts with JobId= and UserId= and has a JobState=."""
        return JOBS if _FIRST_LINE.match(head) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: SlurmOptions) -> Trace:
        """Read one or several logs."""
        records = SlurmRecords(log, options)
        for path in files[JOBS]:
            for lines in line_chunks(path):
                records.add(_records(lines, path, log), path.name)
        return Trace(records.workload("slurm-jobcomp", list(files[JOBS])))


def _records(lines: pl.DataFrame, path: Path, log: ImportLog) -> pl.DataFrame:
    """Records under the names that sacct gives the same fields, with ``line``."""
    log.read(lines.height)
    is_record = lines["text"].str.starts_with("JobId=")
    log.reject("does not start with JobId=", path.name, lines.filter(~is_record)["line"])
    lines = lines.filter(is_record)
    # Names of jobs and directories may hold blanks and '=': they are cut out before keys are looked for.
    name = lines["text"].str.extract(r" Name=(.*) JobState=")
    text = lines["text"].str.replace(r" Name=.* JobState=", " JobState=")
    text = text.str.replace(r" WorkDir=.*? ReservationName=", " ReservationName=")
    fields = pl.DataFrame(text.str.extract(rf"(?:^| ){key}=(\S+)").alias(name) for name, key in _KEYS.items())
    array_id = pl.format("{}_{}", "array", "task")
    return fields.with_columns(
        pl.coalesce(array_id, "jobid").alias("jobid"),
        pl.col("user").str.replace(r"\(\d+\)$", ""),
        lines["line"],
        name.alias("jobname"),
    )
