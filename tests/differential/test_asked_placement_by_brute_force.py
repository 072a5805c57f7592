"""Jobs that ask for nodes, under every rule, against trying all sets of nodes."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from differential.asked_cases import random_request
from differential.brute_placement import Scene, dot, growth
from differential.test_placement_by_brute_force import Core, Question, random_question
from gpuyard import _core
from reference.simulator import simulator as reference
from reference.simulator.inputs import draw
from reference.simulator.simulator import Allocation, Job, Pool, allowed_pools, can_hold

TRIALS = 800
SEED = 5
Rank = Callable[[Scene, Job, int, int], tuple[float, ...]]  # of a node for a share of the GPUs


def free_of(scene: Scene, job: Job, node: int) -> int:
    return scene.free[node].empty if job.gpus else scene.free[node].cpus


def tightest(scene: Scene, job: Job, node: int, gpus: int) -> tuple[float, ...]:
    return (free_of(scene, job, node), node)


def freest(scene: Scene, job: Job, node: int, gpus: int) -> tuple[float, ...]:
    return (-free_of(scene, job, node), node)


def lowest(scene: Scene, job: Job, node: int, gpus: int) -> tuple[float, ...]:
    return (node,)


RANKS: dict[str, Rank] = {
    **dict.fromkeys(("consolidate", "best-fit", "tier", "tier-balance", "tier-lex", "tier-cost"), tightest),
    **dict.fromkeys(("first-fit", "first-available", "anywhere"), lowest),
    **dict.fromkeys(("worst-fit", "spread"), freest),
    "random": lambda scene, job, node, gpus: (draw(SEED, 3, 0, node), node),
    "tetris": lambda scene, job, node, gpus: (-dot(scene, job, node, gpus), node),
    "fgd": lambda scene, job, node, gpus: (growth(scene, job, node, gpus) if job.gpus else 0, node),
}


def ways(scene: Scene, pool: Pool, job: Job, rank: Rank) -> Iterator[tuple[object, Allocation]]:
    """Every way to sit on as many nodes of the pool as were asked for, and what it is chosen by."""
    count = job.asked_nodes
    assert count is not None
    share, larger = job.gpus // count, job.gpus % count
    for more in combinations(pool.nodes, larger):
        for less in combinations([node for node in pool.nodes if node not in more], count - larger):
            way = [(node, share + 1) for node in more] + [(node, share) for node in less]
            if all(can_hold(scene.free[node], job, gpus) for node, gpus in way):
                first = sorted(rank(scene, job, node, share + 1) for node in more)
                rest = sorted(rank(scene, job, node, share) for node in less)
                yield (first, rest), tuple(sorted(way))


def brute_place(scene: Scene, job: Job, rule: str) -> Allocation | None:
    pools = allowed_pools(scene.pools, job)
    pools.sort(key=lambda pool: (-pool.speed, pool.id) if job.gpus else (pool.size, pool.id))
    found = [list(ways(scene, pool, job, RANKS[rule])) for pool in pools]
    best = [min(choices)[1] for choices in found if choices]
    return min(best) if best and rule == "first-available" else best[0] if best else None


def asked_question(seed: int) -> Question:
    rng = random.Random(f"asked {seed}")
    question = random_question(seed)
    whole = replace(question.job, gpu_milli=1000)
    requests = (random_request(rng, whole, question.nodes) for _ in range(20))
    usual = replace(whole, gpus=2, nodes=2)
    job = next((job for job in requests if job.asked_nodes and job.asked_nodes <= len(question.nodes)), usual)
    return replace(question, job=job, arrived=[job, *question.arrived[1:]])


@pytest.mark.parametrize("rule", RANKS)
def test_a_job_goes_to_the_nodes_that_trying_all_sets_of_nodes_says(rule: str) -> None:
    several = 0
    for seed in range(TRIALS):
        question = asked_question(seed)
        job, held = question.job, question.held
        core = Core(question.nodes, question.speeds, [job, *(other for other, _ in held)])
        on_nodes = [(i, list(allocation)) for i, (_, allocation) in enumerate(held, start=1)]
        kinds = Counter((other.gpus, other.gpu_milli) for other in question.arrived if other.gpus)
        mix = [(*kind, count) for kind, count in kinds.items()]
        pools = reference.make_pools(question.nodes, question.speeds)
        scene = Scene(question.nodes, pools, question.free, question.arrived)
        expected = brute_place(scene, job, rule)
        placed = _core.testing.place(core.cluster, core.jobs, rule, on_nodes, 0, mix, SEED)
        where = f"asked_question({seed}), {rule}: {job} on {question.nodes}, free {question.free}"
        assert placed == (None if expected is None else list(expected)), where
        fits = _core.testing.placeable(core.cluster, core.jobs, rule, on_nodes, 0)
        assert fits == (expected is not None), where
        several += expected is not None and len(expected) > 1
    assert several > TRIALS / 10
