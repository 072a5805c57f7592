"""Hand-computed cases that pin docs/contract/slurm.md in the reference; each comment is the computation."""

import math
from dataclasses import replace

import pytest

from reference.simulator.multifactor import factors
from reference.simulator.simulator import (
    Beginning,
    Job,
    Node,
    Outcome,
    Partition,
    Policy,
    Qos,
    Settings,
    Simulation,
    empty_cluster,
    make_pools,
    make_request,
    queue_of,
    simulate,
)
from reference.simulator.slurm import Reservation, reservation

S = 1_000_000
NEVER = 1e6
# Plans are exact to the second, and backfill passes are every 30 s.
EXACT = Settings(bf_resolution_s=1.0)
SLURM = Policy("fifo", "slurm", placement="first-fit")
TWO_NODES = [Node("a100", 4), Node("a100", 4)]
PLACES = (Partition("a", (0, 1), default=True), Partition("b", (0, 1)))


def run(
    nodes: list[Node],
    jobs: list[Job],
    policy: Policy = SLURM,
    settings: Settings = EXACT,
    partitions: tuple[Partition, ...] = (),
    qos: tuple[Qos, ...] = (),
) -> list[Outcome]:
    return simulate(nodes, {}, jobs, policy, settings, partitions=partitions, qos=qos)


def starts_s(outcomes: list[Outcome]) -> list[float]:
    return [outcome.start_us / 1e6 for outcome in outcomes]


def nodes_of(outcome: Outcome) -> list[int]:
    return [node for node, _ in outcome.nodes]


# --- 1. partitions


def test_partitions_that_share_a_node_through_others_are_one_queue() -> None:
    nodes = [Node("a100", 4), Node("a100", 8), Node("a100", 4), Node("t4", 4), Node("t4", 4)]
    parts = [Partition("p", (3,)), Partition("q", (2, 0)), Partition("r", (1, 2)), Partition("s", (1, 3))]
    pools = make_pools(nodes, {}, parts)
    # s joins p (node 3) and r (node 1), r joins q (node 2): one queue, named after p.
    assert {queue_of(pools, Job(0, 1, 1, partition=name)) for name in "pqrs"} == {"p"}
    assert [(pool.partition, pool.type, pool.size, pool.nodes) for pool in pools] == [
        ("p", "t4", 4, (3,)),
        ("q", "a100", 4, (0, 2)),
        ("r", "a100", 8, (1,)),
        ("r", "a100", 4, (2,)),
        ("s", "a100", 8, (1,)),
        ("s", "t4", 4, (3,)),
    ]
    apart = make_pools(nodes, {}, parts[:3])
    assert [queue_of(apart, Job(0, 1, 1, partition=name)) for name in "pqr"] == ["p", "q", "q"]


def test_a_job_uses_the_nodes_of_its_partition_and_without_one_those_of_the_default() -> None:
    partitions = (Partition("a", (0,)), Partition("b", (1,), default=True))
    outcomes = run(TWO_NODES, [Job(0, 9, 1, partition="a"), Job(0, 9, 1)], partitions=partitions)
    assert [nodes_of(outcome) for outcome in outcomes] == [[0], [1]]


def test_a_job_of_an_unknown_partition_or_of_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"job 1 is for the partition 'c'"):
        run(TWO_NODES, [Job(0, 9, 1), Job(0, 9, 1, partition="c")], partitions=PLACES)
    with pytest.raises(ValueError, match=r"job 0 names no partition"):
        run(TWO_NODES, [Job(0, 9, 1)], partitions=(Partition("a", (0,)),))
    with pytest.raises(ValueError, match=r"job 0 can never start"):
        run(TWO_NODES, [Job(0, 9, 8, partition="a")], partitions=(Partition("a", (0,)),))


@pytest.mark.parametrize("backfill", ["strict", "greedy", "easy", "easy-sjf", "slurm"])
@pytest.mark.parametrize("max_wait_s", [None, 5.0])
def test_a_higher_tier_comes_first_also_before_aged_jobs(backfill: str, max_wait_s: float | None) -> None:
    partitions = (Partition("low", (0,)), Partition("high", (0,), priority_tier=3))
    jobs = [Job(0, 10, 4, partition="low"), Job(1, 10, 4, partition="low"), Job(9, 10, 4, partition="high")]
    policy = Policy("fifo", backfill, max_wait_s=max_wait_s)
    assert starts_s(run([Node("a100", 4)], jobs, policy, partitions=partitions)) == [0, 20, 10]


def test_easy_sjf_backfills_a_higher_tier_before_a_shorter_job() -> None:
    # At 3 the head is job 1 (top), due at 100. The free GPU goes to job 3 of tier 2, not to shorter job 2.
    names = ("low", "middle", "top")
    partitions = tuple(Partition(name, (0,), priority_tier=tier) for tier, name in enumerate(names, 1))
    jobs = [
        Job(0, 100, 3, partition="top"),
        Job(3, 50, 4, partition="top"),
        Job(3, 10, 1, partition="low"),
        Job(3, 20, 1, partition="middle"),
    ]
    outcomes = run([Node("a100", 4)], jobs, Policy("fifo", "easy-sjf"), partitions=partitions)
    assert starts_s(outcomes) == [0, 100, 23, 3]


# --- 2. limits


@pytest.mark.parametrize("backfill", ["strict", "greedy", "easy", "easy-sjf", "slurm"])
def test_a_job_that_is_not_within_limits_is_passed_over_and_blocks_nobody(backfill: str) -> None:
    # Ada runs 3 of her 4 GPUs, so her next 2 wait for these; bo's 2 do not wait, and are not backfilled.
    partitions = (Partition("a", (0,), default=True, max_gpus_per_user=4),)
    jobs = [Job(0, 100, 3, user="ada"), Job(1, 10, 2, user="ada"), Job(2, 10, 2, user="bo")]
    outcomes = run([Node("a100", 8)], jobs, Policy("fifo", backfill), partitions=partitions)
    assert starts_s(outcomes) == [0, 100, 2]
    assert not any(outcome.backfilled for outcome in outcomes)


@pytest.mark.parametrize(
    ("qos", "expected"),
    [
        (Qos("q"), [0, 0, 0, 0, 0]),
        (Qos("q", max_gpus=4), [0, 100, 0, 100, 0]),  # jobs 0 and 2 hold 4, 1 and 3 hold 3
        (Qos("q", max_gpus_per_user=3), [0, 100, 0, 0, 0]),
        (Qos("q", max_jobs_per_user=1), [0, 100, 0, 100, 0]),
        (Qos("q", max_gpus_per_group=3), [0, 100, 0, 0, 0]),
    ],
)
def test_limits_of_a_qos_count_its_jobs_on_all_partitions(qos: Qos, expected: list[float]) -> None:
    partitions = (Partition("a", (0,)), Partition("b", (1,)))
    jobs = [
        Job(0, 100, 2, partition="a", qos="q", user="ada", group="x"),
        Job(0, 100, 2, partition="b", qos="q", user="ada", group="x"),
        Job(0, 100, 2, partition="a", qos="q", user="bo", group="y"),
        Job(0, 100, 1, partition="b", qos="q", user="bo", group="x"),
        Job(0, 100, 1, partition="b", qos="other", user="ada", group="x"),
    ]
    nodes = [Node("a100", 8), Node("a100", 8)]
    policy = Policy("fifo", "greedy")
    assert starts_s(run(nodes, jobs, policy, partitions=partitions, qos=(qos,))) == expected


def test_limits_count_in_thousandths_of_a_gpu() -> None:
    jobs = [Job(0, 10, 1, gpu_milli=600, qos="q"), Job(0, 10, 1, gpu_milli=400, qos="q")]
    more = [*jobs, Job(0, 10, 1, gpu_milli=1, qos="q")]
    assert starts_s(run([Node("a100", 4)], more, qos=(Qos("q", max_gpus=1),))) == [0, 0, 10]


@pytest.mark.parametrize(
    ("limit", "job"),
    [
        ({"max_time_s": 10.0}, Job(0, 1, 1, estimate_s=10.000001)),
        ({"max_nodes": 1}, Job(0, 1, 5)),
        ({"max_nodes": 1}, Job(0, 1, 2, nodes=2)),
        ({"max_gpus_per_job": 0}, Job(0, 1, 1, gpu_milli=1)),
        ({"max_gpus_per_user": 1}, Job(0, 1, 2)),
    ],
)
def test_a_job_above_a_limit_can_never_start(limit: dict[str, float], job: Job) -> None:
    with pytest.raises(ValueError, match="job 0 can never start"):
        run(TWO_NODES, [job], partitions=(replace(PLACES[0], **limit),))
    if "max_nodes" not in limit:
        with pytest.raises(ValueError, match="job 0 can never start"):
            run(TWO_NODES, [replace(job, qos="q")], qos=(Qos("q", **limit),))


def test_a_job_at_its_limits_starts() -> None:
    partition = Partition("a", (0, 1), default=True, max_time_s=10.0, max_nodes=2, max_gpus_per_job=5)
    jobs = [Job(0, 1, 5, estimate_s=10.0, qos="q"), Job(0, 99, 1)]
    limits = Qos("q", max_time_s=10.0, max_gpus_per_job=5, max_gpus=5, max_gpus_per_group=5)
    assert starts_s(run(TWO_NODES, jobs, partitions=(partition,), qos=(limits,))) == [0, 0]


# --- 3. dependencies


def test_a_job_enters_its_queue_when_the_last_job_that_it_waits_for_ends() -> None:
    # Job 2 waits for both others, of which one ends before its submit; job 4 waits for one that comes later.
    jobs = [
        Job(0, 10, 1),
        Job(0, 30, 1),
        Job(20, 5, 1, after=(0, 1)),
        Job(20, 5, 1, after=(0,)),
        Job(21, 5, 1, after=(5,)),
        Job(22, 5, 1, after=(2,)),
        Job(30, 5, 1, after=(1, 99)),
    ]
    assert starts_s(run([Node("a100", 8)], jobs)) == [0, 0, 30, 20, 40, 35, 30]


def test_jobs_that_wait_for_themselves_are_named() -> None:
    with pytest.raises(ValueError, match=r"jobs \[1, 2\]"):
        run(TWO_NODES, [Job(0, 1, 1), Job(0, 1, 1, after=(2,)), Job(0, 1, 1, after=(0, 1))])
    with pytest.raises(ValueError, match=r"jobs \[0\]"):
        run(TWO_NODES, [Job(0, 1, 1, after=(0,))])


def test_a_prediction_is_made_when_a_job_enters_its_queue() -> None:
    # Job 2 enters when job 0 has ended, and so is expected to take 10 s; job 1 is expected to take 3600 s.
    policy, settings = Policy("sjf", "strict"), replace(EXACT, estimates="history")
    jobs = [Job(0, 10, 4), Job(1, 10, 4, user="bo"), Job(2, 10, 4, after=(0,))]
    assert starts_s(run([Node("a100", 4)], jobs, policy, settings)) == [0, 20, 10]
    unknown = [*jobs[:2], replace(jobs[2], after=())]
    assert starts_s(run([Node("a100", 4)], unknown, policy, settings)) == [0, 10, 20]


def test_waits_count_from_the_submit_and_the_age_of_multifactor_from_entering_the_queue() -> None:
    # At 20, job 2 is in the queue since 1 and job 1 since 20, which was submitted earlier.
    jobs = [Job(0, 20, 4), Job(0, 10, 4, after=(0,)), Job(1, 10, 4)]
    settings = replace(EXACT, priority_calc_s=1.0, max_age_s=100.0, fair_share_weight=0.0, size_weight=0.0)
    assert starts_s(run([Node("a100", 4)], jobs, Policy("multifactor"), settings)) == [0, 30, 20]
    aged = Policy("multifactor", max_wait_s=20.0)
    assert starts_s(run([Node("a100", 4)], jobs, aged, settings)) == [0, 20, 30]


# --- 4. multifactor


def moment(nodes: list[Node], settings: Settings, **others: object) -> Simulation:
    pools = make_pools(nodes, {}, others.get("partitions", ()))  # type: ignore[arg-type]
    now = Simulation(pools, empty_cluster(nodes), [], Policy("multifactor"), settings, nodes, **others)  # type: ignore[arg-type]
    now.associations = [("", "")]
    return now


def test_age_grows_only_when_priorities_are_calculated() -> None:
    settings = Settings(
        age_weight=1000, size_weight=0, fair_share_weight=0, priority_weight=0, max_age_s=1000
    )
    now = moment([Node("a100", 4)], settings)
    request = make_request(0, Job(0, 1, 1), settings)
    now.kept_of(0).entered_us = 100 * S
    # B is 0, 300, 300 and 1200: ages 0, 0.2, 0.2 and 1. A priority is at least 1.
    for now_s, score in ((299, -1), (300, -200), (599, -200), (1201, -1000)):
        now.now_us = now_s * S
        assert now.score(request) == score


def test_a_priority_is_the_whole_part_of_a_weighted_sum() -> None:
    # Size: (2 nodes / 2 + 8 / 32 CPUs) / 2 = 0.625. Nothing is used: fair = 1. Partition 1 / 2, QOS 3 / 4,
    # 5 of 4 GPUs (of its one node), 8 of 32 CPUs, no memory is stated, priority 2.
    partitions = (Partition("a", (0, 1), priority_job_factor=4), Partition("b", (0,), priority_job_factor=2))
    nodes = [Node("a100", 4, cpus=32), Node("a100", 4)]
    settings = Settings(
        age_weight=0,
        size_weight=100,
        fair_share_weight=1000,
        partition_weight=7,
        qos_weight=8,
        gpu_weight=4,
        cpu_weight=2,
        memory_weight=1e9,
        priority_weight=1.25,
    )
    now = moment(nodes, settings, partitions=partitions, qos=(Qos("q", 3), Qos("r", 4)))
    job = Job(0, 1, 5, cpus=8, memory_mib=9, partition="b", qos="q", priority=2.0)
    # 1000 + 62.5 + 3.5 + 6 + 5 + 0.5 + 2.5 = 1080; two nodes are needed, although the partition has one.
    assert now.score(make_request(0, job, settings)) == -1080
    # Without a QOS 6 less. Without CPUs: size 5 / 8, and 0.5 less of 1074: whole again.
    assert now.score(make_request(0, replace(job, qos="none"), settings)) == -1074
    assert now.score(make_request(0, replace(job, qos="", cpus=0), settings)) == -1073
    small = moment(nodes, replace(settings, favor_small=True), partitions=partitions)
    # 1 - 0.625: 25 less; no QOS at all.
    assert small.score(make_request(0, job, settings)) == -1049


def test_usage_is_that_of_when_priorities_were_calculated() -> None:
    settings = Settings(age_weight=0, priority_calc_s=100, fair_share="classic", usage_half_life_s=1e9)
    now = moment([Node("a100", 4)], settings)
    now.associations = [("", "ada"), ("", "bo")]
    ada = Job(0, 1, 1, user="ada")
    request = make_request(0, replace(ada, priority=0.0), replace(settings))

    def fair(now_s: int) -> float:
        now.now_us = now_s * S
        return now.score(request)

    now.now_us = 250 * S
    now.add_usage(ada, +1)
    size = 25  # of the score: 1 of 4 GPUs
    # Until 300 she has used nothing: 1000. Then everything: e = 1, share 1 / 2, 2^-2.
    assert [fair(299), fair(300)] == [-1000 - size, -250 - size]
    now.now_us = 350 * S
    now.add_usage(ada, -1)
    bo = replace(ada, user="bo")
    now.add_usage(bo, +1)
    # At 400 she has used 100 s and bo 50: v = 2 / 3, e = 2 / 3 + 1 / 3 * 1 / 2 = 5 / 6, 2^-(5 / 3).
    assert fair(399) == -250 - size
    assert fair(450) == -math.floor(1000 * 2 ** (-5 / 3) + size)


USED = {("x", "a"): 3.0, ("x", "b"): 1.0, ("y", "c"): 4.0}


def test_the_classic_factor_by_hand() -> None:
    # a: v = 3/8, V = 1/2, e = 3/8 + 1/8 * 1/2 = 7/16, over 1/2 * 1/2: 2^-1.75. b: e = 5/16, over the same.
    # c: e = 1/2, over 1/2.
    found = factors(USED, Settings(fair_share="classic"))
    assert found == {("x", "a"): 2**-1.75, ("x", "b"): 2**-1.25, ("y", "c"): 0.5}
    nothing = factors(dict.fromkeys(USED, 0.0), Settings(fair_share="classic"))
    assert set(nothing.values()) == {1.0}
    # With 3 shares for y, Sigma is 1/4 and 3/4: exponents 3.5, 2.5 and 1/2 / (3/4).
    found = factors(USED, Settings(fair_share="classic", group_shares={"y": 3.0}))
    assert found == {("x", "a"): 2**-3.5, ("x", "b"): 2**-2.5, ("y", "c"): math.exp2(-(0.5 / 0.75))}


@pytest.mark.parametrize(
    ("used", "shares", "expected"),
    [
        # Both groups used half: taken together. Levels: a 1/2 / 3/4 = 2/3, b 1/2 / 1/4 = 2, c 1 / 1 = 1.
        (USED, {}, {"b": 3 / 3, "c": 2 / 3, "a": 1 / 3}),
        # y used a third: level 3/2 and x 3/4. All of y comes before all of x.
        ({**USED, ("y", "c"): 2.0}, {}, {"c": 3 / 3, "b": 2 / 3, "a": 1 / 3}),
        # y used most: x first. With 1 of 4 shares in x, a's level is (1/4) / (3/4), b's (3/4) / (1/4).
        ({**USED, ("y", "c"): 5.0}, {"b": 3.0}, {"b": 3 / 3, "a": 2 / 3, "c": 1 / 3}),
        # Of the same level in the same list: the place of the first. The next one has its own.
        (
            {("x", "a"): 2.0, ("x", "b"): 2.0, ("y", "c"): 0.0, ("z", "d"): 9.0},
            {},
            {"c": 4 / 4, "a": 3 / 4, "b": 3 / 4, "d": 1 / 4},
        ),
        # Of the same level in lists that follow one another: each its own place.
        ({("x", "a"): 1.0, ("y", "c"): 2.0}, {}, {"a": 1.0, "c": 0.5}),
        # Nobody used anything: all levels are infinite.
        (dict.fromkeys(USED, 0.0), {"a": 9.0}, {"a": 1.0, "b": 1.0, "c": 1.0}),
    ],
)
def test_fair_tree_by_hand(
    used: dict[tuple[str, str], float], shares: dict[str, float], expected: dict[str, float]
) -> None:
    found = factors(used, Settings(user_shares=shares))
    assert {user: factor for (_, user), factor in found.items()} == expected


# --- 5. the backfill rule `slurm`


def test_the_main_pass_closes_a_partition_and_its_nodes_for_others() -> None:
    # At 0, job 1 does not fit beside job 0 and closes `wide`: job 2 waits, and job 3 goes to node 2, because
    # node 1 is closed, so job 4 waits for it. At 100 job 1 gets nodes 0 and 1, at 110 job 2 node 0.
    partitions = (Partition("wide", (0, 1)), Partition("edge", (1, 2)))
    jobs = [
        Job(0, 100, 4, partition="wide"),
        Job(0, 10, 8, partition="wide"),
        Job(0, 10, 1, partition="wide"),
        Job(0, 50, 4, partition="edge"),
        Job(0, 50, 4, partition="edge"),
    ]
    settings = replace(EXACT, bf_interval_s=NEVER)
    outcomes = run([Node("a100", 4)] * 3, jobs, SLURM, settings, partitions)
    assert starts_s(outcomes) == [0, 100, 110, 0, 50]
    assert [nodes_of(outcome) for outcome in outcomes] == [[0], [0, 1], [0], [2], [2]]
    assert not any(outcome.backfilled for outcome in outcomes)


def crowd(last_s: float = 60.0, **columns: object) -> list[Job]:
    """3 of 4 GPUs of node 0 are taken until 100, node 1 until 1000; jobs of 3, 1 and 1 GPUs wait."""
    return [
        Job(0, 100, 3),
        Job(0, 1000, 4),
        Job(1, 50, 3),
        Job(2, 200, 1, **columns),  # type: ignore[arg-type]
        Job(3, last_s, 1, **columns),  # type: ignore[arg-type]
    ]


def test_the_backfill_pass_starts_a_job_that_ends_before_a_reserved_node_is_needed() -> None:
    # At 30 job 2 gets node 0 from 100 to 150. Job 3 would end at 230, job 4 ends at 90.
    outcomes = run(TWO_NODES, crowd())
    assert starts_s(outcomes) == [0, 0, 100, 100, 30]
    assert [outcome.backfilled for outcome in outcomes] == [False, False, False, False, True]


def test_a_job_waits_for_a_reserved_node_although_gpus_are_free_there_all_along() -> None:
    # At 100 job 2 takes 3 of the 4 GPUs: job 3 is in nobody's way, and `easy` starts it at once.
    assert starts_s(run(TWO_NODES, crowd()))[3] == 100
    assert starts_s(run(TWO_NODES, crowd(), replace(SLURM, backfill="easy")))[3] == 2


def test_a_job_that_ends_when_a_reservation_begins_waits() -> None:
    # At 30 + 70 the reservation begins: that is not before it. Job 4 waits for job 2 to end.
    assert starts_s(run(TWO_NODES, crowd(70.0)))[4] == 150
    assert starts_s(run(TWO_NODES, crowd(69.999999)))[4] == 30


@pytest.mark.parametrize(("tests", "start_s"), [(0, 30), (3, 30), (2, 150), (1, 150)])
def test_so_many_jobs_are_tried(tests: int, start_s: float) -> None:
    assert starts_s(run(TWO_NODES, crowd(), SLURM, replace(EXACT, bf_max_job_test=tests)))[4] == start_s


@pytest.mark.parametrize(("most", "start_s"), [(0, 30), (2, 30), (1, 150)])
def test_so_many_jobs_of_a_user_or_partition_are_tried(most: int, start_s: float) -> None:
    by_user = replace(EXACT, bf_max_job_user=most)
    assert starts_s(run(TWO_NODES, crowd(user="ada"), SLURM, by_user))[4] == start_s
    by_partition = replace(EXACT, bf_max_job_part=most)
    assert starts_s(run(TWO_NODES, crowd(partition="b"), SLURM, by_partition, PLACES))[4] == start_s
    # Without partitions the queue counts as one: job 4 is the third.
    if most == 2:
        assert starts_s(run(TWO_NODES, crowd(), SLURM, by_partition))[4] == 150


def test_a_job_that_is_not_within_limits_is_not_tried() -> None:
    # Job 3 would exceed its QOS and does not count as tried, so that job 4 is the second.
    jobs = crowd()
    jobs[0], jobs[3] = replace(jobs[0], qos="q"), replace(jobs[3], qos="q")
    settings = replace(EXACT, bf_max_job_test=2)
    assert starts_s(run(TWO_NODES, jobs, SLURM, settings, qos=(Qos("q", max_gpus=3),)))[4] == 30


@pytest.mark.parametrize(("window_s", "start_s"), [(70, 100), (69.999999, 30)])
def test_no_job_is_planned_beyond_the_window(window_s: float, start_s: float) -> None:
    # Job 2 could start at 100: 70 s after 30. Without its reservation job 3 starts.
    assert starts_s(run(TWO_NODES, crowd(), SLURM, replace(EXACT, bf_window_s=window_s)))[3] == start_s


@pytest.mark.parametrize(
    ("epoch_s", "begin_s", "end_s"),
    [(0, 60, 120), (20, 100, 160), (10, 50, 110), (30, 90, 150), (-41, 41, 101)],
)
def test_plans_are_rounded_down_on_the_clock_of_the_log(epoch_s: float, begin_s: float, end_s: float) -> None:
    # Job 2 is planned from 100 to 150. On a clock that showed 10 at the beginning these are 110 and 160,
    # rounded 60 and 120: 50 and 110. On one that showed 20 both are rounded to 120, and 60 s are the least.
    settings = Settings(bf_resolution_s=60.0, epoch_s=epoch_s)
    state = moment(TWO_NODES, settings)
    state.now_us = 30 * S
    assert reservation(state, frozenset({0}), 100 * S, 50 * S) == Reservation(
        frozenset({0}), int(begin_s * S), end_s * S
    )
    last_s = begin_s - 30
    assert starts_s(run(TWO_NODES, crowd(last_s), SLURM, settings))[4] != 30
    assert starts_s(run(TWO_NODES, crowd(last_s - 1e-6), SLURM, settings))[4] == 30


def overdue(arrival_s: float) -> list[Job]:
    """Job 0 is expected to end at 50 and does at 500. Job 3 may start once nobody believes that any more."""
    return [
        Job(0, 500, 3, estimate_s=50),
        Job(0, 1000, 4, estimate_s=1000),
        Job(1, 50, 3, estimate_s=50),
        Job(2, 200, 1, estimate_s=200),
        Job(arrival_s, 1, 1, estimate_s=1),
    ]


@pytest.mark.parametrize(("arrival_s", "pass_s"), [(215, 240), (59, 60), (60, 90), (240, 270), (30, 60)])
def test_backfill_passes_are_at_multiples_and_only_if_something_happened_before(
    arrival_s: float, pass_s: float
) -> None:
    # At 30 job 2 is promised node 0 at 50, job 3 at 100. Nothing happens until job 4 arrives, and the next
    # pass knows that job 0 is late: job 2 may start at 1000, so job 3 starts.
    settings = replace(EXACT, estimates="requested")
    assert starts_s(run(TWO_NODES, overdue(arrival_s), SLURM, settings))[3] == pass_s


@pytest.mark.parametrize(
    ("policy", "pass_s"),
    [
        (Policy("wfp3", "slurm", placement="first-fit"), 60),
        (Policy("fifo", "slurm", placement="first-fit", max_wait_s=NEVER), 60),
        (Policy("multifactor", "slurm", placement="first-fit"), 120),
        (Policy("fifo", "slurm", placement="first-fit"), 270),
    ],
)
def test_backfill_passes_are_also_made_if_scores_may_have_changed(policy: Policy, pass_s: float) -> None:
    # Priorities are calculated at 100: the next multiple of 30 is 120. All are the same here.
    weights = dict.fromkeys(("age_weight", "fair_share_weight", "size_weight", "priority_weight"), 0.0)
    settings = replace(EXACT, estimates="requested", priority_calc_s=100.0, **weights)
    assert starts_s(run(TWO_NODES, overdue(250), policy, settings))[3] == pass_s


def test_no_backfill_pass_is_made_if_the_queue_was_empty_just_before() -> None:
    # Job 2 does not wait for job 1, but at 30 nobody had been waiting: the next pass is at 60.
    jobs = [Job(0, 100, 3), Job(30, 50, 2), Job(30, 10, 1)]
    assert starts_s(run([Node("a100", 4)], jobs)) == [0, 100, 60]


def test_a_job_without_an_estimate_reserves_its_node_for_good() -> None:
    # Job 1 has node 0 from 100 on for ever. Job 2 ends before that, job 3 has no time of its own.
    jobs = [
        Job(0, 100, 3, estimate_s=100),
        Job(1, 50, 4),
        Job(1, 200, 1),
        Job(2, 60, 1, estimate_s=60),
    ]
    settings = replace(EXACT, estimates="requested")
    assert starts_s(run([Node("a100", 4)], jobs, SLURM, settings)) == [0, 100, 150, 30]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": replace(SLURM, express=(1.0, 0.1))}, "express"),
        ({"policy": replace(SLURM, placement="anywhere")}, "anywhere"),
        ({"policy": replace(SLURM, order="srtf")}, "preemption"),
        ({"settings": Settings(locality_penalty=0.1)}, "locality"),
        ({"settings": Settings(sleep_after_s=1.0)}, "sleep"),
        ({"settings": Settings(group_quotas={"x": 1})}, "quotas"),
        ({"given": Beginning(1), "policy": Policy("fifo"), "jobs": [Job(0, 1, 1, after=(3,))]}, "beginning"),
        ({"partitions": PLACES, "policy": Policy("fifo", "conservative")}, "conservative"),
        ({"partitions": PLACES, "policy": Policy("fifo", placement="spread")}, "spread"),
        ({"partitions": PLACES, "policy": Policy("las")}, "preemption"),
        (
            {"partitions": PLACES, "policy": Policy("fifo"), "settings": Settings(group_quotas={"x": 1})},
            "quotas",
        ),
        ({"partitions": PLACES, "nodes": [Node("a100", 4, owner="x")] * 2}, "owned"),
        ({"qos": (Qos("q", max_gpus=1),), "policy": Policy("fifo", "conservative")}, "running limits"),
        ({"qos": (Qos("q", max_gpus=1),), "policy": Policy("las")}, "running limits"),
    ],
)
def test_what_the_page_says_no_to_is_refused(changes: dict[str, object], message: str) -> None:
    arguments = {
        "nodes": TWO_NODES,
        "jobs": [Job(0, 1, 1)],
        "policy": SLURM,
        "settings": Settings(),
        **changes,
    }
    with pytest.raises(ValueError, match=message):
        simulate(speeds={}, **arguments)  # type: ignore[arg-type]
