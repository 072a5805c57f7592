"""The cluster and the queue as a person would want to see them."""

import math
import string
from collections.abc import Iterator
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.env.rendering.picture import paint_scene
from gpuyard.env.rendering.scene import MIB_PER_GIB, Holders, Scene, Use, WaitingJob
from gpuyard.units import duration, number, plural

MOST_NODES = 40
"""More nodes than this, and those that are alike share a line."""
MOST_GPUS = 64
"""Of a node that is drawn GPU by GPU."""
MOST_ROWS = 15
BAR = 20
LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
# Colours 16 to 231 of terminals, light enough for black letters. Their number and that of letters have no
# common factor, so that hundreds of jobs differ in one or the other.
COLOURS = (39, 208, 42, 213, 226, 111, 203, 49, 177, 185, 81, 216, 120)
RESET = "\x1b[0m"


def draw_text(snapshot: _core.Snapshot, clock_s: float, window: list[int]) -> str:
    """As text with ANSI colours; letters tell jobs apart where there are none.

    Args:
        snapshot: What a scheduler could know now.
        clock_s: The time.
        window: Jobs of the window, in its order.
    """
    scene = Scene(snapshot, clock_s, window)
    return "\n".join([_heading(scene), "", *_cluster_lines(scene), "", *_queue_lines(scene)]) + "\n"


def paint(snapshot: _core.Snapshot, clock_s: float, window: list[int]) -> NDArray[np.uint8]:
    """As a picture, height x width x RGB; always of the same size. Arguments as of ``draw_text``."""
    return paint_scene(Scene(snapshot, clock_s, window))


def _heading(scene: Scene) -> str:
    running, waiting = len(scene.running), scene.waiting
    jobs = f"{running:,} running, {waiting:,} waiting"
    if not scene.total_gpus:
        return f"{duration(scene.clock_s)}: {plural(len(scene.gpus), 'host')}, {jobs}"
    return f"{duration(scene.clock_s)}: {scene.use_text}, {jobs}"


# --- The cluster ---


def _cluster_lines(scene: Scene) -> Iterator[str]:
    pools = scene.pools
    in_full = len(scene.gpus) <= MOST_NODES and scene.gpus.max() <= MOST_GPUS
    for nodes in pools:
        if len(pools) > 1 or not in_full:
            yield _pool_line(scene, nodes)
        if not in_full:
            yield from _class_lines(scene, nodes)
            continue
        for node in nodes.tolist():
            label = f"node {node:<{len(str(len(scene.gpus) - 1))}}  "
            yield label + (_gpu_cells(scene.holders[node]) if scene.gpus[node] else _host_line(scene, node))


def _pool_line(scene: Scene, nodes: NDArray[np.int64]) -> str:
    size, count = int(scene.gpus[nodes[0]]), len(nodes)
    kind = f"of {plural(size, 'GPU')}" if size else "without GPUs"
    return f"pool {scene.pool[nodes[0]]}: {plural(count, 'node')} {kind}"


def _gpu_cells(holders: list[Holders]) -> str:
    """One letter a GPU, ``+`` where several jobs share it, a dot where it is free."""
    runs = ((jobs, len(list(cells))) for jobs, cells in groupby(holders))
    return "".join(_coloured(jobs[0], _letter(jobs) * count) if jobs else "." * count for jobs, count in runs)


def _letter(jobs: Holders) -> str:
    return "+" if len(jobs) > 1 else LETTERS[jobs[0] % len(LETTERS)]


def _coloured(job: int, text: str) -> str:
    return f"\x1b[30;48;5;{COLOURS[job % len(COLOURS)]}m{text}{RESET}"


def _host_line(scene: Scene, node: int) -> str:
    cpus = _use_text(scene.cpus(node), "CPUs")
    memory = _use_text(scene.memory_gib(node), "GiB")
    return f"{cpus}  {memory}  {plural(scene.jobs_on(node), 'job')}"


def _use_text(use: Use, unit: str) -> str:
    """A bar of what is used, if it is known how much there is."""
    if use.capacity is None:
        return f"{use.free:>7,} {unit} free"
    filled = math.ceil(BAR * use.share - 1e-9)
    taken = f"{use.capacity - use.free:,}/{use.capacity:,}"
    return f"{'#' * filled:.<{BAR}} {taken:>9} {unit}"


def _class_lines(scene: Scene, nodes: NDArray[np.int64]) -> Iterator[str]:
    """Nodes of a pool by their number of empty GPUs; hosts all together."""
    size = int(scene.gpus[nodes[0]])
    if not size:
        cpus = _sum([scene.cpus(node) for node in nodes])
        memory = _sum([scene.memory_gib(node) for node in nodes])
        yield f"  {_use_text(cpus, 'CPUs')}  {_use_text(memory, 'GiB')}"
        return
    counts = np.bincount(scene.empty_gpus[nodes], minlength=size + 1)
    for empty in np.flatnonzero(counts).tolist():
        width = min(size, BAR)
        filled = math.ceil(width * (size - empty) / size)
        bar = f"{'#' * filled:.<{width}}"
        yield f"  {bar}  {empty:>{len(str(size))}} empty  {plural(int(counts[empty]), 'node')}"


def _sum(uses: list[Use]) -> Use:
    capacities = [use.capacity for use in uses if use.capacity is not None]
    return Use(sum(use.free for use in uses), sum(capacities) if len(capacities) == len(uses) else None)


# --- The queue ---


def _queue_lines(scene: Scene) -> Iterator[str]:
    shown = scene.window[:MOST_ROWS]
    if not shown:
        yield "nothing waits" if not scene.waiting else f"{plural(scene.waiting, 'job')} waiting"
        return
    yield f"{'row':>5} {'job':>9}    {'asks for':<18} {'estimate':>12} {'waited':>12}"
    for job in shown:
        letter = _coloured(job.job, _letter((job.job,)))
        estimate = "unknown" if math.isnan(job.estimate_s) else duration(job.estimate_s)
        waited = duration(job.wait_s)
        yield f"{job.row:>5} {job.job:>9,} {letter}  {_demand(job):<18} {estimate:>12} {waited:>12}"
    if scene.waiting > len(shown):
        yield f"and {scene.waiting - len(shown):,} more"


def _demand(job: WaitingJob) -> str:
    if job.gpus:
        return plural(int(job.gpus), "GPU") if job.gpus >= 1 else f"{number(job.gpus)} GPU"
    memory = f", {job.memory_mib / MIB_PER_GIB:,.0f} GiB" if job.memory_mib else ""
    return f"{plural(job.cpus, 'CPU')}{memory}"
