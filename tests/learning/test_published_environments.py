"""The presets after published setups are those setups: exactly by their text, and by the published figures.

Plain simulations written from the text must agree with the environments on every episode. The figures are
means over few episodes of quantities that vary a lot: those of bursty-8gpu carry about ±0.055, those of
lublin_256 are means of 10 windows. So they are compared with what means of as many episodes are here.
"""

import math
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard import read_workload
from gpuyard.env import SchedulingEnv, SchedulingVectorEnv
from gpuyard.workload import Workload
from learning.plain_blocking import SCORES, plain_slowdown
from learning.plain_blocking import plain_jobs as window_of
from learning.plain_bursty import any_of, oldest, plain_jobs, plain_return, shortest
from support.env_runs import following, play

BARE: dict[str, Any] = {
    "lookahead": "off",
    "tokens": "classes",
    "job_features": ("present",),
    "node_features": (),
    "global_features": (),
    "threads": 1,
    "copy": False,
}
"""An observation of almost nothing: it is not looked at."""

# --- bursty-8gpu

RANDOM = "random feasible"
PUBLISHED_BURSTY = {"fifo+greedy": 0.369, RANDOM: 0.525, "sjf+greedy": 0.529}
PUBLISHED_HALF_WIDTH = 0.055
REBUILT_SJF, REBUILT_HALF_WIDTH = 0.524, 0.010


def bursty() -> SchedulingEnv:
    return SchedulingEnv("select-job", preset="bursty-8gpu")


def feasible_actions(masks: Any, rng: np.random.Generator) -> Any:
    """Any legal row, all equally likely; the no-op only if there is none."""
    rows = masks[:, :-1]
    drawn = np.where(rows, rng.random(rows.shape), -1.0)
    return np.where(rows.any(axis=1), drawn.argmax(axis=1), rows.shape[1])


@cache
def bursty_returns(policy: str, episodes: int, seed: int = 0, envs: int = 20) -> Any:
    """Of so many episodes, from each environment equally many, so that short ones are not preferred."""
    env = SchedulingVectorEnv("select-job", envs, preset="bursty-8gpu", **BARE)
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    returns: list[list[float]] = [[] for _ in range(envs)]
    while any(len(mine) < episodes // envs for mine in returns):
        is_random = policy == RANDOM
        actions = feasible_actions(env.action_masks(), rng) if is_random else env.expert_actions(policy)
        _, _, terminated, truncated, info = env.step(actions)
        for i in np.flatnonzero(terminated | truncated):
            returns[i].append(float(info["final_info"]["episode_metrics"]["return"][i]))
    return np.array([mine[: episodes // envs] for mine in returns]).ravel()


def standard_error(values: Any) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def z_against_published(policy: str, returns: Any) -> float:
    """Difference of the two means in standard errors of the difference."""
    error = math.hypot(PUBLISHED_HALF_WIDTH / 1.96, standard_error(returns))
    return (float(returns.mean()) - PUBLISHED_BURSTY[policy]) / error


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("policy", "rule"), [("fifo+greedy", oldest), ("sjf+greedy", shortest)])
def test_bursty_episodes_are_those_of_the_text(policy: str, rule: Any, seed: int) -> None:
    env = bursty()
    workload = env.model.source.draw(seed)[0]
    assert len(workload) == 400
    episode = play(env, following(policy), episode=seed)
    assert episode.total == pytest.approx(plain_return(plain_jobs(workload), rule), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_bursty_episodes_of_random_actions_are_those_of_the_text(seed: int) -> None:
    env, rng = bursty(), random.Random(seed)

    def choose(_: Any, mask: Any) -> int:
        rows = np.flatnonzero(mask[:-1])
        return int(rows[rng.randrange(len(rows))]) if len(rows) else len(mask) - 1

    episode = play(env, choose, episode=seed)
    jobs = plain_jobs(env.model.source.draw(seed)[0])
    expected = plain_return(jobs, any_of(random.Random(seed)))
    assert episode.total == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_bursty_returns_hardly_depend_on_when_the_clock_starts_and_on_ties(seed: int) -> None:
    """Workloads begin with their first arrival, and what arrives together is one event: both are harmless."""
    workload = bursty().model.source.draw(seed)[0]
    for rule in (oldest, shortest):
        ours = plain_return(plain_jobs(workload), rule)
        by_the_text = plain_return(plain_jobs(workload, keeps_clock=True), rule, one_by_one=True)
        assert by_the_text == pytest.approx(ours, abs=0.002)


def test_bursty_returns_of_a_few_episodes_are_near_the_published_means() -> None:
    for policy in PUBLISHED_BURSTY:
        assert abs(z_against_published(policy, bursty_returns(policy, 60))) < 3.3  # 99.9 %


@pytest.mark.slow
def test_bursty_sjf_over_a_thousand_episodes_agrees_with_the_rebuilt_figure() -> None:
    returns = bursty_returns("sjf+greedy", 1_000)
    half_width = 1.96 * standard_error(returns)
    assert abs(float(returns.mean()) - REBUILT_SJF) <= REBUILT_HALF_WIDTH + half_width


@pytest.mark.slow
@pytest.mark.parametrize("policy", PUBLISHED_BURSTY)
def test_bursty_over_a_thousand_episodes_agrees_with_the_published_means(policy: str) -> None:
    # At 99 % each, 97 % for the three together. The published fifo is low: z is 2.1 to 2.5 by our draws, and
    # would not pass at 95 %. A plain simulation of other draws says the same.
    assert abs(z_against_published(policy, bursty_returns(policy, 1_000))) < 2.576


# --- lublin_256

JOBS, WINDOWS, MEAN_OF = 1_024, 60, 10
STRICT = {"fifo": 7821.9, "sjf": 254.5, "f1": 261.7, "wfp3": 316.7, "unicep": 475.6}
BACKFILL = {"fifo": 240.4, "sjf": 60.5, "f1": 58.9, "wfp3": 142.2, "unicep": 90.9}


@pytest.fixture(scope="module")
def lublin(shared_traces: Path) -> Workload:
    return read_workload(shared_traces / "swf" / "lublin_256.swf.gz")


def lublin_settings(workload: Workload, backfill: bool | str) -> dict[str, Any]:
    """The preset with a window that holds the whole queue."""
    own = {"workload": workload, "cluster": "256x1", "window": JOBS}
    return {"preset": "lublin-1024", "blocking_backfill": backfill, **own}


@cache
def random_windows(rows: int) -> list[int]:
    rng = random.Random(0)
    return [rng.randrange(rows - JOBS + 1) for _ in range(WINDOWS)]


def slowdowns(workload: Workload, order: str, backfill: bool | str) -> Any:
    """Mean bounded slowdowns of random windows."""
    env = SchedulingVectorEnv("select-job", WINDOWS, **lublin_settings(workload, backfill), **BARE)
    env.reset(seed=0, options={"episode": random_windows(len(workload))})
    values = np.full(WINDOWS, np.nan)
    while np.isnan(values).any():
        _, _, terminated, _, info = env.step(env.expert_actions(order))
        if terminated.any():
            first = terminated & np.isnan(values)
            values[first] = info["final_info"]["episode_metrics"]["mean_bounded_slowdown"][first]
    return values


def place_among_means(values: Sequence[float], figure: float) -> float:
    """The share of bootstrap means of as many windows as were published that do not exceed the figure."""
    rng = np.random.default_rng(0)
    means = np.asarray(values)[rng.integers(0, len(values), (20_000, MEAN_OF))].mean(axis=1)
    return float((means <= figure).mean())


def is_plausible(values: Any, figure: float) -> bool:
    """Whether it lies within the central 99 %."""
    return 0.005 <= place_among_means(values, figure) <= 0.995


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("order", SCORES)
def test_lublin_windows_are_those_of_a_plain_simulation(
    lublin: Workload, order: str, backfill: bool | str
) -> None:
    env = SchedulingEnv("select-job", **lublin_settings(lublin, backfill))
    for first in (0, 4_321, len(lublin) - JOBS):
        episode = play(env, following(order), episode=first)
        around = backfill != "before-shadow"
        expected = plain_slowdown(window_of(lublin, first, JOBS), order, bool(backfill), around)
        assert episode.metrics["mean_bounded_slowdown"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("order", "figure"), STRICT.items())
def test_lublin_without_backfill_agrees_with_the_published_means(
    lublin: Workload, order: str, figure: float
) -> None:
    assert is_plausible(slowdowns(lublin, order, backfill=False), figure)


@pytest.mark.slow
@pytest.mark.parametrize(("order", "figure"), BACKFILL.items())
def test_lublin_with_backfill_agrees_with_the_published_means(
    lublin: Workload, order: str, figure: float
) -> None:
    """Of jobs that end before the chosen one can start, as where the figures come from."""
    assert is_plausible(slowdowns(lublin, order, backfill="before-shadow"), figure)
