"""Jobs of a live cluster: found by id or user, and why one of them waits."""

from pathlib import Path
from typing import Any

from gpuyard.dashboard.live.brief import journal_of
from gpuyard.errors import InputError
from gpuyard.serve.journal import Journal
from gpuyard.serve.journal.contents import noted_settings
from gpuyard.serve.process.client import ask, job_path
from gpuyard.serve.records import RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job
from gpuyard.serve.waits.explaining import explain_job

MOST_FOUND = 50
ASK_WITHIN_S = 2.0


def find_jobs(directory: Path, text: str) -> dict[str, Any]:
    """Jobs whose id begins with a text, or whose user has it in the name; at most so many.

    Raises:
        InputError: if the journal cannot be read.
    """
    with Journal.open(journal_of(directory), readonly=True) as journal:
        record, state = _last(journal)
    place = {one.job: number for number, one in enumerate(record.order, start=1)}
    asked = text.strip().lower()
    found = [job for job in state.jobs if job.id.lower().startswith(asked) or asked in job.user.lower()]
    found.sort(key=lambda job: (place.get(job.id, len(place) + 1), job.submit_s, job.id))
    rows = [_row(job, state, place.get(job.id)) for job in found[:MOST_FOUND]]
    return {"jobs": rows, "found": len(found), "round": record.number, "at_s": record.wall_s}


def _row(job: Job, state: ClusterState, place: int | None) -> dict[str, Any]:
    since_s = state.now_s - (job.submit_s if job.waits or job.begin_s is None else job.begin_s)
    return {
        "job": job.id,
        "user": job.user,
        "phase": job.phase,
        "gpus": job.gpus,
        "partition": job.partition,
        "since_s": max(0.0, since_s),
        "place": place,
    }


def tell_job(directory: Path, job: str) -> dict[str, Any]:
    """Why a job waits, its place, when it is expected to start, and what was decided about it.

    The agent is asked if it answers; else its journal knows as much as its last round did.

    Raises:
        InputError: if neither knows the job.
    """
    with Journal.open(journal_of(directory), readonly=True) as journal:
        record, state = _last(journal)
        settings = noted_settings(journal)
        history = [
            {"round": one.number, "action": one.action, "rule": one.rule, "words": one.words}
            for one in journal.decisions(job=job, limit=20)
        ]
        predictions = journal.predictions(job)
    if job not in state.by_id:
        if not history:
            raise InputError(f"job {job}: neither waits nor runs, and nothing was decided about it")
        return {"job": job, "sentence": "It neither waits nor runs any more.", "history": history}
    found = _asked(directory, settings, job) or explain_job(state, job, record, settings)
    starts: dict[str, Any] = {}
    for one in predictions:  # the earliest first: the last one stands
        if one.mid_s is not None and state.by_id[job].waits:
            starts[one.by] = {"low_s": one.low_s, "mid_s": one.mid_s, "high_s": one.high_s}
    return {**found, "at_wall_s": record.wall_s, "starts": _wall(starts, state, record), "history": history}


def _last(journal: Journal) -> tuple[RoundRecord, ClusterState]:
    record = journal.last()
    if record is None:
        raise InputError(f"{journal.path}: holds no round yet; wait for the first")
    return record, journal.state(record.number)


def _asked(directory: Path, settings: ServeSettings, job: str) -> dict[str, Any] | None:
    """What the agent says; None if none answers, or it does not know the job any more."""
    own = settings.model_copy(update={"state_dir": directory})
    if not own.socket.is_socket():
        return None
    try:
        found: dict[str, Any] = ask(own.socket, job_path(job, "explain"), ASK_WITHIN_S)
    except InputError:
        return None
    return found


def _wall(starts: dict[str, Any], state: ClusterState, record: RoundRecord) -> dict[str, Any]:
    """Times of the cluster's clock as Unix time, which its round has both of."""
    shift_s = record.wall_s - state.now_s
    return {
        by: {name: None if value is None else value + shift_s for name, value in times.items()}
        for by, times in starts.items()
    }
