"""``gpuyard demo``: well-known policies on a small busy cluster, and in words what the numbers show."""

from collections.abc import Mapping
from typing import Any

from gpuyard.cli.replay import replayed
from gpuyard.evaluate.replay import PolicyRun
from gpuyard.units import duration, number

FIFO = "fifo+strict/consolidate"
COUNTING = "fifo+strict/anywhere"
FIFO_EASY = "fifo+easy/consolidate"

POLICIES = (
    FIFO,
    COUNTING,
    FIFO_EASY,
    "sjf+strict/consolidate",
    "sjf+easy/consolidate",
    "saf+easy/consolidate",
    "wspt+easy/consolidate",
    "wspt+easy+express:600:0.1/consolidate",
)

NEXT_STEPS = (
    (
        "policies know only what users asked for",
        "gpuyard simulate demo --policy sjf+easy --estimates requested",
    ),
    ("who gains and who loses", "gpuyard simulate demo --policy fifo --policy sjf+easy --by gpus"),
    ("your own log: Slurm, LSF, SWF and public traces", "gpuyard workload import sacct.txt --out jobs.csv"),
    ("your own jobs, your own cluster", "gpuyard simulate jobs.csv --cluster 64x8 --policy sjf+easy"),
    ("every rule there is", "gpuyard policies"),
)

Metrics = Mapping[str, Any]


def run_demo() -> list[PolicyRun]:
    """Simulate every policy of the demo on its workload and cluster."""
    from gpuyard.cluster.model import parse_cluster
    from gpuyard.config import SimulationConfig
    from gpuyard.workload import demo_workload

    return replayed(demo_workload(), parse_cluster("demo"), POLICIES, SimulationConfig())


def findings(values: Mapping[str, Metrics]) -> list[str]:
    """Three sentences, made from the metrics of each policy by its full name."""
    return [_on_placement(values), _on_backfill(values), _on_order(values)]


def _on_placement(values: Mapping[str, Metrics]) -> str:
    placed, counted = (values[name]["mean_wait_s"] for name in (FIFO, COUNTING))
    return (
        f"Nodes matter: first come, first served makes jobs wait {duration(placed)} on average when gangs "
        f"are kept on as few nodes as possible, {_ratio(placed, counted)} {duration(counted)} that "
        "counting free GPUs wherever they are (fifo/anywhere) would have you expect."
    )


def _on_backfill(values: Mapping[str, Metrics]) -> str:
    before, after = values[FIFO], values[FIFO_EASY]
    use = 100 * (after["gpu_utilization"] - before["gpu_utilization"])
    return (
        f"Backfilling: letting later jobs into gaps where they do not delay the first (fifo+easy) takes the "
        f"mean wait from {duration(before['mean_wait_s'])} to {duration(after['mean_wait_s'])} and "
        f"{'raises' if use >= 0 else 'lowers'} GPU use by {abs(use):.1f} points."
    )


def _on_order(values: Mapping[str, Metrics]) -> str:
    kindest = min(values, key=lambda name: values[name]["mean_bounded_slowdown"])
    quickest = min(values, key=lambda name: values[name]["mean_wait_s"])
    start = (
        f"Order: {short_name(kindest)} has the lowest mean bounded slowdown, "
        f"{number(values[kindest]['mean_bounded_slowdown'])} against "
        f"{number(values[FIFO]['mean_bounded_slowdown'])} of fifo"
    )
    if kindest == quickest:
        return f"{start}, and the lowest mean wait, {duration(values[quickest]['mean_wait_s'])}."
    p99 = [values[name]["p99_wait_s"] for name in (kindest, quickest)]
    price = "at a price" if p99[0] > p99[1] else "and that at no price"
    return (
        f"{start}, {price}: one job in a hundred waits {duration(p99[0])} or longer, against "
        f"{duration(p99[1])} under {short_name(quickest)}, which has the lowest mean wait "
        f"({duration(values[quickest]['mean_wait_s'])})."
    )


def short_name(policy: str) -> str:
    """A policy's name without the parts that are the default anyway."""
    from gpuyard.policies.grammar import DEFAULT_BACKFILL, DEFAULT_PLACEMENT

    order, *options = policy.removesuffix(f"/{DEFAULT_PLACEMENT}").split("+")
    if options and options[0].partition("/")[0] == DEFAULT_BACKFILL:
        options[0] = options[0].removeprefix(DEFAULT_BACKFILL)
        return order + "+".join([options[0], *options[1:]])
    return "+".join([order, *options])


def _ratio(value: float, other: float) -> str:
    return f"{number(value / other)} times the" if other > 0 else "not the"
