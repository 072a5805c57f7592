"""Memory of past steps: a preallocated ring, n-step returns, prioritised sampling."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpuyard.errors import InputError
from gpuyard.learn.memory.collector import Arrays, Transition
from gpuyard.learn.memory.sum_tree import SumTree
from gpuyard.network.sizes import NetworkSizes

Storage = Literal["float32", "float16"]


@dataclass(frozen=True)
class Batch:
    """Transitions over up to n steps.

    Attributes:
        observation: Parts by name.
        actions: Taken there.
        returns: Discounted sums of the rewards that followed.
        next_observation: Where they led to; anything where ``discounts`` is 0.
        discounts: Of the value of ``next_observation``: discount^steps, 0 after the end of an episode.
        weights: Of each in the loss.
        entries: Their places in the memory.
    """

    observation: dict[str, Tensor]
    actions: Tensor
    returns: Tensor
    next_observation: dict[str, Tensor]
    discounts: Tensor
    weights: Tensor
    entries: Tensor

    def to(self, device: torch.device) -> "Batch":
        """With its tensors on a device."""
        return self._each(lambda tensor: tensor.to(device))

    def parts(self, count: int) -> Iterator["Batch"]:
        """In up to ``count`` pieces of almost the same size."""
        if count == 1:
            yield self
            return
        for rows in torch.arange(len(self.actions), device=self.actions.device).tensor_split(count):
            if len(rows):
                yield self._each(lambda tensor, rows=rows: tensor[rows])  # type: ignore[misc]

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        def changed(value: Any) -> Any:
            return (
                {name: change(part) for name, part in value.items()}
                if isinstance(value, dict)
                else change(value)
            )

        return Batch(**{field.name: changed(getattr(self, field.name)) for field in fields(self)})


def _tensors(parts: Arrays) -> dict[str, Tensor]:
    kinds = {np.dtype(np.float16): np.float32}
    return {
        name: torch.from_numpy(part.astype(kinds.get(part.dtype, part.dtype), copy=False))
        for name, part in parts.items()
    }


class Replay:
    """The last steps of a vector of environments.

    A place holds one step of all environments. Next observations are not stored: they stand n places further
    on. Only the last observations of truncated episodes are kept beside the ring, as they stand nowhere else.
    A place can be sampled once n later ones are there.

    Args:
        capacity: Steps to keep, over all environments; rounded down to whole steps of the vector.
        sizes: Of observations.
        envs: Environments.
        n_steps: Steps whose rewards a transition adds up.
        prioritised: Sample by priority rather than evenly.
        storage: Type of the observations kept. float16 halves memory and rounds to three digits.
    """

    def __init__(
        self,
        capacity: int,
        sizes: NetworkSizes,
        envs: int,
        *,
        n_steps: int = 1,
        prioritised: bool = False,
        storage: Storage = "float32",
    ) -> None:
        self.places = capacity // envs
        if self.places <= n_steps:
            raise InputError(
                f"a memory of {capacity} steps holds fewer than {n_steps + 1} steps of each of {envs} "
                "environments; raise capacity, or lower envs or n_steps"
            )
        self.envs, self.n_steps = envs, n_steps
        shapes = {
            "jobs": (sizes.rows, sizes.job_columns),
            "nodes": (sizes.tokens, sizes.node_columns),
            "globals": (sizes.global_columns,),
        }
        self._parts: Arrays = {
            name: np.zeros((self.places, envs, *shape), storage) for name, shape in shapes.items()
        }
        self._parts["mask"] = np.zeros((self.places, envs, sizes.actions), np.int8)
        self._actions = np.zeros((self.places, envs), np.int64)
        self._rewards = np.zeros((self.places, envs), np.float64)
        self._terminated = np.zeros((self.places, envs), np.bool_)
        self._truncated = np.zeros((self.places, envs), np.bool_)
        self._finals: list[dict[int, Mapping[str, NDArray[Any]]]] = [{} for _ in range(self.places)]
        self.tree = SumTree(self.places * envs) if prioritised else None
        self._largest = 1.0  # priority of what has not been sampled yet
        self.seen = 0  # steps of the vector, ever
        self.awaited = 0  # of them, those that a resumed run has yet to repeat

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return max(0, min(self.seen, self.places) - self.n_steps) * self.envs

    @property
    def held(self) -> int:
        """Steps held, over all environments."""
        return min(self.seen, self.places) * self.envs

    def add(self, step: Transition) -> None:
        """Remember a step, in the place of the oldest if all are taken."""
        self._write(self.seen, step)
        if self.tree is not None:
            self.tree.set(self._entries(self.seen), np.zeros(self.envs))
            if self.seen >= self.n_steps:
                fresh = np.full(self.envs, self._largest)
                self.tree.set(self._entries(self.seen - self.n_steps), fresh)
        self.seen += 1

    def _write(self, number: int, step: Transition) -> None:
        place = number % self.places
        for name, part in self._parts.items():
            part[place] = step.observation[name]
        self._actions[place] = step.actions
        self._rewards[place] = step.rewards
        self._terminated[place] = step.terminated
        self._truncated[place] = step.truncated & ~step.terminated
        self._finals[place] = {
            int(env): {
                name: part[row].astype(self._parts[name].dtype)
                for name, part in step.last_observation.items()
            }
            for row, env in enumerate(step.ended)
            if self._truncated[place, env]
        }

    def _entries(self, number: int) -> NDArray[np.int64]:
        return number % self.places * self.envs + np.arange(self.envs)

    def sample(
        self,
        count: int,
        rng: np.random.Generator,
        *,
        discount: float,
        correction: float = 1.0,
        scale: float = 1.0,
    ) -> Batch:
        """Draw transitions, with replacement.

        Args:
            count: How many.
            rng: Where chance comes from.
            discount: Of rewards, a step.
            correction: How far weights make up for priorities (0: not at all, 1: wholly); the largest is 1.
            scale: What rewards are divided by.
        """
        if self.tree is None:
            oldest = max(0, self.seen - self.places)
            drawn = rng.integers(len(self), size=count) + oldest * self.envs
            entries, weights = drawn % (self.places * self.envs), np.ones(count)
        else:
            entries = self.tree.sample(count, rng)
            chances = self.tree.values(entries) / self.tree.total
            weights = (len(self) * chances) ** -correction
            weights /= weights.max()
        places, envs = entries // self.envs, entries % self.envs
        returns, discounts, steps = self._returns(places, envs, discount)
        return Batch(
            observation=_tensors({name: part[places, envs] for name, part in self._parts.items()}),
            actions=torch.from_numpy(self._actions[places, envs]),
            returns=torch.from_numpy((returns / scale).astype(np.float32)),
            next_observation=_tensors(self._observations_after(places, envs, steps)),
            discounts=torch.from_numpy(discounts.astype(np.float32)),
            weights=torch.from_numpy(weights.astype(np.float32)),
            entries=torch.from_numpy(entries),
        )

    def _observations_after(
        self, places: NDArray[np.int64], envs: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> Arrays:
        after = (places + steps) % self.places
        parts = {name: part[after, envs] for name, part in self._parts.items()}
        last = (after - 1) % self.places
        for row in np.flatnonzero(self._truncated[last, envs]):
            for name, part in self._finals[last[row]][int(envs[row])].items():
                parts[name][row] = part
        return parts

    def _returns(
        self, places: NDArray[np.int64], envs: NDArray[np.int64], discount: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Sums of up to n rewards, discounts of what comes after them, and how many steps they span."""
        returns, discounts = np.zeros(len(places)), np.ones(len(places))
        steps, going_on = np.zeros(len(places), np.int64), np.ones(len(places), np.bool_)
        for ahead in range(self.n_steps):
            place = (places + ahead) % self.places
            returns += np.where(going_on, discounts * self._rewards[place, envs], 0.0)
            discounts = np.where(going_on, discounts * discount, discounts)
            discounts[going_on & self._terminated[place, envs]] = 0.0
            steps += going_on
            going_on &= ~(self._terminated[place, envs] | self._truncated[place, envs])
        return returns, discounts, steps

    def prioritise(self, entries: NDArray[np.int64], priorities: NDArray[np.float64]) -> None:
        """Give transitions that were sampled new priorities, above 0."""
        if self.tree is None:
            return
        self._largest = max(self._largest, float(priorities.max()))
        self.tree.set(entries, priorities)

    def state(self) -> Arrays:
        """All but the steps themselves, which ``repeat`` brings back."""
        state: Arrays = {"seen": np.array(self.seen), "largest_priority": np.array(self._largest)}
        if self.tree is not None:
            state["priorities"] = self.tree.values(np.arange(self.places * self.envs))
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up where ``state`` was called; then ``repeat`` the last steps."""
        self.seen, self._largest = int(state["seen"]), float(state["largest_priority"])
        self.awaited = min(self.seen, self.places)
        if self.tree is not None:
            self.tree.set(np.arange(self.places * self.envs), np.asarray(state["priorities"], np.float64))

    def repeat(self, step: Transition) -> None:
        """Put a step back in its place, after ``restore``: as many as are ``awaited``, oldest first."""
        self._write(self.seen - self.awaited, step)
        self.awaited -= 1
