"""The ``milp`` placement against a brute force that knows nodes and GPUs, but no model."""

from collections.abc import Iterator
from functools import cache

import highspy
import numpy as np
import pytest

from gpuyard.errors import InputError
from gpuyard.policies.milp.solver import Job, MilpSolution, MilpSolver, MilpWeights, Start, solution_value
from gpuyard.policies.milp.window import teams

INSTANCES = 400
Nodes = tuple[tuple[int, int, int], ...]
"""Pool, size and free GPUs of each node."""
Instance = tuple[Nodes, tuple[Job, ...], Job | None, MilpWeights]


def splits(gpus: int, room: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All ways to take GPUs from nodes with some room each."""
    if not room:
        if gpus == 0:
            yield ()
        return
    for take in range(min(gpus, room[0]) + 1):
        for rest in splits(gpus - take, room[1:]):
            yield (take, *rest)


def state_value(nodes: Nodes, free: tuple[int, ...], next_job: Job | None, weights: MilpWeights) -> float:
    """What the objective has of the nodes alone."""
    value = 0.0
    for (_, size, _), left in zip(nodes, free, strict=True):
        if left not in (0, size):
            value -= weights.alpha
    value -= weights.beta * (max(free) - min(free))
    if next_job is not None:
        room: dict[int, int] = {}
        for (pool, _, _), left in zip(nodes, free, strict=True):
            room[pool] = room.get(pool, 0) + left
        if any(room.get(pool, -1) >= next_job[0] for pool in next_job[1]):
            value += weights.delta
    return value


def brute_force(nodes: Nodes, jobs: tuple[Job, ...], next_job: Job | None, weights: MilpWeights) -> float:
    """The best value over all assignments of single GPU counts on single nodes."""
    ranks = weights.of_jobs(jobs, max(size for _, size, _ in nodes))

    @cache
    def best(job: int, free: tuple[int, ...]) -> float:
        if job == len(jobs):
            return state_value(nodes, free, next_job, weights)
        answer = best(job + 1, free)
        gpus, pools = jobs[job]
        for pool in pools:
            room = tuple(left if own == pool else 0 for (own, _, _), left in zip(nodes, free, strict=True))
            for split in splits(gpus, room):
                used = sum(take > 0 for take in split)
                after = tuple(left - take for left, take in zip(free, split, strict=True))
                answer = max(answer, ranks[job] - weights.gamma * used + best(job + 1, after))
        return answer

    return best(0, tuple(free for _, _, free in nodes))


def assert_legal(nodes: Nodes, jobs: tuple[Job, ...], starts: list[Start]) -> None:
    free = [left for _, _, left in nodes]
    assert len({job for job, _ in starts}) == len(starts)
    for job, given in starts:
        gpus, pools = jobs[job]
        assert sum(take for _, take in given) == gpus
        assert len({nodes[node][0] for node, _ in given}) == 1
        assert {nodes[node][0] for node, _ in given} <= set(pools)
        assert [node for node, _ in given] == sorted({node for node, _ in given})
        for node, take in given:
            assert take > 0
            free[node] -= take
    assert min(free) >= 0


def columns(nodes: Nodes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pool, size, free = np.array(nodes, dtype=np.int64).reshape(-1, 3).T
    return pool, size, free


def solve(
    nodes: Nodes, jobs: tuple[Job, ...], next_job: Job | None = None, weights: MilpWeights | None = None
) -> MilpSolution:
    return MilpSolver(weights).solve(*columns(nodes), jobs, next_job)


def random_weights(rng: np.random.Generator) -> MilpWeights:
    alpha, beta, gamma, delta = (float(rng.choice([0, 0, 0.1, 0.7, 1, 3.3, 100])) for _ in range(4))
    alpha *= rng.choice([1, 1, 1, -1])
    jobs = (None, (40.0, 30.0, 20.0, 10.0), (1.0, 1.0, 1.0, 1.0), tuple(rng.uniform(-2, 9, 4).tolist()))
    return MilpWeights(jobs[rng.integers(4)], alpha, beta, gamma, delta)


def random_instance(seed: int) -> Instance:
    rng = np.random.default_rng(seed)
    pools = int(rng.integers(1, 3))
    size_of_pool = rng.choice([1, 2, 3, 4, 4], pools)
    emptiness = rng.choice([0.0, 0.5, 0.9])
    nodes = []
    for _ in range(rng.choice([1, 2, 3, 4, 4, 4])):
        pool = int(rng.integers(pools))
        size = int(size_of_pool[pool])
        nodes.append((pool, size, size if rng.random() < emptiness else int(rng.integers(size + 1))))
    gangs = rng.choice([1, 1, 2, 2, 3, 4, 5], 4)
    if rng.random() < 0.3:
        gangs[:] = gangs[0]
    allowed = [(0,), (pools - 1,), (0, 1), (0, 1)]
    jobs = [(int(gang), allowed[rng.integers(4)]) for gang in gangs]
    next_job = jobs[3] if rng.random() < 0.7 else None
    return tuple(nodes), tuple(jobs[: rng.integers(1, 4)]), next_job, random_weights(rng)


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, INSTANCES, 50)], ids=str)
def test_the_solution_has_the_value_of_the_best_of_all_assignments(seeds: range) -> None:
    for seed in seeds:
        nodes, jobs, next_job, weights = random_instance(seed)
        solution = solve(nodes, jobs, next_job, weights)
        best = brute_force(nodes, jobs, next_job, weights)
        assert solution.status == "optimal", (seed, solution)
        assert solution.objective == pytest.approx(best, abs=1e-6), (seed, solution)
        assert_legal(nodes, jobs, solution.starts)
        value = solution_value(*columns(nodes), jobs, next_job, solution.starts, weights)
        assert value == pytest.approx(best, abs=1e-6), (seed, solution)


def test_the_random_instances_need_the_solver_and_start_and_hold_back_jobs() -> None:
    solutions = [(random_instance(seed), solve(*random_instance(seed))) for seed in range(INSTANCES)]
    assert sum(solution.solver_used for _, solution in solutions) > INSTANCES / 2
    starts = [(len(jobs), len(solution.starts)) for (_, jobs, _, _), solution in solutions]
    assert sum(started > 1 for _, started in starts) > INSTANCES / 8
    assert sum(0 < started < jobs for jobs, started in starts) > INSTANCES / 10
    shared = [
        solution
        for _, solution in solutions
        if len({node for _, given in solution.starts for node, _ in given})
        < sum(len(given) for _, given in solution.starts)
    ]
    assert len(shared) > INSTANCES / 20


BOTH: Job = (1, (0, 1))


@pytest.mark.parametrize(("alpha", "node"), [(5.0, 0), (0.01, 0), (-0.01, 1), (-5.0, 1)])
def test_filling_a_fragmented_node_is_credited_and_breaking_a_whole_one_charged(
    alpha: float, node: int
) -> None:
    nodes = ((0, 2, 1), (0, 2, 2), (0, 2, 0))
    solution = solve(nodes, (BOTH,), None, MilpWeights(alpha=alpha, beta=0.0))
    assert solution.starts == [(0, [(node, 1)])]
    fragmented_after = 0 if node == 0 else 2
    start_weight = MilpWeights(alpha=alpha, beta=0.0).of_jobs((BOTH,), 2)[0]
    assert solution.objective == pytest.approx(start_weight - alpha * fragmented_after - 0.1)


@pytest.mark.parametrize(
    ("nodes", "alpha", "starts"),
    [
        (((0, 2, 1),), 5.0, True),  # fills the fragmented node: credited
        (((0, 2, 1),), -5.0, False),  # and the credit is lost if fragmentation is worth something
        (((0, 2, 2),), 5.0, False),  # makes a fragmented node: charged
        (((0, 2, 2),), -5.0, True),
        (((0, 3, 2),), 5.0, False),  # stays fragmented: neither, so that the job's own weight of -1 decides
        (((0, 3, 2),), -5.0, False),
    ],
)
def test_fragmentation_alone_decides_over_a_job_of_no_worth(nodes: Nodes, alpha: float, starts: bool) -> None:
    weights = MilpWeights((-1.0,), alpha, 0.0, 0.0, 0.0, window=1)
    solution = solve(nodes, (BOTH,), None, weights)
    assert bool(solution.starts) == starts
    assert solution.objective == pytest.approx(brute_force(nodes, (BOTH,), None, weights))


def test_by_default_the_other_terms_never_keep_a_job_from_starting() -> None:
    """Job 1 would fill sixteen fragmented nodes, job 0 breaks a whole one, but ranks first."""
    nodes = tuple((0, 2, 1) for _ in range(16))
    jobs = ((2, (0,)), (16, (0,)))
    assert [job for job, _ in solve(nodes, jobs, (16, (0,))).starts] == [0]
    nodes = ((0, 8, 8),)
    assert solve(nodes, ((7, (0,)),), (8, (0,))).starts == [(0, [(0, 7)])]


def test_room_for_the_next_job_is_kept_where_that_costs_nothing() -> None:
    nodes = ((0, 4, 4), (1, 4, 4))
    for own_pool in (0, 1):
        solution = solve(nodes, ((4, (0, 1)),), (4, (own_pool,)))
        assert solution.starts == [(0, [(1 - own_pool, 4)])]


def test_the_same_input_has_the_same_answer_whatever_was_solved_before() -> None:
    solver = MilpSolver()
    nodes = tuple((0, 8, free) for free in (1, 3, 3, 8, 8, 0))
    jobs = ((5, (0,)), (2, (0,)), (4, (0,)), (2, (0,)))
    first = solver.solve(*columns(nodes), jobs, (8, (0,)))
    for seed in range(8):
        other_nodes, other_jobs, next_job, _ = random_instance(seed)
        solver.solve(*columns(other_nodes), other_jobs, next_job)
        assert solver.solve(*columns(nodes), jobs, (8, (0,))) == first
    assert solve(nodes, jobs, (8, (0,))) == first
    assert len(first.starts) == 4


def test_nodes_of_a_class_are_taken_by_ascending_id() -> None:
    nodes = ((1, 4, 4), (0, 4, 4), (0, 4, 4), (1, 4, 4), (0, 4, 4))
    assert solve(nodes, ((8, (0,)), (4, (1,)))).starts == [(0, [(1, 4), (2, 4)]), (1, [(0, 4)])]


def test_room_for_the_next_job_is_not_credited_to_more_starts_than_leave_it() -> None:
    """Every good choice of jobs leaves the room here, but all the jobs together do not."""
    nodes = tuple((0, 5, free) for free in (2, 4, 5, 3, 0, 1))
    jobs = ((3, (0,)), (4, (0,)), (2, (0,)), (3, (0,)))
    weights = MilpWeights((40.0, 30.0, 20.0, 10.0), 1.0, 0.7, 3.3, 100.0)
    solution = solve(nodes, jobs, (5, (0,)), weights)
    assert (solution.status, solution.objective) == ("optimal", pytest.approx(175.6))


def test_jobs_of_one_size_share_nodes_as_runs() -> None:
    assert teams((4, 1, 1)) == ((0,), (0, 1), (0, 1, 2), (0, 2), (1,), (1, 2), (2,))
    assert teams((2, 2, 2)) == ((0,), (0, 1), (0, 1, 2), (1,), (2,))


HARD_NODES: Nodes = tuple((0, 8, free) for free in (6, 7, 5, 2, 1))
HARD_JOBS: tuple[Job, ...] = ((3, (0,)), (6, (0,)), (11, (0,)))
HANDICAP: dict[str, str | float | bool] = {
    "presolve": "off",
    "mip_allow_restart": False,
    "mip_heuristic_effort": 0.0,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}
"""HiGHS finds the optimum of small windows at the root otherwise."""


def solve_hard(node_limit: int) -> MilpSolution:
    highs = highspy.Highs()
    solver = MilpSolver(MilpWeights(node_limit=node_limit), highs)
    for name, value in HANDICAP.items():
        assert highs.setOptionValue(name, value) == highspy.HighsStatus.kOk
    return solver.solve(*columns(HARD_NODES), HARD_JOBS, (8, (0,)))


def test_a_solution_without_a_proof_is_used_and_says_so() -> None:
    limited, proven = solve_hard(node_limit=1), solve_hard(node_limit=10_000)
    assert (limited.status, limited.solver_used) == ("limited", True)
    assert "limit" in limited.reason
    assert_legal(HARD_NODES, HARD_JOBS, limited.starts)
    value = solution_value(
        *columns(HARD_NODES), HARD_JOBS, (8, (0,)), limited.starts, MilpWeights(node_limit=1)
    )
    assert limited.objective == pytest.approx(value)
    assert limited.objective <= proven.objective + 1e-6
    assert (proven.status, proven.reason) == ("optimal", "")
    assert proven.objective == pytest.approx(brute_force(HARD_NODES, HARD_JOBS, (8, (0,)), MilpWeights()))


def test_a_limit_before_the_first_solution_is_a_fallback() -> None:
    solution = solve_hard(node_limit=0)
    assert (solution.status, solution.starts, solution.solver_used) == ("fallback", [], True)
    assert "limit" in solution.reason
    nothing = solution_value(*columns(HARD_NODES), HARD_JOBS, (8, (0,)), [], MilpWeights())
    assert solution.objective == pytest.approx(nothing)


class RunFails(highspy.Highs):
    def run(self) -> highspy.HighsStatus:
        return highspy.HighsStatus.kError


class RefusesModels(highspy.Highs):
    def passModel(self, *_: object) -> highspy.HighsStatus:  # noqa: N802
        return highspy.HighsStatus.kError


class Solution:
    def __init__(self, values: list[float]) -> None:
        self.col_value = values


class TakesEverything(highspy.Highs):
    def getSolution(self) -> Solution:  # noqa: N802
        return Solution([1.0] * self.getNumCol())


class StartsNothing(highspy.Highs):
    def getSolution(self) -> Solution:  # noqa: N802
        return Solution([0.0] * self.getNumCol())


class Crashes(highspy.Highs):
    def run(self) -> highspy.HighsStatus:
        raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (RunFails, "error"),
        (RefusesModels, "error"),
        (TakesEverything, "not legal"),
        (StartsNothing, "claims"),
    ],
)
def test_a_solver_that_fails_is_a_fallback_with_its_reason(broken: type[highspy.Highs], reason: str) -> None:
    solution = MilpSolver(MilpWeights(), broken()).solve(*columns(HARD_NODES), HARD_JOBS)
    assert (solution.status, solution.starts, solution.solver_used) == ("fallback", [], True)
    assert reason in solution.reason


def test_an_exception_of_the_solver_is_not_swallowed() -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        MilpSolver(MilpWeights(), Crashes()).solve(*columns(HARD_NODES), HARD_JOBS)


@pytest.mark.parametrize(
    ("nodes", "jobs"),
    [
        ((), ()),
        ((), ((1, (0,)),)),
        (((0, 4, 2),), ()),
        (((0, 4, 0), (1, 2, 0)), ((1, (0, 1)), (2, (0,)))),
        (((0, 4, 3), (1, 2, 2)), ((4, (0, 1)), (3, (1,)), (1, (7,)), (1, ()))),
    ],
)
def test_without_a_job_that_fits_nothing_starts_and_nothing_is_solved(
    nodes: Nodes, jobs: tuple[Job, ...]
) -> None:
    solution = MilpSolver(MilpWeights(), Crashes()).solve(*columns(nodes), jobs, (1, (0,)))
    assert (solution.status, solution.starts, solution.solver_used) == ("optimal", [], False)
    value = state_value(nodes, tuple(free for *_, free in nodes), (1, (0,)), MilpWeights()) if nodes else 0.0
    assert solution.objective == pytest.approx(value)


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": -0.1},
        {"beta": -1.0},
        {"delta": float("nan")},
        {"alpha": float("inf")},
        {"window": 0},
        {"jobs": (1.0,)},
        {"jobs": (1.0, 2.0, float("nan"), 1.0)},
        {"node_limit": -1},
        {"time_limit_s": 0.0},
    ],
    ids=str,
)
def test_weights_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match="milp"):
        MilpWeights(**settings)


def test_jobs_that_the_model_does_not_cover_are_refused() -> None:
    with pytest.raises(InputError, match="window is 4"):
        solve(((0, 4, 4),), ((1, (0,)),) * 5)
    with pytest.raises(InputError, match="at least one GPU"):
        solve(((0, 4, 4),), ((0, (0,)),))


@pytest.mark.parametrize(
    "starts",
    [
        [(0, [(0, 2)])],
        [(0, [(0, 1), (1, 2)])],
        [(0, [(1, 3)])],
        [(0, [(0, 5), (2, -2)])],
        [(1, [(0, 2), (2, 2)]), (0, [(0, 3)])],
    ],
    ids=str,
)
def test_assignments_that_are_not_legal_have_no_value(starts: list[Start]) -> None:
    nodes = ((0, 4, 4), (1, 4, 4), (0, 4, 4))
    with pytest.raises(ValueError, match=r"GPU|pools"):
        solution_value(*columns(nodes), ((3, (0,)), (4, (0,))), None, starts, MilpWeights())
