"""Charts of an agent: its rounds over time, and the cluster as the last one saw it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpuyard.report.figures import Chart, axis, rounded, time_axis
from gpuyard.serve.process.metrics import GANGS, busy_gpus, unusable_gpus
from gpuyard.serve.records import PHASES, RoundRecord
from gpuyard.serve.state import ClusterState

MOST_POINTS = 240
PHASE_WORDS = {"list": "list", "encode": "encode", "decide": "infer", "guard": "guard", "apply": "apply"}


def round_charts(outlines: Sequence[RoundRecord]) -> list[Chart]:
    """Charts over time (Unix seconds): the queue, rounds per minute, and what a round takes."""
    if not outlines:
        return []
    groups = _groups(outlines)
    times = [group[-1].wall_s for group in groups]
    return [
        _over_time(
            "waiting-jobs",
            "Waiting jobs",
            ("jobs", "1"),
            times,
            {
                "waiting": [_mean([one.pending for one in group]) for group in groups],
                "left to the scheduler": [_mean([one.left for one in group]) for group in groups],
            },
        ),
        _rounds_per_minute(outlines),
        _over_time(
            "time-per-round",
            "Time per round",
            ("time", "s"),
            times,
            {
                PHASE_WORDS[phase]: [
                    _mean([one.timings_s[phase] for one in group if phase in one.timings_s])
                    for group in groups
                ]
                for phase in PHASES
            },
        ),
    ]


def _groups(outlines: Sequence[RoundRecord]) -> list[list[RoundRecord]]:
    """Rounds one after the other, in so many groups as a chart has room for."""
    size = -(-len(outlines) // MOST_POINTS)
    every = list(outlines)
    return [every[first : first + size] for first in range(0, len(every), size)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _rounds_per_minute(outlines: Sequence[RoundRecord]) -> Chart:
    counts = Counter(int(one.wall_s // 60) for one in outlines)
    minutes = list(range(min(counts), max(counts) + 1))[-MOST_POINTS:]
    values = [float(counts[minute]) for minute in minutes]
    times = [60.0 * minute for minute in minutes]
    chart = _over_time("rounds-per-minute", "Rounds per minute", ("rounds", "1"), times, {"rounds": values})
    return {**chart, "note": "The first and the last minute are not whole.", "steps": True}


def _over_time(
    id: str, title: str, y: tuple[str, str], times: Sequence[float], lines: dict[str, list[float]]
) -> Chart:
    series = [
        {"name": name, "colour": number, "x": rounded(times, 13), "y": rounded(values)}
        for number, (name, values) in enumerate(lines.items(), start=1)
    ]
    x = time_axis(0.0, times[0], max(times[-1], times[0] + 1.0))
    return {
        "id": id,
        "kind": "lines",
        "title": title,
        "note": "",
        "x": {**x, "label": "time"},
        "y": axis(*y, zero=1),
        "levels": [],
        "series": series,
    }


def cluster_charts(state: ClusterState) -> list[Chart]:
    """The cluster now: how many GPUs are free, and which gangs they are of no use for."""
    nodes = list(busy_gpus(state))
    free = sum(node.gpus - busy for node, busy in nodes if not node.closed)
    largest = max((node.gpus for node, _ in nodes), default=0)
    gangs = [gang for gang in GANGS if gang <= largest]
    unusable = [float(sum(unusable_gpus(node, busy, gang) for node, busy in nodes)) for gang in gangs]
    by_free = Counter(node.gpus - busy for node, busy in nodes if not node.closed)
    labels = list(range(largest + 1))
    return [
        _columns(
            "fragmentation",
            f"Of {free:,} free GPUs, those of no use for a gang",
            "Free GPUs on open nodes that are left over when gangs of this size fill each node.",
            ("GPUs of a gang on one node", "GPUs"),
            [str(gang) for gang in gangs],
            unusable,
        ),
        _columns(
            "nodes-by-free-gpus",
            "Open nodes by free GPUs",
            "",
            ("free GPUs", "nodes"),
            [str(count) for count in labels],
            [float(by_free[count]) for count in labels],
        ),
    ]


def _columns(
    id: str, title: str, note: str, axes: tuple[str, str], labels: list[str], values: list[float]
) -> Chart:
    return {
        "id": id,
        "kind": "columns",
        "title": title,
        "note": note,
        "x": axis(axes[0], "1"),
        "y": axis(axes[1], "1"),
        "labels": labels,
        "series": [{"name": axes[1], "colour": 1, "y": values}],
    }


def node_list(state: ClusterState) -> list[list[Any]]:
    """Name, GPUs in use, GPUs, and why it is closed, of every node."""
    return [[node.name, busy, node.gpus, node.closed] for node, busy in busy_gpus(state)]
