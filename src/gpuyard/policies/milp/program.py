"""The ``milp`` placement as an integer programme.

Jobs that share nodes, directly or through others, are a *team*; each node serves one team at most. Draw an
edge from each job to each of its nodes: for given numbers of GPUs per node, the fewest edges make a forest.
So a team of t jobs on m nodes has m + t - 1 pairs of a job and a node, which is what gamma counts (if gamma
>= 0), whichever of its jobs gets which GPUs: a variable for each (class of nodes, team, GPUs taken of such a
node) is enough. Fragmentation afterwards is a constant of such a variable, exact in both directions.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gpuyard.policies.milp.window import Choice, IntArray, MilpWeights, NodeClass, Window, teams

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Team:
    """Jobs that share nodes of a pool with each other and with no other."""

    pool: int
    jobs: tuple[int, ...]
    gpus: int


@dataclass(frozen=True)
class Takes:
    """Ways to take GPUs of a node: parallel columns."""

    node_class: IntArray
    team: IntArray
    gpus: IntArray
    free: IntArray
    """Of the node, before."""
    fragments: IntArray
    """Growth of the number of fragmented nodes."""
    most: IntArray
    """Nodes on which the team can do this."""


@dataclass(frozen=True)
class Model:
    """A maximisation over integers from 0 to ``upper``: the takes, the teams, then indicators."""

    takes: Takes
    teams: tuple[Team, ...]
    classes: tuple[NodeClass, ...]
    cost: FloatArray
    upper: FloatArray
    matrix: FloatArray
    """Columns by rows."""
    row_lower: FloatArray
    row_upper: FloatArray
    offset: float


class _Rows:
    """Rows and indicator columns of a model as they are added."""

    def __init__(self, takes: int, teams: int) -> None:
        self.takes, self.teams = takes, teams
        self.indicators: list[float] = []
        self.entries: list[tuple[int, IntArray | list[int] | int, FloatArray | IntArray | float]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def indicator(self, cost: float) -> int:
        """A new column, 0 or 1."""
        self.indicators.append(cost)
        return self.takes + self.teams + len(self.indicators) - 1

    def row(self, lower: float, upper: float) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.lower) - 1

    def add(
        self, row: int, columns: IntArray | list[int] | int, values: FloatArray | IntArray | float
    ) -> None:
        self.entries.append((row, columns, values))

    def matrix(self) -> FloatArray:
        answer = np.zeros((self.takes + self.teams + len(self.indicators), len(self.lower)))
        for row, columns, values in self.entries:
            answer[columns, row] = values
        return answer


def build(window: Window, weights: MilpWeights, choice: Choice) -> Model:
    """The programme of a window in which some job fits."""
    members = _teams(window, choice)
    classes = tuple(group for group in window.classes if group.free and group.pool in choice.load)
    takes = _takes(classes, members)
    rows = _Rows(len(takes.gpus), len(members))
    _add_nodes_and_teams(rows, classes, members, takes)
    _add_jobs(rows, window, members, choice)
    offset = _add_next_job(rows, window, weights.delta, members, choice)
    offset += _add_spread(rows, window, weights.beta, takes, choice)
    offset -= weights.alpha * sum(len(group.nodes) for group in window.classes if group.fragmented)
    worth = [sum(window.job_weights[j] for j in t.jobs) - weights.gamma * (len(t.jobs) - 1) for t in members]
    of_takes: FloatArray = np.asarray(-weights.alpha * takes.fragments - weights.gamma, dtype=np.float64)
    cost: FloatArray = np.concatenate((of_takes, worth, rows.indicators))
    upper = np.concatenate((takes.most.astype(np.float64), np.ones(len(members) + len(rows.indicators))))
    lower = np.array(rows.lower)
    return Model(takes, members, classes, cost, upper, rows.matrix(), lower, np.array(rows.upper), offset)


def _teams(window: Window, choice: Choice) -> tuple[Team, ...]:
    found = set()
    for pool, sets in choice.together.items():
        for jobs in sets:
            gpus = [window.jobs[job][0] for job in jobs]
            for team in teams(tuple(gpus)):
                found.add((pool, tuple(jobs[i] for i in team), sum(gpus[i] for i in team)))
    return tuple(Team(*team) for team in sorted(found))


@lru_cache(maxsize=16384)
def _ways(size: int, free: int, gpus: int, jobs: int) -> tuple[tuple[int, int], ...]:
    """GPUs that a team may take of a node, with the growth of the number of fragmented nodes."""
    before = 0 < free < size
    # A one-GPU job has one node, so a team of such jobs has one node too.
    least = gpus if gpus == jobs else 1
    amounts = range(least, min(free, gpus) + 1)
    return tuple((take, int(0 < free - take < size) - int(before)) for take in amounts)


def _takes(classes: tuple[NodeClass, ...], members: tuple[Team, ...]) -> Takes:
    columns = [
        (index, number, take, group.free, fragments, min(len(group.nodes), team.gpus // take))
        for index, group in enumerate(classes)
        for number, team in enumerate(members)
        if team.pool == group.pool
        for take, fragments in _ways(group.size, group.free, team.gpus, len(team.jobs))
    ]
    return Takes(*np.array(columns, dtype=np.int64).reshape(-1, 6).T)


def _add_nodes_and_teams(
    rows: _Rows, classes: tuple[NodeClass, ...], members: tuple[Team, ...], takes: Takes
) -> None:
    for index, group in enumerate(classes):
        rows.add(rows.row(-np.inf, len(group.nodes)), np.flatnonzero(takes.node_class == index), 1.0)
    for number, team in enumerate(members):
        row = rows.row(0.0, 0.0)
        own = np.flatnonzero(takes.team == number)
        rows.add(row, own, takes.gpus[own])
        rows.add(row, rows.takes + number, -float(team.gpus))


def _add_jobs(rows: _Rows, window: Window, members: tuple[Team, ...], choice: Choice) -> None:
    for job in range(len(window.jobs)):
        own = [rows.takes + number for number, team in enumerate(members) if job in team.jobs]
        if own:
            rows.add(rows.row(1.0 if job in choice.certain else -np.inf, 1.0), own, 1.0)


def _add_next_job(
    rows: _Rows, window: Window, delta: float, members: tuple[Team, ...], choice: Choice
) -> float:
    """Room for the job after the window, in one of its pools. Returns what is certain."""
    if choice.next_fits is False or not delta or window.next_job is None:
        return 0.0
    gpus, pools = window.next_job
    free = window.free_of_pool
    visitors = {pool: {job for jobs in sets for job in jobs} for pool, sets in choice.together.items()}
    most = {pool: sum(window.jobs[job][0] for job in jobs) for pool, jobs in visitors.items()}
    pools = tuple(pool for pool in pools if free.get(pool, 0) >= gpus)
    if any(free[pool] - most.get(pool, 0) >= gpus for pool in pools):
        return delta
    indicators = []
    for pool in pools:
        indicators.append(rows.indicator(delta))
        row = rows.row(-np.inf, free[pool])
        rows.add(row, indicators[-1], float(gpus))
        for number, team in enumerate(members):
            if team.pool == pool:
                rows.add(row, rows.takes + number, float(team.gpus))
    rows.add(rows.row(1.0 if choice.next_fits else -np.inf, 1.0), indicators, 1.0)
    return 0.0


def _add_spread(rows: _Rows, window: Window, beta: float, takes: Takes, choice: Choice) -> float:
    """The difference of most and fewest free GPUs. Returns what is certain."""
    if not beta:
        return 0.0
    most = max(group.free for group in window.classes)
    fewest = min(group.free for group in window.classes)
    after = takes.free - takes.gpus
    lowest_most = _lowest_most(window, most, choice)
    for level in range(lowest_most + 1, most + 1):
        nodes = sum(len(group.nodes) for group in window.classes if group.free >= level)
        row = rows.row(nodes, np.inf)
        rows.add(row, np.flatnonzero((takes.free >= level) & (after < level)), 1.0)
        rows.add(row, rows.indicator(-beta), float(nodes))
    for level in range(1, fewest + 1):
        below = np.flatnonzero(after < level)
        touched = min(sum(len(group.nodes) for group in window.classes), choice.total_load)
        row = rows.row(-np.inf, touched)
        rows.add(row, below, 1.0)
        rows.add(row, rows.indicator(beta), float(touched))
    return -beta * lowest_most


def _lowest_most(window: Window, most: int, choice: Choice) -> int:
    """A bound on how few free GPUs the freest node can have afterwards."""
    for level in range(most, 0, -1):
        need: dict[int, int] = {}
        for group in window.classes:
            if group.free >= level:
                excess = (group.free - level + 1) * len(group.nodes)
                need[group.pool] = need.get(group.pool, 0) + excess
        if sum(need.values()) > choice.total_load or any(need[p] > choice.load.get(p, 0) for p in need):
            return level
    return 0
