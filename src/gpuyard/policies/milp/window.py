"""What the ``milp`` placement decides on: the first queued jobs, classes of nodes, and what matters."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from gpuyard.errors import InputError

IntArray = npt.NDArray[np.int64]
Job = tuple[int, tuple[int, ...]]
"""A gang: its GPUs, and the pools that it may use."""
Route = tuple[int, ...]
"""The pool of each job of a window, or ``WAITS``."""

WAITS = 2**62
LONGEST_WINDOW = 8
LARGEST_WEIGHT = 1e6
MOST_ROUTES = 20_000


@dataclass(frozen=True)
class MilpWeights:
    """What the ``milp`` placement maximises, and for how long it may search.

    Attributes:
        jobs: Weight of starting the job of each rank; None: ``unit * (window - rank)`` (see ``of_jobs``).
        alpha: Cost of a fragmented node (some of its GPUs free, but not all). May be negative.
        beta: Cost of a GPU of difference between the nodes with the most and the fewest free GPUs.
        gamma: Cost of a node that a started job uses.
        delta: Worth of room for the job after the window.
        window: How many jobs are considered together.
        node_limit: Branch-and-bound nodes after which the best solution so far is taken.
        time_limit_s: Seconds after which it is taken; None: no limit, and so the same answer on any machine.
    """

    jobs: tuple[float, ...] | None = None
    alpha: float = 1.0
    beta: float = 0.1
    gamma: float = 0.1
    delta: float = 1.0
    window: int = 4
    node_limit: int = 200
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        costs = {name: getattr(self, name) for name in ("alpha", "beta", "gamma", "delta")}
        for name, value in costs.items():
            lowest = -LARGEST_WEIGHT if name == "alpha" else 0.0
            if not lowest <= value <= LARGEST_WEIGHT:
                raise InputError(
                    f"milp: {name} must be from {lowest:g} to {LARGEST_WEIGHT:g}, but is {value!r}"
                )
        if not 1 <= self.window <= LONGEST_WINDOW:
            raise InputError(f"milp: the window must be 1 to {LONGEST_WINDOW} jobs, but is {self.window!r}")
        if self.jobs is not None and len(self.jobs) != self.window:
            raise InputError(f"milp: expected {self.window} weights of jobs, but got {len(self.jobs)}")
        if not all(math.isfinite(weight) and abs(weight) <= LARGEST_WEIGHT for weight in self.jobs or ()):
            raise InputError(f"milp: weights of jobs must be within ±{LARGEST_WEIGHT:g}, but are {self.jobs}")
        if self.node_limit < 0 or (self.time_limit_s is not None and not self.time_limit_s > 0):
            raise InputError("milp: expected node_limit >= 0 and time_limit_s > 0 (or None)")

    def of_jobs(self, jobs: tuple[Job, ...], largest_node_gpus: int) -> tuple[float, ...]:
        """Weights of the jobs of a window.

        The default unit is more than all other terms together can differ between two assignments: the jobs
        of a window touch at most as many nodes as they have GPUs. So the other terms choose among the ways to
        start the jobs of most weight, and never which jobs are worth starting.
        """
        if self.jobs is not None:
            return self.jobs[: len(jobs)]
        gpus = sum(gang for gang, _ in jobs)
        unit = 1.0 + (abs(self.alpha) + self.gamma) * gpus + self.beta * largest_node_gpus + self.delta
        return tuple(unit * (self.window - rank) for rank in range(len(jobs)))


@dataclass(frozen=True)
class NodeClass:
    """Nodes of one pool with the same number of free GPUs: interchangeable."""

    pool: int
    size: int
    free: int
    nodes: tuple[int, ...]
    """Ascending."""

    @property
    def fragmented(self) -> bool:
        """Whether some, but not all, of a node's GPUs are free."""
        return 0 < self.free < self.size


@dataclass(frozen=True)
class Window:
    """The jobs to place together and the state that they meet."""

    jobs: tuple[Job, ...]
    job_weights: tuple[float, ...]
    next_job: Job | None
    classes: tuple[NodeClass, ...]
    """By pool, then free GPUs; the nodes without free GPUs too."""

    @property
    def free_of_pool(self) -> dict[int, int]:
        """Free GPUs of each pool."""
        free: dict[int, int] = {}
        for group in self.classes:
            free[group.pool] = free.get(group.pool, 0) + group.free * len(group.nodes)
        return free


def classes_of(pool: IntArray, size: IntArray, free: IntArray) -> tuple[NodeClass, ...]:
    """Sort nodes into classes."""
    if not len(pool):
        return ()
    order = np.lexsort((free, pool))
    pools, frees = pool[order], free[order]
    first = np.flatnonzero((pools[1:] != pools[:-1]) | (frees[1:] != frees[:-1])) + 1
    bounds = [0, *first.tolist(), len(order)]
    ids, pools, frees, sizes = order.tolist(), pools.tolist(), frees.tolist(), size[order].tolist()
    return tuple(
        NodeClass(pools[start], sizes[start], frees[start], tuple(ids[start:end]))
        for start, end in pairwise(bounds)
    )


@dataclass(frozen=True)
class Choice:
    """The routes that can be best, summed up.

    What is said of these routes need not hold for others that combine their parts. A model may forbid the
    others or rate them lower than they are, as none of them is best; it must not rate them higher.

    Attributes:
        together: For each pool, the sets of jobs that a route brings together there.
        certain: Jobs that start on every route.
        load: Most GPUs that a route takes, of each pool.
        total_load: Most GPUs that a route takes.
        next_fits: Whether the job after the window has room; None: it depends on the route.
    """

    together: dict[int, set[tuple[int, ...]]]
    certain: frozenset[int]
    load: dict[int, int]
    total_load: int
    next_fits: bool | None


def choose_routes(window: Window, weights: MilpWeights) -> Choice | None:
    """Leave out what cannot be best, whatever the GPUs on each node.

    A gang may be split in any way inside a pool, so the routes that are possible depend on the sums of free
    GPUs alone. The weights of started jobs and the room for the next one are known for each route, and the
    other terms differ by a bounded amount.

    Returns:
        None if no job fits.
    """
    free = window.free_of_pool
    options = [tuple(p for p in pools if free.get(p, 0) >= gpus) for gpus, pools in window.jobs]
    if not any(options):
        return None
    if math.prod(len(pools) + 1 for pools in options) > MOST_ROUTES:
        return _any_route(window, options)
    found = _routes(window, options, free, weights.delta)
    fitting = sum(job[0] for job, pools in zip(window.jobs, options, strict=True) if pools)
    most_free = max(group.free for group in window.classes)
    slack = (abs(weights.alpha) + weights.gamma) * fitting + weights.beta * most_free
    best = max(value for value, _, _ in found)
    kept = [(route, fits) for value, route, fits in found if value >= best - slack - 1e-9 * abs(best)]
    return _sum_up(window, kept)


def _routes(
    window: Window, options: list[tuple[int, ...]], free: dict[int, int], delta: float
) -> list[tuple[float, Route, bool]]:
    """All routes with their certain value, of interchangeable jobs in one order only."""
    jobs, job_weights = window.jobs, window.job_weights
    twins = [
        max((e for e in range(j) if _outranks(window, options, e, j)), default=None) for j in range(len(jobs))
    ]
    next_gpus, next_pools = window.next_job or (0, ())
    found: list[tuple[float, Route, bool]] = []

    def extend(route: Route, value: float) -> None:
        job = len(route)
        if job == len(jobs):
            fits = any(free.get(pool, 0) >= next_gpus for pool in next_pools)
            found.append((value + delta * fits, route, fits))
            return
        twin = twins[job]
        least = -1 if twin is None else route[twin]
        gpus = jobs[job][0]
        for pool in options[job]:
            if pool >= least and free[pool] >= gpus:
                free[pool] -= gpus
                extend((*route, pool), value + job_weights[job])
                free[pool] += gpus
        extend((*route, WAITS), value)

    extend((), 0.0)
    return found


def _outranks(window: Window, options: list[tuple[int, ...]], earlier: int, later: int) -> bool:
    """Whether two jobs differ in their weights at most, and the earlier's is not less."""
    same = window.jobs[earlier][0] == window.jobs[later][0] and options[earlier] == options[later]
    return same and window.job_weights[earlier] >= window.job_weights[later]


def _sum_up(window: Window, kept: list[tuple[Route, bool]]) -> Choice:
    together: dict[int, set[tuple[int, ...]]] = {}
    load: dict[int, int] = {}
    total_load = 0
    for route, _ in kept:
        here: dict[int, tuple[int, ...]] = {}
        for job, pool in enumerate(route):
            if pool != WAITS:
                here[pool] = (*here.get(pool, ()), job)
        loads = {pool: sum(window.jobs[job][0] for job in jobs) for pool, jobs in here.items()}
        total_load = max(total_load, sum(loads.values()))
        for pool, jobs in here.items():
            together.setdefault(pool, set()).add(jobs)
            load[pool] = max(load.get(pool, 0), loads[pool])
    certain = frozenset(job for job in range(len(window.jobs)) if all(r[job] != WAITS for r, _ in kept))
    fits = {fits for _, fits in kept}
    return Choice(together, certain, load, total_load, fits.pop() if len(fits) == 1 else None)


def _any_route(window: Window, options: list[tuple[int, ...]]) -> Choice:
    """For many pools: every job that fits into a pool may go there."""
    pools = {pool for allowed in options for pool in allowed}
    here = {pool: tuple(job for job, allowed in enumerate(options) if pool in allowed) for pool in pools}
    load = {pool: sum(window.jobs[job][0] for job in jobs) for pool, jobs in here.items()}
    total_load = sum(job[0] for job, allowed in zip(window.jobs, options, strict=True) if allowed)
    next_fits = None if window.next_job else False
    return Choice({p: {jobs} for p, jobs in here.items()}, frozenset(), load, total_load, next_fits)


@lru_cache(maxsize=4096)
def teams(gpus: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Sets of jobs of these GPUs that may share nodes with each other and with no other.

    Jobs of one size in one pool are interchangeable, so a partition of them into teams can be relabelled such
    that each team has a run of them, long runs first: other sets are not needed.
    """
    runs: list[list[tuple[int, ...]]] = []
    for size in sorted(set(gpus)):
        alike = [job for job, own in enumerate(gpus) if own == size]
        lengths = range(1, len(alike) + 1)
        starts = ((n, start) for n in lengths for start in (0, *range(n, len(alike) - n + 1)))
        runs.append([(), *(tuple(alike[start : start + n]) for n, start in starts)])
    return tuple(sorted(tuple(sorted(sum(parts, ()))) for parts in product(*runs) if any(parts)))
