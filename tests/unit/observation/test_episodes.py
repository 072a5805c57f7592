"""Which jobs an episode holds, and in what state it begins."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from gpuyard.config import SimulationConfig
from gpuyard.env import SchedulingEnv, SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.workload.generators import preset_workload
from reference.env.episodes import first_row, generator_seed
from support.small_environments import (
    KIND_NAMES,
    as_bytes,
    draws,
    rest_of_episode,
    single,
    steps_of,
    vector,
    windows,
    workload,
)

MODES = tuple(AutoresetMode)
JOBS = 9


def own_jobs(schedule: dict[str, Any]) -> slice:
    """Which jobs of an episode are those of its window: neither warm-up nor cool-down."""
    return slice(schedule["warmup"], len(schedule["row"]) - schedule["cooldown"])


def own_rows(schedule: dict[str, Any]) -> list[int]:
    """Rows of the workload that the window consists of."""
    return schedule["row"][own_jobs(schedule)].tolist()


def rows_of(env: SchedulingVectorEnv) -> list[int]:
    """The first rows of the episodes of a vector."""
    return [own_rows(env._core.record(i))[0] for i in range(env.num_envs)]


def submits_of(env: SchedulingVectorEnv) -> list[Any]:
    """What tells draws of a generator apart: when their jobs come."""
    return [env._core.record(i)["submit_us"].tolist() for i in range(env.num_envs)]


def drawn_submits_us(seed: int) -> list[int]:
    """When the jobs come that the generator of these tests draws for a seed."""
    jobs = preset_workload("bursty-8gpu", jobs=JOBS, max_gpus=4, seed=seed).workload.frame
    return np.rint(jobs["submit_s"].to_numpy() * 1e6).astype(np.int64).tolist()


# --- Seeds ---


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_the_seed_draws_the_windows_as_documented(kind: str) -> None:
    env = single(kind)
    for seed in (0, 7, 2**63 - 1):
        for episode in range(4):
            env.reset(seed=seed if episode == 0 else None)
            begin = first_row(seed, episode, 60, JOBS)
            assert own_rows(env.schedule()) == list(range(begin, begin + JOBS))
            assert env.schedule()["submit_us"][0] == 0


@pytest.mark.parametrize("seeds", [None, (4, 8, 15)])
def test_the_seed_draws_the_generators_seeds_as_documented(seeds: Any) -> None:
    env = SchedulingEnv("select-job", **draws(generator_seeds=seeds))
    for seed in (0, 7):
        for episode in range(4):
            env.reset(seed=seed if episode == 0 else None)
            expected = drawn_submits_us(generator_seed(seed, episode, seeds))
            assert env.schedule()["submit_us"].tolist() == expected


def test_only_the_draws_that_were_listed_come_up_and_all_of_them_do() -> None:
    listed = (4, 8, 15)
    env = SchedulingEnv("select-job", **draws(generator_seeds=listed))
    env.reset(seed=1)
    seen = set()
    for _ in range(30):
        seen.add(tuple(env.schedule()["submit_us"].tolist()))
        env.reset()
    assert seen == {tuple(drawn_submits_us(seed)) for seed in listed}


def test_windows_of_one_seed_reach_the_first_and_the_last_row() -> None:
    env = single("select-job", jobs_per_episode=56)
    env.reset(seed=0)
    begins = {own_rows(env.schedule())[0]}
    for _ in range(60):
        env.reset()
        begins.add(own_rows(env.schedule())[0])
    assert begins == set(range(5))


@pytest.mark.parametrize("source", [windows, draws], ids=["windows", "draws"])
def test_unseeded_environments_differ_from_each_other(source: Any) -> None:
    def episodes(env: SchedulingVectorEnv) -> list[Any]:
        env.reset()
        return [*rows_of(env), *submits_of(env)]

    first, second = (SchedulingVectorEnv("select-job", 6, **source()) for _ in range(2))
    begun = episodes(first)
    assert len({str(episode) for episode in begun[6:]}) > 1
    assert begun != episodes(second)
    singles = [SchedulingEnv("select-job", **source()) for _ in range(8)]
    assert len({str(as_bytes(env.reset()[0])) for env in singles}) > 1


def test_a_refused_reset_leaves_unseeded_environments_different() -> None:
    env = vector("select-job", 6)
    with pytest.raises(InputError):
        env.reset(seed=-1)
    env.reset()
    assert len(set(rows_of(env))) > 1


def test_a_vector_takes_one_seed_or_one_an_environment() -> None:
    env = vector("select-job", 4)
    expected = [first_row(seed, 0, 60, JOBS) for seed in (30, 31, 32, 33)]
    env.reset(seed=30)
    assert rows_of(env) == expected
    env.reset(seed=[33, 31, 30, 30])
    assert rows_of(env) == [expected[3], expected[1], expected[0], expected[0]]
    env.reset(seed=[None, 30, None, None])  # the others' draws go on
    assert rows_of(env) == [first_row(33, 1, 60, JOBS), expected[0], *[first_row(30, 1, 60, JOBS)] * 2]


# --- Asking for an episode ---


def test_a_window_can_be_asked_for_without_counting() -> None:
    env = single("select-job")
    env.reset(seed=5)
    for row in (0, 17, 51):
        env.reset(options={"episode": row})
        assert own_rows(env.schedule())[0] == row
    env.reset()
    assert own_rows(env.schedule())[0] == first_row(5, 1, 60, JOBS)
    env.reset(seed=5, options={"episode": 3})
    env.reset()
    assert own_rows(env.schedule())[0] == first_row(5, 0, 60, JOBS)


def test_a_draw_can_be_asked_for_without_counting() -> None:
    env = SchedulingEnv("select-job", **draws())
    env.reset(seed=5)
    for seed in (0, 17, 2**62):
        env.reset(options={"episode": seed})
        assert env.schedule()["submit_us"].tolist() == drawn_submits_us(seed)
    env.reset()
    assert env.schedule()["submit_us"].tolist() == drawn_submits_us(generator_seed(5, 1))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("source", [windows, draws], ids=["windows", "draws"])
def test_asking_vectors_for_episodes_and_resetting_them_early_counts_as_in_single_ones(
    source: Any, mode: AutoresetMode
) -> None:
    singles = [SchedulingEnv("select-job", **source()) for _ in range(3)]
    env = SchedulingVectorEnv("select-job", 3, autoreset_mode=mode, **source())
    calls: list[dict[str, Any]] = [{"seed": 5}, {}, {"options": {"episode": [3, 1, 2]}}, {}, {"seed": 6}, {}]
    for call in calls:
        env.reset(**call)
        for i, one in enumerate(singles):
            options = {"episode": call["options"]["episode"][i]} if "options" in call else None
            one.reset(seed=call["seed"] + i if "seed" in call else None, options=options)
        assert submits_of(env) == [one.schedule()["submit_us"].tolist() for one in singles], call
    mask = np.array([False, True, False])
    env.reset(options={"reset_mask": mask})
    singles[1].reset()
    assert submits_of(env) == [one.schedule()["submit_us"].tolist() for one in singles]


@pytest.mark.parametrize("episode", [-1, 52, 10**12])
def test_windows_that_do_not_exist_are_refused(episode: int) -> None:
    for env in (single("select-job"), vector("select-job")):
        with pytest.raises(InputError, match=f"episode {episode}: windows start at rows 0 to 51"):
            env.reset(options={"episode": episode})


@pytest.mark.parametrize("episode", [-1, 2**63, 2**70])
def test_draws_that_do_not_exist_are_refused(episode: int) -> None:
    env = SchedulingEnv("select-job", **draws())
    env.reset(seed=0)
    with pytest.raises(InputError, match=f"{episode}"):
        env.reset(options={"episode": episode})


@pytest.mark.parametrize("episode", [1.0, "3", True])
def test_episodes_that_are_no_numbers_are_refused(episode: Any) -> None:
    for env in (single("select-job"), vector("select-job")):
        with pytest.raises(InputError, match="is not a whole number: a first row, or a generator's seed"):
            env.reset(options={"episode": episode})


def test_one_episode_is_asked_for_or_one_an_environment() -> None:
    env = vector("select-job")
    env.reset(options={"episode": 4})
    assert rows_of(env) == [4, 4, 4]
    env.reset(options={"episode": np.array([4, 0, 51])})
    assert rows_of(env) == [4, 0, 51]
    with pytest.raises(InputError, match="2 episodes for 3 environments; give one, or one each"):
        env.reset(options={"episode": [1, 2]})


@pytest.mark.parametrize("source", [windows, draws], ids=["windows", "draws"])
@pytest.mark.parametrize(
    "call",
    [
        {"options": {"episode": [1, 2, 10**30]}},
        {"seed": [1, 2, -3]},
        {"seed": 9, "options": {"episode": [1, 2]}},
        {"seed": 9, "options": {"reset_mask": np.ones(2, bool)}},
    ],
    ids=["episode", "seed", "seed-and-episodes", "mask"],
)
def test_a_refused_reset_changes_nothing(call: dict[str, Any], source: Any) -> None:
    touched, untouched = (SchedulingVectorEnv("select-job", 3, **source()) for _ in range(2))
    for env in (touched, untouched):
        env.reset(seed=5)
    with pytest.raises(InputError):
        touched.reset(**call)
    assert steps_of(touched, 60) == steps_of(untouched, 60)  # more than two episodes


@pytest.mark.parametrize("source", [windows, draws], ids=["windows", "draws"])
def test_a_seed_is_for_the_environments_that_are_reset(source: Any) -> None:
    env = SchedulingVectorEnv("select-job", 2, autoreset_mode=AutoresetMode.DISABLED, **source())
    singles = [SchedulingEnv("select-job", **source()) for _ in range(2)]
    env.reset(seed=5)
    env.reset(seed=90, options={"reset_mask": np.array([True, False])})
    singles[0].reset(seed=90)
    singles[1].reset(seed=6)
    for _ in range(3):
        assert submits_of(env) == [one.schedule()["submit_us"].tolist() for one in singles]
        env.reset()
        for one in singles:
            one.reset()


# --- Splits and warm-up ---


@pytest.mark.parametrize(
    ("split", "begin", "end"), [("train", 0.0, 0.6), ("validation", 0.6, 0.8), ("test", 0.8, 1.1)]
)
def test_windows_lie_inside_their_part(split: str, begin: float, end: float) -> None:
    submit_s = workload().frame["submit_s"].to_numpy()
    share = (submit_s - submit_s[0]) / (submit_s[-1] - submit_s[0])
    part = np.flatnonzero((share >= begin) & (share < end))
    jobs = min(5, len(part))
    env = single("select-job", split=split, jobs_per_episode=jobs)
    seen = set()
    env.reset(seed=0)
    for _ in range(200):
        seen |= set(own_rows(env.schedule()))
        env.reset()
    assert seen <= set(part.tolist())
    assert {int(part[0]), int(part[-1])} <= seen
    for row in (int(part[0]) - 1, int(part[-1]) - jobs + 2):
        with pytest.raises(InputError, match=f"windows of the {split} part start at rows {part[0]} to"):
            env.reset(options={"episode": row})


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_warm_up_runs_the_jobs_before_the_window_under_the_base_policy(kind: str) -> None:
    env = single(kind, warmup_jobs=20)
    for row in (0, 7, 40):
        env.reset(options={"episode": row})
        schedule = env.schedule()
        warm = min(20, row)
        assert schedule["warmup"] == warm
        assert schedule["row"].tolist() == list(range(row - warm, row + JOBS))
        begin = schedule["submit_us"][warm]
        assert (schedule["start_us"][:warm] < begin).all()
        assert (schedule["start_us"][warm:] == -1).all()  # decisions begin with the first job of the window
        if row == 40:
            assert (schedule["end_us"][:warm] < 0).any()  # some still run
        rest_of_episode(env)
        assert (env.schedule()["end_us"] > 0).all()


@pytest.mark.parametrize("split", ["validation", "test"])
def test_warm_up_takes_jobs_of_the_part_before(split: str) -> None:
    env = single("select-job", split=split, jobs_per_episode=4, warmup_jobs=6)
    first = env.model.episode_rows[0]
    env.reset(options={"episode": first})
    assert env.schedule()["row"].tolist() == list(range(first - 6, first + 4))


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_cool_down_jobs_follow_the_window_as_far_as_there_are_any(kind: str) -> None:
    env = single(kind, cooldown_jobs=5)
    assert env.model.episode_rows == range(60 - JOBS - 5 + 1)
    for row in (0, 7, 46):
        env.reset(options={"episode": row})
        schedule = env.schedule()
        assert (schedule["warmup"], schedule["cooldown"]) == (0, 5)
        assert schedule["row"].tolist() == list(range(row, row + JOBS + 5))
        rest_of_episode(env)
        assert (env.schedule()["end_us"][:JOBS] > 0).all()


def test_cool_down_takes_no_job_of_the_part_behind() -> None:
    part = single("select-job", split="validation", jobs_per_episode=4).model.episode_rows
    env = single("select-job", split="validation", jobs_per_episode=4, cooldown_jobs=50)
    rows = env.model.episode_rows
    assert (rows[0], len(rows)) == (part[0], len(part) - len(part) // 2)
    for row in (rows[0], rows[-1]):
        env.reset(options={"episode": row})
        assert env.schedule()["row"].tolist() == list(range(row, part[-1] + 4))
    with pytest.raises(InputError, match=f"start at rows {rows[0]} to {rows[-1]}"):
        env.reset(options={"episode": rows[-1] + 1})


@pytest.mark.parametrize("cooldown", [5, 45])
def test_draws_leave_room_for_cool_down(cooldown: int) -> None:
    env = single("select-job", cooldown_jobs=cooldown)
    seen = set()
    for seed in range(300):
        env.reset(seed=seed)
        row = own_rows(env.schedule())[0]
        assert row == first_row(seed, 0, 60, JOBS, cooldown)
        assert env.schedule()["cooldown"] == min(cooldown, 60 - JOBS - row)
        seen.add(row)
    assert seen == set(env.model.episode_rows)


def test_of_a_generators_draw_the_middle_is_the_window() -> None:
    env = SchedulingEnv("select-job", **draws(warmup_jobs=4, cooldown_jobs=6))
    env.reset(options={"episode": 3})
    schedule = env.schedule()
    drawn = preset_workload("bursty-8gpu", jobs=4 + JOBS + 6, max_gpus=4, seed=3).workload.frame
    expected = np.rint(drawn["submit_s"].to_numpy() * 1e6).astype(np.int64)
    assert schedule["submit_us"].tolist() == expected.tolist()
    assert (schedule["warmup"], schedule["cooldown"]) == (4, 6)
    rest_of_episode(env)
    assert (env.schedule()["end_us"][: 4 + JOBS] > 0).all()


@pytest.mark.parametrize("row", [0, 20, 40])
def test_without_warm_up_the_return_is_the_metric_of_the_windows_own_jobs(row: int) -> None:
    env = single("select-job", cooldown_jobs=11, rewards={"wait": 1.0}, per_job=False, horizon_factor=None)
    env.reset(options={"episode": row})
    total, ended = 0.0, False
    while not ended:
        _, reward, terminated, truncated, info = env.step(env.expert_action("lifo+greedy"))
        total, ended = total + reward, terminated or truncated
    schedule = env.schedule()
    own = own_jobs(schedule)
    waits = (schedule["start_us"][own] - schedule["submit_us"][own]) / 1e6
    assert total == pytest.approx(-waits.sum())
    assert info["episode_metrics"]["mean_wait_s"] == pytest.approx(waits.mean())
    assert schedule["now_us"] == schedule["end_us"][own].max()


def test_metrics_are_those_of_the_windows_own_jobs() -> None:
    env = single("select-job", warmup_jobs=20, cooldown_jobs=7)
    env.reset(options={"episode": 30})
    ended = False
    while not ended:
        *_, terminated, truncated, info = env.step(env.expert_action("fifo+easy"))
        ended = terminated or truncated
    schedule, metrics = env.schedule(), info["episode_metrics"]
    own = own_jobs(schedule)
    waits = (schedule["start_us"][own] - schedule["submit_us"][own]) / 1e6
    assert metrics["completed_jobs"] == JOBS
    assert metrics["mean_wait_s"] == pytest.approx(waits.mean())
    assert metrics["max_wait_s"] == pytest.approx(waits.max())
    assert metrics["unfinished_jobs"] == 0


# --- Users ---


@pytest.mark.parametrize("order", ["fair-share", "multifactor"])
def test_a_draw_goes_by_the_shares_of_its_own_users(order: str) -> None:
    shares = {f"u{number}": 1.0 + number % 5 for number in range(0, 20, 2)}
    simulation = SimulationConfig(user_shares=shares, priority_calc_s=60.0, estimates="exact")
    same: dict[str, Any] = {"cluster": "1x8", "base_policy": f"{order}+greedy", "simulation": simulation}
    drawn = SchedulingEnv("select-job", generator="poisson", jobs_per_episode=24, **same)
    jobs, _ = drawn.model.source.draw(2)
    whole = SchedulingEnv("select-job", workload=jobs, jobs_per_episode=24, **same)
    seen, expected = drawn.reset(options={"episode": 2})[0], whole.reset(options={"episode": 0})[0]
    ended = False
    while not ended:
        assert np.array_equal(seen["jobs"], expected["jobs"])
        action = whole.expert_action(f"{order}+greedy")
        assert drawn.expert_action(f"{order}+greedy") == action
        expected, *_ = whole.step(action)
        seen, _, ended, *_ = drawn.step(action)
