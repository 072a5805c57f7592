"""The agent on a real Slurm of 16 nodes with 8 GPUs each: what it decides happens, and nothing stays held."""

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from experiments.fidelity.slurm_box import why_not
from gpuyard.serve.journal import Journal
from live.proofs import occupy, prove_order, prove_shadow, prove_start
from live.served import NODES, Ask, Queued, Served, served, wait_until

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.xdist_group("live-agent"),
]

Agent = subprocess.Popen[bytes]
JOBS = 200


@pytest.fixture(scope="module")
def running() -> Iterator[Served]:
    with served() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Served) -> Iterator[Served]:
    yield running
    running.clear()


def test_everything_listens_on_loopback_only(running: Served) -> None:
    listeners = running.box.listeners()
    assert len(listeners) == NODES + 1
    assert {address for address, _ in listeners} == {"127.0.0.1"}


def test_shadow_needs_no_rights_and_writes_nothing(cluster: Served) -> None:
    report = prove_shadow(cluster, JOBS, "nobody")
    print({key: value for key, value in report.items() if key not in ("times", "missing")})


def test_jobs_start_in_the_order_of_the_policy_and_slurm_has_its_own_back_afterwards(cluster: Served) -> None:
    print({"rank_correlation": prove_order(cluster, JOBS)})


def test_jobs_run_on_exactly_the_nodes_that_were_decided(cluster: Served) -> None:
    prove_start(cluster, JOBS)


# --- an agent that dies, and one that is halted

SILENCE_S = 6.0
FEW = [Ask(8, limit) for limit in range(1, 11)]


def held(queue: dict[str, Queued]) -> set[str]:
    return {id for id, one in queue.items() if one.held}


def returned(queue: dict[str, Queued], jobs: list[str]) -> bool:
    """Whether these wait as if there were no agent."""
    return all(queue[job].priority > 0 and not queue[job].comment for job in jobs)


@dataclass
class Holding:
    """An agent that has jobs held."""

    config: Path
    agent: Agent
    jobs: list[str]


def holding(cluster: Served, name: str) -> Holding:
    config = cluster.settings(name, watchdog_s=SILENCE_S)
    cluster.hold_for(name, SILENCE_S)
    agent = cluster.start_agent(config, "active", "start", "sjf+easy")
    occupy(cluster)
    jobs = cluster.submit(FEW)
    assert held(cluster.queue()) == set(jobs)
    return Holding(config, agent, jobs)


def test_the_watchdog_returns_all_jobs_of_a_killed_agent_and_another_agent_takes_over(
    cluster: Served,
) -> None:
    has = holding(cluster, "killed")
    code, said = cluster.call("watchdog", "--once", "--json", config=has.config)
    assert (code, json.loads(said)["alive"]) == (0, True)
    cluster.end(has.agent, signal.SIGKILL)
    assert held(cluster.queue()) == set(has.jobs)

    def looked() -> bool:
        code, said = cluster.call("watchdog", "--once", "--json", config=has.config)
        assert code == 0, said
        return not json.loads(said)["alive"]

    wait_until(looked, SILENCE_S + 60)
    assert returned(cluster.queue(), has.jobs)
    (new,) = cluster.submit(FEW[:1])
    assert returned(cluster.queue(), [new])  # the submit script holds nothing for a dead agent
    cluster.start_agent(has.config, "active", "start", "sjf+easy")
    (later,) = cluster.submit(FEW[:1])
    assert held(cluster.queue()) == {later}
    with Journal.open(cluster.place / "killed" / "journal.sqlite", readonly=True) as journal:
        numbers = journal.numbers()
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_watchdog_that_stays_returns_all_jobs_by_itself(cluster: Served) -> None:
    has = holding(cluster, "watched")
    watchdog = cluster.spawn("watchdog", "--every-s", "1", config=has.config)
    cluster.end(has.agent, signal.SIGKILL)
    cluster.wait_queue(lambda queue: returned(queue, has.jobs), SILENCE_S + 60)
    assert watchdog.poll() is None


def test_a_halt_returns_all_jobs_whether_the_agent_lives_or_not(cluster: Served) -> None:
    has = holding(cluster, "halted")
    code, said = cluster.call("halt", "--json", config=has.config)
    assert code == 0, said
    assert returned(cluster.queue(), has.jobs)
    (new,) = cluster.submit(FEW[:1])
    assert returned(cluster.queue(), [new])
    assert cluster.call("resume", config=has.config)[0] == 0
    wait_until((cluster.place / "halted" / "heartbeat").exists, 60, cluster.last_log)
    later = cluster.submit(FEW)
    assert held(cluster.queue()) == set(later)
    cluster.end(has.agent, signal.SIGKILL)
    code, said = cluster.call("halt", "--json", config=has.config)
    assert (code, set(json.loads(said)["jobs"])) == (0, set(later))
    assert returned(cluster.queue(), later)
