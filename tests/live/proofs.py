"""What the agent must show on any real Slurm: shadow writes nothing, order and starts are the policy's."""

import json
import random
from typing import Any

from gpuyard.serve.journal import Journal
from live.served import NODES, Ask, Served, wait_until

RANKED_FROM = 1_000_000_000
"""Priorities from here on are the agent's."""
WRITES = "_slurm_rpc_update_job"
"""How slurmctld's log calls a change of a job."""
WHOLE_NODES = [Ask(8, run_s=600.0)] * NODES


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


def prove_shadow(
    cluster: Served, count: int, user: str = "", runs_s: tuple[float, ...] = (0.3, 0.6, 1)
) -> dict[str, Any]:
    """Every job ends, nothing is written, and the report is whole; it is returned.

    Args:
        cluster: A running Slurm.
        count: Of jobs.
        user: Whom the agent runs as; empty: root.
        runs_s: How long jobs may run. From 23.02 on squeue lists no job that ended, so there a job that is
            shorter than a round is never seen to start.
    """
    config = cluster.settings("shadow", owner=user)
    logged = len(controller_log(cluster))
    agent = cluster.start_agent(config, "shadow", "order", "sjf+easy", user=user)
    draw = random.Random(1)
    blockers = occupy(cluster)
    asks = [Ask(draw.choice((1, 2, 4, 8)), draw.randint(1, 30), draw.choice(runs_s)) for _ in range(count)]
    jobs = cluster.submit(asks)
    before = cluster.wait_queue(lambda queue: all(queue[job].priority > 1 for job in jobs))
    assert {one.comment for one in before.values()} == {""}
    wait_until(lambda: _predicted(cluster, "shadow", jobs) > count / 2, 60, cluster.last_log)
    free(cluster, blockers)
    cluster.wait_finished(jobs)
    wait_until(lambda: _left(cluster, "shadow") >= set(jobs), 60, cluster.last_log)
    assert cluster.end(agent) == 0
    assert WRITES not in controller_log(cluster)[logged:]
    code, said = cluster.call("shadow", "--json", config=config)
    assert code == 0, said
    report = json.loads(said)
    assert report["starts"] >= 0.9 * count
    assert 0 <= report["agreement"] <= 1
    assert 0 <= report["baseline_agreement"] <= 1
    assert report["order_same_size"]["correlation"] is not None
    for by in ("policy", "current"):
        error = report["predictions"][by]
        assert error["jobs"] > count / 2
        assert 0 <= error["median_s"] <= error["p90_s"]
    code, said = cluster.call("replay", "--json", config=config)
    assert code == 0, said
    return dict(report)


def _predicted(cluster: Served, name: str, jobs: list[str]) -> int:
    """Jobs whose start was predicted under the policy and under what runs today."""
    with Journal.open(cluster.place / name / "journal.sqlite", readonly=True) as journal:
        rows = journal.predictions()
    both = [
        {one.job for one in rows if one.by == by and one.mid_s is not None} for by in ("policy", "current")
    ]
    return len(both[0] & both[1] & set(jobs))


def _left(cluster: Served, name: str) -> set[str]:
    """Jobs that the agent has seen leave the queue."""
    with Journal.open(cluster.place / name / "journal.sqlite", readonly=True) as journal:
        return {one.job for _, one in journal.happened() if one.what in ("ended", "gone")}


def prove_order(cluster: Served, count: int, nodes: int = 1) -> float:
    """Jobs start in the policy's order, and Slurm has its own back afterwards; the rank correlation.

    Args:
        cluster: A running Slurm.
        count: Of jobs.
        nodes: Of each job. Jobs that start in one second count as equal, so few must fit at a time.
    """
    config = cluster.settings("order")
    agent = cluster.start_agent(config, "active", "order", "sjf+easy")
    blockers = occupy(cluster)
    draw = random.Random(2)
    asks = [Ask(8 * nodes, draw.randint(1, 400), 0.1, nodes) for _ in range(count)]
    jobs = cluster.submit(asks)
    cluster.wait_queue(lambda queue: all(queue[job].priority >= RANKED_FROM for job in jobs))
    free(cluster, blockers)
    done = cluster.wait_finished(jobs)
    starts = sorted({done[job].start for job in jobs})
    correlation = rank_correlation(
        [ask.limit_min for ask in asks], [starts.index(done[job].start) for job in jobs]
    )
    assert correlation >= 0.95
    blockers = occupy(cluster)
    waiting = cluster.submit([Ask(8, limit) for limit in range(1, 21)])
    cluster.wait_queue(lambda queue: all(queue[job].priority >= RANKED_FROM for job in waiting))
    assert cluster.end(agent) == 0
    after = cluster.wait_queue(lambda queue: all(queue[job].priority > 1 for job in waiting))
    assert max(after[job].priority for job in waiting) < RANKED_FROM
    assert {one.comment for one in after.values()} == {""}
    assert WRITES in controller_log(cluster)
    code, said = cluster.call("replay", config=config)
    assert code == 0, said
    return correlation


def prove_start(cluster: Served, count: int) -> None:
    """Jobs run on exactly the nodes that were decided."""
    config = cluster.settings("start", watchdog_s=60, interval_s=0.5)
    cluster.hold_for("start", 60)
    agent = cluster.start_agent(config, "active", "start", "sjf+easy")
    draw = random.Random(3)
    shapes = [(1, 1), (1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (2, 2), (8, 2), (16, 2)]
    asks = [
        Ask(gpus, draw.randint(1, 60), draw.choice((0.1, 0.5)), nodes)
        for gpus, nodes in (draw.choice(shapes) for _ in range(count))
    ]
    jobs = cluster.submit(asks)
    done = cluster.wait_finished(jobs)
    assert cluster.end(agent) == 0
    decided = decided_nodes(cluster, "start")
    assert {job: len(decided[job]) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: set(done[job].nodes) for job in jobs} == {job: set(decided[job][0]) for job in jobs}
    assert {len(done[job].nodes) for job in jobs} == {1, 2}
    code, said = cluster.call("replay", config=config)
    assert code == 0, said


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
