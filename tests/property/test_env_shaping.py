"""Shaping and terminal terms of the reward in the native environments, worked out by hand."""

import math
import random
from typing import Any

import pytest

from gpuyard import simulate
from gpuyard.cluster.model import Cluster, NodeGroup
from reference.simulator.simulator import Job
from support.env_runs import at_random, in_turn, make_env, play, random_jobs, steps

# --- shaping terms, by hand


def test_idle_while_feasible_counts_work_that_waits_through_a_no_op_while_a_job_fits() -> None:
    jobs = [Job(0, 10, 1), Job(0, 20, 1), Job(7, 5, 2)]  # 40 GPU-seconds
    # Start one; wait until 7 s with 20 waiting; start the other; at 10 s the last does not fit and nothing is
    # asked; at 27 s it starts.
    seen = steps(jobs, "1x2", [0, 4, 0, 0], rewards={"idle_while_feasible": 1.0})
    assert seen == pytest.approx([0, -20 / 40, 0, 0])


def test_idle_while_feasible_is_0_for_a_no_op_when_nothing_fits() -> None:
    jobs = [Job(0, 20, 2), Job(5, 4, 1)]
    assert steps(jobs, "1x2", [0, 4, 0], step_mode="event", rewards={"idle_while_feasible": 1.0}) == [0, 0, 0]


def test_idle_while_feasible_counts_a_skip() -> None:
    jobs = [Job(0, 90, 1), Job(0, 10, 1), Job(0, 20, 1), Job(7, 5, 2)]  # 130 GPU-seconds
    # Start one; skip the second, then the third, with 30 GPU-seconds waiting each time; both are offered anew
    # at 7 s.
    seen = steps(
        jobs,
        "1x3",
        [1, 0, 0, 1, 1, 1],
        kind="accept-or-skip",
        base_policy="fifo+greedy",
        rewards={"idle_while_feasible": 1.0},
    )
    assert seen == pytest.approx([0, -30 / 130, -30 / 130, 0, 0, 0])


def test_load_balance_is_the_variance_over_nodes_of_their_use() -> None:
    # Loads 3/4 and 0 for 10 s: mean 3/8, variance 9/64. Then nothing is left.
    assert steps([Job(0, 10, 3)], "2x4", [0], rewards={"load_balance": 1.0}) == pytest.approx([-10 * 9 / 64])


def test_load_balance_is_relative_to_the_size_of_a_node() -> None:
    # 2 of 4 GPUs and 1 of 2: equal loads, for the 10 s that both run; then 1/2 and 0 for 5 s, variance 1/16.
    cluster = "1x4,1x2"
    jobs = [Job(0, 10, 2), Job(0, 15, 1)]
    seen = steps(
        jobs, cluster, [0, 1], kind="select-host", base_policy="fifo+greedy", rewards={"load_balance": 1.0}
    )
    assert seen == pytest.approx([0, -5 / 16])


def test_load_balance_of_a_cluster_without_gpus_is_that_of_cpus() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=2, gpus=0, type="cpu", cpus=4),))
    seen = steps([Job(0, 10, 0, cpus=3)], cluster, [0], rewards={"load_balance": 1.0})
    assert seen == pytest.approx([-10 * 9 / 64])


def test_load_balance_counts_shared_gpus_by_fraction() -> None:
    # Loads 0.25/1 and 0: mean 1/8, variance 1/64.
    seen = steps([Job(0, 10, 1, gpu_milli=250)], "2x1", [0], rewards={"load_balance": 1.0})
    assert seen == pytest.approx([-10 / 64])


def test_fairness_counts_users_that_hold_nothing() -> None:
    jobs = [Job(0, 20, 2, user="ada"), Job(5, 4, 1, user="bo")]
    # 0..5 s: ada alone, J = 1. 5..20 s: (2, 0), J = 4/(2·4) = 1/2. 20..24 s: bo alone.
    assert steps(jobs, "1x2", [0, 0], rewards={"fairness": 1.0}) == pytest.approx([-7.5, 0])


def test_fairness_of_unequal_shares_is_jains_index() -> None:
    jobs = [Job(0, 10, 3, user="ada"), Job(0, 10, 1, user="bo"), Job(0, 10, 2, user="bo")]
    # ada 3, bo 1 (2 more wait) for 10 s: J = 16/(2·10) = 0.8; then bo alone.
    seen = steps(jobs, "1x4", [0, 0, 0], rewards={"fairness": 1.0})
    assert seen == pytest.approx([0, -10 * 0.2, 0])


def test_fairness_is_nothing_while_no_gpu_is_held() -> None:
    jobs = [Job(0, 10, 0, cpus=1, user="ada"), Job(5, 10, 0, cpus=1, user="bo"), Job(6, 10, 1, user="bo")]
    # No GPU is held until 6 s, though ada's job runs and bo's waits from 5 s on: J = 1; then bo holds the one
    # while ada has a job until 10 s: J = 1/2.
    seen = steps(jobs, "1x2", [0, 4, 0, 0], rewards={"fairness": 1.0})
    assert seen == pytest.approx([0, 0, 0, -4 * 0.5], abs=1e-12)


def test_backlog_is_the_work_left_after_the_step_times_the_time_that_passed() -> None:
    # Work 40 + 4 = 44 on 2 GPUs: H = 5 + 2 · 22 = 49 s.
    # Start A: to 5 s, when B waits and A has 15 of 20 s left. Wait: to 20 s, B waits. Start B: to 24 s, no
    # work is left.
    jobs = [Job(0, 20, 2), Job(5, 4, 1)]
    settings = {"step_mode": "event", "horizon_factor": 2.0}
    seen = steps(jobs, "1x2", [0, 4, 0], rewards={"backlog": 1.0}, **settings)
    assert seen == pytest.approx([-(5 / 49) * (4 + 40 * 15 / 20) / 44, -(15 / 49) * 4 / 44, 0])


def test_backlog_leaves_out_jobs_that_have_yet_to_arrive() -> None:
    # H = 100 + 2 · 20 = 140 s. The first ends at 10 s, when nothing waits and nothing runs.
    jobs = [Job(0, 10, 1), Job(100, 10, 1)]
    seen = steps(jobs, "1x1", [0, 0], rewards={"backlog": 1.0}, horizon_factor=2.0)
    # The first step leads to the arrival at 100 s: half of the work waits.
    assert seen == pytest.approx([-(100 / 140) * 0.5, 0])


def test_finish_early_rewards_what_is_left_of_the_horizon() -> None:
    jobs = [Job(0, 20, 2), Job(5, 4, 1)]
    seen = steps(jobs, "1x2", [0, 0], rewards={"finish_early": 1.0}, horizon_factor=2.0)
    assert seen == pytest.approx([0, (49 - 24) / 49])


def test_finish_early_is_never_negative_for_an_episode_that_was_finished() -> None:
    # H = 5 + 0.5 · 22 = 16 s; A ends at 20 s. That event is still processed, B is left: truncated.
    jobs = [Job(0, 20, 2), Job(5, 4, 1)]
    assert steps(jobs, "1x2", [0], rewards={"finish_early": 1.0}, horizon_factor=0.5) == pytest.approx(
        [-4 / 44]
    )
    # One job of 20 s: H = 0 + 0.5 · 20 = 10 s; its finish at 20 s passes H and finishes everything.
    env = make_env([Job(0, 20, 1)], "1x1", rewards={"finish_early": 1.0}, horizon_factor=0.5, window=1)
    episode = play(env, in_turn(0))
    assert (episode.rewards, episode.terminated, episode.truncated) == ([0.0], True, False)


def test_finish_early_counts_work_that_has_not_arrived_as_unfinished() -> None:
    # max_steps ends the episode after one step, at 10 s: the second job is still to come.
    jobs = [Job(0, 10, 1), Job(100, 30, 1)]
    seen = steps(
        jobs, "1x1", [0], rewards={"finish_early": 1.0}, horizon_factor=2.0, max_steps=1, step_mode="event"
    )
    assert seen == pytest.approx([-30 / 40])


# --- the terminal term, by hand
#
# One GPU, a long job (100 s) before a short one (10 s), both at 0. In order: waits 0 and 100 s, completion
# times 100 and 110 s, slowdowns 1 and 11. The short one first: waits 10 and 0, completion times 110 and 10,
# slowdowns 1.1 and 1.
LONG_SHORT = [Job(0, 100, 1), Job(0, 10, 1)]


@pytest.mark.parametrize(
    ("metric", "base", "own"),
    [
        ("mean_bounded_slowdown", 6.0, 1.05),
        ("mean_slowdown", 6.0, 1.05),
        ("mean_wait_s", 50.0, 5.0),
        ("mean_jct_s", 105.0, 60.0),
    ],
)
def test_versus_baseline_is_the_relative_gain(metric: str, base: float, own: float) -> None:
    settings: dict[str, Any] = {
        "estimates": "exact",
        "rewards": {"versus_baseline": 1.0},
        "baseline": "fifo",
        "baseline_metric": metric,
    }
    better = steps(LONG_SHORT, "1x1", [1, 0], **settings)
    assert better == pytest.approx([0, (base - own) / max(base, own, 1)])
    assert steps(LONG_SHORT, "1x1", [0, 0], **settings) == [0, 0]
    settings["baseline"] = "sjf"
    worse = steps(LONG_SHORT, "1x1", [0, 0], **settings)  # now the other way round
    assert worse == pytest.approx([0, (own - base) / max(base, own, 1)])


def test_versus_baseline_divides_by_at_least_1() -> None:
    # The baseline waits (0 + 0.5)/2 = 0.25 s on average; the other way round (0.2 + 0)/2 = 0.1 s.
    jobs = [Job(0, 0.5, 1), Job(0, 0.2, 1)]
    settings: dict[str, Any] = {"estimates": "exact", "rewards": {"versus_baseline": 1.0}, "baseline": "fifo"}
    assert steps(jobs, "1x1", [1, 0], baseline_metric="mean_wait_s", **settings) == pytest.approx([0, 0.15])


def test_versus_baseline_of_utilization_rewards_more_of_it() -> None:
    # On two GPUs: 1, 2 and 1 GPUs for 10 s each, all at 0: 40 GPU-seconds. In strict order they take 30 s
    # (2/3 in use), with the first and the last together 20 s (all in use).
    jobs = [Job(0, 10, 1), Job(0, 10, 2), Job(0, 10, 1)]
    settings: dict[str, Any] = {
        "estimates": "exact",
        "rewards": {"versus_baseline": 1.0},
        "baseline_metric": "gpu_utilization",
    }
    better = steps(jobs, "1x2", [0, 1, 0], baseline="fifo+strict", **settings)
    assert better == pytest.approx([0, 0, (1 - 2 / 3) / 1])
    # In order, that is starting the first, waiting for it, and so on, against greedy, which uses all.
    worse = steps(jobs, "1x2", [0, 4, 0, 0], baseline="fifo+greedy", **settings)
    assert worse == pytest.approx([0, 0, 0, (2 / 3 - 1) / 1])


@pytest.mark.parametrize("estimates", ["exact", "requested", "noisy", "none"])
@pytest.mark.parametrize("baseline", ["fifo+easy", "sjf+greedy", "sjf"])
def test_versus_baseline_compares_with_the_simulation_of_the_baseline(baseline: str, estimates: str) -> None:
    for seed in range(3):
        jobs = random_jobs(random.Random(seed), 30, (1, 2, 3, 4), grid_s=3.0)
        settings: dict[str, Any] = {
            "rewards": {"versus_baseline": 1.0},
            "baseline_metric": "mean_jct_s",
        }
        env = make_env(jobs, "2x4", window=30, estimates=estimates, baseline=baseline, **settings)
        episode = play(env, at_random(seed))
        simulated = simulate(env.model.source.workload, "2x4", baseline, env.model.config.simulated)
        base, own = float(simulated.metrics()["mean_jct_s"]), episode.metrics["mean_jct_s"]
        assert episode.total == pytest.approx((base - own) / max(base, own, 1))


def test_versus_baseline_of_a_truncated_episode_is_minus_1() -> None:
    for metric in ("mean_wait_s", "gpu_utilization"):
        settings: dict[str, Any] = {
            "estimates": "exact",
            "rewards": {"versus_baseline": 1.0},
            "baseline": "fifo",
        }
        assert steps(LONG_SHORT, "1x1", [0], max_steps=1, baseline_metric=metric, **settings) == [-1.0]
        # H = 0 + 0.5 · 110 = 55 s: passed when the long job ends.
        assert steps(LONG_SHORT, "1x1", [0], horizon_factor=0.5, baseline_metric=metric, **settings) == [-1.0]


def test_versus_baseline_is_0_where_the_metric_is_not_defined() -> None:
    cluster = Cluster(nodes=(NodeGroup(gpus=0, type="cpu", cpus=1),))  # no GPUs, no utilisation
    jobs = [Job(0, 10, 0, cpus=1)]
    settings: dict[str, Any] = {
        "estimates": "exact",
        "rewards": {"versus_baseline": 1.0},
        "baseline_metric": "gpu_utilization",
    }
    assert steps(jobs, cluster, [0], **settings) == [0.0]


# --- steps


def test_time_before_the_first_state_is_charged_to_the_first_step() -> None:
    # The warm-up job holds the GPU until 8 s after time 0; only then is a state offered.
    jobs = [Job(0, 10, 1), Job(2, 5, 1)]
    env = make_env(
        jobs,
        "1x1",
        base_policy="fifo",
        window=2,
        jobs_per_episode=1,
        warmup_jobs=1,
        per_job=False,
        rewards={"makespan": 1.0},
    )
    env.reset(options={"episode": 1})
    _, reward, terminated, _, info = env.step(0)
    assert (reward, terminated) == (pytest.approx(-(8 + 5)), True)
    assert info["episode_metrics"]["mean_wait_s"] == pytest.approx(8)
    assert math.isclose(info["episode_metrics"]["makespan_s"], 13)
