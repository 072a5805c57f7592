"""The environments of one process, stepped with a policy's actions and put back exactly where they were.

Environments are deterministic: the episode an environment is in and the actions since that episode began are
its whole state. They are recorded here; a checkpoint holds them, and a resumed run repeats them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard.env.vector import METRICS, SchedulingVectorEnv
from gpuyard.errors import InputError

Arrays = dict[str, NDArray[Any]]

LONGEST_SCATTER = 20_000
"""Steps after which environments are scattered over what there was of their first episodes."""


@dataclass(frozen=True)
class Transition:
    """One step of every environment of a process.

    Attributes:
        observation: Before the step: ``jobs``, ``nodes``, ``globals``, ``mask``, first axis environments.
        actions: Numbers of actions, or priorities of hosts.
        rewards: Of the step, float64.
        terminated: Episodes that ended with all their jobs.
        truncated: Episodes that were cut off.
        next_observation: After the step; where an episode ended, the first of the next episode.
        ended: Numbers of the environments whose episode ended.
        last_observation: The last observations of those episodes, in the order of ``ended``.
    """

    observation: Arrays
    actions: NDArray[Any]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    next_observation: Arrays
    ended: NDArray[np.int64]
    last_observation: Arrays


class Collector:
    """Environments of one process.

    Args:
        env: In autoreset mode SAME_STEP.
        seeds: One an environment.
        keep_steps: How many past steps a resumed run must go through again, for a replay buffer.
    """

    def __init__(self, env: SchedulingVectorEnv, seeds: list[int], keep_steps: int = 0) -> None:
        self.env = env
        self.seeds = seeds
        self._keep = keep_steps
        self._log: list[NDArray[Any]] = []  # actions, a row a step, from step `_first` on
        self._first = 0
        self._now = 0
        self._episodes: list[list[tuple[int, int]]] = [[(0, 0)] for _ in seeds]  # (number, step it began at)
        self.finished: dict[str, list[float]] = {}
        """Metrics of episodes that have ended, by name, until ``take_finished`` is called."""
        self.observation: Arrays = env.reset(seed=list(seeds))[0]

    def scatter(self) -> None:
        """Begin at different places of the first episodes, so that environments are not in one phase.

        Environment i of n goes the share i/n of its first episode under random actions.
        """
        count = len(self.seeds)
        lengths = np.zeros(count, np.int64)
        taken: list[NDArray[Any]] = []
        while not lengths.all() and len(taken) < LONGEST_SCATTER:
            taken.append(self.env.random_actions())
            _, _, terminated, truncated, _ = self.env.step(taken[-1])
            lengths[(terminated | truncated) & (lengths == 0)] = len(taken)
        lengths[lengths == 0] = len(taken)
        goes = [int(length * i / count) for i, length in enumerate(lengths)]
        self._now = max(goes)
        # Every episode ends its first part now: those that go a shorter way began later.
        log = np.zeros((self._now, *taken[0].shape), np.float32 if taken[0].ndim > 1 else np.int32)
        for i, steps in enumerate(goes):
            for step in range(steps):
                log[self._now - steps + step, i] = taken[step][i]
        self._log = list(log)
        self._episodes = [[(0, self._now - steps)] for steps in goes]
        parts = [log[self._now - steps :, i] for i, steps in enumerate(goes)]
        self.observation = self.env.resume(self.seeds, [0] * count, parts)

    def step(self, actions: NDArray[Any]) -> Transition:
        """Act in every environment."""
        before = self.observation
        self.observation, rewards, terminated, truncated, infos = self.env.step(actions)
        self._log.append(actions.astype(np.float32 if actions.ndim > 1 else np.int32))
        self._now += 1
        ended = np.flatnonzero(terminated | truncated)
        last: Arrays = {}
        if len(ended):
            finals = infos["final_obs"]
            last = {name: np.stack([finals[i][name] for i in ended]) for name in before}
            self._note_ends(ended, infos["final_info"]["episode_metrics"])
        return Transition(before, actions, rewards, terminated, truncated, self.observation, ended, last)

    def _note_ends(self, ended: NDArray[np.int64], metrics: Mapping[str, NDArray[Any]]) -> None:
        for name in ("return", "length", *METRICS):
            values = np.asarray(metrics[name], dtype=np.float64)[ended]
            self.finished.setdefault(name, []).extend(values[np.isfinite(values)].tolist())
        for i in ended:
            self._episodes[i].append((self._episodes[i][-1][0] + 1, self._now))
        self._forget()

    def _forget(self) -> None:
        """Drop what no resumed run will need."""
        oldest = max(0, self._now - self._keep)
        for episodes in self._episodes:
            while len(episodes) > 1 and episodes[1][1] <= oldest:
                del episodes[0]
        needed = min(episodes[0][1] for episodes in self._episodes)
        if needed - self._first > 64:
            del self._log[: needed - self._first]
            self._first = needed

    def take_finished(self) -> dict[str, float]:
        """Means over the episodes that ended since the last call, and how many there were."""
        means = {name: float(np.mean(values)) for name, values in self.finished.items() if values}
        count = len(self.finished.get("return", ()))
        self.finished = {}
        return {**means, "count": count}

    # --- Resuming ---

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """What puts a like collector where this one is: a JSON document, and arrays."""
        document = {
            "first": self._first,
            "now": self._now,
            "episodes": self._episodes,
            "finished": self.finished,
        }
        shape = (0, len(self.seeds))
        log = np.stack(self._log) if self._log else np.zeros(shape, np.int32)
        return document, {"actions": log}

    def restore(
        self,
        document: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        steps: int = 0,
        repeat: Callable[[Transition], None] | None = None,
    ) -> None:
        """Go where ``state`` was taken, by taking the same actions again.

        Args:
            document: Of ``state``.
            arrays: Of ``state``.
            steps: How many of the last steps to show, at most ``keep_steps``.
            repeat: Told of these as they are taken again.
        """
        log = arrays["actions"]
        first, now = int(document["first"]), int(document["now"])
        episodes = [[(int(n), int(at)) for n, at in of_one] for of_one in document["episodes"]]
        if len(episodes) != len(self.seeds) or len(log) != now - first:
            raise InputError("the checkpoint was made with another number of environments or processes")
        begin = now - min(steps, self._keep) if repeat else now
        current = [max(i for i, (_, at) in enumerate(one) if at <= begin) for one in episodes]
        self.observation = self.env.resume(
            self.seeds,
            [one[i][0] for one, i in zip(episodes, current, strict=True)],
            [
                log[one[i][1] - first : begin - first, env]
                for env, (one, i) in enumerate(zip(episodes, current, strict=True))
            ],
        )
        self._log, self._first, self._now = [*log[: begin - first]], first, begin
        self._episodes = [one[: i + 1] for one, i in zip(episodes, current, strict=True)]
        keep, self._keep = self._keep, now  # forget nothing on the way
        for actions in log[begin - first :]:
            transition = self.step(actions)
            if repeat:
                repeat(transition)
        self._keep = keep
        self.finished = {name: list(values) for name, values in document["finished"].items()}
