"""Hand-computed cases that pin sections 8 to 20 in the reference; each comment is the computation."""

from collections import Counter
from dataclasses import replace

import pytest

from differential import lifecycle_cases
from reference.simulator.simulator import (
    Finished,
    Job,
    Node,
    Outcome,
    Policy,
    Request,
    Run,
    Settings,
    Simulation,
    Usage,
    World,
    bucket,
    can_ever_start,
    draw_mw,
    empty_cluster,
    energy_rate,
    gittins_index,
    lower_edge,
    make_pools,
    make_request,
    place,
    simulate_with_runs,
    take,
)

S = 1_000_000
# Stops take 2 s, restores 3 s, and nothing but events makes a policy decide.
STOPS = Settings(min_run_s=5.0, checkpoint_s=2.0, restore_s=3.0, reschedule_s=1e6)


def run(
    nodes: list[Node],
    jobs: list[Job],
    policy: Policy,
    settings: Settings | None = None,
    **others: object,
) -> tuple[list[Outcome], list[Run]]:
    return simulate_with_runs(nodes, {}, jobs, policy, settings or Settings(), **others)


def starts_s(outcomes: list[Outcome]) -> list[float]:
    return [outcome.start_us / 1e6 for outcome in outcomes]


def spans_s(runs: list[Run]) -> list[tuple[int, float, float, float, str]]:
    return [(r.job, r.begin_us / 1e6, r.stop_us / 1e6, r.released_us / 1e6, r.ending) for r in runs]


def moment(nodes: list[Node], order: str, settings: Settings | None = None, **others: object) -> Simulation:
    pools, free = make_pools(nodes, {}), empty_cluster(nodes)
    return Simulation(pools, free, [], Policy(order), settings or Settings(), nodes, **others)


# --- 14, 15. runs and preemption


def test_a_stopped_job_keeps_its_work_and_restores_before_it_goes_on() -> None:
    # At 10 job 0 has 90 s left, job 1 takes 20. The stop takes effect at 12, job 1 runs until 32, and job 0
    # restores until 35 and is done at 125.
    outcomes, runs = run([Node("a100", 4)], [Job(0, 100, 4), Job(10, 20, 4)], Policy("srtf"), STOPS)
    assert spans_s(runs) == [
        (0, 0, 10, 12, "stopped"),
        (1, 12, 32, 32, "completed"),
        (0, 32, 125, 125, "completed"),
    ]
    assert [r.restore_us for r in runs] == [0, 0, 3 * S]
    assert [r.taken_us for r in runs] == [0, 12 * S, 32 * S]
    assert [(o.start_us, o.end_us) for o in outcomes] == [(0, 125 * S), (12 * S, 32 * S)]


def test_progress_on_a_fast_gpu_is_more_work() -> None:
    # At speed 2 job 0 has done 20 of 100 s by 10. From 32 + 3 the other 80 take 40 s.
    jobs = [Job(0, 100, 4), Job(10, 40, 4)]
    _, runs = simulate_with_runs([Node("a100", 4)], {"a100": 2.0}, jobs, Policy("srtf"), STOPS)
    assert spans_s(runs)[2] == (0, 32, 75, 75, "completed")


def test_a_run_is_safe_for_min_run_s_and_ticks_notice_when_it_no_longer_is() -> None:
    # Ticks at 4 and 8: at 4 job 0 has run 4 s, at 8 long enough.
    settings = replace(STOPS, reschedule_s=4.0)
    _, runs = run([Node("a100", 4)], [Job(0, 100, 4), Job(2, 20, 4)], Policy("srtf"), settings)
    assert spans_s(runs)[:2] == [(0, 0, 8, 10, "stopped"), (1, 10, 30, 30, "completed")]


def test_only_the_runs_that_are_needed_are_stopped() -> None:
    # Worst first: job 0 (1 GPU), then job 1 (2 GPUs). With both gone job 3 fits, and without job 0 too.
    jobs = [Job(0, 200, 1), Job(0, 150, 2), Job(0, 100, 1), Job(10, 5, 2)]
    _, runs = run([Node("a100", 4)], jobs, Policy("srtf"), STOPS)
    assert [r.job for r in runs if r.ending == "stopped"] == [1]


def test_no_job_starts_on_a_closed_node() -> None:
    # Job 2 would fit on the free GPU at 11, but the node is promised to job 1, which takes it at 12.
    jobs = [Job(0, 100, 3), Job(10, 20, 4), Job(11, 1, 1)]
    outcomes, _ = run([Node("a100", 4)], jobs, Policy("srtf"), replace(STOPS, min_run_s=9.0))
    assert starts_s(outcomes) == [0, 12, 32]


def test_las_runs_whoever_has_run_least() -> None:
    # At 10 job 1 has run 0 s, job 0 10 s. At the tick of 20 it has run 9 s, less than 10; at 30 it has 19.
    # Job 0 goes on at 31, makes progress from 32 and has 18 s at 40, but 28 at 50.
    settings = Settings(min_run_s=0, checkpoint_s=1, restore_s=1, reschedule_s=10)
    _, runs = run([Node("a100", 4)], [Job(0, 100, 4), Job(10, 100, 4)], Policy("las"), settings)
    assert spans_s(runs)[:3] == [
        (0, 0, 10, 11, "stopped"),
        (1, 11, 30, 31, "stopped"),
        (0, 31, 50, 51, "stopped"),
    ]


def test_tiresias_sinks_jobs_and_promotes_those_that_starve() -> None:
    # One level edge, 10 GPU-seconds. Job 0 sinks at 10 and is stopped for job 1 (from 11), which sinks at 21
    # but ties then. Job 0 starves at 11 + 30 = 41, goes on at 42 (44 after the restore) and is at level 0
    # again until 54. Job 1 starves at 42 + 30 = 72 and goes on from 73 (75) with the last 20 s: until 95.
    # Job 0 has done 10 + 28; from 95 + 2 the last 62 s take until 159.
    settings = Settings(
        min_run_s=0,
        checkpoint_s=1,
        restore_s=2,
        reschedule_s=1,
        tiresias_levels_gpu_s=(10.0,),
        starvation_s=30.0,
    )
    _, runs = run([Node("a100", 1)], [Job(0, 100, 1), Job(5, 50, 1)], Policy("tiresias"), settings)
    assert spans_s(runs) == [
        (0, 0, 10, 11, "stopped"),
        (1, 11, 41, 42, "stopped"),
        (0, 42, 72, 73, "stopped"),
        (1, 73, 95, 95, "completed"),
        (0, 95, 159, 159, "completed"),
    ]


@pytest.mark.parametrize(("gpus", "half_s"), [(8, 3.5), (9, 15.0), (32, 15.0), (33, 30.0)])
def test_checkpoints_take_half_of_7_30_or_60_seconds_by_default(gpus: int, half_s: float) -> None:
    _, runs = run([Node("a100", gpus)], [Job(0, 1000, gpus), Job(400, 10, gpus)], Policy("srtf"))
    assert runs[0].released_us - runs[0].stop_us == half_s * S
    assert runs[2].restore_us == half_s * S


def test_defragment_moves_a_job_that_makes_room() -> None:
    # Worst fit puts 2 GPUs on each node. At 10 job 2 needs a whole node: job 0 goes to node 1. Both begin at
    # 12; job 0 restores until 15 and has 90 s left.
    nodes = [Node("a100", 4), Node("a100", 4)]
    policy, settings = Policy("fifo", placement="worst-fit"), replace(STOPS, defragment=True)
    jobs = [Job(0, 100, 2), Job(0, 100, 2), Job(10, 50, 4)]
    _, runs = run(nodes, jobs, policy, settings)
    assert spans_s(runs) == [
        (0, 0, 10, 12, "stopped"),
        (1, 0, 100, 100, "completed"),
        (0, 12, 105, 105, "completed"),
        (2, 12, 62, 62, "completed"),
    ]
    assert [r.nodes for r in runs] == [((0, 2),), ((1, 2),), ((1, 2),), ((0, 4),)]
    stuck, _ = run(nodes, [Job(0, 100, 3), *jobs[1:]], policy, settings)
    assert starts_s(stuck) == [0, 0, 100]  # 3 and 2 GPUs do not fit on one node


# --- 16. failures


def test_a_failure_loses_the_work_since_the_last_checkpoint() -> None:
    # Seed 34: node 0 fails at 46.335616 s and is repaired 28.359569 s later, at 74.695185 s. Of 46.335616 s
    # 40 are kept; after 2 s of restore the other 60 end at 136.695185 s, long before the next failure.
    settings = Settings(seed=34, node_mtbf_s=100, node_mttr_s=10, checkpoint_every_s=10, restore_s=2)
    outcomes, runs = run([Node("a100", 4)], [Job(0, 100, 4)], Policy("fifo"), settings)
    assert spans_s(runs) == [
        (0, 0, 46.335616, 46.335616, "failed"),
        (0, 74.695185, 136.695185, 136.695185, "completed"),
    ]
    assert [(r.lost_us, r.restore_us) for r in runs] == [(6_335_616, 0), (0, 2 * S)]
    assert (outcomes[0].start_us, outcomes[0].end_us) == (0, 136_695_185)
    _, without = run(
        [Node("a100", 4)], [Job(0, 100, 4)], Policy("fifo"), replace(settings, checkpoint_every_s=None)
    )
    assert [(r.lost_us, r.restore_us) for r in without] == [(46_335_616, 0), (0, 0)]
    assert spans_s(without)[1][2] == 174.695185


def test_a_failure_during_a_checkpoint_voids_it_and_the_promise() -> None:
    # Seed 46: node 0 fails at 39.824010 s and is repaired at 55.533736 s. Job 0 is stopped at 35 for job 1,
    # until 45; it fails before, keeps 30 s of work, and job 1 is in the queue as before.
    settings = replace(
        STOPS, checkpoint_s=10.0, seed=46, node_mtbf_s=100, node_mttr_s=10, checkpoint_every_s=10
    )
    jobs = [Job(0, 100, 4), Job(35, 10, 4)]
    _, runs = run([Node("a100", 4)], jobs, Policy("srtf"), settings)
    assert spans_s(runs) == [
        (0, 0, 35, 39.82401, "failed"),
        (1, 55.533736, 65.533736, 65.533736, "completed"),
        (0, 65.533736, 138.533736, 138.533736, "completed"),  # 3 s of restore, 70 s left
    ]
    assert runs[0].lost_us == 5 * S


# --- 17. sleep and power


def test_a_sleeping_node_delays_the_begin() -> None:
    # Idle from 1 on, the node sleeps from 11. Job 1 takes its GPU at 20, and both begin when it is awake.
    settings = Settings(sleep_after_s=10, wake_s=5)
    outcomes, runs = run(
        [Node("a100", 4)], [Job(0, 1, 1), Job(20, 1, 1), Job(22, 1, 1)], Policy("fifo"), settings
    )
    assert starts_s(outcomes) == [0, 25, 25]
    assert [r.taken_us for r in runs] == [0, 20 * S, 22 * S]
    assert outcomes[1].end_us == 26 * S
    awake, _ = run([Node("a100", 4)], [Job(0, 1, 1), Job(10.9, 1, 1)], Policy("fifo"), settings)
    assert starts_s(awake) == [0, 10.9]


def test_power_aware_placement_wakes_no_node_while_another_is_awake() -> None:
    watts = {"a100": (50.0, 250.0)}
    jobs = [Job(0, 100, 3), Job(20, 10, 1), Job(20, 10, 4), Job(21, 10, 1)]
    nodes = [Node("a100", 4), Node("a100", 4), Node("a100", 4)]
    settings = Settings(sleep_after_s=10, wake_s=5)
    _, runs = run(nodes, jobs, Policy("fifo", placement="power-aware"), settings, watts=watts)
    # Node 0 has the only GPU that is awake; then node 1 is woken for 4, and node 2 for the last.
    assert [r.nodes for r in runs] == [((0, 3),), ((0, 1),), ((1, 4),), ((2, 1),)]


def test_the_power_cap_keeps_jobs_waiting() -> None:
    # 100 W for the node, 4 * 50 W idle, and 200 W more for each busy GPU: 700 W are enough for 2 of them.
    nodes, watts = [Node("a100", 4, idle_w=100.0)], {"a100": (50.0, 250.0)}
    jobs = [Job(0, 10, 1), Job(0, 20, 1, 500), Job(1, 1, 1), Job(1, 1, 1, 400)]
    outcomes, _ = run(nodes, jobs, Policy("fifo", "greedy"), Settings(power_cap_w=700.0), watts=watts)
    assert starts_s(outcomes) == [0, 0, 10, 1]  # the last one shares a GPU that is busy anyway
    less, _ = run(nodes, jobs, Policy("fifo", "greedy"), Settings(power_cap_w=699.9), watts=watts)
    assert starts_s(less) == [0, 10, 30, 10]  # one busy GPU at a time: 0, then 1 and 3 together, then 2
    assert draw_mw(nodes, watts, empty_cluster(nodes)) == 300_000
    assert not can_ever_start(
        nodes, {}, Job(0, 1, 3), 0, "consolidate", 0, Settings(power_cap_w=700.0), watts
    )


def test_a_job_goes_to_the_next_pool_if_the_cap_forbids_the_first() -> None:
    nodes, watts = [Node("a100", 4), Node("t4", 4)], {"a100": (0.0, 400.0), "t4": (0.0, 70.0)}
    outcomes, _ = run(
        nodes, [Job(0, 10, 1), Job(0, 10, 1)], Policy("fifo"), Settings(power_cap_w=500), watts=watts
    )
    assert [o.nodes for o in outcomes] == [((0, 1),), ((1, 1),)]


def test_the_energy_rate_counts_a_share_of_the_node() -> None:
    nodes, watts = [Node("a100", 4, idle_w=100.0), Node("t4", 4)], {"a100": (50.0, 250.0), "t4": (10.0, 70.0)}
    pools = make_pools(nodes, {"a100": 2.0})
    # (2 * 250 + 2 / 4 * 100) / 2 = 275, (2 * 70 + 0) / 1 = 140.
    assert [energy_rate(Job(0, 1, 2), pool, nodes, watts) for pool in pools] == [275.0, 140.0]
    request = make_request(0, Job(0, 10, 2), Settings())
    world = World(nodes, watts)
    assert place(pools, empty_cluster(nodes), request, "power-aware", 0, world) == ((1, 2),)
    assert place(pools, empty_cluster(nodes), request, "consolidate", 0, world) == ((0, 2),)
    now = moment(nodes, "power-aware", watts=watts)
    assert now.score(request) == 10.0 * 140.0
    assert now.score(make_request(0, Job(0, 10, 2, gpu_types=("a100",)), Settings())) == 10.0 * 550.0


# --- 18. quotas


def test_quotas_with_and_without_borrowing() -> None:
    # Group a has 4 of 8 GPUs. At 1 its second job is over quota: it waits, or borrows if nobody else waits
    # within quota. It does not hold up job 2 although the policy is strict.
    nodes = [Node("a100", 4), Node("a100", 4)]
    jobs = [Job(0, 100, 4, group="a"), Job(1, 9, 2, group="a"), Job(2, 50, 4, group="b")]
    settings = Settings(group_quotas={"a": 4}, quota_borrowing=False)
    outcomes, _ = run(nodes, jobs, Policy("fifo"), settings)
    assert starts_s(outcomes) == [0, 100, 2]
    lending, _ = run(nodes, jobs, Policy("fifo"), replace(settings, quota_borrowing=True))
    assert starts_s(lending) == [0, 1, 10]
    with pytest.raises(ValueError, match="job 0 can never start"):
        run(nodes, [Job(0, 1, 5, group="a")], Policy("fifo"), settings)


def test_nobody_borrows_while_a_job_within_quota_waits() -> None:
    # Group a has nothing, b 4 GPUs, the others 4 together. At 0 job 0 borrows: job 1 has started. From 2 on
    # job 2 waits for a whole node within quota, so job 3 may not borrow, though it would fit beside job 0.
    nodes = [Node("a100", 4), Node("a100", 4)]
    jobs = [
        Job(0, 30, 3, group="a"),
        Job(0, 20, 4, group="b"),
        Job(2, 10, 4, group="c"),
        Job(2, 10, 1, group="a"),
    ]
    settings = Settings(group_quotas={"a": 0, "b": 4})
    outcomes, _ = run(nodes, jobs, Policy("fifo", "greedy"), settings)
    assert starts_s(outcomes) == [0, 0, 20, 20]


# --- 19. history and the orders that learn


def test_predictions_fall_back_from_the_most_alike_jobs_to_all() -> None:
    finished = Finished()
    job = Job(0, 1, 2, user="ada", group="x")
    assert finished.prediction_us(job) == 3600 * S
    for other, seconds in (
        (Job(0, 1, 8, user="bo", group="x"), 100),
        (Job(0, 1, 2, user="bo", group="x"), 40),
        (Job(0, 1, 4, user="ada", group="y"), 30),
        (Job(0, 1, 2, user="ada", group="y"), 20),
        (Job(0, 1, 2, user="ada", group="x"), 7),
    ):
        finished.add(other, seconds * S, seconds * S)
        expected_s = {100: 100, 40: 40, 30: 30, 20: 20, 7: 7}[seconds]
        assert finished.prediction_us(job) == expected_s * S
    finished.add(job, 8 * S + 1, S)
    assert finished.prediction_us(job) == 7_500_000  # (7 s + 8.000001 s) / 2, half to even
    assert finished.prediction_us(Job(0, 1, 4, user="cy")) == 30 * S


def test_the_mean_falls_to_all_users_jobs_of_any_size_last() -> None:
    history = [Job(0, 10, 1, user="ada"), Job(0, 30, 2, user="bo")]
    finished = Finished()
    for job in history:
        finished.add(job, round(job.duration_s * S), 0)
    assert finished.prediction_us(Job(0, 1, 8, user="cy")) == 20 * S


def test_qssf_serves_the_shortest_prediction_times_size() -> None:
    # History: ada's jobs take 100 s, bo's 10 s. On one GPU bo goes first although her job arrived later.
    history = [Job(0, 100, 1, user="ada"), Job(0, 10, 1, user="bo")]
    jobs = [Job(0, 5, 1, user="cy"), Job(1, 1, 1, user="ada"), Job(2, 99, 1, user="bo")]
    outcomes, _ = run([Node("a100", 1)], jobs, Policy("qssf"), history=history)
    assert starts_s(outcomes) == [0, 104, 5]
    # What has finished counts: at 5 cy's 5 s are known, but ada's and bo's predictions are older.
    killed, _ = run(
        [Node("a100", 1)],
        jobs,
        Policy("qssf"),
        Settings(estimates="history", kill_at_estimate=True),
        history=history,
    )
    assert [o.status for o in killed] == ["completed", "completed", "timeout"]
    assert killed[2].end_us - killed[2].start_us == 10 * S


def test_gittins_buckets_are_quarters_of_powers_of_two() -> None:
    assert [bucket(x) for x in range(12)] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9]
    assert [lower_edge(b) for b in range(14)] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    assert all(bucket(lower_edge(b)) == b and bucket(lower_edge(b + 1) - 1) == b for b in range(100))


def test_the_gittins_index_by_hand() -> None:
    # Finished after 1 and 10 GPU-seconds. From 0: one job of two for 1 + 1 * 2 (up to the edge of the next
    # bucket) = 3, or two jobs for 11. From 2 GPU-seconds: one job for 10 - 2.
    assert gittins_index([1, 10], 0) == 1 / 3
    assert gittins_index([1, 10], 2) == 1 / 8
    assert gittins_index([1, 10], 11) == 1 / 1  # same bucket as 10, whose edge is 10: cost max(0, 1)
    assert gittins_index([1, 10], 12) == 0.0
    assert gittins_index([0, 0], 0) == 2.0
    assert gittins_index([], 5) == 0.0


def test_gittins_scores_go_by_the_attained_gpu_time() -> None:
    now = moment([Node("a100", 4)], "gittins")
    now.finished.add(Job(0, 5, 2), 5 * S, 5 * S)  # 10 GPU-seconds
    waiting = make_request(0, Job(0, 1, 1), Settings())
    now.queued.append(waiting)
    assert now.score(waiting) == -(1 / 10)
    now.kept_of(0).attained_us = 2 * S
    assert now.score(waiting) == -(1 / 8)


# --- 8. fairness


def request(id: int, job: Job) -> Request:
    return make_request(id, job, Settings())


def test_drf_takes_the_larger_share_of_what_is_held_and_asked() -> None:
    # 8 GPUs, 16 CPUs: ada holds 2 GPUs and 8 CPUs. With 1 GPU and 1 CPU more: max(3 / 8, 9 / 16). Her second
    # job also counts the first: max(5 / 8, 10 / 16). Bo's: 4 / 8.
    nodes = [Node("a100", 4, cpus=16), Node("a100", 4)]
    now = moment(nodes, "drf")
    first, second = request(1, Job(0, 1, 1, cpus=1, user="ada")), request(2, Job(0, 1, 2, cpus=1, user="ada"))
    other = request(3, Job(0, 1, 4, user="bo"))
    now.queued += [request(0, Job(0, 1, 2, cpus=8, user="ada")), first, second, other]
    now.start(now.queued[0], ((0, 2),), backfilled=False)
    assert [now.score(each) for each in (first, second, other)] == [9 / 16, 5 / 8, 4 / 8]


def test_shares_divide_usage() -> None:
    now = moment([], "fair-share", Settings(user_shares={"ada": 4.0}, group_shares={"x": 0.5}))
    now.usage, now.group_usage = {"ada": Usage(8.0), "bo": Usage(3.0)}, {"x": Usage(5.0)}
    assert [now.score(request(0, Job(0, 1, 1, user=user))) for user in ("ada", "bo", "cy")] == [2.0, 3.0, 0.0]
    now.policy = Policy("group-fair-share")
    assert now.score(request(0, Job(0, 1, 1, group="x"))) == 10.0


# --- 10. conservative


def test_conservative_keeps_reservations_that_easy_breaks() -> None:
    # Job 1 gets 3 GPUs at 10, job 2 all 4 at 20. Job 3 would hold the fourth for 100 s: easy looks at job 1
    # only and starts it at 3, and job 2 waits until 103. Conservative has no room for it before 30.
    jobs = [Job(0, 10, 2), Job(1, 10, 3), Job(2, 10, 4), Job(3, 100, 1), Job(4, 4, 1)]
    easy, _ = run([Node("a100", 4)], jobs, Policy("fifo", "easy"))
    assert starts_s(easy) == [0, 10, 103, 3, 4]
    conservative, _ = run([Node("a100", 4)], jobs, Policy("fifo", "conservative"))
    assert starts_s(conservative) == [0, 10, 20, 30, 4]
    assert [o.backfilled for o in conservative] == [False, False, False, False, True]


def test_conservative_plans_anew_when_a_job_ends_early() -> None:
    jobs = [Job(0, 10, 4, estimate_s=100), Job(1, 5, 4, estimate_s=5), Job(2, 5, 4, estimate_s=50)]
    outcomes, _ = run(
        [Node("a100", 4)], jobs, Policy("fifo", "conservative"), Settings(estimates="requested")
    )
    assert starts_s(outcomes) == [0, 10, 15]


def test_conservative_does_not_wait_for_a_begin_that_went_by() -> None:
    # At 6 job 0 is overdue and counts as ending at 6.000001, where job 1 is reserved. It ends at 10.
    jobs = [Job(0, 10, 4, estimate_s=5), Job(6, 5, 4, estimate_s=5)]
    outcomes, _ = run(
        [Node("a100", 4)], jobs, Policy("fifo", "conservative"), Settings(estimates="requested")
    )
    assert starts_s(outcomes) == [0, 10]


# --- 9. tiers, tetris, fgd


def placed(rule: str, empty: list[int], gpus: int, arrived: Counter[tuple[int, int]] | None = None) -> object:
    """Where the rule puts so many GPUs on nodes of 4 that have so many empty."""
    nodes = [Node("a100", 4) for _ in empty]
    free = empty_cluster(nodes)
    for id, left in enumerate(empty):
        take(free, Job(0, 1, 4 - left), ((id, 4 - left),) if left < 4 else ())
    world = World(nodes, arrived=arrived or Counter())
    return place(make_pools(nodes, {}), free, request(0, Job(0, 1, gpus)), rule, 0, world)


def test_each_tier_rule_chooses_among_the_ways_on_one_node() -> None:
    # 2 GPUs on nodes with 2, 3 and 4 of 4 empty. Fragmented nodes: -1, 0, +1. (z - free)^2 grows by 16 - 4,
    # 9 - 1, 4 - 0. Cost: -10 + (4 - 2) + 1, 0 + (3 - 2) + 1, 10 + (1 - 2) + 1.
    assert placed("tier", [2, 3, 4], 2) == ((0, 2),)
    assert placed("tier-balance", [2, 3, 4], 2) == ((2, 2),)
    assert placed("tier-lex", [3, 2, 4], 2) == ((0, 2),)
    assert placed("tier", [3, 2, 4], 2) == ((1, 2),)
    assert placed("tier-cost", [3, 2, 4], 2) == ((1, 2),)


def test_tier_2_uses_one_node_more_if_that_fragments_no_more() -> None:
    # 4 GPUs on 3 + 3: (3, 1) and (1, 3) leave one fragmented node less; more on the earlier node is first.
    assert placed("tier", [3, 3, 0], 4) == ((0, 3), (1, 1))
    # (2, 2) leaves two fragmented nodes, as before, but is the most balanced: 2 * 9 against 16 + 4.
    assert placed("tier-balance", [3, 3, 0], 4) == ((0, 2), (1, 2))
    assert placed("tier-lex", [3, 3, 0], 4) == ((0, 3), (1, 1))
    # 5 GPUs on 4 + 4: two nodes are the fewest, and nothing is left on one of them.
    assert placed("tier", [4, 4], 5) == ((0, 4), (1, 1))
    # 3 GPUs on 2 + 2 + 2: three nodes would be tier 3; two nodes keep one fragmented.
    assert placed("tier-cost", [2, 2, 2], 3) == ((0, 2), (1, 1))
    assert placed("tier", [1, 1, 1], 3) is None
    assert placed("consolidate", [3, 3, 0], 4) is None


def test_tier_cost_weighs_ways_of_both_tiers() -> None:
    # 2 GPUs on 1, 1 and 4: one node of 4 costs 10 + (1 - 3) + 1 = 9; the two of 1 cost -20 + (4 - 3) + 2.
    assert placed("tier-cost", [1, 1, 4], 2) == ((0, 1), (1, 1))
    assert placed("tier", [1, 1, 4], 2) == ((2, 2),)


def test_tetris_aligns_demand_with_what_is_free() -> None:
    # 1 GPU and 2 CPUs. Node 0: 1/4 * 2/4 + 2/8 * 8/8 = 0.375. Node 1: 1/4 * 4/4 + 2/8 * 2/8 = 0.3125.
    nodes = [Node("a100", 4, cpus=8), Node("a100", 4, cpus=8)]
    free = empty_cluster(nodes)
    take(free, Job(0, 1, 2), ((0, 2),))
    take(free, Job(0, 1, 0, cpus=6), ((1, 0),))
    job = request(0, Job(0, 1, 1, cpus=2))
    assert place(make_pools(nodes, {}), free, job, "tetris", 0) == ((0, 1),)
    # Without CPUs it goes where most GPUs are free.
    assert place(make_pools(nodes, {}), free, request(0, Job(0, 1, 1)), "tetris", 0) == ((1, 1),)


def test_fgd_leaves_whole_nodes_to_those_who_ask_for_them() -> None:
    # Jobs of 4 GPUs arrived: on node 0 one GPU makes 3000 thousandths useless to them, on node 1 it uses up
    # 1000 that were. If only jobs of 1 GPU arrived, nothing is ever of no use: the first node.
    assert placed("fgd", [4, 3], 1, Counter({(4, 1000): 1})) == ((1, 1),)
    assert placed("fgd", [4, 3], 1, Counter({(1, 1000): 5})) == ((0, 1),)


# --- 20. support matrix


@pytest.mark.parametrize(
    ("policy", "settings", "job"),
    [
        (Policy("srtf", "easy"), Settings(), Job(0, 1, 1)),
        (Policy("fifo", "conservative"), Settings(defragment=True), Job(0, 1, 1)),
        (Policy("las", express=(1.0, 1.0)), Settings(), Job(0, 1, 1)),
        (Policy("las"), Settings(group_quotas={"a": 1}), Job(0, 1, 1)),
        (Policy("fifo"), Settings(power_cap_w=1e9, defragment=True), Job(0, 1, 1)),
        (Policy("fifo", "conservative"), Settings(), Job(0, 1, 1, 500)),
        (Policy("fifo", "conservative"), Settings(sleep_after_s=1), Job(0, 1, 1)),
        (Policy("fifo", "conservative", (1.0, 1.0)), Settings(), Job(0, 1, 1)),
        (Policy("fifo", "conservative", None, "anywhere"), Settings(locality_penalty=0.1), Job(0, 1, 1)),
        (Policy("fifo", "conservative", None, "tier"), Settings(locality_penalty=0.1), Job(0, 1, 1)),
        (Policy("power-aware"), Settings(), Job(0, 1, 1)),
        (Policy("fifo", "sjf"), Settings(), Job(0, 1, 1)),
    ],
)
def test_what_the_support_matrix_says_no_to_is_refused(policy: Policy, settings: Settings, job: Job) -> None:
    with pytest.raises(ValueError, match=r"conservative|preemption|watts|unknown"):
        run([Node("a100", 4)], [job], policy, settings)


def test_tiers_and_quotas_refuse_some_clusters() -> None:
    with pytest.raises(ValueError, match="16"):
        run([Node("a100", 17)], [Job(0, 1, 1)], Policy("fifo", placement="tier"))
    with pytest.raises(ValueError, match="owned"):
        run(
            [Node("a100", 4, owner="a")],
            [Job(0, 1, 1, group="a")],
            Policy("fifo"),
            Settings(group_quotas={"a": 1}),
        )


@pytest.mark.parametrize("make_case", lifecycle_cases.GENERATORS, ids=lambda make: make.__name__)
def test_random_cases_run_and_every_job_does_its_work(make_case: object) -> None:
    for seed in range(12):
        case = make_case(seed)
        outcomes, runs = simulate_with_runs(
            case.nodes, case.speeds, case.jobs, case.policy, case.settings, case.watts, case.history
        )
        assert len(outcomes) == len(case.jobs)
        for job, outcome in enumerate(outcomes):
            own = [r for r in runs if r.job == job]
            assert [r.ending in ("completed", "timeout") for r in own] == [False] * (len(own) - 1) + [True]
            assert (own[0].begin_us, own[-1].released_us) == (outcome.start_us, outcome.end_us)
            assert all(r.taken_us <= r.begin_us <= r.stop_us <= r.released_us for r in own)
