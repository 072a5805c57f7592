"""Placements by `tetris`, `fgd` and the tiers, and whole simulations with them, against brute force."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from differential.brute_placement import RULES, TIERS, Scene, brute_place
from differential.cases import (
    Case,
    Mix,
    limit,
    random_policy,
    random_settings,
    runnable_jobs,
    with_submits,
)
from differential.core_runs import run_core, run_core_by_snapshots
from gpuyard import _core
from reference.simulator import simulator as reference
from reference.simulator.simulator import Allocation, FreeNode, Job, Node, Outcome, Policy, Request, Settings

TRIALS = 1_500
GANG_TRIALS = 600
SIMULATIONS = 25
SLOW_TRIALS = 24_000
RARE_TIES = (9_418, 16_060)  # of the squares in `tier-balance`, between ways that fragment differently
MakeCase = Callable[[int], Case]
SHARES_MILLI = (1, 100, 250, 300, 500, 501, 999)


def random_nodes(rng: random.Random) -> list[Node]:
    """Few enough to try every way: up to 7 small nodes, or 3 large ones."""
    sizes, most = rng.choice(
        (
            ((1, 2), 7),
            ((2,), 8),
            ((3,), 6),
            ((4,), 6),
            ((2, 4), 6),
            ((5, 6), 5),
            ((6,), 5),
            ((8,), 4),
            ((16,), 3),
        )
    )
    limits, types = rng.random() < 0.5, rng.random() < 0.3
    nodes = [
        Node(rng.choice(("a100", "v100")) if types else "a100", rng.choice(sizes))
        for _ in range(rng.randint(1, most))
    ]
    if not limits:
        return nodes
    return [replace(node, cpus=limit(rng, node, 4), memory_mib=limit(rng, node, 1000)) for node in nodes]


def random_job(rng: random.Random, nodes: list[Node], shared: bool) -> Job:
    largest, total = max(node.gpus for node in nodes), sum(node.gpus for node in nodes)
    gpus = rng.choice(
        (0, 1, 2, largest, rng.randint(1, largest), rng.randint(1, total), rng.randint(1, total))
    )
    milli = 1000
    if shared and rng.random() < 0.5:
        gpus, milli = 1, rng.choice(SHARES_MILLI)
    limited = rng.random() < 0.6
    return Job(
        submit_s=0.0,
        duration_s=1.0,
        gpus=gpus,
        gpu_milli=milli,
        cpus=rng.choice((0, 1, 2, 4 * gpus, 3 * gpus + 1)) if limited else 0,
        memory_mib=rng.choice((0, 1, 500, 1000 * gpus, 901 * gpus)) if limited else 0,
        gpu_types=(rng.choice(("a100", "v100")),) if rng.random() < 0.1 else None,
    )


Held = list[tuple[Job, Allocation]]


def random_held(rng: random.Random, nodes: list[Node], free: list[FreeNode], shared: bool) -> Held:
    """Jobs that each hold a part of one node and leave it anything from idle to full."""
    held: Held = []
    busy = rng.choice((0.0, 0.3, 0.7, 1.0))
    for id, node in enumerate(nodes):
        while rng.random() < busy:
            job = replace(random_job(rng, [node], shared), gpu_types=None)
            if job.gpus > node.gpus or not reference.can_hold(free[id], job, job.gpus):
                break
            reference.take(free, job, ((id, job.gpus),))
            held.append((job, ((id, job.gpus),)))
    return held


class Core:
    """The core's view of some jobs on some nodes, without the checks that a workload goes through."""

    def __init__(self, nodes: list[Node], speeds: dict[str, float], jobs: list[Job]) -> None:
        types = ["a100", "v100"]
        free = reference.empty_cluster(nodes)
        self.cluster = _core.ClusterSpec(
            type=int32([types.index(node.type) for node in nodes]),
            gpus=int32([node.gpus for node in nodes]),
            cpus=np.array([node.cpus for node in free]),
            memory_mib=np.array([node.memory_mib for node in free]),
            owner=int32([-1 for _ in nodes]),
            type_speed=np.array([speeds.get(type, 1.0) for type in types]),
            track_gpus=any(job.is_shared for job in jobs),
        )
        zeros = np.zeros(len(jobs), dtype=np.int64)
        self.jobs = _core.JobTable(
            self.cluster,
            submit_us=zeros,
            duration_us=zeros + 1,
            estimate_us=zeros + 1,
            gpus=int32([job.gpus for job in jobs]),
            gpu_milli=int32([job.gpu_milli for job in jobs]),
            cpus=np.array([job.cpus for job in jobs]),
            memory_mib=np.array([job.memory_mib for job in jobs]),
            nodes=int32([job.nodes or 0 for job in jobs]),
            type_set=int32([types.index(job.gpu_types[0]) if job.gpu_types else -1 for job in jobs]),
            type_sets=[[0], [1]],
        )


def int32(values: list[int]) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


@dataclass(frozen=True)
class Question:
    """Where does the job go?"""

    nodes: list[Node]
    speeds: dict[str, float]
    held: Held
    free: list[FreeNode]
    job: Job
    arrived: list[Job]


def random_question(seed: int) -> Question:
    """Any features combined."""
    rng = random.Random(seed)
    nodes = random_nodes(rng)
    shared = rng.random() < 0.4
    free = reference.empty_cluster(nodes)
    held = random_held(rng, nodes, free, shared)
    job = random_job(rng, nodes, shared)
    arrived = [job, *(random_job(rng, nodes, shared) for _ in range(rng.randint(0, 12)))]
    return Question(nodes, {"a100": rng.choice((1.0, 2.0))}, held, free, job, arrived)


def random_gang_question(seed: int) -> Question:
    """A gang of 2 to 4 nodes, no limits, on as many different nodes as can be tried: many ways are alike."""
    rng = random.Random(seed)
    size = rng.choice((3, 4, 4, 5, 6))
    nodes = [Node("a100", size) for _ in range(rng.randint(4, 7 if size < 5 else 6))]
    free = reference.empty_cluster(nodes)
    held: Held = []
    for id in range(len(nodes)):
        if rng.random() < 0.6:
            other = Job(0, 1, rng.randint(1, size))
            held.append((other, ((id, other.gpus),)))
            reference.take(free, *held[-1])
    job = Job(0, 1, rng.randint(size + 1, 3 * size))
    return Question(nodes, {}, held, free, job, [job])


def assert_placed_alike(ask: Callable[[int], Question], seed: int, rule: str) -> bool:
    question = ask(seed)
    nodes, speeds, held, job = question.nodes, question.speeds, question.held, question.job
    core = Core(nodes, speeds, [job, *(other for other, _ in held)])
    on_nodes = [(i, list(allocation)) for i, (_, allocation) in enumerate(held, start=1)]
    kinds = Counter((other.gpus, other.gpu_milli) for other in question.arrived if other.gpus)
    mix = [(*kind, count) for kind, count in kinds.items()]
    scene = Scene(nodes, reference.make_pools(nodes, speeds), question.free, question.arrived)
    expected = brute_place(scene, job, rule)
    placed = _core.testing.place(core.cluster, core.jobs, rule, on_nodes, 0, mix)
    where = f"{ask.__name__}({seed}), {rule}: {job} on {nodes}, free {question.free}"
    assert placed == (None if expected is None else list(expected)), where
    assert _core.testing.placeable(core.cluster, core.jobs, rule, on_nodes, 0) == (expected is not None), (
        where
    )
    return expected is not None


@pytest.mark.parametrize("rule", RULES)
def test_a_job_goes_where_trying_everything_says(rule: str) -> None:
    seeds = (*range(TRIALS), *RARE_TIES)
    placed = sum(assert_placed_alike(random_question, seed, rule) for seed in seeds)
    assert TRIALS / 5 < placed < TRIALS


@pytest.mark.parametrize("rule", TIERS)
def test_a_gang_goes_where_trying_everything_says(rule: str) -> None:
    placed = sum(assert_placed_alike(random_gang_question, seed, rule) for seed in range(GANG_TRIALS))
    assert GANG_TRIALS / 5 < placed < GANG_TRIALS


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("start", range(TRIALS, SLOW_TRIALS, 10_000))
def test_many_more_jobs_go_where_trying_everything_says(rule: str, start: int) -> None:
    for seed in range(start, start + 10_000):
        assert_placed_alike(random_question, seed, rule)


@pytest.mark.slow
@pytest.mark.parametrize("rule", TIERS)
@pytest.mark.parametrize("start", range(GANG_TRIALS, SLOW_TRIALS, 5_000))
def test_many_more_gangs_go_where_trying_everything_says(rule: str, start: int) -> None:
    for seed in range(start, start + 5_000):
        assert_placed_alike(random_gang_question, seed, rule)


class BruteSimulation(reference.Simulation):
    """The reference with placements by brute force."""

    nodes: list[Node]
    requests: list[Request]

    def place(self, free: list[FreeNode], request: Request) -> Allocation | None:
        arrived = [other.job for other in self.requests if other.submit_us <= self.now_us]
        return brute_place(Scene(self.nodes, self.pools, free, arrived), request.job, self.policy.placement)


def brute_outcomes(case: Case) -> list[Outcome]:
    requests = [reference.make_request(id, job, case.settings) for id, job in enumerate(case.jobs)]
    pools, free = reference.make_pools(case.nodes, case.speeds), reference.empty_cluster(case.nodes)
    simulation = BruteSimulation(pools, free, list(requests), case.policy, case.settings)
    simulation.nodes, simulation.requests = case.nodes, requests
    simulation.run()
    return [simulation.outcomes[request.id] for request in requests]


def random_case(seed: int) -> Case:
    """5 to 25 jobs on up to 6 small nodes, often with another queue that only brings more jobs."""
    rng = random.Random(seed)
    sizes, limits = rng.choice(((2,), (3,), (4,), (4,), (2, 4), (5,))), rng.random() < 0.6
    nodes = [Node("a100", rng.choice(sizes)) for _ in range(rng.randint(2, 5))]
    if limits:
        nodes = [replace(node, cpus=limit(rng, node, 4), memory_mib=limit(rng, node, 1000)) for node in nodes]
    nodes += [Node("a100", sizes[0], owner="vision")] * rng.choice((0, 0, 1, 2))
    mix = Mix(
        limits=limits,
        shared=rng.random() < 0.4,
        cpu_only=rng.random() < 0.2,
        types=False,
        estimates=True,
        deadlines=False,
        rows=False,
        unit_us=1_000_000,
        durations=rng.choice(((1, 2, 5), (1, 2, 10, 50))),
        off_grid=False,
    )
    policy = replace(random_policy(rng, mix.unit_us), placement="anywhere")
    if rng.random() < 0.5:
        policy = replace(policy, order=rng.choice(("fifo", "smallest", "ljf", "priority")))
    settings = random_settings(rng, mix.unit_us)
    jobs = runnable_jobs(rng, rng.randint(5, 25), mix, nodes, {}, policy, settings)
    rule = rng.choice((*RULES, "fgd", "tier"))
    scene = Scene(nodes, reference.make_pools(nodes, {}), reference.empty_cluster(nodes))
    # Only whether it fits matters here, and that does not depend on what has arrived.
    jobs = [job for job in jobs if brute_place(scene, job, rule) is not None] or [Job(0.0, 1.0, 1)]
    return Case(nodes, {}, with_submits(rng, jobs, nodes, mix), replace(policy, placement=rule), settings)


def random_room(seed: int) -> Case:
    """A case in which starts make room: tier 2 may use nodes that lack CPUs only once they are broken up.

    A gang needs a node with many CPUs, or two nodes with few CPUs each of which holds another job already.
    Another queue moves the clock: what was passed over may start although nothing happened to its queue.
    """
    rng = random.Random(seed)
    nodes = [Node("a100", 4, cpus=8)] + [Node("a100", 4, cpus=2) for _ in range(rng.randint(2, 3))]
    rng.shuffle(nodes)
    jobs = []
    for _ in range(rng.randint(8, 20)):
        gang = rng.random() < 0.4
        gpus = 4 if gang else rng.choice((1, 1, 2, 3))
        jobs.append(
            Job(
                submit_s=rng.choice((0, 0, rng.randrange(40))) * 1.0,
                duration_s=rng.choice((1, 3, 10, 40)) * 1.0,
                gpus=gpus,
                cpus=gpus if gang or rng.random() < 0.2 else 0,
                estimate_s=rng.choice((None, 1.0, 4.0, 10.0, 40.0)),
                priority=rng.randrange(3),
            )
        )
    clock = [Job(1.7 * (i + 1), 0.1, 1, group="clock", estimate_s=0.1) for i in range(30)]
    jobs = sorted(jobs + clock, key=lambda job: job.submit_s)
    jobs[0] = replace(jobs[0], submit_s=0.0)
    policy = replace(random_policy(rng, 1_000_000), placement=rng.choice(TIERS))
    if rng.random() < 0.8:
        order = rng.choice(("fifo", "lifo", "ljf", "smallest", "priority"))
        policy = replace(policy, order=order, backfill=rng.choice(("easy", policy.backfill)), express=None)
    settings = replace(random_settings(rng, 1_000_000), estimates=rng.choice(("exact", "requested")))
    return Case([*nodes, Node("t4", 1, owner="clock")], {}, jobs, policy, settings)


def random_arrivals(seed: int) -> Case:
    """A case in which jobs that arrive in another queue change where `fgd` would put a waiting job.

    Those jobs are of one size, then of another, so that what is useless to most jobs changes. The waiting
    jobs are mostly too long to be backfilled wherever they would go.
    """
    rng = random.Random(seed)
    nodes = [Node("a100", rng.choice((4, 8))) for _ in range(rng.randint(3, 5))]
    jobs = [
        Job(
            submit_s=rng.choice((0, 0, rng.randrange(60))) * 1.0,
            duration_s=rng.choice((3, 20, 60, 200)) * rng.choice((1.0, 1.1)),
            gpus=rng.choice((1, 1, 2, 2, 3, 4, 5, 8)),
            priority=rng.randrange(3),
        )
        for _ in range(rng.randint(10, 25))
    ]
    sizes = [rng.choice((1, 2, 3, 4, 5, 8)) for _ in range(4)]
    clock = [Job(1.7 * (i // 3 + 1), 0.1, sizes[i // 45], group="clock", estimate_s=0.1) for i in range(180)]
    jobs = [job for job in jobs if job.gpus <= 4 or any(node.gpus == 8 for node in nodes)]
    jobs = sorted(jobs + clock, key=lambda job: job.submit_s)
    jobs[0] = replace(jobs[0], submit_s=0.0)
    policy = replace(random_policy(rng, 1_000_000), placement="fgd", order=rng.choice(("fifo", "priority")))
    if rng.random() < 0.8:
        policy = replace(policy, backfill=rng.choice(("easy", "easy-sjf")), express=None)
    settings = replace(random_settings(rng, 1_000_000), estimates="exact")
    return Case([*nodes, Node("t4", 8, owner="clock")], {}, jobs, policy, settings)


def assert_simulated_alike(make_case: MakeCase, seed: int) -> None:
    case = make_case(seed)
    expected = brute_outcomes(case)
    where = f"{make_case.__name__}({seed}): {case.policy}"
    assert run_core(case) == expected, f"run loop, {where}"
    assert run_core_by_snapshots(case) == expected, f"snapshots, {where}"


@pytest.mark.parametrize("make_case", [random_case, random_room, random_arrivals])
def test_whole_simulations_agree_to_the_last_bit(make_case: MakeCase) -> None:
    for seed in range(SIMULATIONS):
        assert_simulated_alike(make_case, seed)


@pytest.mark.parametrize("seed", [379, 382, 455, 700, 701, 703])
def test_a_start_may_make_room_before_the_shadow_time(seed: int) -> None:
    """The head's shadow time is not what it was once a job is backfilled: it may be placeable earlier."""
    assert_simulated_alike(random_room, seed)


@pytest.mark.slow
@pytest.mark.parametrize("make_case", [random_case, random_room, random_arrivals])
@pytest.mark.parametrize("start", range(SIMULATIONS, 2_000, 100))
def test_many_more_whole_simulations_agree_to_the_last_bit(make_case: MakeCase, start: int) -> None:
    for seed in range(start, start + 100):
        assert_simulated_alike(make_case, seed)


def one_rule_on(nodes: list[Node], held: list[tuple[Job, Allocation]], job: Job, rule: str) -> object:
    core = Core(nodes, {}, [job, *(other for other, _ in held)])
    on_nodes = [(i, list(allocation)) for i, (_, allocation) in enumerate(held, start=1)]
    return _core.testing.place(core.cluster, core.jobs, rule, on_nodes, 0)


@pytest.mark.parametrize("rule", TIERS)
def test_a_gang_of_many_nodes_is_placed(rule: str) -> None:
    """There are too many nodes to try every choice of them, but only one way."""
    nodes = [Node("a100", 16) for _ in range(33)]
    busy = [(Job(0, 1, 13), ((7, 13),))]
    placed = one_rule_on(nodes, busy, Job(0, 1, 32 * 16 + 3), rule)
    assert placed == [(id, 3 if id == 7 else 16) for id in range(33)]


@pytest.mark.parametrize("rule", TIERS)
def test_tiers_refuse_nodes_of_more_than_16_gpus(rule: str) -> None:
    with pytest.raises(ValueError, match="at most 16 GPUs, but the cluster has nodes of 17"):
        one_rule_on([Node("a100", 17)], [], Job(0, 1, 1), rule)


def test_a_start_may_make_room_for_a_tier_2_way() -> None:
    """Two idle nodes lack the CPUs for more than 2 of 4 GPUs: using both would break up both."""
    nodes = [Node("a100", 4, cpus=2) for _ in range(2)]
    gang = Job(0, 1, 4, cpus=4)
    assert one_rule_on(nodes, [], gang, "tier") is None
    broken_up = [(Job(0, 1, 1), ((0, 1),)), (Job(0, 1, 1), ((1, 1),))]
    assert one_rule_on(nodes, broken_up, gang, "tier") == [(0, 2), (1, 2)]


def test_arrivals_in_another_queue_may_let_a_job_start_by_fgd() -> None:
    """A long job would take the node that the head waits for, until there are more jobs of 2 GPUs to come."""
    jobs = [
        Job(0.0, 100.0, 2),  # on node 0
        Job(0.0, 1.0, 2),  # fills node 0 up
        Job(0.0, 1000.0, 1),  # so that this one goes to node 1
        Job(0.0, 10.0, 4),  # the head: waits for node 0 until 100
        Job(0.0, 1.0, 3, group="others"),
        Job(2.0, 500.0, 1),
        Job(10.0, 1.0, 2, group="others"),
        Job(10.0, 1.0, 2, group="others"),
    ]
    nodes = [Node("a100", 4), Node("a100", 4), Node("t4", 8, owner="others")]
    case = Case(nodes, {}, jobs, Policy("fifo", "easy", placement="fgd"), Settings())
    for outcomes in (brute_outcomes(case), run_core(case), run_core_by_snapshots(case)):
        assert [outcomes[5].start_us, outcomes[5].nodes] == [10_000_000, ((1, 1),)]
