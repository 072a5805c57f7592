"""Episodes begin on a busy cluster unless told otherwise, and what that means is written down."""

from typing import Any

import gymnasium
import pytest

from gpuyard.env import SchedulingEnv, SchedulingVectorEnv, busy
from gpuyard.env.describe import describe_document
from gpuyard.observation.config import EnvConfig
from gpuyard.observation.presets import env_presets
from gpuyard.workload import Workload
from gpuyard.workload.generators import preset_workload
from support.small_environments import COLD

CLUSTER = "8x8"


@pytest.fixture(scope="module")
def jobs() -> Workload:
    return preset_workload("demo", jobs=1200, load=1.0).workload


def made(jobs: Workload, **settings: Any) -> SchedulingEnv:
    usual = {"workload": jobs, "cluster": CLUSTER, "jobs_per_episode": 48, "estimates": "exact"}
    return SchedulingEnv("select-job", **{**usual, **settings})


def test_an_episode_begins_with_jobs_that_run_or_wait(jobs: Workload) -> None:
    env = made(jobs)
    warmup, cooldown = env.model.config.around
    assert warmup >= 64
    assert cooldown >= 1
    row = env.model.episode_rows[-1]
    env.reset(options={"episode": row})
    record = env.schedule()
    assert (record["warmup"], record["cooldown"]) == (warmup, cooldown)
    busy_at_0 = (record["start_us"][:warmup] < 0) | (record["end_us"][:warmup] < 0)
    assert busy_at_0.any()
    cold = made(jobs, **COLD)
    cold.reset(options={"episode": row})
    assert cold.schedule()["warmup"] == 0


def test_the_environment_without_arguments_is_busy_and_says_how() -> None:
    env: Any = gymnasium.make("gpuyard/SelectJob-v0").unwrapped
    settings = describe_document(env.model)["settings"]
    assert (settings["warmup_jobs"], settings["cooldown_jobs"]) == env.model.config.around
    assert all(env.model.config.around)


def test_numbers_that_are_given_are_kept(jobs: Workload) -> None:
    found = made(jobs).model.config.around
    assert made(jobs, **COLD).model.config.around == (0, 0)
    assert made(jobs, warmup_jobs=7).model.config.around == (7, found[1])
    assert made(jobs, cooldown_jobs=0).model.config.around == (found[0], 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"step_mode": "event"},
        {"step_mode": "tick"},
        {"step_mode": "blocking"},
        {"rewards": {"versus_baseline": 1.0}},
        {"horizon_factor": 1.3},
    ],
    ids=str,
)
def test_auto_is_an_empty_cluster_where_a_busy_one_is_refused_or_another_setup(
    jobs: Workload, settings: dict[str, Any]
) -> None:
    assert made(jobs, **settings).model.config.around == (0, 0)


def test_draws_and_hosts_begin_empty() -> None:
    assert SchedulingEnv("select-job", generator="bursty-8gpu").model.config.around == (0, 0)
    assert SchedulingEnv("select-host").model.config.around == (0, 0)
    assert SchedulingEnv("rank-hosts").model.config.around == (0, 0)


def test_an_episode_of_all_jobs_has_none_around_it(jobs: Workload) -> None:
    assert made(jobs, jobs_per_episode=len(jobs)).model.config.around == (0, 0)


@pytest.mark.parametrize("name", env_presets())
def test_presets_of_published_setups_state_that_they_begin_empty(name: str) -> None:
    settings = env_presets()[name].settings
    assert (settings["warmup_jobs"], settings["cooldown_jobs"]) == (0, 0)


def test_the_test_of_two_starts_is_made_once_for_equal_jobs(
    jobs: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy, "_found", {})
    tests = []
    whole = busy.find_margins
    monkeypatch.setattr(busy, "find_margins", lambda *a, **k: tests.append(a) or whole(*a, **k))
    first = made(jobs).model.config.around
    again = preset_workload("demo", jobs=1200, load=1.0).workload
    assert again is not jobs
    assert (
        SchedulingVectorEnv(
            "select-job", 2, workload=again, cluster=CLUSTER, jobs_per_episode=48, estimates="exact"
        ).model.config.around
        == first
    )
    assert len(tests) == 1
    made(jobs, split="train")
    made(jobs, base_policy="sjf+easy")
    made(jobs, cluster="9x8")
    assert len(tests) == 4


def test_the_warm_up_is_at_most_16_episodes(jobs: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOLERANCE", "SHARE_OF_INTERVAL"):
        monkeypatch.setattr(f"gpuyard.simulation.busy.{name}", -0.5)  # both starts never agree
    assert made(jobs, jobs_per_episode=20).model.config.around[0] == 16 * 20


def test_settings_alone_do_not_know_the_numbers() -> None:
    config = EnvConfig()
    assert not config.is_settled
    assert config.around == (0, 0)
    assert config.settled(5, 6).around == (5, 6)
    assert EnvConfig(warmup_jobs=3).settled(5, 6).around == (3, 6)
