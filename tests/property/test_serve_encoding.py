"""An agent that has seen many rounds makes the snapshot of one that begins with the last, to the last bit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.decision.deciding import decide_live
from gpuyard.serve.decision.memory import InFlight, Memory
from gpuyard.serve.decision.snapshot import Encoder, LiveSnapshot
from gpuyard.serve.state import ClusterState, Job, Node, Partition, Share

HALF_LIFE_S = 5_000.0
POLICIES = ("sjf+easy", "fair-share+greedy", "random+conservative", "las", "gittins+easy")
ODD_JOBS: tuple[dict[str, Any], ...] = (
    *[{}] * 12,
    {"limit_s": None},
    {"held": "other"},
    {"held": "agent"},
    {"left": "asks for licences"},
    {"exclusive": True},
    {"partition": "some"},
    {"partition": "nowhere"},
    {"gpu_types": ("a100",)},
    {"gpu_types": ("h100", "v100")},
    {"gpus": 0},
    {"deadline_s": 2_000_000.0},
    {"qos": "high"},
    {"row": 7},
    {"fair_factor": 0.25, "site_priority": 3.0},
)


class Walk:
    """A cluster on which jobs arrive, change, start, end, are requeued and vanish, and nodes come and go."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_s, self.number = 1_000_000.0, 0
        self.jobs: list[Job] = []
        self.nodes = [self.node(f"n{number}") for number in range(4)]
        self.has_partitions = self.random.random() < 0.7
        self.instant = self.random.choice((None, None, 0))

    def node(self, name: str) -> Node:
        pick = self.random.choice
        return Node(name, pick((4, 8, 8)), pick(("a100", "v100")), pick((16, 32)), pick((100, 200)))

    def arrive(self) -> Job:
        draw, pick, self.number = self.random.randint, self.random.choice, self.number + 1
        usual: dict[str, Any] = {"gpus": pick((1, 1, 2, 4, 8)), "limit_s": float(draw(1, 9_000))}
        usual |= {"user": f"u{draw(0, 9)}", "group": f"g{draw(0, 3)}", "partition": "all"}
        usual |= {"cpus": draw(0, 8), "memory_mib": draw(0, 40), "nodes": pick((0, 0, 0, 1, 2))}
        submit_s = self.now_s - self.random.choice((0.0, 0.5, 30.0, -20.0))
        return Job(str(self.number), "waiting", submit_s, **(usual | pick(ODD_JOBS)))

    def started(self, job: Job) -> Job:
        """On some nodes, mostly as it asked; some of them unknown, too full, or not said."""
        draw, pick = self.random.randint, self.random.choice
        names = self.random.sample([*(node.name for node in self.nodes), "unlisted"], pick((0, 1, 1, 1, 2)))
        count = max(1, len(names))
        shares = tuple(
            Share(name, job.gpus // count, -(-job.cpus // count), job.memory_mib // count + pick((0, 0, 1)))
            for name in names
        )
        begin_s = pick((self.now_s - draw(0, 50), self.now_s, None))
        return replace(job, phase=pick(("starting", "running")), begin_s=begin_s, shares=shares)

    def changed(self, job: Job) -> list[Job]:
        """What becomes of a job by the next round: most stay the same object, as adapters keep them."""
        luck = self.random.random()
        if luck < 0.6:
            return [job]
        if luck < 0.7:
            return [replace(job)]
        if luck < 0.78:
            return []
        if luck < 0.9:
            if job.waits:
                return [self.started(job)]
            if self.random.random() < 0.5:
                return [replace(job, phase="waiting", begin_s=None, shares=(), requeues=job.requeues + 1)]
            return [replace(job, phase="ending")]
        return [
            replace(job, **self.random.choice(({"limit_s": 77.0}, {"user": "new"}, {"gpus": job.gpus + 1})))
        ]

    def step(self) -> ClusterState:
        """The next state."""
        self.now_s += self.random.choice((1.0, 0.1, 60.0, -3_600.0))
        self.jobs = [new for job in self.jobs for new in self.changed(job)]
        self.jobs += [self.arrive() for _ in range(self.random.choice((0, 1, 3, 8)))]
        if self.random.random() < 0.2:
            self.random.shuffle(self.jobs)
        self.nodes = [self.later(node) for node in self.nodes]
        if self.random.random() < 0.03:
            self.nodes.append(self.node(f"n{len(self.nodes)}"))
        if self.instant is not None:
            self.instant += 1
        names = tuple(node.name for node in self.nodes)
        partitions = (Partition("all", names, default=True), Partition("some", names[:2]))
        listed = partitions if self.has_partitions else ()
        return ClusterState(
            "walk", self.now_s, tuple(self.jobs), tuple(self.nodes), listed,
            nodes_changed=self.random.random() < 0.1, backfill_due=self.random.random() < 0.5,
            epoch_s=5.0, instant=self.instant,
        )  # fmt: skip

    def later(self, node: Node) -> Node:
        luck = self.random.random()
        if luck < 0.7:
            return node
        closed, used = self.random.choice(("", "", "drained")), self.random.choice((None, 0, 1, 3, 20))
        if luck < 0.98:
            return replace(node, closed=closed, gpus_used=used)
        return replace(node, cpus=64)


def fly(memory: Memory, state: ClusterState, random: Random) -> None:
    """Some waiting jobs are released."""
    for job in state.waiting:
        if random.random() < 0.05:
            nodes = [(random.choice(state.nodes).name, job.gpus)] if random.random() < 0.9 else []
            memory.in_flight[job.id] = InFlight(nodes, state.now_s)


def told(live: LiveSnapshot) -> Iterator[tuple[str, Any]]:
    """All that a snapshot holds, with the bits of its numbers."""
    for name, table in _core.snapshot_columns(live.snapshot).items():
        if not isinstance(table, dict):
            yield name, table
            continue
        for column, values in table.items():
            array = np.asarray(values)
            yield f"{name}.{column}", (array.dtype, array.shape, array.tobytes())
    for name in ("ids", "nodes", "queue", "left", "notes"):
        yield name, getattr(live, name)


def decided(live: LiveSnapshot, policy: str) -> Any:
    made = decide_live(live, parse_policy(policy))
    return made.order, made.starts, made.backfilled, made.reservations, made.wake_s


def agree(live: LiveSnapshot, fresh: LiveSnapshot, policies: Sequence[str] = POLICIES) -> None:
    """To the last bit, and in what is decided on them."""
    was = dict(told(fresh))
    for name, value in told(live):
        assert value == was[name], name
    for policy in policies:
        assert repr(decided(live, policy)) == repr(decided(fresh, policy)), policy


class Rounds:
    """An agent's encoder over a walk.

    Args:
        seed: Of everything.
        estimates: ``requested`` or ``history``.
        cluster: What it is known to be; None: as states tell.
    """

    def __init__(self, seed: int, estimates: str, cluster: Cluster | None = None) -> None:
        self.walk, self.memory, self.random = Walk(seed), Memory(), Random(seed + 1)
        self.estimates, self.cluster = estimates, cluster
        self.encoder = self.begun()

    def begun(self) -> Encoder:
        """One that has seen nothing."""
        return Encoder(SimulationConfig(), self.estimates, lambda job: job.held != "other", self.cluster)

    def next(self) -> ClusterState:
        """Observe."""
        state = self.walk.step()
        self.memory.update(state, HALF_LIFE_S, self.estimates)
        fly(self.memory, state, self.random)
        return state

    def both(self, state: ClusterState) -> tuple[LiveSnapshot, LiveSnapshot]:
        """Of the agent that went on, and of one that reads what the journal has."""
        live = self.encoder.encode(state, self.memory)
        read = ClusterState.from_json(state.json_text), Memory.from_json(self.memory.to_json())
        return live, self.begun().encode(*read)


def walk(seed: int, estimates: str, steps: int) -> None:
    """Rounds of which each is compared with one that knows nothing."""
    rounds = Rounds(seed, estimates)
    for _ in range(steps):
        state = rounds.next()
        if rounds.random.random() < 0.15:  # a round in which nobody decides, such as one that is halted
            continue
        agree(*rounds.both(state), policies=[rounds.random.choice(POLICIES)])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(("requested", "history")))
def test_what_is_kept_of_earlier_rounds_changes_no_bit(seed: int, estimates: str) -> None:
    walk(seed, estimates, 10)


@pytest.mark.slow
@settings(max_examples=1_000, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(("requested", "history")))
def test_what_is_kept_of_many_earlier_rounds_changes_no_bit(seed: int, estimates: str) -> None:
    walk(seed, estimates, 25)


def test_rows_of_jobs_that_are_gone_are_dropped_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuyard.serve.decision.kept_rows._GARBAGE", 20)
    rounds = Rounds(1, "requested")
    rounds.walk.jobs = [rounds.walk.arrive() for _ in range(40)]
    for _ in range(25):
        rounds.walk.jobs = [*rounds.walk.jobs[8:], *(rounds.walk.arrive() for _ in range(8))]
        agree(*rounds.both(rounds.next()), policies=POLICIES[:1])
    kept = rounds.encoder._known._kept  # type: ignore[union-attr]
    assert kept._queue.size + kept._running.size < 400


def test_a_state_that_cannot_be_is_refused_and_the_next_one_decided_as_ever() -> None:
    rounds = Rounds(2, "requested")
    for _ in range(3):
        good = rounds.next()
        rounds.encoder.encode(good, rounds.memory)
    state = rounds.next()
    odd = Job("odd", "waiting", rounds.walk.now_s, partition="all", gpus=1, memory_mib=-5)
    with pytest.raises(ValueError, match="memory_mib"):
        rounds.encoder.encode(replace(state, jobs=(*state.jobs, odd)), rounds.memory)
    agree(*rounds.both(rounds.next()))
