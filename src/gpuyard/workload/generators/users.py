"""Who submits: activity, groups and habits."""

import math
from dataclasses import dataclass
from typing import Literal

import polars as pl

from gpuyard.workload.generators.draws import Floats, Integers, blend, choose, normals, reordered, uniforms

_USER_STREAM = 19
_JOB_DURATION_STREAM = 58
_JOB_GANG_STREAM = 59
_JOB_PRIORITY_STREAM = 60
_USER_DURATION_STREAM = 61
_USER_GANG_STREAM = 62

Activity = Literal["zipf", "uniform"]


def draw_users(seed: int, jobs: int, users: int, activity: Activity) -> Integers:
    """The user of each job, from 0. ``zipf``: the k-th user submits in proportion to 1/k."""
    weights = [1.0 / rank if activity == "zipf" else 1.0 for rank in range(1, users + 1)]
    return choose(uniforms(seed, _USER_STREAM, jobs), weights)


def named(prefix: str, count: int, index: Integers) -> pl.Series:
    """Names such as u3 for a column of numbers."""
    return pl.Series([f"{prefix}{i}" for i in range(count)]).gather(index)


@dataclass(frozen=True)
class Links:
    """How columns depend on each other and on the user.

    Attributes:
        duration_with_gpus: Correlation of the scores of duration and gang size, -1 to 1.
        duration_with_priority: The same for duration and priority.
        habits: Share of the variance of a job's scores that is its user's, 0 to below 1.
    """

    duration_with_gpus: float = 0.0
    duration_with_priority: float = 0.0
    habits: float = 0.0


def linked(
    seed: int, user: Integers, durations: Floats, gpus: Floats, priority: Floats, links: Links
) -> tuple[Floats, Floats, Floats]:
    """Give the drawn durations, gang sizes and priorities to jobs so that they depend on each other as asked.

    Every job has standard normal scores. With h the habits and r a correlation,

        duration score = sqrt(h) D[user] + sqrt(1-h) d
        gang score     = sqrt(h) (r D[user] + sqrt(1-r^2) G[user]) + sqrt(1-h) (r d + sqrt(1-r^2) g)
        priority score = r' (duration score) + sqrt(1-r'^2) p

    with D, G drawn once a user and d, g, p once a job. A column's values are then given to jobs in the order
    of their scores, so no column's distribution changes. Columns that nothing links stay as drawn.
    """
    if not (links.duration_with_gpus or links.duration_with_priority or links.habits):
        return durations, gpus, priority
    jobs, users = len(user), int(user.max()) + 1
    of_user, of_job = math.sqrt(links.habits), math.sqrt(1.0 - links.habits)
    own = normals(seed, _JOB_DURATION_STREAM, jobs)
    habit = normals(seed, _USER_DURATION_STREAM, users)
    score = of_user * habit[user] + of_job * own
    durations = reordered(durations, score)
    if links.duration_with_gpus or links.habits:
        r = links.duration_with_gpus
        gang_habit = blend(habit, normals(seed, _USER_GANG_STREAM, users), r)
        gang_own = blend(own, normals(seed, _JOB_GANG_STREAM, jobs), r)
        gpus = reordered(gpus, of_user * gang_habit[user] + of_job * gang_own)
    if links.duration_with_priority:
        chance = normals(seed, _JOB_PRIORITY_STREAM, jobs)
        priority = reordered(priority, blend(score, chance, links.duration_with_priority))
    return durations, gpus, priority


def habit_scores(seed: int, streams: tuple[int, int], user: Integers, users: int, habits: float) -> Floats:
    """Scores of jobs of which the user determines the share ``habits`` of the variance.

    Args:
        seed: Key of the draws.
        streams: Of the users' draws and of the jobs' draws.
        user: The user of each job.
        users: How many users there are.
        habits: From 0 to 1.
    """
    of_user = normals(seed, streams[0], users)
    of_job = normals(seed, streams[1], len(user))
    scores: Floats = math.sqrt(habits) * of_user[user] + math.sqrt(1.0 - habits) * of_job
    return scores
