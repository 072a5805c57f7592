"""How long the agent of a live cluster takes for a round, by waiting jobs and nodes, and what it costs.

Jobs about which nothing changed are the same objects from round to round, as an adapter keeps them, and
nodes are read anew; one waiting job in a hundred is new, and one running job has made place for another.
Encoding makes the snapshot, deciding includes the ranking of the whole queue. Processor time of the deciding
thread; the whole round also has memory, guard and journal, without the commands of Slurm.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuyard.registry import register
from harness import BenchResult, measure_apart

CASES = ((64, 1_000), (1_024, 1_000), (64, 10_000), (1_024, 10_000))
"""Nodes of 8 GPUs, and waiting jobs."""
POLICY = "wspt+easy"
LIMIT_MS = 5.0
"""At 1,000 waiting jobs, for encoding and deciding, 99 of 100 times."""
MOST_SHARE = 0.05
"""Of a core, at one round per second and 1,000 waiting jobs on 64 nodes."""


@register("benchmark", "serve")
def rounds() -> Iterator[BenchResult]:
    """Milliseconds to encode and decide, the agent's share of a core, memory."""
    for nodes, waiting in CASES:
        found = measure_apart(__file__, f"{nodes} {waiting}")
        name = f"serve {waiting:,} waiting, {nodes:,} nodes"
        yield BenchResult(f"{name}, p50", found["p50_ms"], "ms", "reading its text as JSON", found["json_ms"])
        limit = LIMIT_MS if waiting == 1_000 else 20 * LIMIT_MS
        yield _limited(f"{name}, p99", found["p99_ms"], "ms", limit)
        yield _limited(f"{name}, share of a core", found["share"], "", MOST_SHARE * (1 if nodes == 64 else 4))
        yield BenchResult(
            f"{name}, memory", found["rss_mib"], "MiB", "before the first round", found["idle_mib"]
        )


def _limited(name: str, value: float, unit: str, limit: float) -> BenchResult:
    return BenchResult(name, value, unit, f"the limit of {limit:g} {unit}", limit, 1.0, lower_is_better=True)


class Scripted:
    """A cluster of so many nodes on which jobs come, start and go by a fixed draw."""

    name = "scripted"

    def __init__(self, nodes: int, waiting: int) -> None:
        import random

        from gpuyard.serve.state import Node, Partition

        self._random = random.Random(7)
        self._now_s = 1_800_000_000.0
        self._next = 1
        self._waiting = waiting
        self.nodes = tuple(Node(f"gn{number}", 8, "a100", 64, 512_000) for number in range(nodes))
        self.partitions = (Partition("gpu", tuple(node.name for node in self.nodes), True),)
        self.running = [job for node in self.nodes for job in self._fill(node.name)]
        self.queue = [self._job() for _ in range(waiting)]

    def _job(self, **more: Any) -> Any:
        from gpuyard.serve.state import Job

        draw = self._random
        gpus = more.pop("gpus", None) or draw.choice((1, 1, 1, 2, 4, 8, 16))
        self._next += 1
        submit_s = self._now_s - draw.uniform(0, 1)
        return Job(
            str(self._next), more.pop("phase", "waiting"), submit_s, f"user{draw.randrange(60)}",
            f"group{draw.randrange(9)}", "gpu", gpus=gpus, cpus=4 * gpus, memory_mib=8_000 * gpus,
            limit_s=3600.0 * draw.randint(1, 48), held=more.pop("held", "agent"), **more,
        )  # fmt: skip

    def _fill(self, node: str) -> Iterator[Any]:
        from gpuyard.serve.state import Share

        left = 8
        while left > 0 and self._random.random() > 0.02:
            gpus = min(left, self._random.choice((1, 2, 4, 8)))
            left -= gpus
            share = Share(node, gpus, 4 * gpus, 8_000 * gpus)
            yield self._job(gpus=gpus, phase="running", held="", begin_s=self._now_s - 60.0, shares=(share,))

    def observe(self) -> Any:
        """The next second."""
        from gpuyard.serve.state import ClusterState

        self._now_s += 1.0
        gone = max(1, self._waiting // 100)
        self.queue = [*self.queue[gone:], *(self._job() for _ in range(gone))]
        place = self._random.randrange(len(self.running))
        ended = self.running[place]
        self.running[place] = self._job(
            gpus=ended.gpus, phase="running", held="", begin_s=self._now_s, shares=ended.shares
        )
        nodes, partitions = tuple(map(replace, self.nodes)), tuple(map(replace, self.partitions))
        return ClusterState("scripted", self._now_s, (*self.queue, *self.running), nodes, partitions)

    def apply(self, actions: Any) -> list[Any]:
        """Nothing comes of it."""
        return []

    def give_back_all(self) -> list[Any]:
        """Nothing is held."""
        return []


def measure(case: str) -> dict[str, float]:
    import gc

    from gpuyard.policies.grammar import parse_policy
    from gpuyard.serve.decision.deciding import decide_live, encoder_for
    from gpuyard.serve.decision.memory import Memory
    from gpuyard.serve.journal import Journal
    from gpuyard.serve.process.agent import Agent
    from gpuyard.serve.process.log import Log
    from gpuyard.serve.settings import ServeSettings
    from gpuyard.serve.signs import Signs

    nodes, waiting = map(int, case.split())
    settings = ServeSettings(policy=POLICY, mode="active", control="start")
    policy = parse_policy(POLICY)
    cluster, memory, encoder = Scripted(nodes, waiting), Memory(), encoder_for(policy, settings)
    idle_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    gc.disable()
    times, count = [], 200 if waiting <= 1_000 else 40
    for _ in range(count + 5):
        state = cluster.observe()
        memory.update(state, 604_800.0, "requested")
        began = time.thread_time()
        decide_live(encoder.encode(state, memory), policy)
        times.append(1e3 * (time.thread_time() - began))
        gc.collect()
    ordered = sorted(times[5:])
    began = time.thread_time()
    json.loads(state.json_text)
    json_ms = 1e3 * (time.thread_time() - began)
    with tempfile.TemporaryDirectory() as folder:
        shadow = ServeSettings(policy=POLICY, mode="shadow", state_dir=Path(folder), deadline_ms=60_000)
        signs = Signs(shadow.state_dir)
        with Journal.open(shadow.journal) as journal:
            agent = Agent(
                shadow, cluster, policy, parse_policy("fifo+easy"), journal, signs, Log(level="error")
            )
            agent.round()
            began = time.process_time()
            for _ in range(10):
                agent.round()
                gc.collect(1)
            share = (time.process_time() - began) / 10
            agent.chooser.close()
    return {
        "p50_ms": ordered[len(ordered) // 2],
        "p99_ms": ordered[int(0.99 * len(ordered))],
        "json_ms": json_ms,
        "share": share,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "idle_mib": idle_mib,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
