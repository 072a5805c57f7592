"""The ``milp`` placement: the first queued jobs placed together, by an integer programme that HiGHS solves.

It maximises, over which jobs of the window start and how many GPUs of each node they get,

    sum of weights of started jobs - alpha * fragmented nodes - beta * (most free - fewest free)
    - gamma * (sum over started jobs of nodes used) + delta * (the job after the window still fits)

with all counts as they are afterwards. A gang stays inside one of its pools, split over nodes in any way. A
node is fragmented if some, but not all, of its GPUs are free; most and fewest free GPUs are over all nodes
given. The next job fits if one of its pools has as many GPUs free as it needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import highspy
import numpy as np

from gpuyard.errors import InputError
from gpuyard.policies.milp.program import Model, build
from gpuyard.policies.milp.window import (
    IntArray,
    Job,
    MilpWeights,
    NodeClass,
    Window,
    choose_routes,
    classes_of,
)

__all__ = [
    "Job",
    "MilpSolution",
    "MilpSolver",
    "MilpWeights",
    "NodeClass",
    "Start",
    "Window",
    "solution_value",
]

Start = tuple[int, list[tuple[int, int]]]
"""A job's index in the window, and the GPUs of each node that it gets, nodes ascending."""

Nodes = tuple[IntArray, IntArray, IntArray]
"""Pool, size and free GPUs of each node."""

_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 0,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 1e-7,
    # Measured on windows of a loaded cluster: the first took more than half of the time and never helped; the
    # second about doubled the longest times.
    "mip_heuristic_run_feasibility_jump": False,
    "presolve": "off",
}


@dataclass(frozen=True)
class MilpSolution:
    """What to start.

    Attributes:
        status: ``optimal``; ``limited``: legal, but a limit came before the proof; ``fallback``: there is no
            solution to use, and ``reason`` says why.
        objective: Value of the starts; of starting nothing in a ``fallback``.
        starts: Jobs to start.
        nodes_explored: By branch and bound; 0 where the solver was not needed.
        reason: What ended the search if it was not a proof.
        solver_used: Whether the solver was needed.
    """

    status: Literal["optimal", "limited", "fallback"]
    objective: float
    starts: list[Start]
    nodes_explored: int = 0
    reason: str = ""
    solver_used: bool = False


class MilpSolver:
    """Places windows of jobs, one at a time. Not for use by several threads at once."""

    def __init__(self, weights: MilpWeights | None = None, highs: highspy.Highs | None = None) -> None:
        self.weights = weights or MilpWeights()
        self._highs = highs or highspy.Highs()  # type: ignore[no-untyped-call]
        options = _OPTIONS | {"mip_max_nodes": self.weights.node_limit}
        if self.weights.time_limit_s is not None:
            options["time_limit"] = self.weights.time_limit_s
        for name, value in options.items():
            if self._highs.setOptionValue(name, value) != highspy.HighsStatus.kOk:
                raise RuntimeError(f"HiGHS refused its option {name}={value!r}")

    def solve(
        self,
        pool_of_node: IntArray,
        size_of_node: IntArray,
        free_of_node: IntArray,
        jobs: Sequence[Job],
        next_job: Job | None = None,
    ) -> MilpSolution:
        """Choose which jobs to start, and where.

        Args:
            pool_of_node: A number for each node that the queue may use.
            size_of_node: GPUs of each node; the same throughout a pool.
            free_of_node: GPUs of it that are free.
            jobs: The first jobs of the queue in order, at most ``weights.window``.
            next_job: The one after them, if any.
        """
        if len(jobs) > self.weights.window:
            raise InputError(f"milp: the window is {self.weights.window} jobs, but got {len(jobs)}")
        if any(gpus < 1 for gpus, _ in jobs):
            raise InputError("milp: every job of a window must have at least one GPU")
        classes = classes_of(pool_of_node, size_of_node, free_of_node)
        largest = max((group.size for group in classes), default=0)
        weights = self.weights.of_jobs(tuple(jobs), largest)
        window = Window(tuple(jobs), weights, next_job, classes)
        nodes = pool_of_node, size_of_node, free_of_node
        choice = choose_routes(window, self.weights)
        if choice is None or not any(choice.load.values()):
            return MilpSolution("optimal", self._value(nodes, window, []), [])
        return self._search(nodes, window, build(window, self.weights, choice))

    def _search(self, nodes: Nodes, window: Window, model: Model) -> MilpSolution:
        reason = self._run(model)
        if reason is None:
            return self._fallback(nodes, window, "HiGHS reported an error")
        info = self._highs.getInfo()
        explored = int(info.mip_node_count)
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return self._fallback(nodes, window, reason or "HiGHS: no feasible solution", explored)
        columns = np.rint(self._highs.getSolution().col_value).astype(np.int64)
        starts = _starts(window, model, columns)
        if starts is None:
            return self._fallback(nodes, window, "the solution of HiGHS is not legal", explored)
        value = self._value(nodes, window, starts)
        claimed = float(info.objective_function_value)
        tolerance = 1e-5 + 1e-9 * abs(value)
        # Jobs of a team may need fewer nodes than the model counts, but not in an optimal solution.
        if value < claimed - tolerance or (not reason and value > claimed + tolerance):
            return self._fallback(nodes, window, f"HiGHS claims {claimed} for a value of {value}", explored)
        return MilpSolution(
            "limited" if reason else "optimal", value, starts, explored, reason, solver_used=True
        )

    def _run(self, model: Model) -> str | None:
        """Solve. Returns what ended the search before a proof of optimality, or None after an error."""
        columns, rows = np.nonzero(model.matrix)
        start = np.searchsorted(columns, np.arange(len(model.cost) + 1)).astype(np.int32)
        passed = self._highs.passModel(
            len(model.cost),
            len(model.row_lower),
            len(columns),
            int(highspy.MatrixFormat.kColwise),
            int(highspy.ObjSense.kMaximize),
            model.offset,
            model.cost,
            np.zeros(len(model.cost)),
            model.upper,
            model.row_lower,
            model.row_upper,
            start,
            rows.astype(np.int32),
            model.matrix[columns, rows],
            np.ones(len(model.cost), dtype=np.int32),
        )
        error = highspy.HighsStatus.kError
        if passed == error or self._highs.run() == error:
            return None
        status = self._highs.getModelStatus()
        proven = status == highspy.HighsModelStatus.kOptimal
        return "" if proven else f"HiGHS: {self._highs.modelStatusToString(status)}"

    def _fallback(self, nodes: Nodes, window: Window, reason: str, explored: int = 0) -> MilpSolution:
        return MilpSolution(
            "fallback", self._value(nodes, window, []), [], explored, reason, solver_used=True
        )

    def _value(self, nodes: Nodes, window: Window, starts: Sequence[Start]) -> float:
        return solution_value(*nodes, window.jobs, window.next_job, starts, self.weights)


def _starts(window: Window, model: Model, columns: IntArray) -> list[Start] | None:
    """Give GPUs to jobs: nodes of a class by ascending id, to the takes in their order.

    Returns:
        None if the counts are not those of a legal assignment.
    """
    used = [0] * len(model.classes)
    on_nodes: dict[int, list[tuple[int, int]]] = {}
    takes = model.takes
    for column in np.flatnonzero(columns[: len(takes.gpus)]).tolist():
        index, count = int(takes.node_class[column]), int(columns[column])
        nodes = model.classes[index].nodes[used[index] : used[index] + count]
        if len(nodes) < count:
            return None
        used[index] += count
        of_team = on_nodes.setdefault(int(takes.team[column]), [])
        of_team.extend((node, int(takes.gpus[column])) for node in nodes)
    starts: list[Start] = []
    chosen = np.flatnonzero(columns[len(takes.gpus) : len(takes.gpus) + len(model.teams)]).tolist()
    for number in chosen:
        team = model.teams[number]
        given = on_nodes.pop(number, [])
        if sum(gpus for _, gpus in given) != team.gpus:
            return None
        starts.extend(_share_out(window, team.jobs, given))
    jobs = [job for job, _ in starts]
    return None if on_nodes or len(set(jobs)) < len(jobs) else sorted(starts)


def _share_out(window: Window, jobs: tuple[int, ...], given: list[tuple[int, int]]) -> list[Start]:
    """Fill one job after another: each but the first shares at most one node with those before it."""
    starts: list[Start] = []
    rest = list(reversed(given))
    for job in jobs:
        missing, own = window.jobs[job][0], []
        while missing:
            node, gpus = rest.pop()
            take = min(gpus, missing)
            own.append((node, take))
            missing -= take
            if gpus > take:
                rest.append((node, gpus - take))
        starts.append((job, sorted(own)))
    return starts


def solution_value(
    pool_of_node: IntArray,
    size_of_node: IntArray,
    free_of_node: IntArray,
    jobs: Sequence[Job],
    next_job: Job | None,
    starts: Sequence[Start],
    weights: MilpWeights,
) -> float:
    """The objective of any assignment, computed on the nodes.

    Raises:
        ValueError: if the assignment is not legal.
    """
    free = free_of_node.astype(np.int64)
    largest = int(size_of_node.max(initial=0))
    job_weights = weights.of_jobs(tuple(jobs), largest)
    started, nodes_used = 0.0, 0
    for job, given in starts:
        gpus, pools = jobs[job]
        nodes = [node for node, _ in given]
        used = {int(pool_of_node[node]) for node in nodes}
        if len(used) != 1 or not used <= set(pools) or len(set(nodes)) < len(nodes):
            raise ValueError(f"job {job} is not on different nodes of one of its pools: {given}")
        if sum(take for _, take in given) != gpus or any(take < 1 for _, take in given):
            raise ValueError(f"job {job} does not get its {gpus} GPUs: {given}")
        for node, take in given:
            free[node] -= take
        started += job_weights[job]
        nodes_used += len(nodes)
    if (free < 0).any() or len({job for job, _ in starts}) < len(starts):
        raise ValueError("a GPU or a job is used twice")
    fragmented = int(((free > 0) & (free < size_of_node)).sum())
    spread = int(free.max() - free.min()) if len(free) else 0
    next_fits = next_job is not None and any(
        bool((pool_of_node == pool).any()) and int(free[pool_of_node == pool].sum()) >= next_job[0]
        for pool in next_job[1]
    )
    value = started - weights.alpha * fragmented - weights.beta * spread
    return float(value - weights.gamma * nodes_used + weights.delta * next_fits)
