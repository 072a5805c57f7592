"""Whatever a policy decides, what passes the guard can be done."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.serve.adapter import Start
from gpuyard.serve.decision.guard import Guarded, guard_starts, in_scope, lost_gpu_hours
from gpuyard.serve.decision.memory import InFlight, Memory
from gpuyard.serve.records import Planned
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Node, Partition, Share

NOW_S = 100_000.0
MAX_WAIT_S = 5_000.0
NAMES = ("n0", "n1", "n2")

ODD_JOBS: tuple[dict[str, Any], ...] = (
    *[{}] * 9,
    {"held": ""},
    {"held": "other"},
    {"left": "asks for licences"},
    {"exclusive": True},
    {"exclusive": True, "cpus": 8},
    {"partition": "some"},
    {"partition": "some", "limit_s": None},
    {"partition": ""},
    {"nodes": 2},
    {"gpu_types": ("a100",)},
    {"user": "bo"},
)
AGES_S = (10.0, 20.0, 30.0, 8_000.0, 9_000.0)


Case = tuple[ClusterState, Memory, ServeSettings, list[Planned]]


class Maker:
    """Draws a case: most of it plain, so that most starts come down to whether there is room."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.pick = self.random.choice

    def node(self, name: str) -> Node:
        sizes = (
            self.pick((4, 4, 8, 2, 0)),
            self.pick(("a100", "v100")),
            self.pick((8, 16)),
            self.pick((50, 100)),
        )
        closed, used = self.pick((*[""] * 6, "drained")), self.pick((*[None] * 5, 0, 1, 4))
        return Node(name, *sizes, closed=closed, gpus_used=used)

    def running(self, id: str) -> Job:
        draw = self.random.randint
        names = self.random.sample((*NAMES, "unlisted"), self.pick((0, 1, 1, 2)))
        shares = tuple(Share(name, draw(0, 4), draw(0, 3), draw(0, 20)) for name in names)
        return Job(
            id,
            self.pick(("running", "starting", "ending")),
            0.0,
            self.pick(("ada", "ada", "bo")),
            gpus=sum(share.gpus for share in shares),
            exclusive=self.pick((*[False] * 6, True)),
            begin_s=self.pick((NOW_S - 3600.0, NOW_S - 60.0, None)),
            shares=shares,
            can_requeue=self.pick((True, True, True, False)),
        )

    def waiting(self, id: str) -> Job:
        """A job that the agent may start, or one with something odd about it."""
        usual: dict[str, Any] = {"user": "ada", "partition": "all", "limit_s": 600.0, "held": "agent"}
        usual |= {"gpus": self.pick((1, 2, 4, 0)), "cpus": self.random.randint(0, 4)}
        usual |= {"memory_mib": self.random.randint(0, 20)}
        return Job(id, "waiting", NOW_S - self.pick(AGES_S), **(usual | self.pick(ODD_JOBS)))

    def state(self) -> ClusterState:
        running = [self.running(f"r{i}") for i in range(self.random.randint(0, 3))]
        waiting = [self.waiting(f"w{i}") for i in range(self.random.randint(1, 6))]
        some = Partition("some", self.pick((("n0",), ("n1", "n2"))), max_time_s=1000.0, max_nodes=1)
        partitions = (Partition("all", NAMES, open=self.pick((*[True] * 9, False))), some)
        nodes = tuple(self.node(name) for name in NAMES)
        return ClusterState("test", NOW_S, (*running, *waiting), nodes, partitions)

    def plan(self, state: ClusterState) -> Planned:
        """A start that may well be possible, or one with something odd about it."""
        job = self.pick(state.waiting)
        first, second = self.random.sample(NAMES, 2)
        planned = Planned(job.id, ((first, job.gpus),))
        victims = [one.id for one in state.running] or ["nobody"]
        half = job.gpus // 2
        stop = replace(planned, stops=(self.pick(victims),))
        odd = (
            *[replace(planned, nodes=((first, job.gpus - half), (second, half)))] * 3,
            *[stop] * 6,
            replace(stop, stops=(*stop.stops, self.pick(victims))),
            replace(planned, nodes=((first, 8),)),
            replace(planned, nodes=((first, -2), (second, job.gpus + 2))),
            replace(planned, nodes=((first, 1), (first, job.gpus - 1))),
            replace(planned, nodes=(("nowhere", job.gpus),)),
            replace(planned, nodes=()),
            replace(planned, job="nobody"),
            replace(planned, job=victims[0]),
        )
        return self.pick((planned, planned, self.pick(odd)))

    def case(self) -> Case:
        state, memory = self.state(), Memory()
        for job in state.waiting:
            if self.random.random() < 0.1:
                memory.in_flight[job.id] = InFlight([(self.pick(NAMES), job.gpus)], NOW_S)
        memory.stops = self.pick(([], [], [("r0", NOW_S - 60.0, 0.5)]))
        limits = ServeSettings(
            mode=self.pick(("active", "active", "canary")),
            control="start",
            canary_users=("ada",),
            max_wait_s=self.pick((MAX_WAIT_S, MAX_WAIT_S, 1e9)),
            max_starts=self.pick((100, 100, 2, 1)),
            max_preemptions_per_job_hour=self.pick((1, 2, 2, 0)),
            max_lost_gpu_hours_per_day=self.pick((100.0, 4.0, 0.0)),
        )
        return state, memory, limits, [self.plan(state) for _ in range(self.random.randint(1, 8))]


def cases() -> st.SearchStrategy[Case]:
    return st.integers(0, 2**64 - 1).map(lambda seed: Maker(seed).case())


MANY = settings(max_examples=1000)


def judged(case: Case) -> list[Start]:
    state, memory, limits, planned = case
    guarded: Guarded = guard_starts(planned, state, memory, limits, 7)
    assert [verdict.job for verdict in guarded.verdicts] == [one.job for one in planned]
    assert len({verdict.id for verdict in guarded.verdicts}) == len(planned)
    passed = [verdict.id for verdict in guarded.verdicts if verdict.allowed]
    starts = [action for action in guarded.actions if isinstance(action, Start)]
    assert [start.decision for start in starts] == passed
    return starts


def needs(job: Job, gpus: int, parts: int) -> tuple[int, int, int]:
    """Written anew from docs/contract/simulator.md, section 3."""
    share, whole = (gpus, job.gpus) if job.gpus else (1, parts)
    return gpus, -(-job.cpus * share // whole), -(-job.memory_mib * share // whole)


Held = list[tuple[bool, int, int, int]]
"""Whether it shares with nobody, GPUs, CPUs, memory."""


def held_on(name: str, state: ClusterState, memory: Memory, stopped: set[str]) -> Held:
    held: Held = [
        (job.exclusive, share.gpus, share.cpus, share.memory_mib)
        for job in state.running
        for share in job.shares
        if share.node == name and job.id not in stopped
    ]
    for id, release in memory.in_flight.items():
        job = state.by_id[id]
        held += [(job.exclusive, *needs(job, gpus, 1)) for node, gpus in release.nodes if node == name]
    return held


@MANY
@given(cases())
def test_what_passes_fits_beside_everything_else(case: Case) -> None:
    state, memory, _, _ = case
    starts = judged(case)
    stopped = {stop for start in starts for stop in start.stop}
    for node in state.nodes:
        mine: Held = [
            (job.exclusive, *needs(job, gpus, len(start.nodes)))
            for start in starts
            for job in [state.by_id[start.job]]
            for name, gpus in zip(start.nodes, start.gpus, strict=True)
            if name == node.name
        ]
        if not mine:
            continue
        everybody = [*held_on(node.name, state, memory, stopped), *mine]
        if any(exclusive for exclusive, *_ in everybody):
            busy = [one for one in everybody if one[0] or any(one[1:])]
            assert len(busy) == 1, "shared with one that shares with nobody"
            continue
        assert sum(one[1] for one in everybody) <= node.gpus
        assert sum(one[2] for one in everybody) <= node.cpus
        assert sum(one[3] for one in everybody) <= node.memory_mib


@MANY
@given(cases())
def test_what_passes_is_a_waiting_job_of_the_agent_on_nodes_that_it_may_use(case: Case) -> None:
    state, memory, limits, _ = case
    starts = judged(case)
    assert len({start.job for start in starts}) == len(starts) <= limits.max_starts
    partitions = {one.name: one for one in state.partitions}
    for start in starts:
        job = state.by_id[start.job]
        assert job.waits
        assert (job.held, job.left) == ("agent", "")
        assert job.id not in memory.in_flight
        assert in_scope(job, limits)
        assert limits.mode == "active" or job.user == "ada"
        assert job.exclusive or sum(start.gpus) == job.gpus
        assert len(set(start.nodes)) == len(start.nodes) > 0
        for name in start.nodes:
            node = state.node_by_name[name]
            assert not node.closed
            assert not job.gpus or job.gpu_types is None or node.gpu_type in job.gpu_types
            assert job.partition not in partitions or name in partitions[job.partition].nodes
        if job.partition == "some":
            assert len(start.nodes) == 1
            assert job.limit_s is not None
            assert job.limit_s <= 1000.0
        assert job.partition != "all" or partitions["all"].open


@MANY
@given(cases())
def test_stops_stay_within_their_budgets(case: Case) -> None:
    state, memory, limits, _ = case
    stops = [stop for start in judged(case) for stop in start.stop]
    if not stops:
        return
    assert len(set(stops)) == len(stops), "stopped twice"
    lost = sum(hours for *_, hours in memory.stops)
    for stop in stops:
        job = state.by_id[stop]
        assert not job.waits
        assert job.can_requeue
        assert in_scope(job, limits)
        lost += lost_gpu_hours(job, NOW_S)
        lately = sum(id == stop for id, *_ in memory.stops)
        assert lately < limits.max_preemptions_per_job_hour
    assert lost <= limits.max_lost_gpu_hours_per_day


def fits_on(job: Job, node: Node, held: Held) -> bool:
    if any(exclusive for exclusive, *_ in held):
        return False
    free = [
        size - sum(one[place] for one in held)
        for place, size in ((1, node.gpus), (2, node.cpus), (3, node.memory_mib))
    ]
    if node.gpus_used is not None:
        free[0] = min(free[0], node.gpus - node.gpus_used)
    return all(left >= need for left, need in zip(free, needs(job, job.gpus, 1), strict=True))


@MANY
@given(cases())
def test_an_overdue_job_that_fits_on_a_node_is_never_passed_by_a_younger_one(case: Case) -> None:
    state, memory, limits, _ = case
    starts = judged(case)
    if not starts or starts[0].stop:
        return
    first = state.by_id[starts[0].job]
    partitions = {one.name: one for one in state.partitions}
    oldest = min(
        (
            job
            for job in state.waiting
            if NOW_S - job.submit_s > limits.max_wait_s and job.held == "agent" and not job.left
            if in_scope(job, limits) and job.id not in memory.in_flight
        ),
        key=lambda job: (job.submit_s, job.id),
        default=None,
    )
    if oldest is None or oldest.submit_s >= first.submit_s or oldest.exclusive or oldest.nodes:
        return
    partition = partitions.get(oldest.partition)
    if partition is not None and (not partition.open or partition.name == "some"):
        return
    stopped: set[str] = set()
    for node in state.nodes:
        if node.closed or (oldest.gpu_types is not None and node.gpu_type not in oldest.gpu_types):
            continue
        if node.gpus_used is not None:  # what the node itself counts may be more than the jobs say
            continue
        assert not fits_on(oldest, node, held_on(node.name, state, memory, stopped)), (oldest, first)


def test_a_whole_node_job_starts_on_a_node_that_is_free() -> None:
    job = Job("1", "waiting", 0.0, gpus=2, cpus=6, exclusive=True, held="agent")
    state = ClusterState("test", 10.0, (job,), (Node("n0", 8, cpus=8),))
    settings = ServeSettings(mode="active", control="start")
    assert len(guard_starts([Planned("1", (("n0", 8),))], state, Memory(), settings, 1).actions) == 1


def test_an_overdue_job_beyond_the_limits_of_its_partition_blocks_nobody() -> None:
    never = Job("1", "waiting", 0.0, partition="short", gpus=1, limit_s=9_000.0, held="agent")
    young = Job("2", "waiting", 99_990.0, partition="short", gpus=1, limit_s=60.0, held="agent")
    short = Partition("short", ("n0",), max_time_s=600.0)
    state = ClusterState("test", NOW_S, (never, young), (Node("n0", 8),), (short,))
    settings = ServeSettings(mode="active", control="start", max_wait_s=MAX_WAIT_S)
    guarded = guard_starts([Planned("2", (("n0", 1),))], state, Memory(), settings, 1)
    assert [action.job for action in guarded.actions] == ["2"]


def test_a_start_that_stops_a_job_gets_its_room_and_no_more() -> None:
    holds = Job("r", "running", 0.0, gpus=4, begin_s=NOW_S, shares=(Share("n0", 4),))
    jobs = [Job(name, "waiting", NOW_S, gpus=gpus, held="agent") for name, gpus in (("a", 4), ("b", 8))]
    state = ClusterState("test", NOW_S, (holds, *jobs), (Node("n0", 4, gpus_used=4),))
    settings = ServeSettings(mode="active", control="start", max_preemptions_per_job_hour=1)

    def passes(job: str, gpus: int) -> bool:
        planned = Planned(job, (("n0", gpus),), ("r",))
        return bool(guard_starts([planned], state, Memory(), settings, 1).actions)

    assert passes("a", 4)
    assert not passes("b", 8)


def test_the_cases_above_have_starts_stops_and_refusals_of_every_kind() -> None:
    seen: dict[str, int] = {}

    @settings(max_examples=1000)
    @given(cases())
    def look(case: Case) -> None:
        state, memory, limits, planned = case
        guarded = guard_starts(planned, state, memory, limits, 7)
        for verdict in guarded.verdicts:
            seen[verdict.rule] = seen.get(verdict.rule, 0) + 1
        stops = [one for one in guarded.actions if isinstance(one, Start) and one.stop]
        seen["stopping"] = seen.get("stopping", 0) + len(stops)

    look()
    assert seen[""] > 100
    assert seen["stopping"] > 3
    rules = {"not-waiting", "in-flight", "scope", "not-held", "left", "nodes", "gang", "node-closed"}
    rules |= {"gpu-type", "partition", "stop", "preemption", "no-room", "too-many", "overdue"}
    assert rules <= set(seen)


def test_the_budget_of_lost_work_is_one_for_all_starts_of_a_round() -> None:
    begin_s = NOW_S - 3600.0
    holds = [
        Job(f"r{i}", "running", 0.0, gpus=4, begin_s=begin_s, shares=(Share(f"n{i}", 4),)) for i in (0, 1)
    ]
    jobs = [Job(f"w{i}", "waiting", NOW_S, gpus=4, held="agent") for i in (0, 1)]
    state = ClusterState("test", NOW_S, (*holds, *jobs), (Node("n0", 4), Node("n1", 4)))
    planned = [Planned(f"w{i}", ((f"n{i}", 4),), (f"r{i}",)) for i in (0, 1)]

    def passing(budget: float) -> list[str]:
        limits = ServeSettings(
            mode="active",
            control="start",
            max_preemptions_per_job_hour=1,
            max_lost_gpu_hours_per_day=budget,
        )
        return [action.job for action in guard_starts(planned, state, Memory(), limits, 1).actions]

    assert passing(8.0) == ["w0", "w1"]
    assert passing(7.0) == ["w0"]
    assert passing(3.0) == []
