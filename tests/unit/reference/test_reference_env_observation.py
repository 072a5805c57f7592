"""Observations of the reference environment, worked out by hand; each comment is the computation."""

import math

import numpy as np
import pytest

from differential.env_cases import env_case, reference_env_of
from gpuyard.cluster.model import Cluster, GpuType, NodeGroup, parse_cluster
from reference.env.environment import ReferenceEnv
from reference.env.observation import ASKED_JOB_COLUMNS, JOB_COLUMNS, SINGLE_GLOBALS
from reference.env.settings import EnvSettings
from reference.env.tokens import NODE_COLUMNS
from reference.simulator.simulator import Job

# Pool 0: nodes 0 and 1 of 4 GPUs; pool 1: node 2 of 2 GPUs, twice as fast. 10 GPUs in all.
MIXED = Cluster(
    gpu_types=(GpuType(name="x", speed=1.0), GpuType(name="y", speed=2.0)),
    nodes=(
        NodeGroup(count=2, gpus=4, type="x", cpus=32, memory_mib=1000),
        NodeGroup(gpus=2, type="y"),
    ),
)
MIXED_JOBS = [
    Job(0, 1000, 3, cpus=6, estimate_s=900, user="ada", group="g", gpu_types=("x",)),
    Job(
        submit_s=100,
        duration_s=60,
        gpus=1,
        cpus=8,
        memory_mib=500,
        estimate_s=50,
        priority=3.0,
        user="ada",
        group="h",
        deadline_s=4000,
    ),
    Job(400, 60, 8, gpu_types=("x",), group="g"),
]


def made(
    jobs: list[Job], cluster: Cluster, policy: str = "fifo", kind: str = "select-job", **settings: object
) -> ReferenceEnv:
    defaults: dict[str, object] = {"window": 3, "estimates": "requested", "lookahead_horizon_s": 1000.0}
    env = ReferenceEnv(kind, jobs, cluster, policy, EnvSettings(**defaults | settings))  # type: ignore[arg-type]
    env.reset()
    return env


def at_400_s(**settings: object) -> ReferenceEnv:
    """Job 0 on node 0 since 0 s; job 1 waits since 100 s; job 2 came just now and does not fit."""
    env = made(MIXED_JOBS, MIXED, step_mode="event", epoch_s=21200.0, **settings)
    env.step(0)
    env.step(3)
    assert env.now_us == 400_000_000
    return env


def row(part: np.ndarray, index: int, names: tuple[str, ...]) -> dict[str, float]:  # type: ignore[type-arg]
    return dict(zip(names, part[index].tolist(), strict=True))


def test_shapes_and_types() -> None:
    seen = at_400_s().observation()
    assert {name: (part.shape, part.dtype) for name, part in seen.items()} == {
        "jobs": ((3, 21), np.float32),
        "nodes": ((3, 11), np.float32),
        "globals": ((2 * 2 + 11 + 10,), np.float32),
        "mask": ((4,), np.int8),
    }


def test_the_row_of_a_job_that_fits() -> None:
    expected = {
        "present": 1,
        "wait": 300 / 3900,
        "estimate": math.log(51) / math.log(2592001),
        "estimate_known": 1,
        "gpus": 1 / 10,
        "gpus_log": math.log(2) / math.log(11),
        "area": math.log(1 + 50 * 1) / math.log(25920001),
        "cpus": 8 / 32,
        "memory": 500 / 1000,
        "priority": 0.5 * (1 + 3 / 4),
        "slowdown": 1 - 1 / 7,  # b = (300 + 50) / 50
        "deadline": 0.5 * (1 + 3550 / 7150),  # 4000 - 400 - 50
        "fits": 1,
        "free_after": (2 - 1) / 2,  # the faster pool is tried first
        "nodes_needed": 1 / 1,
        "fragmentation": (2 - 1) / 10,  # 1 empty GPU on node 0; with the job 1 on node 2 too
        "user_share": 3 / 10,
        "group_share": 0,
        "before_shadow": 1,  # 400 + 50 / 2 <= 900
        "base_choice": 1,
        "speed": 2 / 2,
    }
    assert row(at_400_s().observation()["jobs"], 0, JOB_COLUMNS) == pytest.approx(expected)


def test_columns_on_request() -> None:
    seen = at_400_s(asked_columns=True).observation()
    first, second = (row(seen["jobs"], i, JOB_COLUMNS + ASKED_JOB_COLUMNS) for i in (0, 1))
    assert first["starts_in"] == 0  # it fits
    assert first["holds_up"] == pytest.approx(math.log(1 + 50 * 1) / math.log(25920001))
    assert second["starts_in"] == pytest.approx(math.log(501) / math.log(2592001))  # job 0 ends at 900
    assert second["holds_up"] == 1  # its run time is not known
    assert seen["globals"][-1] == pytest.approx(500 / 36500)


def test_the_row_of_a_job_that_does_not_fit_and_has_no_estimate() -> None:
    expected = {
        "present": 1,
        "wait": 0,
        "estimate": 0,
        "estimate_known": 0,
        "gpus": 8 / 10,
        "gpus_log": math.log(9) / math.log(11),
        "area": 0,
        "cpus": 0,
        "memory": 0,
        "priority": 0.5 * (1 + 1 / 2),
        "slowdown": 0,
        "deadline": 1,
        "fits": 0,
        "free_after": 0,
        "nodes_needed": 2 / 2,
        "fragmentation": 0,
        "user_share": 0,
        "group_share": 3 / 10,
        "before_shadow": 0,  # endless > 900
        "base_choice": 0,
        "speed": 1 / 2,
    }
    jobs = at_400_s().observation()["jobs"]
    assert row(jobs, 1, JOB_COLUMNS) == pytest.approx(expected)
    assert not jobs[2].any()


def test_a_job_behind_the_shadow_time_and_one_just_before_it() -> None:
    jobs = [
        Job(0, 10, 1, estimate_s=10),
        Job(0, 5, 2),
        Job(0, 1, 1, estimate_s=10),
        Job(0, 1, 1, estimate_s=10.5),
    ]
    env = made(jobs, parse_cluster("1x2"), "fifo+easy", window=4)
    env.step(0)
    column = env.observation()["jobs"][:, JOB_COLUMNS.index("before_shadow")]
    assert column.tolist() == [0, 1, 0, 0]  # the head is endless; 10 <= 10; 10.5 > 10; no row


def test_after_warm_up_deadlines_and_the_time_of_day_are_on_the_episodes_clock() -> None:
    jobs = [Job(0, 100, 1), Job(600, 100, 1, estimate_s=100, deadline_s=1000)]
    env = made(jobs, parse_cluster("1x1"), warmup=1, epoch_s=21000.0)
    seen = env.observation()
    assert env.now_us == 0
    assert row(seen["jobs"], 0, JOB_COLUMNS)["deadline"] == pytest.approx(0.5 * (1 + 300 / 3900))
    assert seen["globals"][2 + SINGLE_GLOBALS.index("day_sin")] == 1  # 21000 + 600 s


def test_rows_of_nodes() -> None:
    nodes = at_400_s().observation()["nodes"]
    assert row(nodes, 0, NODE_COLUMNS) == pytest.approx(
        {
            "present": 1,
            "count": 1 / 3,
            "gpu_use": 3 / 4,
            "cpu_use": 6 / 32,
            "memory_use": 0,
            "gpus": 1,
            "cpus": 1,
            "memory": 1,
            "speed": 1 / 2,
            "release": (900 - 400) / 1000,
            "base_choice": 0,
        }
    )
    last = row(nodes, 2, NODE_COLUMNS)
    assert (last["gpus"], last["cpus"], last["cpu_use"], last["speed"]) == (0.5, 0, 0, 1)
    assert (last["release"], last["base_choice"]) == (0, 1)


def test_rows_of_classes() -> None:
    nodes = at_400_s(tokens="classes").observation()["nodes"]
    # Pool 0 has rows for 0 to 4 empty GPUs, pool 1 for 0 to 2.
    assert np.flatnonzero(nodes[:, 0]).tolist() == [1, 4, 5 + 2]
    assert len(nodes) == 5 + 3
    env = made(
        [Job(0, 9, 0, cpus=3), Job(0, 9, 0, cpus=1)],
        Cluster(nodes=(NodeGroup(count=3, gpus=0, type="cpu", cpus=8),)),
        tokens="classes",
    )
    env.step(0)
    nodes = env.observation()["nodes"]
    assert len(nodes) == 9
    assert {i: row(nodes, i, NODE_COLUMNS)["count"] for i in np.flatnonzero(nodes[:, 0]).tolist()} == {
        5: pytest.approx(1 / 3),  # floor(8 * 5 / 8)
        8: pytest.approx(2 / 3),
    }
    assert row(nodes, 5, NODE_COLUMNS)["cpu_use"] == 1 - 5 / 8


def test_globals() -> None:
    seen = at_400_s(lookahead="per_gpu").observation()["globals"]
    assert seen[:4].tolist() == [5 / 8, 1, 0, 1]  # free, base_pool
    arrivals = (1 * 2 ** -(100 / 3600) + 1) * 2 ** -(300 / 3600) + 1
    assert dict(zip(SINGLE_GLOBALS, seen[4:15].tolist(), strict=True)) == pytest.approx(
        {
            "queue": 2 / 66,
            "queue_beyond": 0,
            "demand": 9 / 19,
            "arrivals": arrivals / (arrivals + 60),
            "running": 1 / 65,
            "gpu_use": 3 / 10,
            "fragmentation": 1 / 7,  # 1 of 1 + 4 + 2 empty GPUs
            "shadow": (900 - 400) / 1000,
            "day_sin": 1,  # 21200 + 400 s: a quarter of a day
            "day_cos": 0,
            "base_waits": 0,
        },
        abs=1e-7,
    )
    assert seen[15:].tolist() == [0.5] * 3 + [0] * 7


def test_jobs_beyond_the_window_and_a_base_policy_that_waits() -> None:
    jobs = [Job(0, 10, 1, estimate_s=10), Job(0, 5, 2), Job(1, 1, 1)]
    env = made(jobs, parse_cluster("1x2"), window=1, step_mode="event")
    env.step(0)  # on to 1 s; the window holds the gang only, which does not fit
    seen = dict(zip(SINGLE_GLOBALS, env.observation()["globals"][2:13].tolist(), strict=True))
    assert (seen["queue_beyond"], seen["base_waits"]) == (0.5, 1)
    assert seen["shadow"] == pytest.approx((10 - 1) / 1000)


def test_where_hosts_are_chosen_row_0_is_the_current_job_and_the_base_choice() -> None:
    jobs = [Job(0, 10, 1), Job(0, 5, 2), Job(0, 1, 1)]
    env = made(jobs, parse_cluster("2x2"), "fifo+greedy/worst-fit", kind="select-host")
    env.step(0)
    env.step(1)  # job 1
    seen = env.observation()
    assert seen["jobs"][:, JOB_COLUMNS.index("base_choice")].tolist() == [1, 0, 0]
    assert seen["nodes"][:, NODE_COLUMNS.index("base_choice")].tolist() == [1, 0]
    assert seen["globals"][1] == 1  # base_pool
    assert seen["globals"][2 + SINGLE_GLOBALS.index("base_waits")] == 0


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("off", [0] * 10),
        ("per_gpu", [0.5] * 3 + [0] * 7),
        ("sorted", [0] * 7 + [0.5] * 3),
        ("cdf", [0.7] * 4 + [1] * 6),  # 7 GPUs are idle; 0.5 <= 5/10
    ],
)
def test_lookahead_modes(mode: str, expected: list[float]) -> None:
    seen = at_400_s(lookahead=mode).observation()["globals"]
    assert seen[15:].tolist() == pytest.approx(expected)


def test_lookahead_samples_more_than_64_gpus_and_is_padded_with_0() -> None:
    env = made([Job(0, 500, 36, estimate_s=500), Job(0, 1, 1)], parse_cluster("9x8"), lookahead="per_gpu")
    env.step(0)
    # GPUs 0 to 35 are held. Number 31 is GPU floor(63 * 72 / 128) = 35, number 32 GPU 36.
    assert env.observation()["globals"][13:].tolist() == [0.5] * 32 + [0] * 32
    env = made(MIXED_JOBS, MIXED, lookahead="cdf", lookahead_length=12)
    assert env.observation()["globals"][15:].tolist() == [1] * 12
    env = made(MIXED_JOBS, MIXED, lookahead="sorted", lookahead_length=12, step_mode="event")
    env.step(0)
    assert env.observation()["globals"][15:].tolist() == pytest.approx([0] * 7 + [0.8] * 3 + [0] * 2)


def test_lookahead_of_a_shared_gpu_is_that_of_the_last_job_on_it_and_1_if_unknown() -> None:
    jobs = [
        *(Job(0, 900, 1, gpu_milli=300, estimate_s=200), Job(0, 900, 1, gpu_milli=300, estimate_s=400)),
        *(Job(0, 900, 1, gpu_milli=300), Job(9, 9, 1, gpu_milli=500)),
    ]
    env = made(jobs, parse_cluster("1x2"), lookahead="per_gpu")
    env.step(0)
    env.step(0)
    assert env.observation()["globals"][13:].tolist() == pytest.approx([0.4, 0])
    assert env.observation()["nodes"][0][NODE_COLUMNS.index("release")] == pytest.approx(0.2)  # the earliest
    env.step(0)  # on to 9 s
    assert env.observation()["globals"][13:].tolist() == pytest.approx([1, 0])


def test_padding_adds_rows_and_pools_of_zeros() -> None:
    plain, padded = at_400_s().observation(), at_400_s(max_nodes=5, max_pools=3).observation()
    assert padded["nodes"].shape == (5, 11)
    assert not padded["nodes"][3:].any()
    assert padded["globals"][:6].tolist() == [5 / 8, 1, 0, 0, 1, 0]
    assert padded["globals"][6:].tolist() == plain["globals"][4:].tolist()


@pytest.mark.parametrize("seed", range(60))
def test_random_observations_are_finite_and_within_bounds(seed: int) -> None:
    case = env_case(seed)
    env = reference_env_of(case)
    env.reset()
    may_be_negative = {"jobs": [JOB_COLUMNS.index("fragmentation")], "nodes": [], "globals": []}
    while not env.is_over:
        seen = env.observation()
        assert seen["mask"].any()
        for name, columns in may_be_negative.items():
            part = seen[name]
            assert np.isfinite(part).all()
            assert (part <= 1).all()
            assert (part >= -1).all()
            if name != "globals":
                assert (np.delete(part, columns, axis=1) >= 0).all()
            assert part.dtype == np.float32
        env.step(env.expert_action(case.expert))
