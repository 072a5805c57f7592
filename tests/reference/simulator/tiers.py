"""The tiers of section 9 of docs/contract/simulator.md, by trying all ways."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from reference.simulator.cluster import Allocation, FreeNode, Pool


def best_way(
    pool: Pool,
    free: list[FreeNode],
    gpus: int,
    fewest: int,
    holdable: dict[int, list[int]],
    rule: str,
    tiers: Sequence[int],
) -> Allocation | None:
    """The best way of these tiers to place so many GPUs in the pool.

    Args:
        pool: The pool.
        free: The free state of all nodes.
        gpus: GPUs of the job.
        fewest: n_min(pool).
        holdable: For each node of the pool, the numbers of the job's GPUs that it can hold.
        rule: The name of the rule.
        tiers: Which tiers to take ways from.
    """
    found = []
    if 1 in tiers:
        found += list(ways(holdable, gpus, fewest))
    if 2 in tiers:
        found += [way for way in ways(holdable, gpus, fewest + 1) if fragmented_growth(pool, free, way) <= 0]
    return min(found, key=lambda way: key(pool, free, way, rule), default=None)


def ways(holdable: dict[int, list[int]], gpus: int, count: int) -> Iterator[Allocation]:
    """All ways to put so many GPUs on exactly so many nodes."""
    for ids in combinations(sorted(id for id, numbers in holdable.items() if numbers), count):
        for split in splits([holdable[id] for id in ids], gpus):
            yield tuple(zip(ids, split, strict=True))


def splits(numbers: list[list[int]], gpus: int) -> Iterator[tuple[int, ...]]:
    """All choices of one number of each list that add up to so many GPUs."""
    if not numbers:
        if gpus == 0:
            yield ()
        return
    rest = numbers[1:]
    least, most = sum(min(each) for each in rest), sum(max(each) for each in rest)
    for k in numbers[0]:
        if least <= gpus - k <= most:
            for others in splits(rest, gpus - k):
                yield (k, *others)


def key(pool: Pool, free: list[FreeNode], way: Allocation, rule: str) -> tuple[object, ...]:
    ids = tuple(id for id, _ in way)
    more_first = tuple(-gpus for _, gpus in way)
    if rule == "tier-lex":
        return (ids, more_first)
    before = [(id, free[id].empty) for id in pool.nodes]
    used = dict(way)
    after = [(id, empty - used.get(id, 0)) for id, empty in before]
    z = pool.size
    f = fragmented_growth(pool, free, way)
    w = sum(left for _, left in after if 0 < left < z) - sum(left for _, left in before if 0 < left < z)
    v = sum((z - left) ** 2 for _, left in after) - sum((z - left) ** 2 for _, left in before)
    if rule == "tier":
        return (f, w, v, len(way), ids, more_first)
    if rule == "tier-balance":
        return (v, f, w, len(way), ids, more_first)
    assert rule == "tier-cost"
    # A node that is down or closed takes no part in free counts.
    spread_after = spread([left for id, left in after if free[id].available])
    spread_before = spread([left for id, left in before if free[id].available])
    return (10 * f + (spread_after - spread_before) + len(way), ids, more_first)


def spread(numbers: list[int]) -> int:
    return max(numbers) - min(numbers)


def fragmented_growth(pool: Pool, free: list[FreeNode], way: Allocation) -> int:
    """By how much the number of fragmented nodes grows; nodes that the way does not use stay as they are."""
    z = pool.size
    before = sum(0 < free[id].empty < z for id, _ in way)
    return sum(0 < free[id].empty - gpus < z for id, gpus in way) - before
