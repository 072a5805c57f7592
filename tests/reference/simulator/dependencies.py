"""Section 3 of docs/contract/slurm.md: jobs that wait for others to end."""

from collections.abc import Container, Sequence

from reference.simulator.inputs import Job


def check(jobs: Sequence[Job]) -> None:
    """Raises ValueError if a job has to wait for itself, directly or through others."""
    ended: set[int] = set()
    waiting = set(range(len(jobs)))
    while waiting:
        may_run = {id for id in waiting if has_to_wait_for_none(jobs[id], ended, len(jobs))}
        if not may_run:
            raise ValueError(f"jobs {sorted(waiting)} wait for themselves, or for some that do")
        ended |= may_run
        waiting -= may_run


def has_to_wait_for_none(job: Job, ended: Container[int], count: int) -> bool:
    """Whether the jobs that it names have ended, of so many in the workload; others ended before."""
    return all(id in ended for id in job.after if 0 <= id < count)
