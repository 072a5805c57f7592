"""`tetris`, `fgd` and the tiers of docs/contract/simulator.md, section 9, by trying everything.

Written from the page: a way is any GPUs on any nodes, and what it is compared by is counted on the nodes
before and after. Nothing here knows classes of nodes or closed formulas.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from reference.simulator.placement import place_in_pool
from reference.simulator.simulator import (
    UNLIMITED,
    Allocation,
    FreeNode,
    Job,
    Node,
    Pool,
    allowed_pools,
    can_hold,
    copy_of,
    least_nodes,
    share,
    take,
)

SCORED_RULES = ("tetris", "fgd")
TIERS = ("tier", "tier-balance", "tier-lex", "tier-cost")
RULES = SCORED_RULES + TIERS


@dataclass(frozen=True)
class Scene:
    """Everything that a rule may look at."""

    nodes: Sequence[Node]
    pools: list[Pool]
    free: list[FreeNode]
    arrived: Sequence[Job] = ()


def brute_place(scene: Scene, job: Job, rule: str) -> Allocation | None:
    pools = allowed_pools(scene.pools, job)
    if job.gpus == 0:
        pools.sort(key=lambda pool: (pool.size, pool.id))
    else:
        pools.sort(key=lambda pool: (-pool.speed, least_nodes(pool, job), pool.id))
    if rule in TIERS and job.gpus > 0 and not job.is_shared:
        return best_way(scene, job, rule, pools)
    if rule in TIERS:
        choices = (place_in_pool(pool, scene.free, job, "consolidate") for pool in pools)
    else:
        choices = (place_by_score(scene, pool, job, rule) for pool in pools)
    return next((choice for choice in choices if choice is not None), None)


# --- tetris and fgd


def place_by_score(scene: Scene, pool: Pool, job: Job, rule: str) -> Allocation | None:
    full: list[int] = []
    gpus = job.gpus
    if gpus > 0 and not job.is_shared:
        full_count, gpus = divmod(job.gpus, pool.size)
        full = [id for id in pool.nodes if can_hold(scene.free[id], job, pool.size)][:full_count]
        if len(full) < full_count:
            return None
        if gpus == 0:
            return tuple((id, pool.size) for id in full)
    others = [id for id in pool.nodes if id not in full and can_hold(scene.free[id], job, gpus)]
    if not others:
        return None
    score = {"tetris": lambda id: -dot(scene, job, id, gpus), "fgd": lambda id: growth(scene, job, id, gpus)}
    chosen = min(others, key=lambda id: (score[rule](id), id))
    return tuple(sorted([(id, pool.size) for id in full] + [(chosen, gpus)]))


def dot(scene: Scene, job: Job, id: int, gpus: int) -> float:
    node, free = scene.nodes[id], scene.free[id]
    cpus, memory_mib = share(job, gpus)
    sum = 0.0
    if node.gpus > 0 and job.gpus > 0:
        g, f = (job.size, free.free_milli / 1000.0) if job.is_shared else (float(gpus), float(free.empty))
        z = float(node.gpus)
        sum += (g / z) * (f / z)
    if node.cpus not in (None, 0, UNLIMITED):
        c = float(node.cpus)
        sum += (float(cpus) / c) * (float(free.cpus) / c)
    if node.memory_mib not in (None, 0, UNLIMITED):
        m = float(node.memory_mib)
        sum += (float(memory_mib) / m) * (float(free.memory_mib) / m)
    return sum


def growth(scene: Scene, job: Job, id: int, gpus: int) -> int:
    before = scene.free
    after = copy_of(before)
    take(after, job, ((id, gpus),))
    kinds = Counter((other.gpus, other.gpu_milli) for other in scene.arrived if other.gpus > 0)
    return sum(
        count * (fragmentation(after[id], *kind) - fragmentation(before[id], *kind))
        for kind, count in kinds.items()
    )


def fragmentation(node: FreeNode, gpus: int, gpu_milli: int) -> int:
    if gpu_milli < 1000:
        return sum(free for free in node.gpu_milli if free < gpu_milli)
    if node.empty >= min(gpus, len(node.gpu_milli)):
        return sum(free for free in node.gpu_milli if free < 1000)
    return sum(node.gpu_milli)


# --- tiers


def best_way(scene: Scene, job: Job, rule: str, pools: list[Pool]) -> Allocation | None:
    tiers = [first_tier, second_tier]
    if rule == "tier-cost":
        tiers = [lambda *where: first_tier(*where) + second_tier(*where)]
    for ways_of in tiers:
        for pool in pools:
            if ways := ways_of(scene, pool, job):
                return min(ways, key=partial(key, scene, pool, rule))
    return None


def first_tier(scene: Scene, pool: Pool, job: Job) -> list[Allocation]:
    return list(ways_on(scene, pool.nodes, job, least_nodes(pool, job), job.gpus))


def second_tier(scene: Scene, pool: Pool, job: Job) -> list[Allocation]:
    ways = ways_on(scene, pool.nodes, job, least_nodes(pool, job) + 1, job.gpus)
    return [way for way in ways if changes(scene, pool, way)[0] <= 0]


def ways_on(scene: Scene, ids: Sequence[int], job: Job, count: int, gpus: int) -> Iterator[Allocation]:
    """All ways to give so many GPUs on so many of these nodes."""
    if count == 0 or len(ids) < count:
        if count == 0 and gpus == 0:
            yield ()
        return
    id, *others = ids
    most = scene.free[id].empty
    if gpus > count * len(scene.free[id].gpu_milli) or gpus < count:
        return  # too much even for empty nodes, or too little
    for k in range(1, most + 1):
        if can_hold(scene.free[id], job, k):
            for rest in ways_on(scene, others, job, count - 1, gpus - k):
                yield ((id, k), *rest)
    yield from ways_on(scene, others, job, count, gpus)


def changes(scene: Scene, pool: Pool, way: Allocation) -> tuple[int, int, int, int]:
    """Growth of: fragmented nodes, what is free on them, the squares, the range of what is free."""
    before = {id: scene.free[id].empty for id in pool.nodes}
    after = before | {id: before[id] - gpus for id, gpus in way}

    def counts(free: dict[int, int]) -> tuple[int, int, int, int]:
        fragments = [f for f in free.values() if 0 < f < pool.size]
        squares = sum((pool.size - f) ** 2 for f in free.values())
        return len(fragments), sum(fragments), squares, max(free.values()) - min(free.values())

    f, w, v, s = (a - b for a, b in zip(counts(after), counts(before), strict=True))
    return f, w, v, s


def key(scene: Scene, pool: Pool, rule: str, way: Allocation) -> tuple[object, ...]:
    f, w, v, s = changes(scene, pool, way)
    ids, gpus = [id for id, _ in way], [-k for _, k in way]
    return {
        "tier": (f, w, v, len(way), ids, gpus),
        "tier-balance": (v, f, w, len(way), ids, gpus),
        "tier-lex": (ids, gpus),
        "tier-cost": (10 * f + s + len(way), ids, gpus),
    }[rule]
