"""Runs a stream of jobs on a real Slurm and keeps what sacct says about them."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from experiments.fidelity.slurm_box import SlurmBox, start_box
from experiments.fidelity.stream import StreamJob, cluster_settings

SACCT_FIELDS = (
    "JobID,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,Elapsed,Timelimit,NNodes,NodeList,"
    "NCPUS,ReqMem,ReqTRES,AllocTRES,Priority"
)
"""Those of the README, and what a scheduler ordered by."""
LOG, SUBMITTED, PRIORITIES, VERSION = "sacct.txt", "submitted.json", "sprio.txt", "version.txt"
_SAMPLE_EVERY_S = 10.0
_CYCLE_S, _AFTER_CYCLE_S = 60.0, 0.5
"""PriorityCalcPeriod of the cluster, and how long after it the first job comes."""
_SLACK_S = 900.0
"""How long after the last submission all jobs must have ended."""


@dataclass(frozen=True)
class Submitted:
    """A job as sbatch took it.

    Attributes:
        job_id: Slurm's number.
        asked_s: When sbatch was called, seconds since 1970.
        taken_s: When it returned.
        job: What was asked for.
    """

    job_id: int
    asked_s: float
    taken_s: float
    job: StreamJob


def record(jobs: Sequence[StreamJob], out: Path) -> None:
    """Run jobs on a fresh cluster; fills a directory with its log, configuration and priorities."""
    out.mkdir(parents=True, exist_ok=True)
    with start_box(cluster_settings(), keep_logs=out / "log") as box:
        for name in ("slurm.conf", "gres.conf"):
            (out / name).write_text((box.directory / "etc" / name).read_text())
        (out / VERSION).write_text(box.run("sinfo", "--version"))
        (out / PRIORITIES).unlink(missing_ok=True)
        begin_s = _next_cycle_s(box) + _AFTER_CYCLE_S
        submitted = _submit_all(box, jobs, begin_s, out / PRIORITIES)
        (out / SUBMITTED).write_text(_submitted_text(submitted))
        _wait_until_empty(box, out / PRIORITIES)
        (out / LOG).write_text(_log(box, begin_s))
        (out / "sshare.txt").write_text(box.run("sshare", "-a", "-P", "-l"))
        (out / "sdiag.txt").write_text(box.run("sdiag"))


def _next_cycle_s(box: SlurmBox) -> float:
    """When Slurm next computes priorities: every minute since it first looked for the time of the last one.

    A log does not say that. So the first job comes right after a cycle, and cycles follow minute by minute.
    """
    log = (box.directory / "log" / "slurmctld.log").read_text()
    line = next(line for line in log.splitlines() if "_read_last_decay_ran" in line)
    first_s = datetime.fromisoformat(line[1:].partition("]")[0]).replace(tzinfo=UTC).timestamp()
    periods = math.ceil((time.time() + 1.0 - first_s) / _CYCLE_S)
    return first_s + periods * _CYCLE_S


def _submit_all(box: SlurmBox, jobs: Sequence[StreamJob], begin: float, samples: Path) -> list[Submitted]:
    sampled, done = 0.0, []
    for number, job in enumerate(jobs):
        while (ahead := begin + job.submit_s - time.time()) > 0:
            if ahead > 0.3 and time.time() - sampled > _SAMPLE_EVERY_S:
                sampled = time.time()
                _sample_priorities(box, samples)
            time.sleep(max(0.0, min(begin + job.submit_s - time.time(), 0.2)))
        asked_s = time.time()
        job_id = box.submit(*job.options(), run_s=job.run_s)
        done.append(Submitted(job_id, asked_s, time.time(), job))
        if number % 100 == 99:
            print(f"  {samples.parent.name}: {number + 1} of {len(jobs)} jobs submitted", flush=True)
    return done


def _sample_priorities(box: SlurmBox, samples: Path) -> None:
    lines = box.run("sprio", "--noheader", "--format=%i %Y %A %F %J %P %Q").splitlines()
    with samples.open("a") as file:
        file.writelines(f"{time.time():.3f} {line}\n" for line in lines)


def _wait_until_empty(box: SlurmBox, samples: Path) -> None:
    end, sampled = time.monotonic() + _SLACK_S, 0.0
    while box.run("squeue", "--noheader", "--format=%A").strip() and time.monotonic() < end:
        if time.monotonic() - sampled > _SAMPLE_EVERY_S:
            sampled = time.monotonic()
            _sample_priorities(box, samples)
        time.sleep(1.0)
    time.sleep(2.0)  # slurmctld tells slurmdbd


def _log(box: SlurmBox, begin_s: float) -> str:
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(begin_s - 60))
    options = ("-a", "-P", "-X", "--duplicates", "-S", since, "-E", "now", f"--format={SACCT_FIELDS}")
    return box.run("sacct", *options)


def _submitted_text(submitted: Sequence[Submitted]) -> str:
    rows = [
        {"job_id": one.job_id, "asked_s": one.asked_s, "taken_s": one.taken_s, **one.job.as_record()}
        for one in submitted
    ]
    return json.dumps(rows, indent=1) + "\n"
