"""Random simulations, small and nasty, on which two simulators must agree to the last bit.

Each feature is switched on with some probability, so that plain cases and combinations of everything both
occur. Times lie on a coarse grid in most cases: ties and finishes that coincide with arrivals are the rule.
All submit times lie on whole microseconds, and every job can start on the empty cluster.
"""

import random
from dataclasses import dataclass, field, replace

from reference.simulator.simulator import (
    BACKFILLS,
    ESTIMATES,
    ORDERS_BY_ESTIMATE,
    OTHER_ORDERS,
    POOL_RULES,
    SPLITTING_RULES,
    Beginning,
    Job,
    Node,
    Partition,
    Policy,
    Qos,
    Settings,
    Watts,
    can_ever_start,
)

ORDERS = ORDERS_BY_ESTIMATE + OTHER_ORDERS
PLACEMENTS = POOL_RULES + SPLITTING_RULES
TYPES = ("a100", "v100", "t4", "p100")
GROUPS = ("vision", "speech", "robots", "guests", "")
SPEEDS = (0.1, 0.3, 1 / 3, 0.5, 0.7, 1.0, 1.0, 1.3, 2.0, 2.9)
SHARES_MILLI = (1, 100, 250, 300, 333, 500, 500, 501, 810, 999)
# The last unit makes run times so long that the order of their floating-point operations shows.
UNITS_US = (1, 7, 100_000, 333_333, 500_000, 1_000_000, 1_000_000, 60_000_000, 3_600_000_000, 10**12 + 39)


@dataclass(frozen=True)
class Case:
    """The arguments of `simulate`, in its order."""

    nodes: list[Node]
    speeds: dict[str, float]
    jobs: list[Job]
    policy: Policy
    settings: Settings
    watts: Watts = field(default_factory=dict)
    history: list[Job] = field(default_factory=list)
    given: Beginning | None = None
    partitions: tuple[Partition, ...] = ()
    qos: tuple[Qos, ...] = ()


@dataclass(frozen=True)
class Mix:
    """Which features the jobs of one case have, and how its times are drawn."""

    limits: bool
    shared: bool
    cpu_only: bool
    types: bool
    estimates: bool
    deadlines: bool
    rows: bool
    unit_us: int
    durations: tuple[int, ...]  # in units
    off_grid: bool


def random_case(seed: int) -> Case:
    """A case of 2 to 60 jobs on 1 to 12 nodes with any features combined."""
    rng = random.Random(seed)
    limits, types, owned = rng.random() < 0.4, rng.random() < 0.5, rng.random() < 0.35
    nodes = random_nodes(rng, rng.randint(1, rng.choice((2, 4, 12))), limits, types, owned)
    speeds = {type: rng.choice(SPEEDS) for type in TYPES if rng.random() < 0.7} if types else {}
    mix = Mix(
        limits=limits,
        shared=rng.random() < 0.4,
        cpu_only=rng.random() < 0.3,
        types=types and rng.random() < 0.7,
        estimates=rng.random() < 0.7,
        deadlines=rng.random() < 0.5,
        rows=rng.random() < 0.3,
        unit_us=rng.choice(UNITS_US),
        durations=rng.choice(((1, 2, 3), (1, 1, 2, 4, 20), (2, 5, 10, 50), tuple(range(1, 30)))),
        off_grid=rng.random() < 0.25,
    )
    policy = random_policy(rng, mix.unit_us)
    settings = random_settings(rng, mix.unit_us)
    count = rng.randint(2, rng.choice((6, 20, 60)))
    jobs = runnable_jobs(rng, count, mix, nodes, speeds, policy, settings)
    return Case(nodes, speeds, with_submits(rng, jobs, nodes, mix), policy, settings)


def random_window(seed: int) -> Case:
    """A case of 300 to 800 plain gangs on up to 40 nodes: few features, long queues."""
    rng = random.Random(seed)
    size = rng.choice((1, 2, 4, 5, 8, 8, 8))
    nodes = [Node("a100", size) for _ in range(rng.randint(4, 40))]
    mix = Mix(
        limits=False,
        shared=False,
        cpu_only=False,
        types=False,
        estimates=True,
        deadlines=True,
        rows=rng.random() < 0.3,
        unit_us=rng.choice((1_000_000, 60_000_000)),
        durations=rng.choice(((1, 2, 4, 8, 16, 64), tuple(range(1, 200)))),
        off_grid=rng.random() < 0.5,
    )
    express = (30.0, 0.2) if rng.random() < 0.2 else None
    placement = rng.choice((*POOL_RULES, "anywhere", "spread"))  # `random` takes the reference minutes
    policy = Policy(rng.choice(ORDERS), rng.choice(BACKFILLS), express, placement)
    policy = replace(policy, max_wait_s=random_max_wait_s(rng, mix.unit_us * 10))
    settings = Settings(estimates=rng.choice(ESTIMATES), seed=rng.getrandbits(32))
    jobs = runnable_jobs(rng, rng.randint(300, 800), mix, nodes, {}, policy, settings)
    return Case(nodes, {}, with_submits(rng, jobs, nodes, mix), policy, settings)


def random_crowd(seed: int) -> Case:
    """A case of 65 to 140 small nodes and so many jobs; in half of the cases no two jobs ask for the same.

    The core's indexes hold 64 nodes, jobs or running jobs a word or a block: here there are more of each.
    """
    rng = random.Random(seed)
    size, alike = rng.choice((1, 1, 2)), rng.random() < 0.5
    nodes = [Node("a100", size, memory_mib=1000 * rng.randint(1, 3)) for _ in range(rng.randint(65, 140))]
    mix = Mix(
        limits=False,
        shared=rng.random() < 0.3,
        cpu_only=rng.random() < 0.3,
        types=False,
        estimates=True,
        deadlines=True,
        rows=False,
        unit_us=1_000_000,
        durations=rng.choice(((1, 2, 4, 8), tuple(range(1, 30)))),
        off_grid=rng.random() < 0.3,
    )
    placement = rng.choice((*POOL_RULES, "anywhere", "spread"))
    policy = replace(random_policy(rng, mix.unit_us), placement=placement)
    settings = random_settings(rng, mix.unit_us)
    jobs = runnable_jobs(rng, rng.randint(150, 220), mix, nodes, {}, policy, settings)
    jobs = [replace(job, memory_mib=100 if alike else 100 + 2 * i) for i, job in enumerate(jobs)]
    return Case(nodes, {}, with_submits(rng, jobs, nodes, mix), policy, settings)


def random_queues(seed: int) -> Case:
    """A case of a busy queue, and of another whose jobs do nothing to the busy one but move the clock.

    Every queue makes a pass at every instant. A pass before which nothing happened to its queue may still
    start a job: the starts of the last pass may have changed where a job that they passed over would go.
    So that this happens, some jobs are long and some short, few are as large as a node, and nodes differ.
    """
    rng = random.Random(seed)
    sizes = rng.choice(((4,), (8,), (4, 8), (3, 5, 8)))
    nodes = [Node(rng.choice(TYPES[:2]), rng.choice(sizes)) for _ in range(rng.randint(2, 5))]
    policy = replace(
        random_policy(rng, 1_000_000),
        order=rng.choice(("fifo", "lifo", "ljf", "laf", "f3", "priority")),  # others make a pass at any rate
        placement=rng.choice((*PLACEMENTS, *["worst-fit", "spread"] * 3)),
    )
    if policy.express is None:
        policy = replace(policy, backfill=rng.choice(("easy", "easy-sjf")))
    busy = [
        Job(
            submit_s=rng.choice((0, 0, 0, rng.randrange(100), rng.randrange(300))) * 1.0,
            duration_s=rng.choice((2, 5, 20, 100, 300)) * rng.choice((1.0, 1.1)),
            gpus=rng.choice((1, 1, 1, 2, 2, 3, sizes[0], nodes[0].gpus, nodes[-1].gpus)),
            estimate_s=rng.choice((None, 5.0, 20.0, 100.0, 400.0)),
            priority=rng.randrange(3),
        )
        for _ in range(rng.randint(15, 40))
    ]
    tick_s = rng.choice((1.7, 3.3, 7.9))
    ticks = [Job(tick_s * (i + 1), 0.1, 1, group="clock", estimate_s=0.1) for i in range(100)]
    jobs = sorted(busy + ticks, key=lambda job: job.submit_s)
    jobs[0] = replace(jobs[0], submit_s=0.0)
    settings = replace(random_settings(rng, 1_000_000), estimates=rng.choice(("exact", "requested")))
    return Case(
        [*nodes, Node("t4", 1, owner="clock")], {TYPES[1]: rng.choice(SPEEDS)}, jobs, policy, settings
    )


def random_splits(seed: int) -> Case:
    """A case of gangs that are split over pools of two types, behind heads that may use only one of them."""
    rng = random.Random(seed)
    nodes = [Node(rng.choice(TYPES[:2]), rng.choice((1, 2, 3, 4))) for _ in range(rng.randint(3, 7))]
    speeds = {type: rng.choice(SPEEDS) for type in TYPES[:2]}
    backfill, placement = rng.choice(("easy", "easy-sjf")), rng.choice(SPLITTING_RULES)
    policy = replace(random_policy(rng, 1_000_000), backfill=backfill, placement=placement)
    settings = random_settings(rng, 1_000_000)
    mix = Mix(
        limits=False,
        shared=rng.random() < 0.2,
        cpu_only=False,
        types=False,
        estimates=True,
        deadlines=True,
        rows=False,
        unit_us=1_000_000,
        durations=(1, 2, 5, 10, 50),
        off_grid=rng.random() < 0.3,
    )
    jobs = runnable_jobs(rng, rng.randint(10, 40), mix, nodes, speeds, policy, settings)
    restricted = [replace(job, gpu_types=(rng.choice(TYPES[:2]),)) for job in jobs]
    jobs = [
        narrow
        if rng.random() < 0.5 and can_ever_start(nodes, speeds, narrow, row, placement, settings.seed)
        else wide
        for row, (wide, narrow) in enumerate(zip(jobs, restricted, strict=True))
    ]
    return Case(nodes, speeds, with_submits(rng, jobs, nodes, mix), policy, settings)


def random_nodes(rng: random.Random, count: int, limits: bool, types: bool, owned: bool) -> list[Node]:
    sizes = rng.choice(((8,), (4,), (1,), (4, 8), (2, 3, 5), (0, 1, 7, 9), tuple(range(10))))
    kinds = [
        Node(
            type=rng.choice(TYPES[:3]) if types else TYPES[0],
            gpus=rng.choice(sizes),
            owner=rng.choice((None, None, *GROUPS[:3])) if owned else None,
        )
        for _ in range(rng.randint(1, 4))
    ]
    nodes = [rng.choice(kinds) for _ in range(count)]
    if not limits:
        return nodes
    return [replace(node, cpus=limit(rng, node, 4), memory_mib=limit(rng, node, 1000)) for node in nodes]


def limit(rng: random.Random, node: Node, per_gpu: int) -> int | None:
    """A capacity that differs from node to node, and is sometimes missing or too small for the GPUs."""
    if rng.random() < 0.2:
        return None
    return int(per_gpu * (node.gpus + 1) * rng.choice((0.25, 0.5, 1, 1, 1, 2))) + rng.choice((0, 0, 1, 3))


def random_policy(rng: random.Random, unit_us: int) -> Policy:
    express = None
    if rng.random() < 0.3:
        t0_s = rng.choice((1, 2, 3, 10)) * unit_us / 1e6
        express = (t0_s, rng.choice((0.0, 0.01, 0.1, 0.25, 0.5, 1.0, 3.0)))
    backfill = rng.choice((*BACKFILLS, "easy", "easy-sjf"))
    order = rng.choice((*ORDERS, "fifo", "fifo", "fair-share", "random"))
    return Policy(order, backfill, express, rng.choice(PLACEMENTS), random_max_wait_s(rng, unit_us))


def random_max_wait_s(rng: random.Random, unit_us: int, salt: str = "") -> float | None:
    """An ageing bound that some jobs reach, in some cases to the microsecond.

    It changes nothing about what `rng` draws next: seeds of some cases are known for what happens in them.
    """
    state = rng.getstate()[1]
    rng = random.Random(f"{state[0]} {state[-1]} {salt}")
    if rng.random() < 0.65:
        return None
    return max(1, rng.choice((1, 2, 3, 10, 40)) * unit_us - rng.choice((0, 0, 1))) / 1e6


def random_settings(rng: random.Random, unit_us: int) -> Settings:
    return Settings(
        estimates=rng.choice((*ESTIMATES, "requested", "requested", "exact")),
        noise_sigma=rng.choice((0.0, 0.1, 0.5, 1.0, 3.0, 10.0)),
        seed=rng.choice((0, 1, rng.getrandbits(16), rng.getrandbits(63))),
        kill_at_estimate=rng.random() < 0.25,
        locality_penalty=rng.choice((0.0, 0.0, 0.0, 0.1, 0.3, 1.0)),
        usage_half_life_s=rng.choice((604800.0, 3600.0, 7 * unit_us / 1e6, 100 * unit_us / 1e6)),
        origin_s=rng.choice((0.0, 0.0, 0.5, 86400.0, rng.randrange(10**13) / 1e6)),
    )


def runnable_jobs(
    rng: random.Random,
    count: int,
    mix: Mix,
    nodes: list[Node],
    speeds: dict[str, float],
    policy: Policy,
    settings: Settings,
    watts: Watts | None = None,
) -> list[Job]:
    """So many jobs, all submitted at 0, each of which can start on the empty cluster."""
    rows = rng.sample(range(10 * count), count) if mix.rows else [None] * count
    last_resort = Job(0.0, mix.unit_us / 1e6, gpus=0, group=nodes[0].owner or "")
    jobs: list[Job] = []
    for position, row in enumerate(rows):
        original_row = position if row is None else row
        for _ in range(20):
            job = replace(random_job(rng, mix, nodes), row=row)
            how = (policy.placement, settings.seed, settings, watts)
            if can_ever_start(nodes, speeds, job, original_row, *how):
                break
        else:
            job = replace(last_resort, row=row)
        jobs.append(job)
    return jobs


def random_job(rng: random.Random, mix: Mix, nodes: list[Node]) -> Job:
    duration_us = random_duration_us(rng, mix)
    gpus, gpu_milli = random_gang(rng, mix, nodes), 1000
    if mix.shared and rng.random() < 0.5:
        gpus, gpu_milli = 1, rng.choice(SHARES_MILLI)
    return Job(
        submit_s=0.0,
        duration_s=duration_us / 1e6,
        gpus=gpus,
        gpu_milli=gpu_milli,
        cpus=rng.choice((0, 1, 2, 3, 4 * gpus, 3 * gpus + 1)) if mix.limits else 0,
        memory_mib=rng.choice((0, 0, 1, 500, 1000 * gpus, 901 * gpus)) if mix.limits else 0,
        estimate_s=random_estimate_s(rng, duration_us, mix),
        gpu_types=random_types(rng) if mix.types and rng.random() < 0.4 else None,
        priority=rng.choice((1.0, 1.0, 2.0, 0.5, -3.0)),
        user=rng.choice(("ada", "bo", "cy", "")),
        group=rng.choice(GROUPS),
        deadline_s=rng.randrange(50) * mix.unit_us / 1e6 if mix.deadlines and rng.random() < 0.8 else None,
    )


def random_gang(rng: random.Random, mix: Mix, nodes: list[Node]) -> int:
    if mix.cpu_only and rng.random() < 0.4:
        return 0
    largest = max(1, max(node.gpus for node in nodes))
    total = max(1, sum(node.gpus for node in nodes))
    return min(
        total, rng.choice((1, 1, 2, 4, largest, rng.randint(1, largest), rng.randint(1, 2 * largest + 3)))
    )


def random_types(rng: random.Random) -> tuple[str, ...]:
    """Some types, in any order; `p100` is on no node and `mi300` is nowhere at all."""
    return tuple(rng.sample((*TYPES, "mi300"), rng.randint(1, 4)))


def random_duration_us(rng: random.Random, mix: Mix) -> float:
    """A run time in microseconds; off the grid it may be a fraction of one, or round to 0."""
    duration_us: float = rng.choice(mix.durations) * mix.unit_us
    if mix.off_grid and rng.random() < 0.5:
        duration_us += rng.choice((0.5, 1, -1, 0.25, 1.5, rng.randrange(mix.unit_us)))
    return rng.choice((0.0, 0.3, 1.0)) if mix.off_grid and rng.random() < 0.03 else duration_us


def random_estimate_s(rng: random.Random, duration_us: float, mix: Mix) -> float | None:
    """None, the truth, a round number above it as users give, or too little."""
    if not mix.estimates or rng.random() < 0.15:
        return None
    factor = rng.choice((1, 1, 1.5, 2, 3, 10, 0.5, 0.1))
    guess_us = duration_us * factor
    if rng.random() < 0.4:
        guess_us = (guess_us // (5 * mix.unit_us) + 1) * 5 * mix.unit_us
    return guess_us / 1e6


def with_submits(rng: random.Random, jobs: list[Job], nodes: list[Node], mix: Mix) -> list[Job]:
    """Gives the jobs submit times, from 0, that load the cluster lightly to far above its capacity."""
    total = max(1, sum(node.gpus for node in nodes))
    work_us = sum(job.duration_s * 1e6 * max(job.size, 0.1) for job in jobs)
    span = int(work_us / total / mix.unit_us * rng.choice((0.0, 0.2, 0.4, 0.6, 0.8, 1.2)))
    choices = sorted({0, *(rng.randint(0, span) for _ in range(rng.choice((2, len(jobs), 2 * len(jobs)))))})
    submits = sorted(rng.choice(choices) * mix.unit_us for _ in jobs)
    if mix.off_grid:
        submits = sorted(us + rng.choice((0, 0, 1, rng.randrange(mix.unit_us))) for us in submits)
    return [replace(job, submit_s=(us - submits[0]) / 1e6) for job, us in zip(jobs, submits, strict=True)]
