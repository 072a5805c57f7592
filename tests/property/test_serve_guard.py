"""Whatever a policy decides, what passes the guard can be done."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.serve.adapter import Start
from gpuyard.serve.guard import Guarded, guard_starts, in_scope, lost_gpu_hours
from gpuyard.serve.memory import InFlight, Memory
from gpuyard.serve.records import Planned
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Node, Partition, Share

NOW_S = 100_000.0
MAX_WAIT_S = 5_000.0
NAMES = ("n0", "n1", "n2")

nodes = st.builds(
    Node,
    name=st.just(""),
    gpus=st.sampled_from((4, 2, 8, 0)),
    gpu_type=st.sampled_from(("a100", "v100")),
    cpus=st.sampled_from((8, 4, 16)),
    memory_mib=st.sampled_from((100, 50)),
    closed=st.sampled_from(("", "", "", "drained")),
    gpus_used=st.sampled_from((None, None, 0, 1, 4)),
)
shares = st.builds(
    Share,
    node=st.sampled_from((*NAMES, "unlisted")),
    gpus=st.integers(0, 4),
    cpus=st.integers(0, 6),
    memory_mib=st.integers(0, 40),
)
running_jobs = st.builds(
    Job,
    id=st.just(""),
    phase=st.sampled_from(("running", "starting", "ending")),
    submit_s=st.just(0.0),
    user=st.sampled_from(("ada", "bo")),
    gpus=st.integers(0, 4),
    exclusive=st.sampled_from((False, False, True)),
    begin_s=st.sampled_from((NOW_S - 3600.0, NOW_S - 60.0, None)),
    shares=st.lists(shares, max_size=2, unique_by=lambda share: share.node).map(tuple),
    can_requeue=st.sampled_from((True, True, False)),
)
waiting_jobs = st.builds(
    Job,
    id=st.just(""),
    phase=st.just("waiting"),
    submit_s=st.sampled_from((NOW_S - 10.0, NOW_S - 20.0, NOW_S - 9_000.0, NOW_S - 8_000.0)),
    user=st.sampled_from(("ada", "bo")),
    partition=st.sampled_from(("all", "all", "some", "")),
    gpus=st.sampled_from((1, 2, 4, 0, 8)),
    nodes=st.sampled_from((0, 0, 2)),
    cpus=st.integers(0, 8),
    memory_mib=st.integers(0, 50),
    gpu_types=st.sampled_from((None, None, ("a100",))),
    limit_s=st.sampled_from((600.0, None, 5_000.0)),
    exclusive=st.sampled_from((False, False, False, True)),
    held=st.sampled_from(("agent", "agent", "agent", "", "other")),
    left=st.sampled_from(("", "", "", "asks for licences")),
)


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    there = [
        replace(node, name=name) for name, node in zip(NAMES, draw(st.tuples(*[nodes] * 3)), strict=True)
    ]
    running = [replace(job, id=f"r{i}") for i, job in enumerate(draw(st.lists(running_jobs, max_size=4)))]
    waiting = [replace(job, id=f"w{i}") for i, job in enumerate(draw(st.lists(waiting_jobs, max_size=6)))]
    some = Partition("some", draw(st.sampled_from((("n0",), ("n1", "n2")))), max_time_s=1000.0, max_nodes=1)
    partitions = (Partition("all", NAMES, open=draw(st.sampled_from((True, True, False)))), some)
    return ClusterState("test", NOW_S, (*running, *waiting), tuple(there), partitions)


@st.composite
def plans(draw: st.DrawFn, state: ClusterState) -> list[Planned]:
    ids = st.sampled_from([*(job.id for job in state.jobs), "nobody"])
    parts = st.tuples(st.sampled_from((*NAMES, "nowhere")), st.sampled_from((1, 2, 4, 0, 8, -2)))
    victims = st.sampled_from([*(job.id for job in state.running), "nobody"])

    def shaped(planned: Planned) -> Planned:
        job = state.by_id.get(planned.job)
        whole = draw(st.booleans()) and job is not None and planned.nodes
        return replace(planned, nodes=((planned.nodes[0][0], job.gpus),)) if whole and job else planned

    planned = st.builds(
        Planned,
        job=ids,
        nodes=st.lists(parts, max_size=3).map(tuple),
        stops=st.one_of(st.just(()), st.lists(victims, max_size=2).map(tuple)),
    )
    return [shaped(one) for one in draw(st.lists(planned, max_size=8))]


@st.composite
def cases(draw: st.DrawFn) -> tuple[ClusterState, Memory, ServeSettings, list[Planned]]:
    state = draw(states())
    memory = Memory()
    for job in state.waiting:
        if draw(st.sampled_from((False, False, False, True))):
            memory.in_flight[job.id] = InFlight([(draw(st.sampled_from(NAMES)), job.gpus)], NOW_S)
    memory.stops = draw(st.lists(st.just(("r0", NOW_S - 60.0, 0.5)), max_size=2))
    settings = ServeSettings(
        mode=draw(st.sampled_from(("active", "canary"))),
        control="start",
        canary_users=("ada",),
        max_wait_s=MAX_WAIT_S,
        max_starts=draw(st.sampled_from((100, 1, 2))),
        max_preemptions_per_job_hour=draw(st.sampled_from((0, 1, 2))),
        max_lost_gpu_hours_per_day=draw(st.sampled_from((0.0, 2.0, 100.0))),
    )
    return state, memory, settings, draw(plans(state))


def judged(case: tuple[ClusterState, Memory, ServeSettings, list[Planned]]) -> list[Start]:
    state, memory, settings, planned = case
    guarded: Guarded = guard_starts(planned, state, memory, settings, 7)
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


@given(cases())
def test_what_passes_fits_beside_everything_else(
    case: tuple[ClusterState, Memory, ServeSettings, list[Planned]],
) -> None:
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


@given(cases())
def test_what_passes_is_a_waiting_job_of_the_agent_on_nodes_that_it_may_use(
    case: tuple[ClusterState, Memory, ServeSettings, list[Planned]],
) -> None:
    state, memory, settings, _ = case
    starts = judged(case)
    assert len({start.job for start in starts}) == len(starts) <= settings.max_starts
    partitions = {one.name: one for one in state.partitions}
    for start in starts:
        job = state.by_id[start.job]
        assert job.waits
        assert (job.held, job.left) == ("agent", "")
        assert job.id not in memory.in_flight
        assert in_scope(job, settings)
        assert settings.mode == "active" or job.user == "ada"
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


@given(cases())
def test_stops_stay_within_their_budgets(
    case: tuple[ClusterState, Memory, ServeSettings, list[Planned]],
) -> None:
    state, memory, settings, _ = case
    stops = [stop for start in judged(case) for stop in start.stop]
    if not stops:
        return
    assert len(set(stops)) == len(stops), "stopped twice"
    lost = sum(hours for *_, hours in memory.stops)
    for stop in stops:
        job = state.by_id[stop]
        assert not job.waits
        assert job.can_requeue
        assert in_scope(job, settings)
        lost += lost_gpu_hours(job, NOW_S)
        lately = sum(id == stop for id, *_ in memory.stops)
        assert lately < settings.max_preemptions_per_job_hour
    assert lost <= settings.max_lost_gpu_hours_per_day


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


@given(cases())
def test_an_overdue_job_that_fits_on_a_node_is_never_passed_by_a_younger_one(
    case: tuple[ClusterState, Memory, ServeSettings, list[Planned]],
) -> None:
    state, memory, settings, _ = case
    starts = [start for start in judged(case) if not start.stop]
    if not starts:
        return
    first = state.by_id[starts[0].job]
    partitions = {one.name: one for one in state.partitions}
    oldest = min(
        (
            job
            for job in state.waiting
            if NOW_S - job.submit_s > MAX_WAIT_S and job.held == "agent" and not job.left
            if in_scope(job, settings) and job.id not in memory.in_flight
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
