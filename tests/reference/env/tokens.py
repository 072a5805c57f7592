"""The rows of `nodes` of docs/contract/observation.md: one a node, or one a class of like nodes."""

import math
from collections.abc import Sequence

from reference.env.lookahead import share_of_horizon
from reference.env.observation import View, quotient
from reference.env.window import pool_of
from reference.simulator.simulator import Pool

NODE_COLUMNS = (
    *("present", "count", "gpu_use", "cpu_use", "memory_use", "gpus", "cpus", "memory", "speed"),
    *("release", "base_choice"),
)
CLASSES_WITHOUT_GPUS = 9


def node_rows(view: View) -> list[list[float]]:
    """All rows, padded."""
    settings, nodes = view.settings, view.state.nodes
    if settings.tokens == "nodes":
        members = [[id] for id in range(len(nodes))]
        length = settings.max_nodes or len(members)
    else:
        members = classes(view)
        length = settings.max_classes or len(members)
    blank = [0.0] * len(NODE_COLUMNS)
    rows = [row(view, ids) if ids else blank for ids in members]
    return rows + [blank] * (length - len(rows))


def classes(view: View) -> list[list[int]]:
    """The members of every class, classes without members included."""
    members: list[list[int]] = []
    for pool in view.state.pools:
        offset = len(members)
        members += [[] for _ in range(pool.size + 1 if pool.size > 0 else CLASSES_WITHOUT_GPUS)]
        for id in pool.nodes:
            members[offset + class_in_pool(view, pool, id)].append(id)
    return members


def class_in_pool(view: View, pool: Pool, id: int) -> int:
    if pool.size > 0:
        return view.state.free[id].empty
    cpus = view.state.nodes[id].cpus
    return 8 * view.state.free[id].cpus // cpus if cpus is not None else 0


def row(view: View, ids: Sequence[int]) -> list[float]:
    """The columns of a class with these members."""
    state, pool = view.state, pool_of(view.state, ids[0])
    free, nodes = [state.free[id] for id in ids], [state.nodes[id] for id in ids]
    free_gpus = float(sum(node.free_milli for node in free)) / 1000.0
    cpus = [(state.free[id].cpus, state.nodes[id].cpus) for id in ids]
    memory = [(state.free[id].memory_mib, state.nodes[id].memory_mib) for id in ids]
    columns = {
        "present": 1.0,
        "count": quotient(len(ids), len(state.nodes)),
        "gpu_use": used(free_gpus, sum(node.gpus for node in nodes)),
        "cpu_use": given_use(cpus),
        "memory_use": given_use(memory),
        "gpus": quotient(pool.size, max(node.gpus for node in state.nodes)),
        "cpus": quotient(sum(given or 0 for _, given in cpus), len(ids) * view.most_cpus),
        "memory": quotient(sum(given or 0 for _, given in memory), len(ids) * view.most_memory_mib),
        "speed": pool.speed / view.highest_speed,
        "release": release(view, ids),
        "base_choice": float(bool(view.chosen_nodes & set(ids))),
    }
    return [columns[name] for name in NODE_COLUMNS]


def used(free: float, capacity: int) -> float:
    """1 - free / capacity; 0 without a capacity."""
    return 1.0 - free / float(capacity) if capacity > 0 else 0.0


def given_use(resources: Sequence[tuple[int, int | None]]) -> float:
    """The same over the members on which the resource is given, from (free, capacity) of each."""
    stated = [(free, given) for free, given in resources if given is not None]
    return used(float(sum(free for free, _ in stated)), sum(given for _, given in stated))


def release(view: View, ids: Sequence[int]) -> float:
    ends = [run.expected_end_us for run in view.state.running if any(part.node in ids for part in run.held)]
    if not ends:
        return 0.0
    return share_of_horizon(view.state, min(ends, default=math.inf), view.settings.lookahead_horizon_s)
