"""Hand-computed cases that pin the reference environment: masks, time, windows, experts, episodes.

Rewards are in test_reference_env_rewards.py, observations in test_reference_env_observation.py.
"""

import pytest

from differential.env_cases import env_case, reference_env_of
from gpuyard.cluster.model import Cluster, NodeGroup, parse_cluster
from reference.env.environment import ReferenceEnv
from reference.env.episodes import episode_jobs, first_row, generator_seed
from reference.env.settings import EnvSettings, InvalidActionError, parse_policy
from reference.simulator.simulator import Job, draw, simulate, uniform

# A holds both GPUs from 0 to 20 s; B comes at 5 s and needs one of them for 4 s.
A, B = Job(0, 20, 2), Job(5, 4, 1)
ONE_GPU, TWO_GPUS = parse_cluster("1x1"), parse_cluster("1x2")


def made(
    jobs: list[Job], cluster: Cluster, policy: str = "fifo", kind: str = "select-job", **settings: object
) -> ReferenceEnv:
    defaults: dict[str, object] = {"window": 3, "estimates": "exact", "rewards": {"makespan": 1.0}}
    env = ReferenceEnv(kind, jobs, cluster, policy, EnvSettings(**defaults | settings))  # type: ignore[arg-type]
    env.reset()
    return env


def now_s(env: ReferenceEnv) -> float:
    return env.now_us / 1e6


def mask(env: ReferenceEnv) -> list[int]:
    return [int(entry) for entry in env.mask()]


def ids(env: ReferenceEnv) -> list[int]:
    return [request.id for request in env.rows()]


def starts_s(env: ReferenceEnv) -> list[float | None]:
    return [None if start is None else start[0] / 1e6 for start in env.starts()]


# --- windows


def test_the_window_is_in_the_base_policys_order_with_ties_by_submit_then_row() -> None:
    jobs = [Job(0, 5, 1), Job(0, 9, 1), Job(0, 5, 1), Job(1, 5, 1), Job(1, 2, 1)]
    env = made(jobs, TWO_GPUS, "sjf", window=8)
    assert ids(env) == [0, 2, 1]
    env.step(1)
    env.step(8)  # the no-op: to the arrivals at 1 s
    assert ids(env) == [4, 0, 3, 1]


def test_a_window_holds_the_first_k_and_row_k_is_the_no_op() -> None:
    env = made([Job(0, 5, 1)] * 4 + [Job(1, 1, 1)], TWO_GPUS, window=3)
    assert ids(env) == [0, 1, 2]
    assert mask(env) == [1, 1, 1, 0]
    env.step(2)
    assert ids(env) == [0, 1, 3]
    assert mask(env) == [1, 1, 1, 1]


# --- masks


@pytest.mark.parametrize("later", [(), (Job(5, 10, 1),)])
def test_select_job_may_start_what_fits_and_wait_while_a_job_runs(later: tuple[Job, ...]) -> None:
    env = made([Job(0, 10, 1), Job(0, 10, 2), Job(0, 10, 1), *later], TWO_GPUS, window=4)
    assert mask(env) == [1, 1, 1, 0, 0]  # nothing runs: no no-op, whatever is to arrive
    env.step(0)
    assert mask(env) == [0, 1, 0, 0, 1]  # the gang of 2 does not fit beside it


def test_select_job_and_pool_may_start_a_job_in_every_pool_in_which_it_fits() -> None:
    cluster = parse_cluster("1x1:t4,2x2:v100")  # pools 0 and 1
    jobs = [Job(0, 10, 2), Job(0, 10, 1), Job(0, 10, 1, gpu_types=("t4",))]
    env = made(jobs, cluster, kind="select-job-and-pool", window=3)
    assert mask(env) == [0, 1, 1, 1, 1, 0, 0]
    env.step(1 * 2 + 0)  # row 1 to pool 0
    assert mask(env) == [0, 1, 0, 0, 0, 0, 1]
    env.step(0 * 2 + 1)
    assert env.starts()[:2] == [(0, 10_000_000, ((1, 2),)), (0, 10_000_000, ((0, 1),))]


def test_padded_pools_and_hosts_are_never_legal() -> None:
    env = made([Job(0, 10, 1)], ONE_GPU, kind="select-job-and-pool", window=1, max_pools=3)
    assert mask(env) == [1, 0, 0, 0]
    env = made([Job(0, 10, 1)], ONE_GPU, kind="select-host", max_nodes=3)
    assert mask(env) == [1, 0, 0]


def test_in_blocking_mode_every_job_is_legal_and_waiting_is_not() -> None:
    cluster = parse_cluster("1x1:t4,2x2:v100")
    jobs = [Job(0, 10, 4), Job(0, 10, 4)]
    env = made(jobs, cluster, kind="select-job-and-pool", window=2, step_mode="blocking")
    assert mask(env) == [0, 1, 0, 1, 0]
    env.step(1)
    assert mask(env) == [0, 1, 0, 0, 0]  # it does not fit now, but could


def test_select_host_masks_nodes_that_can_hold_the_current_job() -> None:
    cluster = Cluster(
        nodes=(
            NodeGroup(gpus=2, type="gpu", cpus=4),
            NodeGroup(gpus=2, type="gpu", cpus=2),
            NodeGroup(gpus=2, type="gpu", owner="vision"),
            NodeGroup(gpus=1, type="gpu"),
        )
    )
    env = made([Job(0, 10, 2, cpus=3), Job(0, 10, 1, cpus=1)], cluster, kind="select-host")
    assert mask(env) == [1, 0, 0, 0]  # too few CPUs, owned by others, too few GPUs
    env.step(0)
    assert mask(env) == [0, 1, 0, 1]
    env.step(3)
    assert [start[2] for start in env.starts() if start] == [((0, 2),), ((3, 1),)]


def test_rank_hosts_takes_the_largest_number_among_nodes_that_can_hold_the_job() -> None:
    cluster = parse_cluster("3x1")
    env = made([Job(0, 10, 1)] * 3, cluster, kind="rank-hosts")
    env.step([0.1, 0.7, 0.7])  # ties to the lowest id
    assert mask(env) == [1, 0, 1]
    env.step([-0.5, 1.0, -0.2])  # node 1 is taken
    assert [start and start[2] for start in env.starts()] == [((1, 1),), ((2, 1),), None]
    with pytest.raises(InvalidActionError):
        env.step([float("nan"), 0.0, 0.0])


def test_with_strict_only_the_first_job_of_each_queue_is_asked_about() -> None:
    cluster = Cluster(nodes=(NodeGroup(gpus=2, type="gpu"), NodeGroup(gpus=2, type="gpu", owner="vision")))
    jobs = [
        *(Job(0, 10, 1), Job(0, 10, 2), Job(0, 10, 1)),
        *(Job(0, 10, 1, group="vision"), Job(0, 10, 1, group="vision")),
    ]
    strict, greedy = (
        made(jobs, cluster, f"fifo+{b}", kind="select-host", window=2) for b in ("strict", "greedy")
    )
    for env in (strict, greedy):
        assert ids(env) == [0, 1]
        env.step(0)
    assert ids(strict) == [3, 1]  # job 1 blocks its queue; vision has one of its own
    assert ids(greedy) == [2, 1]  # row 0 is the current job, then the others in order


def test_accept_or_skip_offers_what_the_base_policy_would_start() -> None:
    jobs = [Job(0, 20, 1), Job(0, 10, 2), Job(1, 30, 1), Job(2, 15, 1)]
    env = made(jobs, TWO_GPUS, "fifo+easy", kind="accept-or-skip")
    assert mask(env) == [0, 1]
    env.step(1)
    # Job 1 is the head with shadow time 20. Job 2 would end at 31 and needs its GPU; job 3 ends at 17.
    assert (now_s(env), env.base_choice()[0].id) == (2.0, 3)  # type: ignore[index]
    assert mask(env) == [1, 1]
    env.step(0)  # held back until the next event, at 20 s
    assert (now_s(env), env.base_choice()[0].id) == (20.0, 1)  # type: ignore[index]


def test_illegal_actions_raise_and_change_nothing_or_count_as_no_ops_with_a_penalty() -> None:
    jobs = [Job(0, 10, 1), Job(0, 10, 2), Job(3, 10, 1)]
    env = made(jobs, TWO_GPUS)
    env.step(0)
    for action in (0, 2, 7, -1):  # rows: [gang of 2] which does not fit; an empty one; out of range
        with pytest.raises(InvalidActionError):
            env.step(action)
    assert now_s(env) == 3.0
    env = made(jobs, TWO_GPUS, invalid="noop", invalid_penalty=0.5)
    assert env.step(2) == (-3 - 0.5, False, False)  # the first legal one; makespan: to the arrival at 3 s
    assert starts_s(env) == [0.0, None, None]
    assert env.step(0) == (-7 - 0.5, False, False)  # a no-op, as a job runs: it ends at 10 s
    assert starts_s(env) == [0.0, None, None]


def test_an_illegal_action_without_a_legal_no_op_is_the_first_legal_one() -> None:
    for kind, no_op in (("select-job", 3), ("select-host", 9), ("accept-or-skip", 0)):
        env = made([Job(0, 10, 1), Job(0, 10, 2)], TWO_GPUS, kind=kind, invalid="noop")
        env.step(no_op)
        assert starts_s(env)[0] == 0.0
    env = made([Job(0, 10, 2), Job(0, 10, 2)], TWO_GPUS, step_mode="blocking", invalid="noop")
    env.step(3)
    assert starts_s(env) == [0.0, None]


# --- time


def test_instant_stands_still_after_a_start_and_passes_over_what_offers_nothing() -> None:
    env = made([Job(0, 20, 1), Job(0, 20, 1), B], TWO_GPUS)
    env.step(0)
    assert now_s(env) == 0.0
    env.step(0)
    assert now_s(env) == 20.0  # the arrival at 5 s is no choice
    assert env.step(0)[1:] == (True, False)
    assert (now_s(env), starts_s(env)) == (24.0, [0.0, 0.0, 20.0])


def test_event_moves_on_after_every_action_and_offers_all_states() -> None:
    env = made([A, B], TWO_GPUS, step_mode="event")
    env.step(0)
    assert (now_s(env), mask(env)) == (5.0, [0, 0, 0, 1])
    env.step(3)
    assert (now_s(env), mask(env)) == (20.0, [1, 0, 0, 0])


def test_event_offers_states_of_accept_or_skip_as_instant_does() -> None:
    env = made([A, B], TWO_GPUS, kind="accept-or-skip", step_mode="event")
    env.step(1)
    assert now_s(env) == 20.0


def test_tick_moves_to_multiples_and_processes_events_at_their_own_times() -> None:
    env = made([A, B], TWO_GPUS, step_mode="tick", tick_s=6.0)
    times = []
    for action in (0, 3, 3, 3, 0):
        reward, terminated, _ = env.step(action)
        times.append((now_s(env), reward, terminated))
    # B starts at 24 s, the first multiple after the end of A; the clock stops when it finishes.
    assert times == [(6, -6, False), (12, -6, False), (18, -6, False), (24, -6, False), (28, -4, True)]
    assert env.starts()[0] == (0, 20_000_000, ((0, 2),))


def test_tick_stands_still_after_a_start_on_a_host() -> None:
    env = made([Job(0, 20, 1), Job(0, 9, 1), B], TWO_GPUS, kind="select-host", step_mode="tick", tick_s=6.0)
    env.step(0)
    assert now_s(env) == 0.0
    env.step(0)
    assert (now_s(env), ids(env)) == (12.0, [2])  # 6 s offers nothing; at 12 s a GPU is free since 9 s


def test_blocking_waits_until_the_chosen_job_fits() -> None:
    jobs = [Job(0, 20, 3), Job(1, 10, 4), Job(1, 5, 1), Job(1, 100, 1)]
    env = made(jobs, parse_cluster("1x4"), step_mode="blocking")
    env.step(0)
    assert (now_s(env), ids(env)) == (1.0, [1, 2, 3])
    env.step(0)
    assert (now_s(env), starts_s(env)) == (20.0, [0.0, 20.0, None, None])


def test_blocking_backfill_starts_jobs_that_do_not_delay_the_chosen_one() -> None:
    jobs = [Job(0, 20, 3), Job(1, 10, 4), Job(1, 5, 1), Job(1, 100, 1), Job(2, 7, 1)]
    env = made(jobs, parse_cluster("1x4"), step_mode="blocking", blocking_backfill=True)
    env.step(0)
    env.step(0)
    # Job 2 at once (ends at 6); then not job 3 (ends at 106) but job 4, which came meanwhile.
    assert starts_s(env) == [0.0, 20.0, 1.0, None, 6.0]


def test_blocking_backfill_lets_jobs_stay_that_leave_room_for_the_chosen_one() -> None:
    jobs = [Job(0, 20, 3), Job(1, 10, 2), Job(1, 100, 1)]
    env = made(jobs, parse_cluster("1x4"), "fifo", step_mode="blocking", blocking_backfill=True)
    env.step(0)
    env.step(0)
    assert starts_s(env) == [0.0, 20.0, 1.0]


def test_in_blocking_mode_with_pools_the_chosen_job_waits_for_its_pool() -> None:
    cluster = parse_cluster("1x1:t4,1x1:v100")
    jobs = [Job(0, 9, 1), Job(0, 10, 1)]
    env = made(jobs, cluster, kind="select-job-and-pool", window=2, step_mode="blocking")
    env.step(0 * 2 + 1)
    env.step(0 * 2 + 1)  # though pool 0 is free
    assert env.starts()[1] == (9_000_000, 19_000_000, ((1, 1),))


def test_the_event_that_passes_the_horizon_is_processed_and_nothing_after_it() -> None:
    env = made([A, B], TWO_GPUS, horizon_factor=0.25)  # H = 5 + 0.25 * 44 / 2 = 10.5
    assert env.step(0)[1:] == (False, True)
    assert (now_s(env), env.starts()[0]) == (20.0, (0, 20_000_000, ((0, 2),)))
    with pytest.raises(ValueError, match="over"):
        env.step(0)
    env = made([A, B], TWO_GPUS, horizon_factor=0.25, step_mode="tick", tick_s=8.0)
    assert env.step(0)[1:] == (False, False)
    assert env.step(3)[1:] == (False, True)
    assert now_s(env) == 16.0  # no event passes H before the multiple does


def test_a_blocked_job_does_not_start_at_the_event_that_passes_the_horizon() -> None:
    env = made([A, Job(0, 4, 1)], TWO_GPUS, horizon_factor=0.25, step_mode="blocking")
    env.step(0)
    assert env.step(0)[1:] == (False, True)
    assert starts_s(env) == [0.0, None]


def test_an_episode_that_ends_with_its_last_step_is_terminated() -> None:
    env = made([Job(0, 10, 1)], ONE_GPU, max_steps=1, horizon_factor=0.5)
    assert env.step(0)[1:] == (True, False)


# --- experts


def test_an_expert_starts_what_its_own_order_and_backfill_start_first() -> None:
    jobs = [Job(0, 9, 2), Job(0, 5, 1), Job(0, 7, 1)]
    env = made(jobs, TWO_GPUS, "fifo")
    assert [env.expert_action(name) for name in ("fifo", "sjf", "ljf", "smallest")] == [0, 1, 0, 1]
    env.step(1)
    # Job 0 does not fit. strict waits; easy: the shadow time is 5, and job 2 would end at 7.
    assert [env.expert_action(name) for name in ("fifo", "fifo+easy", "fifo+greedy")] == [3, 3, 1]


def test_an_expert_names_the_pool_that_its_placement_chooses() -> None:
    cluster = parse_cluster("1x1:t4@0.5,1x2:v100@2")
    env = made([Job(0, 10, 1)], cluster, kind="select-job-and-pool", window=1)
    assert env.expert_action("fifo/consolidate") == 1  # the fastest pool
    assert env.expert_action("fifo/first-available") == 0  # the lowest node


def test_an_expert_names_the_host_that_its_placement_chooses() -> None:
    cluster = parse_cluster("1x4,1x2")
    for kind, expected in (("select-host", [1, 0]), ("rank-hosts", [[0.0, 1.0], [1.0, 0.0]])):
        env = made([Job(0, 10, 1)], cluster, kind=kind)
        assert env.expert_action("fifo/first-fit") == expected[1]
        env = made([Job(0, 10, 2), Job(0, 10, 1)], parse_cluster("2x4"), kind=kind)
        env.step(1 if kind == "select-host" else [0.0, 1.0])
        assert [env.expert_action(f"fifo/{rule}") for rule in ("best-fit", "worst-fit")] == expected


def test_an_expert_accepts_what_it_would_start_now_first_or_later() -> None:
    env = made(
        [Job(0, 99, 1), Job(0, 9, 2), Job(0, 5, 1), Job(0, 7, 1)],
        parse_cluster("1x3"),
        "ljf",
        kind="accept-or-skip",
    )
    env.step(1)  # one that runs all the while, for only then may one be skipped
    assert env.base_choice()[0].id == 1  # type: ignore[index]
    assert [env.expert_action(name) for name in ("fifo", "sjf")] == [1, 0]
    env = made([Job(0, 5, 1), Job(0, 7, 1), Job(1, 1, 1)], TWO_GPUS, "ljf", kind="accept-or-skip")
    assert env.expert_action("sjf") == 1  # its second start


def test_an_expert_that_would_wait_takes_the_first_legal_action_if_it_can_not() -> None:
    env = made([Job(0, 9, 2), Job(0, 5, 1), Job(0, 7, 1)], TWO_GPUS, "ljf", kind="accept-or-skip")
    assert mask(env) == [0, 1]
    assert env.expert_action("sjf") == 1


def test_in_blocking_mode_an_expert_takes_the_first_row_in_its_order() -> None:
    env = made([A, Job(0, 9, 2), Job(0, 5, 1)], TWO_GPUS, step_mode="blocking")
    assert [env.expert_action(name) for name in ("fifo", "sjf")] == [0, 2]


@pytest.mark.parametrize("seed", [seed for seed in range(150) if seed % 5 not in (2, 3)])
def test_following_the_base_policy_gives_its_simulation(seed: int) -> None:
    case = env_case(seed)
    changes: dict[str, object] = {"window": 64, "step_mode": "instant", "warmup": 0, "cooldown": 0}
    settings = EnvSettings(
        **vars(case.settings)
        | changes
        | {"horizon_factor": None, "max_steps": None, "rewards": {"wait": 1.0}}
    )
    jobs = reference_env_of(case).jobs
    env = ReferenceEnv(case.kind, jobs, case.cluster, case.base_policy, settings)
    env.reset()
    while not env.is_over:
        env.step(env.expert_action(case.base_policy))
    simulator = settings.simulator(settings.origin_s)
    policy = parse_policy(case.base_policy)
    outcomes = simulate(env.nodes, env.speeds, jobs, policy, simulator, env.watts)
    assert env.starts() == [(outcome.start_us, outcome.end_us, outcome.nodes) for outcome in outcomes]


# --- episodes and refusals


def test_the_draw_of_an_episode() -> None:
    u = uniform(7, 6, 3, 0)
    assert first_row(7, 3, rows=100, jobs_per_episode=91) == int(u * 10)
    assert generator_seed(7, 3) == draw(7, 6, 3, 0) >> 1
    assert generator_seed(7, 3, [11, 12, 13]) == [11, 12, 13][int(u * 3)]
    jobs = [Job(float(i), 1, 1) for i in range(10)]
    assert episode_jobs(jobs, row=4, count=3, warmup_jobs=2) == (jobs[2:7], 2)
    assert episode_jobs(jobs, row=1, count=3, warmup_jobs=2) == (jobs[0:4], 1)


def test_warm_up_jobs_that_wait_are_part_of_the_decisions() -> None:
    jobs = [Job(0, 30, 1), Job(1, 5, 1), Job(10, 3, 1)]
    env = made(jobs, ONE_GPU, "sjf", warmup=2)
    assert (now_s(env), ids(env)) == (20.0, [2, 1])  # passed over until the GPU is free
    env.step(1)
    env.step(0)
    assert starts_s(env) == [-10.0, 20.0, 25.0]


@pytest.mark.parametrize(
    ("kind", "policy", "settings"),
    [
        ("select-host", "fifo+easy", {}),
        ("rank-hosts", "fifo+greedy+express:60:0.1", {}),
        ("select-job-and-pool", "fifo/spread", {}),
        ("select-job", "srtf+greedy", {}),
        ("select-job", "fifo+conservative", {}),
        ("accept-or-skip", "fifo", {"step_mode": "blocking"}),
        ("select-job", "fifo", {"rewards": {"energy": 1.0}}),
    ],
)
def test_what_the_page_does_not_offer_is_refused(kind: str, policy: str, settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        made([Job(0, 1, 1)], TWO_GPUS, policy, kind, **settings)


def test_jobs_of_more_than_one_node_are_refused_where_hosts_are_chosen() -> None:
    with pytest.raises(ValueError, match="job 1 does not fit on one node"):
        made([Job(0, 1, 1), Job(0, 1, 2)], parse_cluster("2x1"), kind="select-host")
