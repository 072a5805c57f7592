"""Properties of every simulation, on cases that Hypothesis makes up and shrinks."""

import math
from dataclasses import replace

from hypothesis import event, given, note
from hypothesis import strategies as st

from differential.cases import Case
from differential.core_runs import (
    cluster_of,
    config_of,
    policy_of,
    run_core,
    run_core_by_snapshots,
    workload_of,
)
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.workload import Workload, make_workload
from property.stepping import Step, pools_of, requests_of, steps
from property.strategies import STATIC_ORDERS, cases, policies
from property.strategies import settings as simulation_settings
from reference.simulator import simulator as reference_simulator
from reference.simulator.simulator import Held, Request, Simulation, change, copy_of, place, queue_of, to_us
from support.invariants import check_result, node_table, run_of
from support.run_invariants import run_us

EXACT = simulation_settings(estimates=("exact",)).map(lambda how: replace(how, kill_at_estimate=False))


def run(case: Case, workload: Workload | None = None) -> SimulationResult:
    note(f"{case.policy}")
    return simulate(workload or workload_of(case), cluster_of(case), policy_of(case), config_of(case))


@given(cases())
def test_every_job_runs_once_where_it_may_as_long_as_it_takes_and_nothing_is_overbooked(
    case: Case,
) -> None:
    check_result(run(case))


@given(cases())
def test_the_core_agrees_with_the_reference(case: Case) -> None:
    expected = reference_simulator.simulate(case.nodes, case.speeds, case.jobs, case.policy, case.settings)
    assert run_core(case) == expected
    assert run_core_by_snapshots(case) == expected


@given(cases())
def test_free_and_used_add_up_to_the_capacity_at_every_decision_point(case: Case) -> None:
    for step in steps(case):
        nodes = step.snapshot.nodes
        assert nodes["gpus"].tolist() == [node.gpus for node in case.nodes]
        assert nodes["empty_gpus"].tolist() == [free.empty for free in step.free]
        assert nodes["free_milli"].tolist() == [free.free_milli for free in step.free]
        assert nodes["free_cpus"].tolist() == [free.cpus for free in step.free]
        assert nodes["free_memory_mib"].tolist() == [free.memory_mib for free in step.free]


@given(cases())
def test_a_snapshot_lists_what_waits_and_what_runs_where(case: Case) -> None:
    for step in steps(case):
        snapshot = step.snapshot
        assert snapshot.now_s == step.now_us / 1e6
        assert snapshot.queue["job"].tolist() == [request.id for request in step.waiting]
        assert sorted(snapshot.running["job"].tolist()) == sorted(step.held)
        for job, held in step.held.items():
            expected = [(part.node, min(case.jobs[job].gpus, len(part.gpu_indices))) for part in held]
            assert snapshot.nodes_of(job) == expected


@given(cases())
def test_the_same_input_gives_the_same_schedule(case: Case) -> None:
    assert run(case).schedule.hash() == run(case).schedule.hash()


@given(cases(), st.permutations(["ada", "bo", ""]), st.sampled_from(["", "zoe", "a|b", "\u00fc"]))
def test_names_of_users_unowned_groups_and_source_ids_change_nothing(
    case: Case, users: list[str], group: str
) -> None:
    new_user = dict(zip(("ada", "bo", ""), users, strict=True))
    owners = {node.owner for node in case.nodes}
    jobs = [
        replace(job, user=new_user[job.user], group=job.group if job.group in owners else group)
        for job in case.jobs
    ]
    frame = workload_of(replace(case, jobs=jobs)).frame
    renamed = make_workload(frame.with_columns(source_id=frame["row"].cast(str) + " of another log"))
    assert run(case, renamed).schedule.hash() == run(case).schedule.hash()


@given(cases(), st.sampled_from([1, 999_999, 3_600_000_000, 10**15]))
def test_shifting_submits_and_deadlines_by_a_constant_changes_nothing(case: Case, shift_us: int) -> None:
    frame = workload_of(case).frame
    later = frame.with_columns(
        submit_s=(frame["submit_s"].to_numpy() * 1e6 + shift_us) / 1e6,
        deadline_s=(frame["deadline_s"].to_numpy() * 1e6 + shift_us) / 1e6,
    ).fill_nan(None)
    shifted = make_workload(later)
    assert run(case, shifted).schedule.hash() == run(case).schedule.hash()


def rank_of(case: Case, request: Request) -> tuple[float, int, int]:
    """Its place under an order whose scores do not change."""
    score = Simulation([], [], [], case.policy, case.settings).score(request)
    return score, request.submit_us, request.id


@given(cases(policies(("fifo",), ("strict",), admission=False)))
def test_fifo_strict_starts_the_jobs_of_a_queue_in_order_of_submit(case: Case) -> None:
    pools = pools_of(case)
    last_start: dict[str | None, int] = {}
    for job, outcome in zip(case.jobs, run_core(case), strict=True):
        queue = queue_of(pools, job)
        assert outcome.start_us >= last_start.get(queue, 0)
        last_start[queue] = outcome.start_us


@given(cases(policies(STATIC_ORDERS, ("strict",), admission=False)))
def test_strict_never_starts_a_job_past_a_waiting_one_that_ranks_before_it(case: Case) -> None:
    pools = pools_of(case)
    for step in steps(case):
        for started, _ in step.started:
            for waiting in step.waiting:
                if queue_of(pools, waiting.job) == queue_of(pools, started.job):
                    assert rank_of(case, started) < rank_of(case, waiting)


@given(cases(policies(backfills=("greedy",), admission=False)))
def test_greedy_leaves_no_job_waiting_that_fits(case: Case) -> None:
    pools = pools_of(case)
    for step in steps(case):
        for request in step.waiting:
            assert place(pools, step.free, request, case.policy.placement, case.settings.seed) is None


def first_waiting(step: Step, case: Case) -> dict[str | None, Request]:
    """The head of each queue under fifo without admission."""
    pools = pools_of(case)
    heads: dict[str | None, Request] = {}
    for request in step.waiting:
        heads.setdefault(queue_of(pools, request.job), request)
    return heads


def shadow_us(case: Case, step: Step, head: Request, ends_us: dict[int, int]) -> float:
    """The first end of running jobs at which the head fits if nothing were backfilled behind it now."""
    pools = pools_of(case)
    free, running = copy_of(step.free), dict[int, list[Held]](step.held)
    for request, _ in step.started:
        if request.id > head.id and queue_of(pools, request.job) == queue_of(pools, head.job):
            change(free, running.pop(request.id), +1)
    for end_us in sorted({ends_us[job] for job in running}):
        for job in [job for job in running if ends_us[job] == end_us]:
            change(free, running.pop(job), +1)
        if place(pools, free, head, case.policy.placement, case.settings.seed) is not None:
            return end_us
    return math.inf


@given(cases(policies(("fifo",), ("easy", "easy-sjf"), admission=False), EXACT))
def test_backfill_never_delays_the_head_beyond_its_first_shadow_time(case: Case) -> None:
    runs = run_core(case)
    ends_us = {job: outcome.end_us for job, outcome in enumerate(runs)}
    promised: dict[int, float] = {}
    for step in steps(case):
        for head in first_waiting(step, case).values():
            if head.id not in promised:
                promised[head.id] = shadow_us(case, step, head, ends_us)
    event(f"heads: {min(len(promised), 3)}")
    for job, promise_us in promised.items():
        assert promise_us < math.inf
        assert runs[job].start_us <= promise_us, f"job {job} was promised {promise_us}: {runs[job]}"


BOUNDS_S = (1.0, 2.0, 5.0, 20.0, 2.5, 0.000001)


def aged_in(step: Step, case: Case) -> list[Request]:
    """The jobs that still wait after the step and have waited for the ageing bound, the oldest first."""
    assert case.policy.max_wait_s is not None
    bound_us = to_us(case.policy.max_wait_s)
    return [request for request in step.waiting if step.now_us - request.submit_us >= bound_us]


@given(cases(policies(backfills=("strict", "greedy"), bounds_s=BOUNDS_S)))
def test_nobody_passes_an_aged_job_where_nothing_is_reserved(case: Case) -> None:
    pools = pools_of(case)
    for step in steps(case):
        for aged in aged_in(step, case):
            for started, _ in step.started:
                if queue_of(pools, aged.job) == queue_of(pools, started.job):
                    assert (started.submit_us, started.id) < (aged.submit_us, aged.id)


@given(cases(policies(STATIC_ORDERS, ("easy", "easy-sjf"), bounds_s=BOUNDS_S), EXACT))
def test_an_aged_head_starts_no_later_than_its_first_shadow_time(case: Case) -> None:
    pools, outcomes = pools_of(case), run_core(case)
    ends_us = {job: outcome.end_us for job, outcome in enumerate(outcomes)}
    promised: dict[int, float] = {}
    for step in steps(case):
        heads: dict[str | None, Request] = {}
        for aged in aged_in(step, case):
            heads.setdefault(queue_of(pools, aged.job), aged)
        for head in heads.values():
            if head.id not in promised:
                promised[head.id] = shadow_us(case, step, head, ends_us)
    event(f"aged heads: {min(len(promised), 3)}")
    for job, promise_us in promised.items():
        assert outcomes[job].start_us <= promise_us, f"job {job} was promised {promise_us}: {outcomes[job]}"


@given(cases(policies(bounds_s=(1e6,))))
def test_a_bound_that_nobody_reaches_changes_nothing(case: Case) -> None:
    assert run_core(case) == run_core(replace(case, policy=replace(case.policy, max_wait_s=None)))


@given(cases(simulation=simulation_settings().map(lambda how: replace(how, kill_at_estimate=True))))
def test_kill_at_estimate_lets_no_job_run_past_its_estimate(case: Case) -> None:
    result = run(case)
    nodes, jobs = node_table(result.cluster), result.workload.frame.rows(named=True)
    for request in requests_of(case):
        ran = run_of(result.schedule, request.id, jobs[request.id])
        took_us = ran["end_us"] - ran["start_us"]
        whole_us = run_us(request.duration_us, ran, nodes, case.settings.locality_penalty)
        if request.estimate_us is None:
            allowed_us: float = math.inf
        else:
            allowed_us = run_us(request.estimate_us, ran, nodes, case.settings.locality_penalty)
        assert took_us == min(whole_us, allowed_us)
        assert ran["ending"] == ("timeout" if allowed_us < whole_us else "completed")


@given(cases(simulation=simulation_settings(estimates=("none",))))
def test_without_estimates_kill_at_estimate_changes_nothing(case: Case) -> None:
    killing, sparing = (
        replace(case, settings=replace(case.settings, kill_at_estimate=kill)) for kill in (True, False)
    )
    assert run_core(killing) == run_core(sparing)


def without_durations(case: Case) -> Case:
    """The same case as far as a scheduler can tell until the first job ends."""
    return replace(case, jobs=[replace(job, duration_s=job.duration_s + 1000.0) for job in case.jobs])


@given(cases(simulation=simulation_settings(estimates=("requested", "none"))))
def test_true_durations_do_not_matter_before_the_first_job_ends(case: Case) -> None:
    case = replace(case, settings=replace(case.settings, kill_at_estimate=False))
    runs, longer = run_core(case), run_core(without_durations(case))
    first_end_us = min(outcome.end_us for outcome in runs)
    for one, other in zip(runs, longer, strict=True):
        if min(one.start_us, other.start_us) < first_end_us:
            assert (one.start_us, one.nodes) == (other.start_us, other.nodes)
