"""Section 9 of docs/contract/simulator.md: placement, but for tiers (reference/simulator/tiers.py)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from reference.simulator.cluster import (
    Allocation,
    FreeNode,
    Pool,
    Watts,
    allowed_pools,
    copy_of,
    draw_mw,
    empty_cluster,
    energy_rate,
    gpus_taken,
    least_nodes,
    make_pools,
    milliwatts,
    share,
    take,
)
from reference.simulator.inputs import (
    ALL_PLACEMENTS,
    ENERGY_POOL_RULES,
    SPLITTING_RULES,
    TIER_RULES,
    Job,
    Node,
    Partition,
    Qos,
    Request,
    Settings,
    draw,
)
from reference.simulator.limits import can_ever_be_within
from reference.simulator.tiers import best_way


@dataclass(frozen=True)
class World:
    """What rules go by beside the free state; some rules need none of it."""

    nodes: Sequence[Node] = ()
    watts: Watts = field(default_factory=dict)
    power_cap_w: float | None = None
    asleep: frozenset[int] = frozenset()
    arrived: Counter[tuple[int, int]] = field(default_factory=Counter)  # jobs by (G, gpu_milli)


NO_WORLD = World()


def can_hold(node: FreeNode, job: Job, gpus: int) -> bool:
    cpus, memory_mib = share(job, gpus)
    if not node.available or node.cpus < cpus or node.memory_mib < memory_mib:
        return False
    if job.gpus == 0:
        return True
    if job.is_shared:
        return node.gpu_for(job.gpu_milli) is not None
    return node.empty >= gpus


def place(
    pools: list[Pool],
    free: list[FreeNode],
    request: Request,
    rule: str,
    seed: int,
    world: World = NO_WORLD,
) -> Allocation | None:
    """The allocation that the rule gives, or None if the job does not fit."""
    job = request.job
    allowed = allowed_pools(pools, job)
    if rule in SPLITTING_RULES and job.asked_nodes is None:
        choice = place_anywhere(allowed, free, request, rule, seed)
        return choice if within_cap(choice, free, job, world) else None
    if rule not in ALL_PLACEMENTS:
        raise ValueError(f"unknown placement: {rule}")
    if job.gpus == 0:
        allowed.sort(key=lambda pool: (pool.size, pool.id))
    else:
        allowed.sort(key=lambda pool: (-pool.speed, least_nodes(pool, job), pool.id))
        if rule in ENERGY_POOL_RULES:
            allowed.sort(key=lambda pool: energy_rate(job, pool, world.nodes, world.watts))
    if rule in TIER_RULES and job.is_whole and job.asked_nodes is None:
        return place_in_tiers(allowed, free, job, rule, world)
    if job.asked_nodes is not None:
        choices = [place_on_asked_nodes(pool, free, request, rule, seed, world) for pool in allowed]
    else:
        choices = [place_in_pool(pool, free, job, rule, world) for pool in allowed]
    found = [choice for choice in choices if choice is not None and within_cap(choice, free, job, world)]
    if rule == "first-available":
        return min(found, key=lambda allocation: allocation[0][0], default=None)
    return found[0] if found else None


def within_cap(choice: Allocation | None, free: list[FreeNode], job: Job, world: World) -> bool:
    """Section 17: whether the draw stays within the cap with the job there."""
    if choice is None or world.power_cap_w is None:
        return choice is not None
    after = copy_of(free)
    take(after, job, choice)
    return draw_mw(world.nodes, world.watts, after) <= milliwatts(world.power_cap_w)


def place_in_tiers(
    allowed: list[Pool], free: list[FreeNode], job: Job, rule: str, world: World
) -> Allocation | None:
    """The best way of the first pool that has one: of tier 1 if any pool has one, else of tier 2."""
    for tiers in ((1, 2),) if rule == "tier-cost" else ((1,), (2,)):
        for pool in allowed:
            holdable = {
                id: [k for k in range(1, pool.size + 1) if can_hold(free[id], job, k)] for id in pool.nodes
            }
            way = best_way(pool, free, job.gpus, least_nodes(pool, job), holdable, rule, tiers)
            if within_cap(way, free, job, world):
                return way
    return None


def place_in_pool(
    pool: Pool, free: list[FreeNode], job: Job, rule: str, world: World = NO_WORLD
) -> Allocation | None:
    if job.gpus == 0 or job.is_shared:
        return place_on_one_node(pool.nodes, free, job, job.gpus, rule, world)
    full_count, remainder = divmod(job.gpus, pool.size)
    full = [id for id in pool.nodes if can_hold(free[id], job, pool.size)]
    if rule == "power-aware":
        full.sort(key=lambda id: (id in world.asleep, id))
    full = full[:full_count]
    if len(full) < full_count:
        return None
    allocation = [(id, pool.size) for id in full]
    if remainder > 0:
        others = [id for id in pool.nodes if id not in full]
        last = place_on_one_node(others, free, job, remainder, rule, world)
        if last is None:
            return None
        allocation += last
    return tuple(sorted(allocation))


def place_on_asked_nodes(
    pool: Pool, free: list[FreeNode], request: Request, rule: str, seed: int, world: World
) -> Allocation | None:
    """A job that asks for nodes: one after another, each the best of those that can hold its share."""
    job, count = request.job, request.job.asked_nodes
    assert count is not None
    as_rule = {"anywhere": "first-fit", "spread": "worst-fit"}.get(rule, rule)
    allocation: list[tuple[int, int]] = []
    others = list(pool.nodes)
    for i in range(count):
        gpus = job.gpus // count + (1 if i < job.gpus % count else 0)
        candidates = others
        if rule == "random":
            candidates = [id for id in others if can_hold(free[id], job, gpus)]
            candidates = sorted(candidates, key=lambda id: (draw(seed, 3, request.row, id), id))[:1]
        one = place_on_one_node(candidates, free, job, gpus, as_rule, world)
        if one is None:
            return None
        allocation += one
        others.remove(one[0][0])
    return tuple(sorted(allocation))


def place_on_one_node(
    ids: Sequence[int], free: list[FreeNode], job: Job, gpus: int, rule: str, world: World = NO_WORLD
) -> Allocation | None:
    def rank(id: int) -> tuple[float, ...]:
        node = free[id]
        if rule in ("first-fit", "first-available"):
            return (id,)
        if rule == "tetris":
            return (-alignment(node, job, gpus), id)
        if rule == "fgd":
            return (fragmentation_growth(node, job, gpus, world.arrived), id)
        if rule == "worst-fit":
            return (-freedom(node, job), id)
        if rule == "power-aware":
            return (id in world.asleep, *tightness(node, job), id)
        return (*tightness(node, job), id)  # consolidate, best-fit, and the tiers for jobs on one node

    holders = [id for id in ids if can_hold(free[id], job, gpus)]
    return ((min(holders, key=rank), gpus),) if holders else None


def freedom(node: FreeNode, job: Job) -> int:
    """What `worst-fit` and `spread` go by."""
    return node.cpus if job.gpus == 0 else node.free_milli if job.is_shared else node.empty


def tightness(node: FreeNode, job: Job) -> tuple[int, ...]:
    """What `consolidate` goes by before the id."""
    if not job.is_shared:
        return (freedom(node, job),)
    index = node.gpu_for(job.gpu_milli)
    assert index is not None
    return (node.gpu_milli[index], node.free_milli)


def alignment(node: FreeNode, job: Job, gpus: int) -> float:
    """The dot product of `tetris`."""
    dot = 0.0
    z = float(len(node.gpu_milli))
    if z > 0 and job.gpus > 0:
        g = job.size if job.is_shared else float(gpus)
        f = float(node.free_milli) / 1000.0 if job.is_shared else float(node.empty)
        dot += (g / z) * (f / z)
    cpus, memory_mib = share(job, gpus)
    for given, taken, left in (
        (node.given_cpus, cpus, node.cpus),
        (node.given_memory_mib, memory_mib, node.memory_mib),
    ):
        if given is not None and given > 0:
            dot += (float(taken) / float(given)) * (float(left) / float(given))
    return dot


def fragmentation(gpu_milli: list[int], class_gpus: int, class_milli: int) -> int:
    """F of section 9: thousandths on such a node that are of no use to a class of jobs."""
    if class_milli < 1000:
        return sum(free for free in gpu_milli if free < class_milli)
    if gpu_milli.count(1000) >= min(class_gpus, len(gpu_milli)):
        return sum(free for free in gpu_milli if free < 1000)
    return sum(gpu_milli)


def fragmentation_growth(node: FreeNode, job: Job, gpus: int, arrived: Counter[tuple[int, int]]) -> int:
    """What `fgd` goes by."""
    if job.gpus == 0:
        return 0
    after = list(node.gpu_milli)
    for index in gpus_taken(node, job, gpus):
        after[index] -= job.gpu_milli
    return sum(
        count * (fragmentation(after, *kind) - fragmentation(node.gpu_milli, *kind))
        for kind, count in arrived.items()
    )


def place_anywhere(
    allowed: list[Pool], free: list[FreeNode], request: Request, rule: str, seed: int
) -> Allocation | None:
    job = request.job

    def rank(id: int) -> tuple[int, ...]:
        if rule == "anywhere":
            return (id,)
        if rule == "random":
            return (draw(seed, 3, request.row, id), id)
        return (-freedom(free[id], job), id)

    ids = sorted((id for pool in allowed for id in pool.nodes), key=rank)
    if job.gpus == 0 or job.is_shared:
        return next((((id, job.gpus),) for id in ids if can_hold(free[id], job, job.gpus)), None)
    allocation: list[tuple[int, int]] = []
    needed = job.gpus
    for id in ids:
        most = min(free[id].empty, needed)
        gpus = next((k for k in range(most, 0, -1) if can_hold(free[id], job, k)), 0)
        if gpus > 0:
            allocation.append((id, gpus))
            needed -= gpus
        if needed == 0:
            return tuple(sorted(allocation))
    return None


def can_ever_start(
    nodes: Sequence[Node],
    speeds: dict[str, float],
    job: Job,
    row: int,
    placement: str,
    seed: int,
    settings: Settings | None = None,
    watts: Watts | None = None,
    partitions: Sequence[Partition] = (),
    qos: Sequence[Qos] = (),
) -> bool:
    """Whether the rule places the job on the empty cluster; `row` is its original row.

    The power cap (section 17) and quotas without borrowing (section 18) count if settings are given. So do
    limits of partitions and qualities of service; the job has to name its partition.
    """
    pools = make_pools(nodes, speeds, partitions)
    if not can_ever_be_within(job, pools, partitions, qos):
        return False
    request = Request(0, row, job, 0, 1, None)
    cap_w = None if settings is None else settings.power_cap_w
    world = World(nodes, watts or {}, cap_w)
    if settings is not None and settings.group_quotas and not settings.quota_borrowing:
        total = sum(node.gpus for node in nodes)
        if job.milli > 1000 * quota_of(job.group, settings, total):
            return False
    return place(pools, empty_cluster(nodes), request, placement, seed, world) is not None


def quota_of(group: str, settings: Settings, cluster_gpus: int) -> int:
    """Section 18: GPUs of the group, or of all groups without a quota of their own together."""
    if group in settings.group_quotas:
        return settings.group_quotas[group]
    return cluster_gpus - sum(settings.group_quotas.values())
