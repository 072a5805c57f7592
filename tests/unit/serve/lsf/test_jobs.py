"""Records of bjobs: what waits, runs and has ended, who holds it, and what is never misread."""

import calendar
from typing import Any

import pytest

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.lsf.hosts import Site
from gpuyard.serve.lsf.jobs import FIELDS, JobList, read_jobs
from gpuyard.serve.state import Node, Partition, Share

NOW_S = float(calendar.timegm((2026, 4, 12, 20, 0, 0)))
NODES = (Node("nodes-1", 4, "V100", 16), Node("nodes-2", 4, "V100", 16))
SITE = Site(partitions=(Partition("interactive", ("nodes-1", "nodes-2")),), unclear={"odd": "hosts unclear"})
RUNNING = {
    "JOBID": "321", "STAT": "RUN", "QUEUE": "interactive", "USER": "ada", "GPU_NUM": "4",
    "GPU_ALLOC": "nodes-1:0,1;nodes-2:0,1", "ALLOC_SLOT": "16*nodes-1:16*nodes-2", "RUN_TIME": "34 second(s)",
    "MEM": "9 Mbytes", "SUBMIT_TIME": "Apr 12 18:10:00 2026", "START_TIME": "Apr 12 19:59:26",
    "FINISH_TIME": "Apr 12 22:27:01 2026 L", "RUNTIMELIMIT": "1440.0",
}  # fmt: skip
WAITING = {
    "JOBID": "400", "JOBINDEX": "0", "STAT": "PEND", "QUEUE": "interactive", "USER": "bo", "NREQ_SLOT": "2",
    "COMBINED_RESREQ": "rusage[ngpus_physical=2.00] span[hosts=1]", "SUBMIT_TIME": "Apr 12 19:00",
    "JOB_NAME": "$(touch x)", "RUNTIMELIMIT": "60.0",
}  # fmt: skip


def read(*records: dict[str, str]) -> JobList:
    unset = dict.fromkeys(FIELDS.upper().split(), "")
    return read_jobs([unset | record for record in records], NODES, SITE, NOW_S)


def waiting(**changes: str) -> Any:
    return read(WAITING | changes).jobs[0]


def test_a_running_job_holds_what_lsf_says() -> None:
    (job,) = read(RUNNING).jobs
    assert (job.id, job.phase, job.gpus, job.limit_s) == ("321", "running", 4, 86_400.0)
    assert job.shares == (Share("nodes-1", 2, 16), Share("nodes-2", 2, 16))
    assert job.begin_s == NOW_S - 34
    assert not job.can_requeue


def test_a_waiting_job_asks_for_what_it_needs() -> None:
    job = waiting()
    assert (job.gpus, job.nodes, job.cpus, job.limit_s, job.left, job.held) == (2, 1, 2, 3600.0, "", "")
    assert job.submit_s == NOW_S - 3600


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({"STAT": "PSUSP"}, "other"),
        ({"STAT": "PSUSP", "JOB_DESCRIPTION": "gpuyard:held"}, "agent"),
        ({"STAT": "PSUSP", "JOB_DESCRIPTION": "mine; gpuyard:held"}, "agent"),
        ({"STAT": "PSUSP", "JOB_DESCRIPTION": "gpuyard:1-0@nodes-1", "ASK_HOSTS": "nodes-1"}, "agent"),
        ({"STAT": "PSUSP", "JOB_DESCRIPTION": "gpuyard:1-0@nodes-1", "ASK_HOSTS": "nodes-2"}, "other"),
        ({"STAT": "PSUSP", "JOB_DESCRIPTION": "gpuyard:1-0@rank=5", "ASK_HOSTS": "group/+2"}, "other"),
        ({"STAT": "PEND", "JOB_DESCRIPTION": "gpuyard:held"}, ""),
    ],
)
def test_only_the_agents_word_makes_a_hold_the_agents(changes: dict[str, str], held: str) -> None:
    assert waiting(**changes).held == held


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"DEPENDENCY": "done(1)"}, "dependency"),
        ({"SPECIFIED_START_TIME": "Apr 13 00:00"}, "begin time"),
        ({"RSVID": "user1#0"}, "reservation"),
        ({"SERVICE_CLASS": "gold"}, "service class"),
        ({"ASK_HOSTS": "nodes-1"}, "hosts named"),
        ({"STAT": "WAIT"}, "chunk"),
        ({"QUEUE": "odd"}, "hosts unclear"),
        ({"QUEUE": "nowhere"}, "queue is not known"),
        ({"NREQ_SLOT": "2,4"}, "range of slots"),
        ({"COMBINED_RESREQ": "rusage[ngpus_physical=1] mode=shared"}, "shares GPUs"),
    ],
)
def test_what_cannot_be_represented_is_left_to_lsf(changes: dict[str, str], why: str) -> None:
    assert why in waiting(**changes).left


@pytest.mark.parametrize(
    "record",
    [
        WAITING | {"STAT": "FROZEN"},
        WAITING | {"STAT": ""},
        WAITING | {"JOBID": ""},
        WAITING | {"JOBID": "abc"},
        WAITING | {"SUBMIT_TIME": "yesterday"},
        RUNNING | {"GPU_ALLOC": "nodes-1"},
        RUNNING | {"ALLOC_SLOT": "x*nodes-1"},
    ],
)
def test_what_cannot_be_read_is_an_error_and_no_guess(record: dict[str, str]) -> None:
    with pytest.raises(AdapterError) as caught:
        read(record)
    assert caught.value.code == "parse"


def test_gpus_that_lsf_only_counts_are_spread_and_noted() -> None:
    found = read(RUNNING | {"GPU_ALLOC": "", "GPU_NUM": "3"})
    assert [share.gpus for share in found.jobs[0].shares] == [2, 1]
    assert "derived" in found.notes[0]


@pytest.mark.parametrize("state", ["USUSP", "SSUSP", "UNKWN", "ZOMBI"])
def test_suspended_and_lost_jobs_hold_their_hosts(state: str) -> None:
    assert read(RUNNING | {"STAT": state}).jobs[0].shares


def test_ended_jobs_are_no_jobs_but_ends() -> None:
    found = read(RUNNING | {"STAT": "EXIT", "FINISH_TIME": "Apr 12 19:59:56"})
    assert found.jobs == []
    assert (found.ended[0].id, found.ended[0].run_s) == ("321", 30.0)


def test_elements_of_an_array_have_ids_of_their_own() -> None:
    assert waiting(JOBINDEX="7").id == "400[7]"
