"""A real Slurm: that the box comes up, runs jobs, is closed to the outside, and leaves nothing behind."""

import time
from collections.abc import Callable, Iterator

import pytest

from experiments.fidelity.slurm_box import BoxError, BoxSettings, SlurmBox, start_box, why_not

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.xdist_group("live"),
]


@pytest.fixture(scope="module")
def box() -> Iterator[SlurmBox]:
    with start_box(BoxSettings(nodes=2, gpus_per_node=4)) as running:
        yield running


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so within {seconds} s"
        time.sleep(0.1)


def state(box: SlurmBox, job: int) -> str:
    lines = box.run("scontrol", "show", "job", str(job))
    return lines.partition("JobState=")[2].split()[0]


def test_jobs_get_gpus_of_their_own_and_run_to_their_end(box: SlurmBox) -> None:
    two = [
        box.submit("--gres=gpu:2", "--mem=100", "--nodelist=gn1", "--uid=games", run_s=1) for _ in range(2)
    ]
    wait_until(lambda: all(state(box, job) == "RUNNING" for job in two))
    shown = [box.run("scontrol", "--details", "show", "job", str(job)) for job in two]
    assert sorted(text.partition("(IDX:")[2].partition(")")[0] for text in shown) == ["0-1", "2-3"]
    assert all("UserId=games" in text for text in shown)
    wait_until(lambda: all(state(box, job) == "COMPLETED" for job in two))


def test_a_job_that_is_too_large_for_every_node_is_refused(box: SlurmBox) -> None:
    with pytest.raises(BoxError, match="Requested node configuration is not available"):
        box.submit("--nodes=1", "--gres=gpu:5", run_s=1)


def test_daemons_listen_on_loopback_only(box: SlurmBox) -> None:
    listeners = box.listeners()
    assert len(listeners) == 3  # slurmctld and two slurmds; munged has a socket in the directory
    assert {address for address, _ in listeners} == {"127.0.0.1"}


def test_stopping_ends_daemons_and_running_jobs_and_removes_the_directory() -> None:
    with start_box(BoxSettings(nodes=1)) as box:
        job = box.submit("--gres=gpu:1", run_s=600)
        wait_until(lambda: state(box, job) == "RUNNING")
        assert len(box.processes()) >= 4  # munged, slurmctld, slurmd and the job's slurmstepd
    assert box.processes() == []
    assert not box.directory.exists()


def test_a_box_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(BoxError, match=r"slurm(ctl)?d ended(?s:.*)NoSuchParameter"),
        start_box(BoxSettings(nodes=1, lines=("NoSuchParameter=1",))) as box,
    ):
        pytest.fail(f"{box.directory} came up with an unknown parameter")


@pytest.mark.slow
@pytest.mark.skipif(why_not(accounting=True) is not None, reason=why_not(accounting=True) or "")
def test_accounting_counts_gpus_and_is_closed_to_the_outside_too() -> None:
    accounts = (("add", "account", "physics"), ("add", "user", "games", "Account=physics"))
    with start_box(BoxSettings(nodes=1, accounting=True, accounts=accounts)) as box:
        job = box.submit("--gres=gpu:3", "--uid=games", run_s=1)
        wait_until(lambda: state(box, job) == "COMPLETED")
        wait_until(lambda: "COMPLETED" in box.run("sacct", "-a", "-X", "-P", "-n", "--format=State"))
        log = box.run("sacct", "-a", "-X", "-P", "-n", "--format=User,Account,AllocTRES")
        assert {address for address, _ in box.listeners()} == {"127.0.0.1"}
    assert log.startswith("games|physics|")
    assert "gres/gpu=3" in log
    assert box.processes() == []
