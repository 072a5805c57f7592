"""An agent on the double of LSF: no job is lost, stuck or started twice, whoever is killed."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fault.lsf_rounds import Town
from gpuyard.serve.journal import Journal


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="lsf-"))  # a socket's path must be short
    yield made
    shutil.rmtree(made)


def decided(place: Path, control: str) -> int:
    """Jobs that the agent started, or gave a rank."""
    kind = "start" if control == "start" else "reorder"
    with Journal.open(place / "state" / "journal.sqlite", readonly=True) as journal:
        rows = journal.decisions(limit=1_000_000)
    return len({row.job for row in rows if row.action == kind and not row.rule and not row.error})


def through(place: Path, control: str, jobs: int, kill_every_s: float, most_s: float, hosts: int = 4) -> Town:
    town = Town(place, control, 1, hosts)
    try:
        town.run(jobs, kill_every_s, most_s)
        assert town.stop_agent() == 0, town.said()
    finally:
        town.end()
    town.check(jobs)
    return town


@pytest.mark.parametrize("control", ["start", "order"])
def test_a_few_jobs_go_through_an_agent_that_is_killed(place: Path, control: str) -> None:
    town = through(place, control, 20, 4.0, 120.0, hosts=2)
    assert decided(place, control) >= 1, town.said()


@pytest.mark.slow
@pytest.mark.parametrize("control", ["start", "order"])
def test_a_thousand_jobs_end_exactly_once_while_agent_and_lsf_are_killed(place: Path, control: str) -> None:
    town = through(place, control, 1000, 10.0, 1800.0)
    print(control, town.kills, "decided by the agent:", decided(place, control))
    # How many it decides depends on how fast the machine starts processes; that it took part does not.
    assert decided(place, control) >= 50
    assert min(town.kills["agent"], town.kills["daemon"]) >= 1
