"""Priorities say the order that was decided, in as few writes as possible."""

import itertools
import time
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.serve.adapter import Reorder
from gpuyard.serve.decision.guard import guard_order, new_priorities, priority_range
from gpuyard.serve.records import Ranked
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Node

NOW_S = 100_000.0
LOW, HIGH = 1_000, 1_000_000


def queue(priorities: list[int | None]) -> list[Job]:
    """Jobs in the wanted order; with a priority of the agent's, or none."""
    return [
        Job(f"w{i}", "waiting", 0.0, priority=float(one or 5), mark="1-0" if one is not None else "")
        for i, one in enumerate(priorities)
    ]


def after(jobs: list[Job], written: list[tuple[Job, int]]) -> list[int]:
    new = {job.id: priority for job, priority in written}
    return [new.get(job.id, int(job.priority)) for job in jobs]


def descends(values: list[int]) -> bool:
    return all(first > second for first, second in itertools.pairwise(values))


def longest_descent(values: list[int | None]) -> int:
    best = [0] * len(values)
    for i, value in enumerate(values):
        if value is not None and LOW <= value <= HIGH:
            known = [best[j] for j in range(i) if (other := values[j]) is not None and other > value]
            best[i] = 1 + max(known, default=0)
    return max(best, default=0)


given_before = st.lists(
    st.one_of(st.none(), st.integers(LOW - 50, HIGH + 50), st.integers(5_000, 5_010)), max_size=30
)


@given(given_before)
def test_priorities_descend_in_the_given_order_inside_the_range(before: list[int | None]) -> None:
    jobs = queue(before)
    values = after(jobs, new_priorities(jobs, LOW, HIGH))
    assert descends(values)
    assert all(LOW <= value <= HIGH for value in values)


@given(
    st.lists(st.one_of(st.none(), st.integers(1, 15).map(lambda place: LOW + 50_000 * place)), max_size=30)
)
def test_as_few_priorities_are_written_as_possible_where_there_is_room(before: list[int | None]) -> None:
    jobs = queue(before)
    written = [job.id for job, _ in new_priorities(jobs, LOW, HIGH)]
    assert len(written) == len(jobs) - longest_descent(before)
    assert written == [job.id for job in jobs if job.id in set(written)], "the first jobs first"


@given(given_before)
def test_nothing_is_written_that_is_there_already(before: list[int | None]) -> None:
    jobs = queue(before)
    for job, priority in new_priorities(jobs, LOW, HIGH):
        assert not job.mark or priority != job.priority


@given(given_before)
def test_a_queue_in_order_is_left_alone(before: list[int | None]) -> None:
    jobs = queue(before)
    settled = queue(list(after(jobs, new_priorities(jobs, LOW, HIGH))))
    assert new_priorities(settled, LOW, HIGH) == []


def test_neighbours_are_numbered_anew_when_there_is_no_number_between_two() -> None:
    jobs = queue([90_000, 5_001, None, 5_000, 2_000])
    written = new_priorities(jobs, LOW, HIGH)
    assert [job.id for job, _ in written] == ["w1", "w2", "w3"]
    assert descends(after(jobs, written))


def test_too_many_jobs_for_the_range_are_left_alone() -> None:
    assert new_priorities(queue([None] * 20), 10, 20) == []


def test_a_new_job_between_two_is_the_only_one_that_is_written() -> None:
    jobs = queue([9_000, None, 5_000, 4_000])
    ((job, priority),) = new_priorities(jobs, LOW, HIGH)
    assert job.id == "w1"
    assert 5_000 < priority < 9_000


SETTINGS = ServeSettings(mode="active", control="order", max_reorders=7)


@given(st.lists(st.sampled_from(("", "agent", "other")), max_size=12))
def test_held_jobs_are_never_reordered(held: list[str]) -> None:
    jobs = tuple(
        Job(f"w{i}", "waiting", 0.0, held=holder)  # type: ignore[arg-type]
        for i, holder in enumerate(held)
    )
    state = ClusterState("test", NOW_S, jobs)
    guarded = guard_order([Ranked(job.id) for job in jobs], state, SETTINGS, 3)
    assert not {action.job for action in guarded.actions} & {job.id for job in jobs if job.held}
    assert len(guarded.actions) == min(7, held.count(""))
    refused = {verdict.job for verdict in guarded.verdicts if not verdict.allowed}
    assert refused == {job.id for job in jobs if job.held}


@given(given_before)
def test_writing_a_few_priorities_per_round_reaches_the_order(before: list[int | None]) -> None:
    settings = ServeSettings(
        mode="active", control="order", max_reorders=7, lowest_priority=LOW, highest_priority=HIGH
    )
    jobs = queue(before)
    ranked = [Ranked(job.id) for job in jobs]
    for _ in range(30):
        state = ClusterState("test", 10.0, tuple(jobs))
        guarded = guard_order(ranked, state, settings, 1)
        if not guarded.actions:
            break
        given = {one.job: one.priority for one in guarded.actions if isinstance(one, Reorder)}
        jobs = [
            replace(job, priority=float(given[job.id]), mark="1-1") if job.id in given else job
            for job in jobs
        ]
    assert not guarded.actions
    assert descends([int(job.priority) for job in jobs])


def test_priorities_lie_above_jobs_that_the_agent_has_not_reached() -> None:
    settings = ServeSettings(mode="active", control="order")
    others = Job("1", "waiting", 0.0, priority=4e9)
    low, high = priority_range(ClusterState("test", 0.0, (others,)), settings)
    assert low > 4e9
    assert low < high < 2**32 - 2


def test_ten_thousand_priorities_take_well_under_a_second() -> None:
    fresh = queue([None] * 10_000)
    shuffled = queue([5_000 + (i * 7919) % 10_000 for i in range(10_000)])
    for jobs in (fresh, shuffled):
        began = time.process_time()
        values = after(jobs, new_priorities(jobs, 1_000_000_000, 2_000_000_000))
        assert time.process_time() - began < 1.0
        assert descends(values)


def test_a_canary_hands_round_its_own_priorities_and_nobody_elses() -> None:
    jobs = tuple(Job(str(number), "waiting", float(number), priority=100.0 - number) for number in range(6))
    users = tuple(replace(job, user="ana" if int(job.id) % 2 else "bo") for job in jobs)
    state = ClusterState("test", 10.0, users, (Node("n1", 8),))
    settings = ServeSettings(mode="canary", control="order", canary_users=("ana",))
    order = [Ranked(str(number)) for number in (5, 4, 3, 2, 1, 0)]
    actions = guard_order(order, state, settings, 1).actions
    written = {action.job: action.priority for action in actions if isinstance(action, Reorder)}
    assert written == {"5": 99, "1": 95}
