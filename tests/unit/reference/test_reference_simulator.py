"""Hand-computed cases that pin the reference simulator; each comment is the computation."""

import math

import pytest

from reference.simulator.simulator import (
    Job,
    Node,
    Outcome,
    Policy,
    Settings,
    can_ever_start,
    draw,
    normal,
    simulate,
    splitmix64,
    uniform,
)

TWO_NODES_OF_4 = [Node("a100", 4), Node("a100", 4)]


def run(
    nodes: list[Node],
    jobs: list[Job],
    policy: Policy,
    settings: Settings | None = None,
    speeds: dict[str, float] | None = None,
) -> list[Outcome]:
    return simulate(nodes, speeds or {}, jobs, policy, settings or Settings())


def starts_s(outcomes: list[Outcome]) -> list[float]:
    return [outcome.start_us / 1e6 for outcome in outcomes]


def nodes_of(outcomes: list[Outcome]) -> list[tuple[tuple[int, int], ...]]:
    return [outcome.nodes for outcome in outcomes]


# --- random draws


def test_splitmix64_gives_the_published_first_output_of_seed_0() -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF


def test_draws_depend_on_every_argument_and_are_in_range() -> None:
    assert (
        len({draw(*key) for key in ((0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))})
        == 5
    )
    uniforms = [uniform(7, 2, 0, row) for row in range(2000)]
    assert 0.0 <= min(uniforms) < 0.01
    assert 0.99 < max(uniforms) < 1.0
    normals = [normal(7, 1, row, 0) for row in range(2000)]
    assert abs(sum(normals) / 2000) < 0.1
    assert abs(math.sqrt(sum(x * x for x in normals) / 2000) - 1.0) < 0.1


# --- backfill


def test_fifo_strict_lets_nothing_pass_the_first_job_that_does_not_fit() -> None:
    jobs = [Job(0, 10, 3), Job(1, 5, 2), Job(2, 1, 1)]
    outcomes = run([Node("a100", 4)], jobs, Policy("fifo"))
    assert starts_s(outcomes) == [0, 10, 10]
    assert not any(outcome.backfilled for outcome in outcomes)


def test_greedy_passes_over_jobs_that_do_not_fit_and_calls_the_later_ones_backfilled() -> None:
    jobs = [Job(0, 10, 3), Job(1, 5, 2), Job(2, 100, 1)]
    outcomes = run([Node("a100", 4)], jobs, Policy("fifo", "greedy"))
    assert starts_s(outcomes) == [0, 10, 2]
    assert [outcome.backfilled for outcome in outcomes] == [False, False, True]


def test_a_finish_frees_its_gpus_for_an_arrival_at_the_same_instant() -> None:
    outcomes = run([Node("a100", 4)], [Job(0, 10, 4), Job(10, 1, 4)], Policy("fifo"))
    assert starts_s(outcomes) == [0, 10]


def test_easy_shadow_time_waits_for_a_whole_node_not_for_a_count_of_gpus() -> None:
    # Node 0: 2 GPUs taken until 10 and 2 until 30; node 1: 3 taken until 20 and 1 until 40. The head takes
    # 4 GPUs of one node. At 20 there are 2 + 3 free, but no node is whole before node 0 is at 30.
    jobs = [
        Job(0, 10, 2),  # 0: node 0
        Job(0, 30, 2),  # 1: node 0
        Job(0, 20, 3),  # 2: node 1
        Job(1, 39, 1),  # 3: node 1
        Job(2, 5, 4),  # 4: the head; shadow time 30, by counting GPUs 20
        Job(11, 19, 2),  # 5: ends at 30 on node 0: backfilled; it would be too late for a shadow time of 20
        Job(12, 19, 2),  # 6: does not fit before 20; then on node 1 it keeps the head's node 0 free
    ]
    outcomes = run(TWO_NODES_OF_4, jobs, Policy("fifo", "easy"))
    assert starts_s(outcomes) == [0, 0, 0, 1, 30, 11, 20]
    assert nodes_of(outcomes)[3:] == [((1, 1),), ((0, 4),), ((0, 2),), ((1, 2),)]
    assert [outcome.backfilled for outcome in outcomes] == [False] * 5 + [True] * 2


def test_easy_refuses_a_job_that_would_delay_the_head() -> None:
    # The head (4 GPUs) gets the node at 10. A job from 2 to 11 would hold it up; one from 3 to 10 does not.
    jobs = [Job(0, 10, 3), Job(1, 5, 4), Job(2, 9, 1), Job(3, 7, 1)]
    outcomes = run([Node("a100", 4)], jobs, Policy("fifo", "easy"))
    assert starts_s(outcomes) == [0, 10, 15, 3]


def test_easy_backfills_a_long_job_beside_the_head_but_only_as_far_as_room_is_left() -> None:
    # The head needs 3 of 4 GPUs at 10: one GPU is left over, for the first long job and not for the second.
    jobs = [Job(0, 10, 2), Job(1, 5, 3), Job(2, 100, 1), Job(2, 100, 1)]
    outcomes = run([Node("a100", 4)], jobs, Policy("fifo", "easy"))
    assert starts_s(outcomes) == [0, 10, 2, 15]
    assert [outcome.backfilled for outcome in outcomes] == [False, False, True, False]


def test_easy_counts_a_job_past_its_estimate_as_ending_now() -> None:
    # Job 0 said 5 s and runs 10. At 6 the shadow time of the head is 6, so job 2 (1 s) may not start.
    jobs = [Job(0, 10, 3, estimate_s=5), Job(1, 5, 4, estimate_s=5), Job(6, 1, 1, estimate_s=1)]
    outcomes = run([Node("a100", 4)], jobs, Policy("fifo", "easy"), Settings(estimates="requested"))
    assert starts_s(outcomes) == [0, 10, 15]


def test_easy_without_estimates_has_an_endless_shadow_time_and_backfills_whatever_fits() -> None:
    jobs = [Job(0, 10, 3), Job(1, 5, 4), Job(2, 100, 1)]
    outcomes = run([Node("a100", 4)], jobs, Policy("fifo", "easy"), Settings(estimates="none"))
    assert starts_s(outcomes) == [0, 102, 2]


def test_easy_sjf_tries_the_shortest_first_and_unknown_estimates_last() -> None:
    jobs = [
        Job(0, 10, 3, estimate_s=10),
        Job(1, 1, 4, estimate_s=1),
        Job(2, 1, 1),
        Job(2, 4, 1, estimate_s=4),
        Job(2, 3, 1, estimate_s=3),
    ]
    settings = Settings(estimates="requested")
    assert starts_s(run([Node("a100", 4)], jobs, Policy("fifo", "easy"), settings)) == [0, 10, 11, 2, 6]
    assert starts_s(run([Node("a100", 4)], jobs, Policy("fifo", "easy-sjf"), settings)) == [0, 10, 11, 5, 2]


# --- admission


def test_express_keeps_room_free_that_grows_with_the_estimate() -> None:
    # T0 = 1 s, K = 0.25, and 2 of 4 GPUs are taken, so a job of 1 GPU leaves (2 - 1) / 4 = 0.25 free. One of
    # e^1.5 s needs 0.375 and waits until the pool is idle, at 10; one of e^0.5 s needs 0.125 and starts.
    # It is not backfilled: the job before it did fit.
    jobs = [Job(0, 10, 2), Job(1, math.exp(1.5), 1), Job(1, math.exp(0.5), 1)]
    outcomes = run([Node("a100", 4)], jobs, Policy("fifo", "greedy", (1.0, 0.25)))
    assert starts_s(outcomes) == [0, 10, 1]
    assert not outcomes[2].backfilled


def test_express_admits_anything_on_idle_pools_and_cpu_only_jobs_always() -> None:
    jobs = [Job(0, 1000, 4), Job(1, 500, 0), Job(2, 7, 1)]
    outcomes = run(TWO_NODES_OF_4, jobs, Policy("fifo", "greedy", (1.0, 100.0)), Settings(estimates="none"))
    assert starts_s(outcomes) == [0, 1, 1000]


def test_express_with_k_0_admits_jobs_without_an_estimate() -> None:
    jobs = [Job(0, 10, 2), Job(1, 10, 1)]
    policy, settings = Policy("fifo", express=(1.0, 0.0)), Settings(estimates="none")
    assert starts_s(run([Node("a100", 4)], jobs, policy, settings)) == [0, 1]


# --- placement


def test_a_shared_job_goes_to_the_fullest_gpu_with_room() -> None:
    # 600 and 500 need a GPU each; 300 goes beside the 600 (400 free < 500 free); 450 beside the 500.
    jobs = [Job(0, 9, 1, milli) for milli in (600, 500, 300, 450, 1000)]
    outcomes = run([Node("a100", 3)], jobs, Policy("fifo"))
    assert [outcome.gpu_index for outcome in outcomes] == [0, 1, 0, 1, -1]
    assert starts_s(outcomes) == [0, 0, 0, 0, 0]


def test_consolidate_prefers_the_node_with_the_fullest_gpu_and_worst_fit_the_freest_node() -> None:
    jobs = [Job(0, 9, 3), Job(0, 9, 1, 500), Job(1, 9, 1, 300)]
    nodes = [Node("a100", 4), Node("a100", 4)]
    # consolidate: 3 on node 0; 500 also there (1000 free each, less free in total); 300 beside the 500.
    assert nodes_of(run(nodes, jobs, Policy("fifo"))) == [((0, 3),), ((0, 1),), ((0, 1),)]
    worst = run(nodes, jobs, Policy("fifo", placement="worst-fit"))
    assert nodes_of(worst) == [((0, 3),), ((1, 1),), ((1, 1),)]


def test_a_gang_takes_whole_nodes_and_puts_its_remainder_on_the_fullest_node() -> None:
    nodes = [Node("a100", 4)] * 4
    jobs = [Job(0, 9, 2), Job(0, 9, 6)]
    assert nodes_of(run(nodes, jobs, Policy("fifo")))[1] == ((0, 2), (1, 4))
    assert nodes_of(run(nodes, jobs, Policy("fifo", placement="worst-fit")))[1] == ((1, 4), (2, 2))


def test_anywhere_splits_a_gang_that_consolidate_makes_wait() -> None:
    jobs = [Job(0, 9, 3), Job(0, 9, 3), Job(0, 9, 2)]
    assert starts_s(run(TWO_NODES_OF_4, jobs, Policy("fifo"))) == [0, 0, 9]
    outcomes = run(TWO_NODES_OF_4, jobs, Policy("fifo", placement="anywhere"))
    assert nodes_of(outcomes) == [((0, 3),), ((0, 1), (1, 2)), ((1, 2),)]


def test_spread_starts_with_the_emptiest_node() -> None:
    jobs = [Job(0, 9, 1), Job(0, 9, 1), Job(0, 9, 7), Job(9, 1, 1)]
    outcomes = run([Node("a100", 4), Node("a100", 5)], jobs, Policy("fifo", placement="spread"))
    assert nodes_of(outcomes) == [((1, 1),), ((0, 1),), ((0, 3), (1, 4)), ((1, 1),)]


def test_random_placement_follows_the_draws_of_stream_3() -> None:
    jobs = [Job(0, 1, 1, row=row) for row in (11, 12, 13)]
    outcomes = run([Node("a100", 4)] * 5, jobs, Policy("fifo", placement="random"), Settings(seed=99))
    expected = [min(range(5), key=lambda node: draw(99, 3, row, node)) for row in (11, 12, 13)]
    assert [outcome.nodes[0][0] for outcome in outcomes] == expected


def test_the_fastest_pool_comes_first_and_first_available_takes_the_lowest_node() -> None:
    nodes = [Node("t4", 4), Node("a100", 4)]
    speeds = {"t4": 0.5, "a100": 2.0}
    fast = run(nodes, [Job(0, 10, 2)], Policy("fifo"), speeds=speeds)
    slow = run(nodes, [Job(0, 10, 2)], Policy("fifo", placement="first-available"), speeds=speeds)
    assert (fast[0].nodes, fast[0].end_us) == (((1, 2),), 5_000_000)
    assert (slow[0].nodes, slow[0].end_us) == (((0, 2),), 20_000_000)


def test_a_gang_takes_its_share_of_cpus_on_each_node_rounded_up() -> None:
    # 7 CPUs over 6 GPUs: ceil(28 / 6) = 5 on the full node, ceil(14 / 6) = 3 beside it. A CPU-only job of 4
    # fits neither next to the 5 of 8 nor, on a node of 6, next to the 3.
    nodes = [Node("a100", 4, cpus=8), Node("a100", 4, cpus=6)]
    jobs = [Job(0, 10, 6, cpus=7), Job(1, 1, 0, cpus=4), Job(10, 1, 0, cpus=4)]
    outcomes = run(nodes, jobs, Policy("fifo"))
    assert outcomes[0].nodes == ((0, 4), (1, 2))
    assert starts_s(outcomes) == [0, 10, 10]
    assert nodes_of(outcomes)[1:] == [((1, 0),), ((0, 0),)]
    assert starts_s(run(nodes, [jobs[0], Job(1, 1, 0, cpus=3)], Policy("fifo"))) == [0, 1]


def test_anywhere_takes_as_many_gpus_of_a_node_as_its_cpus_allow() -> None:
    nodes = [Node("a100", 4, cpus=3), Node("a100", 4, cpus=8)]
    outcomes = run(nodes, [Job(0, 10, 4, cpus=8)], Policy("fifo", placement="anywhere"))
    assert outcomes[0].nodes == ((0, 1), (1, 3))


def test_cpu_only_jobs_leave_nodes_with_gpus_for_last() -> None:
    nodes = [Node("a100", 4, cpus=2), Node("none", 0, cpus=2)]
    jobs = [Job(0, 10, 0, cpus=2), Job(0, 10, 0, cpus=1)]
    assert nodes_of(run(nodes, jobs, Policy("fifo"))) == [((1, 0),), ((0, 0),)]


# --- owners and types


def test_owners_use_their_own_nodes_only_and_queues_do_not_block_each_other() -> None:
    nodes = [Node("a100", 4, owner="vision"), Node("a100", 4)]
    jobs = [
        Job(0, 10, 4, group="vision"),
        Job(1, 10, 4, group="vision"),  # waits for its own node, though node 1 is idle
        Job(2, 10, 3, group="speech"),  # owns nothing: node 1, not held up by the queue of vision
        Job(3, 10, 1),
        Job(4, 1, 1),  # waits for node 1
    ]
    outcomes = run(nodes, jobs, Policy("fifo"))
    assert starts_s(outcomes) == [0, 10, 2, 3, 12]
    assert nodes_of(outcomes) == [((0, 4),), ((0, 4),), ((1, 3),), ((1, 1),), ((1, 1),)]


def test_a_job_that_no_allowed_node_can_hold_is_an_error_that_names_it() -> None:
    nodes = [Node("a100", 4), Node("a100", 4, owner="vision")]
    with pytest.raises(ValueError, match="job 1 "):
        run(nodes, [Job(0, 1, 4), Job(0, 1, 5)], Policy("fifo"))
    with pytest.raises(ValueError, match="job 0 "):
        run(nodes, [Job(0, 1, 1, gpu_types=("t4", "mi300"))], Policy("fifo"))
    assert can_ever_start(nodes, {}, Job(0, 1, 1, gpu_types=("t4", "a100")), 0, "anywhere", 0)


# --- run time


def test_kill_at_estimate_ends_an_underestimated_job_as_timeout() -> None:
    jobs = [
        Job(0, 10, 1, estimate_s=4),
        Job(0, 10, 1, estimate_s=10),
        Job(0, 10, 1),
        Job(0, 10, 1, estimate_s=20),
    ]
    nodes, speeds = [Node("a100", 4)], {"a100": 2.0}
    killed = run(nodes, jobs, Policy("fifo"), Settings(estimates="requested", kill_at_estimate=True), speeds)
    assert [(o.end_us / 1e6, o.status) for o in killed] == [(2, "timeout")] + [(5, "completed")] * 3
    left = run(nodes, jobs, Policy("fifo"), Settings(estimates="requested"), speeds)
    assert [(o.end_us / 1e6, o.status) for o in left] == [(5, "completed")] * 4


def test_locality_penalty_lengthens_a_gang_by_its_excess_nodes() -> None:
    # 4 GPUs fit on one node of 4; on three nodes the excess is 2: 10 s * (1 + 0.3 * 2) = 16 s.
    nodes = [Node("a100", 4, cpus=0), Node("a100", 4, cpus=3), Node("a100", 4)]
    jobs = [Job(0, 99, 3), Job(0, 99, 3, cpus=3), Job(0, 10, 4)]
    policy, settings = Policy("fifo", placement="anywhere"), Settings(locality_penalty=0.3)
    outcomes = run(nodes, jobs, policy, settings)
    assert nodes_of(outcomes) == [((0, 3),), ((1, 3),), ((0, 1), (1, 1), (2, 2))]
    assert outcomes[2].end_us == 16_000_000


def test_a_duration_that_rounds_to_nothing_takes_one_microsecond() -> None:
    outcomes = run([Node("a100", 1)], [Job(0, 0.0, 1), Job(0, 2.5e-6, 1)], Policy("fifo"))
    assert [(o.start_us, o.end_us) for o in outcomes] == [(0, 1), (1, 3)]


# --- order


def order_on_one_gpu(jobs: list[Job], policy: Policy, settings: Settings | None = None) -> list[int]:
    """Ids by start, after a job of 100 s has made all others wait."""
    outcomes = run([Node("a100", 1)], [Job(0, 100, 1, user="first"), *jobs], policy, settings)
    return [id for _, id in sorted((outcome.start_us, id) for id, outcome in enumerate(outcomes))][1:]


def test_wfp3_weighs_the_wait_by_the_estimate() -> None:
    # At 100 the quotients w / r are 99 / 30 = 3.3, 50 / 10 = 5, 20 / 5 = 4. At 110, after job 2, they are
    # 109 / 30 = 3.6 and 30 / 5 = 6.
    jobs = [Job(1, 30, 1), Job(50, 10, 1), Job(80, 5, 1)]
    assert order_on_one_gpu(jobs, Policy("wfp3")) == [2, 3, 1]


def test_wfp3_weighs_the_cube_of_the_quotient_by_the_size() -> None:
    # At 10 job 1 has q = 9 / 9 = 1 and size 4: 4. Job 2 has q = 8 / 5 = 1.6, size 1: 4.096, and goes first.
    # By the square instead of the cube it would be 2.56 against 4.
    jobs = [Job(0, 10, 4), Job(1, 9, 4), Job(2, 5, 1)]
    outcomes = run([Node("a100", 4)], jobs, Policy("wfp3"))
    assert starts_s(outcomes) == [0, 15, 10]


def test_fair_share_serves_the_user_with_the_least_decayed_usage() -> None:
    # Half-life 10 s. At 100 user `old` used one GPU from 0 to 20 and has faded for 80 s; `new` used one from
    # 90 on. So old goes before new, and `none`, with no usage, before both.
    nodes = [Node("a100", 2)]
    jobs = [
        Job(0, 20, 1, user="old"),
        Job(0, 100, 1, user="other"),
        Job(90, 200, 1, user="new"),
        Job(91, 5, 1, user="new"),
        Job(92, 5, 1, user="old"),
        Job(93, 5, 1, user="none"),
    ]
    outcomes = run(nodes, jobs, Policy("fair-share"), Settings(usage_half_life_s=10.0))
    assert starts_s(outcomes) == [0, 0, 90, 110, 105, 100]


def test_fair_share_forgets_with_the_half_life() -> None:
    # `a` held 1 GPU from 0 to 20, `b` from 20 to 30. Undecayed 20 > 10, so b goes first. With a half-life
    # of 5 s, in units of 5 / ln 2: a has (1 - 2^-4) * 2^-2 = 0.23, b has 1 - 2^-2 = 0.75: a is served first.
    jobs = [
        Job(0, 20, 1, user="a"),
        Job(1, 10, 1, user="b"),
        Job(21, 5, 1, user="b"),
        Job(22, 5, 1, user="a"),
    ]
    one_gpu = [Node("a100", 1)]
    forgetful = run(one_gpu, jobs, Policy("fair-share"), Settings(usage_half_life_s=5.0))
    lasting = run(one_gpu, jobs, Policy("fair-share"), Settings(usage_half_life_s=1e9))
    assert starts_s(forgetful) == [0, 20, 35, 30]
    assert starts_s(lasting) == [0, 20, 30, 35]


def test_orders_by_size_time_priority_and_deadline() -> None:
    jobs = [
        Job(1, 30, 1, priority=1.0, deadline_s=300),
        Job(2, 10, 1, priority=3.0),
        Job(3, 20, 1, priority=2.0, deadline_s=200),
    ]
    expected = {
        "fifo": [1, 2, 3],
        "lifo": [3, 2, 1],
        "sjf": [2, 3, 1],
        "ljf": [1, 3, 2],
        "saf": [2, 3, 1],
        "laf": [1, 3, 2],
        "wspt": [2, 3, 1],
        "smallest": [1, 2, 3],
        "largest": [1, 2, 3],
        "priority": [2, 3, 1],
        "edf": [3, 1, 2],
        "f1": [1, 2, 3],  # 870 * log10(t) outweighs log10(r)
    }
    assert {order: order_on_one_gpu(jobs, Policy(order)) for order in expected} == expected


def test_an_unknown_estimate_comes_last_even_when_the_longest_goes_first() -> None:
    jobs = [Job(1, 30, 1), Job(2, 10, 1, estimate_s=10), Job(3, 20, 1, estimate_s=20), Job(4, 1, 1)]
    settings = Settings(estimates="requested")
    assert order_on_one_gpu(jobs, Policy("ljf"), settings) == [3, 2, 1, 4]
    assert order_on_one_gpu(jobs, Policy("sjf"), settings) == [2, 3, 1, 4]


def test_random_order_draws_anew_at_every_instant() -> None:
    # Instants 0..3 are the submits, instant 4 is the finish at 100, after which each finish is the next one.
    jobs = [Job(1, 10, 1, row=5), Job(2, 10, 1, row=6), Job(3, 10, 1, row=7)]
    rows, instant, expected = {1: 5, 2: 6, 3: 7}, 4, []
    while rows:
        first = min(rows, key=lambda id: uniform(42, 2, instant, rows[id]))
        expected.append(first)
        del rows[first]
        instant += 1
    assert order_on_one_gpu(jobs, Policy("random"), Settings(seed=42)) == expected


def test_f_orders_see_the_time_of_the_whole_trace() -> None:
    # f1 with n = 1: log10(r) + 870 log10(origin + s). At the start of a trace the second job's later submit
    # costs 870 * log10(2 / 1) = 262; a month into it 870 * log10(1 + 1 / 2.6e6) = 0.0001.
    jobs = [Job(1, 1000, 1), Job(2, 10, 1)]
    assert order_on_one_gpu(jobs, Policy("f1")) == [1, 2]
    assert order_on_one_gpu(jobs, Policy("f1"), Settings(origin_s=2.6e6)) == [2, 1]
