"""Every reward term of the reference environment, worked out by hand; each comment is the computation."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuyard.cluster.model import Cluster, GpuType, NodeGroup, parse_cluster
from reference.env.environment import ReferenceEnv
from reference.env.settings import TERMS, EnvSettings
from reference.simulator.simulator import Job

# A holds both GPUs from 0 to 20 s; B comes at 5 s, needs one of them, runs from 20 to 24 s.
A, B = Job(0, 20, 2, user="ada", priority=3.0), Job(5, 4, 1, user="bo", priority=2.0)
WORK = 2 * 20 + 1 * 4  # GPU-seconds
TWO_GPUS = parse_cluster("1x2")


def made(
    jobs: list[Job], cluster: Cluster, policy: str = "fifo", kind: str = "select-job", **settings: object
) -> ReferenceEnv:
    defaults: dict[str, object] = {"window": 4, "estimates": "exact", "per_job": False}
    env = ReferenceEnv(kind, jobs, cluster, policy, EnvSettings(**defaults | settings))  # type: ignore[arg-type]
    env.reset()
    return env


def rewards(env: ReferenceEnv, actions: list[int]) -> list[float]:
    """Of each step; the last one, and no other, ends the episode."""
    steps = [env.step(action) for action in actions]
    assert [terminated or truncated for _, terminated, truncated in steps] == [False] * (len(steps) - 1) + [
        True
    ]
    return [reward for reward, _, _ in steps]


def of_a_and_b(terms: Mapping[str, float], **settings: object) -> list[float]:
    """Start A, which leads to the finish of A at 20 s; start B, which leads to the end at 24 s."""
    return rewards(made([A, B], TWO_GPUS, rewards=terms, **settings), [0, 0])


# --- telescoping terms


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("jct", [-(1 * 5 + 2 * 15), -(1 * 4)]),  # A alone for 5 s, both for 15 s; in all 20 + 19
        ("wait", [-15, 0]),
        ("slowdown", [-9 / 10, 0]),  # r = 4: grows from 6 s of waiting on, from 11 to 20 s; 19/10 - 1
        ("completed_work", [40 / WORK, 4 / WORK]),
        ("waiting_work", [-15 * 4 / WORK, 0]),
        ("utilization", [20 * 2 / 2, 4 * 1 / 2]),
        ("completions", [3, 2]),
        ("makespan", [-20, -4]),
    ],
)
def test_a_telescoping_term(term: str, expected: list[float]) -> None:
    assert of_a_and_b({term: 1.0}) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("term", ["jct", "wait", "slowdown", "completions"])
def test_terms_of_jobs_are_divided_by_the_number_of_jobs_and_others_are_not(term: str) -> None:
    whole = of_a_and_b({term: 1.0, "makespan": 1.0})
    per_job = of_a_and_b({term: 1.0, "makespan": 1.0}, per_job=True)
    assert per_job == pytest.approx([(whole[0] + 20) / 2 - 20, (whole[1] + 4) / 2 - 4])


def test_terms_are_weighted_and_added() -> None:
    assert of_a_and_b({"wait": 2.0, "makespan": -0.5}) == pytest.approx([2 * -15 + 0.5 * 20, 0.5 * 4])


def test_slowdown_of_a_long_job_grows_from_its_submit_on() -> None:
    env = made([Job(0, 30, 1), Job(10, 40, 1)], parse_cluster("1x1"), rewards={"slowdown": 1.0})
    assert rewards(env, [0, 0]) == pytest.approx([-20 / 40, 0])  # (20 + 40)/40 - 1


def test_flops_utilization_weighs_gpus_by_their_speed() -> None:
    # The faster pool is tried first: 10 s take 5 s on a GPU of speed 2, of 2 + 0.5 in all.
    env = made([Job(0, 10, 1)], parse_cluster("1x1:t4@0.5,1x1:v100@2"), rewards={"flops_utilization": 1.0})
    assert rewards(env, [0]) == pytest.approx([5 * 2 / 2.5])


def test_cpu_utilization_counts_nodes_on_which_cpus_are_given() -> None:
    cluster = Cluster(nodes=(NodeGroup(gpus=1, type="gpu", cpus=8), NodeGroup(gpus=1, type="gpu")))
    jobs = [Job(0, 10, 1, cpus=2), Job(0, 10, 1, cpus=6)]  # the second one sits where none are given
    env = made(jobs, cluster, "fifo/first-fit", rewards={"cpu_utilization": 1.0})
    assert rewards(env, [0, 0]) == pytest.approx([0, 10 * 2 / 8])


def test_completions_leave_out_jobs_that_time_out_and_completed_work_does_not() -> None:
    jobs = [Job(0, 10, 1, estimate_s=6, priority=5.0), Job(0, 10, 1, estimate_s=10, priority=7.0)]
    for term, expected in (("completions", [0, 7]), ("completed_work", [0, 1])):
        env = made(jobs, TWO_GPUS, rewards={term: 1.0}, kill_at_estimate=True, estimates="requested")
        assert rewards(env, [0, 0]) == pytest.approx(expected)  # both finish in the second step


def test_energy_is_that_of_nodes_busy_gpus_and_idle_gpus() -> None:
    cluster = Cluster(
        gpu_types=(GpuType(name="x", idle_w=50, peak_w=400),),
        nodes=(NodeGroup(gpus=2, type="x", idle_w=100),),
    )
    env = made([Job(0, 3600, 1, gpu_milli=100)], cluster, rewards={"energy": 1.0})
    assert rewards(env, [0]) == pytest.approx([-(100 + 400 + 50) * 3600 / 3.6e6])  # shared GPUs draw peak


def test_without_gpu_jobs_work_is_cpu_seconds() -> None:
    jobs = [Job(0, 10, 0, cpus=3), Job(0, 10, 0, cpus=1)]
    cluster = Cluster(nodes=(NodeGroup(gpus=0, type="cpu", cpus=3),))
    env = made(jobs, cluster, rewards={"completed_work": 1.0}, horizon_factor=2.0)
    assert env.episode.horizon_s == pytest.approx(0 + 2 * 40 / 3)
    assert rewards(env, [0, 0]) == pytest.approx([30 / 40, 10 / 40])


# --- shaping terms


def test_idle_while_feasible_counts_work_that_waits_through_a_no_op_while_a_job_fits() -> None:
    jobs = [Job(0, 10, 1), Job(0, 20, 1), Job(7, 10, 1)]
    env = made(jobs, TWO_GPUS, rewards={"idle_while_feasible": 1.0})
    # Start one, wait for the arrival with 20 of 40 GPU-seconds in the queue; then start the others.
    assert rewards(env, [0, 4, 0, 0]) == pytest.approx([0, -20 / 40, 0, 0])


def test_idle_while_feasible_is_0_for_a_no_op_when_nothing_fits() -> None:
    env = made([A, B], TWO_GPUS, rewards={"idle_while_feasible": 1.0}, step_mode="event")
    # Start A (to 5 s), wait though B would not fit (to 20 s), start B (to 24 s).
    assert rewards(env, [0, 4, 0]) == [0, 0, 0]


def test_load_balance_is_the_variance_over_nodes() -> None:
    env = made([Job(0, 10, 1)], parse_cluster("2x2"), rewards={"load_balance": 1.0})
    assert rewards(env, [0]) == pytest.approx([-10 * 0.0625])  # loads 1/2 and 0: mean 1/4, variance 1/16


def test_load_balance_of_a_cluster_without_gpus_is_that_of_cpus() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=2, gpus=0, type="cpu", cpus=4),))
    env = made([Job(0, 10, 0, cpus=2)], cluster, rewards={"load_balance": 1.0})
    assert rewards(env, [0]) == pytest.approx([-10 * 0.0625])


def test_fairness_counts_users_that_wait_with_nothing() -> None:
    # 0..5 s: ada alone, J = 1. 5..20 s: (2, 0), J = 4/(2*4) = 1/2. 20..24 s: bo alone.
    assert of_a_and_b({"fairness": 1.0}) == pytest.approx([-15 * 0.5, 0])


def test_fairness_of_unequal_shares() -> None:
    jobs = [Job(0, 10, 3, user="ada"), Job(0, 10, 1, user="bo")]
    env = made(jobs, parse_cluster("1x4"), rewards={"fairness": 1.0})
    assert rewards(env, [0, 0]) == pytest.approx([0, -10 * (1 - 16 / (2 * 10))])


def test_backlog_is_what_waits_or_is_half_done_after_the_step() -> None:
    env = made([A, B], TWO_GPUS, rewards={"backlog": 1.0}, step_mode="event", horizon_factor=1.0)
    h = 5 + 44 / 2  # last arrival + work / GPUs
    after_first = 4 / WORK + (40 / WORK) * 15 / 20  # at 5 s B waits, and A has 15 of its 20 s to go
    assert rewards(env, [0, 4, 0]) == pytest.approx([-5 / h * after_first, -15 / h * 4 / WORK, 0])


def test_finish_early_is_the_share_of_the_horizon_that_is_left() -> None:
    assert of_a_and_b({"finish_early": 1.0}, horizon_factor=1.0) == pytest.approx([0, (27 - 24) / 27])


def test_finish_early_of_a_truncated_episode_is_the_work_that_has_not_finished() -> None:
    env = made([A, B], TWO_GPUS, rewards={"finish_early": 1.0}, horizon_factor=0.1)
    assert env.step(0) == (pytest.approx(-4 / WORK), False, True)  # H = 5 + 2.2; A finishes at 20 s
    cut = {"horizon_factor": 1.0, "step_mode": "event", "max_steps": 1}
    env = made([A, B, Job(6, 1, 1)], TWO_GPUS, rewards={"finish_early": 1.0}, **cut)
    assert env.step(0) == (pytest.approx(-1), False, True)  # one runs, one waits, one is to arrive


# --- the terminal term


@pytest.mark.parametrize(
    ("metric", "own", "base"),
    [
        # One GPU; C of 10 s and D of 40 s, both there at 0. Own: D first; sjf: C first.
        ("mean_wait_s", (0 + 40) / 2, (0 + 10) / 2),
        ("mean_jct_s", (40 + 50) / 2, (10 + 50) / 2),
        ("mean_slowdown", (40 / 40 + 50 / 10) / 2, (10 / 10 + 50 / 40) / 2),
        ("mean_bounded_slowdown", (1 + 5) / 2, (1 + 50 / 40) / 2),
    ],
)
def test_versus_baseline_compares_metrics(metric: str, own: float, base: float) -> None:
    jobs = [Job(0, 10, 1), Job(0, 40, 1)]
    env = made(
        jobs,
        parse_cluster("1x1"),
        rewards={"versus_baseline": 1.0},
        baseline="sjf",
        baseline_metric=metric,
    )
    assert rewards(env, [1, 0]) == pytest.approx([0, (base - own) / max(base, own, 1)])


def test_versus_baseline_of_utilization_rewards_the_higher_one() -> None:
    jobs = [Job(0, 10, 1), Job(0, 10, 1)]
    env = made(
        jobs,
        TWO_GPUS,
        rewards={"versus_baseline": 1.0},
        baseline="fifo",
        baseline_metric="gpu_utilization",
    )
    # Start one, wait for its end, start the other: 20 GPU-s / (2 * 20 s); fifo needs 10 s: 20 / (2 * 10).
    assert rewards(env, [0, 4, 0]) == pytest.approx([0, 0, 0.5 - 1.0])


def test_versus_baseline_of_a_truncated_episode_is_minus_1() -> None:
    env = made([A, B], TWO_GPUS, rewards={"versus_baseline": 1.0}, max_steps=1)
    assert env.step(0) == (-1.0, False, True)


# --- warm-up


def test_warm_up_jobs_count_from_time_0_on_with_their_whole_work() -> None:
    # W runs from 0 to 30 on the jobs' clock; the episode begins at 10, when V comes and waits for 20 s.
    jobs = [Job(0, 30, 1), Job(10, 20, 1), Job(30, 20, 1)]
    terms = {"jct": 1.0, "completed_work": 100.0}
    env = made(jobs, parse_cluster("1x1"), rewards=terms, warmup=1, step_mode="event", per_job=True)
    assert env.now_us == 0
    # Two own jobs, 40 GPU-s. No-op to 20 s: two jobs in the system; W finishes (30/40), the third arrives.
    first = -2 * 20 / 2 + 100 * 30 / 40
    second = -2 * 20 / 2 + 100 * 20 / 40
    assert rewards(env, [4, 0, 0]) == pytest.approx([first, second, -1 * 20 / 2 + 100 * 20 / 40])
    assert env.starts() == [
        (-10_000_000, 20_000_000, ((0, 1),)),
        (20_000_000, 40_000_000, ((0, 1),)),
        (40_000_000, 60_000_000, ((0, 1),)),
    ]


def test_metrics_are_those_of_the_windows_own_jobs() -> None:
    jobs = [Job(0, 30, 1), Job(10, 20, 1)]
    env = made(
        jobs,
        parse_cluster("2x1"),
        rewards={"versus_baseline": 1.0},
        baseline_metric="mean_jct_s",
        baseline="fifo",
        warmup=1,
    )
    # The own job could start at once; it waits for the end of W, 20 s after time 0.
    assert rewards(env, [4, 0]) == pytest.approx([0, (20 - 40) / 40])


# --- cool-down

COOLED = [Job(0, 20, 1), Job(10, 20, 1), Job(15, 20, 1, priority=7.0)]
"""Two jobs of the window and one of cool-down, for one GPU."""


def test_cool_down_jobs_take_room_and_are_not_counted() -> None:
    terms = {"jct": 1.0, "completed_work": 100.0, "completions": 1000.0}
    env = made(COOLED, parse_cluster("1x1"), rewards=terms, cooldown=1, step_mode="event")
    # The first job starts; two wait while it runs; the cool-down job is started before the second.
    seen = rewards(env, [0, 4, 4, 1, 0])
    assert seen == pytest.approx([-10, -2 * 5, -2 * 5 + 50 + 1000, -20, -20 + 50 + 1000])
    assert [start and start[0] for start in env.starts()] == [0, 40_000_000, 20_000_000]


def test_the_episode_does_not_wait_for_cool_down_jobs() -> None:
    terms = {"wait": 1.0, "slowdown": 1.0, "waiting_work": 1.0}
    env = made(COOLED, parse_cluster("1x1"), rewards=terms, cooldown=1, step_mode="event")
    assert sum(rewards(env, [0, 4, 4, 0])) == pytest.approx(-10 - 10 / 20 - 10 / 2)
    assert env.starts()[2] is None


def test_the_horizon_counts_the_windows_own_jobs() -> None:
    late = [*COOLED[:2], Job(1000, 500, 1)]
    env = made(late, parse_cluster("1x1"), rewards={"makespan": 1.0}, cooldown=1, horizon_factor=1.0)
    assert env.episode.horizon_s == 10 + 40


def test_every_term_has_a_test_above() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{term}"' in text for term in TERMS)
