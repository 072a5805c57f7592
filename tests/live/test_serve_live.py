"""The agent on a real Slurm of 16 nodes with 8 GPUs each: what it decides happens, and nothing stays held."""

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from experiments.fidelity.slurm_box import why_not
from gpuyard.serve.journal import Journal
from live.served import NODES, Ask, Queued, Served, served, wait_until

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.xdist_group("live"),
]

Agent = subprocess.Popen[bytes]
JOBS = 200
RANKED_FROM = 1_000_000_000
"""Priorities from here on are the agent's."""
WRITES = "_slurm_rpc_update_job"
"""How slurmctld's log calls a change of a job."""
WHOLE_NODES = [Ask(8, run_s=600.0)] * NODES


@pytest.fixture(scope="module")
def running() -> Iterator[Served]:
    with served() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Served) -> Iterator[Served]:
    yield running
    running.clear()


def occupy(cluster: Served) -> list[str]:
    """Jobs on every GPU; nothing else starts until they are cancelled."""
    blockers = cluster.submit(WHOLE_NODES)
    cluster.wait_queue(lambda queue: all(queue[job].state == "R" for job in blockers))
    return blockers


def free(cluster: Served, blockers: list[str]) -> None:
    cluster.box.run("scancel", *blockers)


def controller_log(cluster: Served) -> str:
    return (cluster.box.directory / "log" / "slurmctld.log").read_text(errors="replace")


def ranks(values: list[float]) -> list[float]:
    """From 0, equal values at their mean."""
    ordered = sorted(values)
    places: dict[float, list[int]] = {}
    for place, value in enumerate(ordered):
        places.setdefault(value, []).append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def rank_correlation(left: list[float], right: list[float]) -> float:
    """Spearman's."""
    one, other = ranks(left), ranks(right)
    mean = (len(one) - 1) / 2
    product = sum((a - mean) * (b - mean) for a, b in zip(one, other, strict=True))
    squares = [sum((a - mean) ** 2 for a in places) for places in (one, other)]
    return float(product / (squares[0] * squares[1]) ** 0.5)


def test_everything_listens_on_loopback_only(running: Served) -> None:
    listeners = running.box.listeners()
    assert len(listeners) == NODES + 1
    assert {address for address, _ in listeners} == {"127.0.0.1"}


def test_shadow_needs_no_rights_and_writes_nothing(cluster: Served) -> None:
    config = cluster.settings("shadow", owner="nobody")
    logged = len(controller_log(cluster))
    agent = cluster.start_agent(config, "shadow", "order", "sjf+easy", user="nobody")
    draw = random.Random(1)
    blockers = occupy(cluster)
    asks = [
        Ask(draw.choice((1, 2, 4, 8)), draw.randint(1, 30), draw.choice((0.5, 1, 2))) for _ in range(JOBS)
    ]
    jobs = cluster.submit(asks)
    before = cluster.wait_queue(lambda queue: all(queue[job].priority > 1 for job in jobs))
    assert {one.comment for one in before.values()} == {""}
    free(cluster, blockers)
    cluster.wait_finished(jobs)
    wait_until(lambda: _starts(cluster, "shadow") >= JOBS, 60, cluster.last_log)
    assert cluster.end(agent) == 0
    assert WRITES not in controller_log(cluster)[logged:]
    code, said = cluster.call("shadow", "--json", config=config)
    assert code == 0, said
    report = json.loads(said)
    assert report["starts"] >= JOBS
    assert 0 <= report["agreement"] <= 1
    assert 0 <= report["baseline_agreement"] <= 1
    assert report["order_same_size"]["correlation"] is not None
    for by in ("policy", "current"):
        error = report["predictions"][by]
        assert error["jobs"] > JOBS / 2
        assert 0 <= error["median_s"] <= error["p90_s"]
    print({key: value for key, value in report.items() if key not in ("times", "missing")})
    code, said = cluster.call("replay", "--json", config=config)
    assert code == 0, said


def _starts(cluster: Served, name: str) -> int:
    with Journal.open(cluster.place / name / "journal.sqlite", readonly=True) as journal:
        return sum(one.what == "started" for _, one in journal.happened())


def test_jobs_start_in_the_order_of_the_policy_and_slurm_has_its_own_back_afterwards(cluster: Served) -> None:
    config = cluster.settings("order")
    agent = cluster.start_agent(config, "active", "order", "sjf+easy")
    blockers = occupy(cluster)
    draw = random.Random(2)
    asks = [Ask(8, draw.randint(1, 400), 0.5) for _ in range(JOBS)]
    jobs = cluster.submit(asks)
    cluster.wait_queue(lambda queue: all(queue[job].priority >= RANKED_FROM for job in jobs))
    free(cluster, blockers)
    done = cluster.wait_finished(jobs)
    starts = sorted({done[job].start for job in jobs})
    correlation = rank_correlation(
        [ask.limit_min for ask in asks], [starts.index(done[job].start) for job in jobs]
    )
    assert correlation >= 0.95
    print({"rank_correlation": correlation})
    blockers = occupy(cluster)
    waiting = cluster.submit([Ask(8, limit) for limit in range(1, 21)])
    cluster.wait_queue(lambda queue: all(queue[job].priority >= RANKED_FROM for job in waiting))
    assert cluster.end(agent) == 0
    after = cluster.wait_queue(lambda queue: all(queue[job].priority > 1 for job in waiting))
    assert max(after[job].priority for job in waiting) < RANKED_FROM
    assert {one.comment for one in after.values()} == {""}
    assert WRITES in controller_log(cluster)
    assert cluster.call("replay", config=config)[0] == 0


def test_jobs_run_on_exactly_the_nodes_that_were_decided(cluster: Served) -> None:
    config = cluster.settings("start", watchdog_s=60)
    cluster.hold_for("start", 60)
    agent = cluster.start_agent(config, "active", "start", "sjf+easy")
    draw = random.Random(3)
    shapes = [(1, 1), (1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (2, 2), (8, 2), (16, 2)]
    asks = [
        Ask(gpus, draw.randint(1, 60), draw.choice((0.5, 1.0)), nodes)
        for gpus, nodes in (draw.choice(shapes) for _ in range(JOBS))
    ]
    jobs = cluster.submit(asks)
    done = cluster.wait_finished(jobs)
    assert cluster.end(agent) == 0
    decided = decided_nodes(cluster, "start")
    assert {job: len(decided[job]) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: set(done[job].nodes) for job in jobs} == {job: set(decided[job][0]) for job in jobs}
    assert {len(done[job].nodes) for job in jobs} == {1, 2}
    assert cluster.call("replay", config=config)[0] == 0


def decided_nodes(cluster: Served, name: str) -> dict[str, list[tuple[str, ...]]]:
    """Nodes of every start that the guard let pass and Slurm took, by job."""
    found: dict[str, list[tuple[str, ...]]] = {}
    with Journal.open(cluster.place / name / "journal.sqlite", readonly=True) as journal:
        for number in journal.numbers():
            record = journal.record(number)
            passed = {
                one.job for one in record.verdicts if one.action == "start" and not one.rule and not one.error
            }
            for planned in record.starts:
                if planned.job in passed:
                    found.setdefault(planned.job, []).append(tuple(node for node, _ in planned.nodes))
    return found


# --- an agent that dies, and one that is halted

SILENCE_S = 10.0
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
