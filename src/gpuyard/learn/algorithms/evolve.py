"""CMA-ES over the weights of a rule or of a small network, in any environment; docs/algorithms/evolve.md.

Where ``train search`` tunes a rule for schedules of whole windows, this tunes one for whatever an environment
rewards, in its own way of stepping: one event per step, blocking, with its own horizon. No gradients: whole
episodes are run natively, a population on the same episodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.errors import InputError, setting
from gpuyard.learn.algorithm import Algorithm, need_torch
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.rules.covariance import covariance_strategy
from gpuyard.network.rollout import NativeNetwork
from gpuyard.observation.spec import EnvModel
from gpuyard.registry import register

if TYPE_CHECKING:
    from gpuyard.learn.process.group import ProcessGroup
    from gpuyard.learn.process.loop import TrainingLoop

Tensors = dict[str, NDArray[np.float32]]
Steps = dict[str, NDArray[np.float64]]
"""How far a step of 1 moves each weight, in the shape of the tensors; 0: it stays."""

LARGEST_STEP = 50.0
BIAS_STEP = 0.3
FEWEST_WEIGHTS = 2
"""A covariance is of at least so many."""
MOST_WEIGHTS = 2000
"""CMA-ES keeps a matrix of so many rows and columns."""
LOOK_STEPS, LOOK_ENVS = 200, 16
"""Of how many steps and environments the spread of columns is taken."""
LONG_LOOK_STEPS = 1000
"""The same where the middle of columns matters too, which moves in the course of an episode."""
MANY_WEIGHTS = 500
"""Of a ``state-rule``: with more of them many generations pass before anything is found."""
FEWER_COLUMNS = (
    f"name some with {setting('environment.job_features')} and {setting('environment.global_features')}"
)
MOVED_BY_STATE = {"score.weight": "score_state.weight", "gate_jobs.weight": "gate_state.weight"}


class EvolveConfig(BaseModel):
    """Settings of the evolution of a rule or network."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    generations: Annotated[int, Field(ge=1, le=1_000_000)] = 80
    """How many are played."""
    population: Annotated[int, Field(ge=4, le=10_000)] = 16
    """Rules of a generation."""
    episodes: Annotated[int, Field(ge=1, le=100_000)] = 48
    """Of a generation: new ones each time, the same for its whole population."""
    sigma: Annotated[float, Field(gt=0, le=10)] = 0.5
    """First step size; 1 is about what a column of the observation typically varies by."""
    gate_step: Annotated[float, Field(ge=0, le=10)] = 0.3
    """The same of the gate, whose threshold is 0, against that of the score. 0: the gate stays."""
    state_step: Annotated[float, Field(ge=0, le=10)] = 0.5
    """The same of what moves the weights of a ``state-rule``, against that of the weights themselves."""
    global_columns: tuple[str, ...] | None = None
    """Columns of ``globals`` that gate and state may use; None: all but the lookahead."""
    check_every: Annotated[int, Field(ge=1)] = 5
    """Generations between validations of the distribution's mean."""


class Spread(NamedTuple):
    """How columns vary as a policy acts: deviations of ``jobs``, over legal rows, and of ``globals``."""

    jobs: NDArray[np.float64]
    overall: NDArray[np.float64]
    middle: NDArray[np.float64]
    """Means of the columns of ``globals``."""


def spread_of_columns(env: SchedulingVectorEnv, network: NativeNetwork, steps: int = LOOK_STEPS) -> Spread:
    """How every column varies as a policy acts.

    Args:
        env: A few environments.
        network: What acts.
        steps: How many of them are looked at.
    """
    observation, _ = env.reset(seed=list(range(env.num_envs)))
    jobs, overall = [], []
    for _ in range(steps):
        legal = observation["mask"][:, : observation["jobs"].shape[1]] != 0
        jobs.append(observation["jobs"][legal])
        overall.append(observation["globals"].copy())
        parts = (observation[name] for name in ("jobs", "nodes", "globals", "mask"))
        logits, _ = network.forward_batch(*parts)
        chosen = np.where(observation["mask"] != 0, logits, -np.inf).argmax(axis=1)
        observation, *_ = env.step(chosen)
    rows = np.concatenate(jobs).astype(np.float64)
    states = np.concatenate(overall).astype(np.float64)
    of_jobs = rows.std(axis=0) if len(rows) else np.zeros(rows.shape[1])
    return Spread(of_jobs, states.std(axis=0), states.mean(axis=0))


def steps_of_rule(model: EnvModel, config: EvolveConfig, spread: Spread, *, leans: bool = False) -> Steps:
    """Steps that matter about alike, whatever a column's unit: one over how much it varies.

    Args:
        model: The environment.
        config: Settings.
        spread: How much each column varies.
        leans: Whether weights depend on the state, which takes a step for each pair of columns.
    """
    names = model.parts["globals"].names
    wanted = [
        name != "lookahead" if config.global_columns is None else name in config.global_columns
        for name in names
    ]
    of_jobs = _inverse(spread.jobs)[None]
    steps = {
        "score.weight": of_jobs,
        "gate_jobs.weight": config.gate_step * of_jobs,
        "gate_jobs.bias": np.array([config.gate_step]),
    }
    of_globals = _inverse(spread.overall) * np.array(wanted)
    if len(names):
        steps["gate_globals.weight"] = config.gate_step * of_globals[None]
    if leans:
        of_both = np.minimum(of_jobs.T * of_globals[None], LARGEST_STEP) * config.state_step
        steps |= {"score_state.weight": of_both, "gate_state.weight": config.gate_step * of_both}
    return steps


def many_weights_in_words(model: EnvModel, config: EvolveConfig) -> str:
    """That a ``state-rule`` has many weights to move, if all of its columns vary; empty if it has few."""
    jobs, overall = (np.ones(len(model.parts[name].names)) for name in ("jobs", "globals"))
    steps = steps_of_rule(model, config, Spread(jobs, overall, overall), leans=True)
    size = sum(int(np.count_nonzero(step)) for step in steps.values())
    if size <= MANY_WEIGHTS:
        return ""
    return (
        f"this state-rule has up to {size:,} weights to move, one for every pair of columns of jobs and "
        f"globals; with few columns something is found sooner: {FEWER_COLUMNS}"
    )


def steps_of_network(weights: Tensors, trained: Sequence[str]) -> Steps:
    """Of a network with hidden layers: the size that its first weights have, by the inputs of a layer.

    Args:
        weights: All of them.
        trained: Names of those that are not frozen.
    """
    steps = {}
    for name in trained:
        shape = weights[name].shape
        steps[name] = np.full(shape, 1.0 / np.sqrt(shape[-1]) if len(shape) > 1 else BIAS_STEP)
    return steps


def _inverse(deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """One over each deviation; 0 for what never changes, and never more than what a rare change allows."""
    changes = deviations > 1e-9
    return np.where(changes, np.minimum(1.0 / np.where(changes, deviations, 1.0), LARGEST_STEP), 0.0)


@dataclass(frozen=True)
class Point:
    """A place in the space that evolution moves in, with the weights it stands for."""

    place: NDArray[np.float64]
    tensors: Tensors


class Evolution:
    """The distribution of CMA-ES over the weights of a rule or network.

    Everything follows from the seed and the losses told: a resumed one is told the same losses again.

    Args:
        start: The weights to begin at.
        steps: How far a step of 1 moves each weight; those of tensors that it does not name stay.
        config: Settings.
        seed: Of its draws.
        middle: Means of the columns of ``globals``: what moves weights by the state leaves them as they are
            in the middle state, else every such move would be one of the weights themselves.
    """

    def __init__(
        self,
        start: Tensors,
        steps: Steps,
        config: EvolveConfig,
        seed: int,
        middle: NDArray[np.float64] | None = None,
    ) -> None:
        self._start = start
        self._steps = steps
        self._middle = middle
        size = sum(int(np.count_nonzero(step)) for step in steps.values())
        if size < FEWEST_WEIGHTS:
            raise InputError(
                f"evolve moves at least {FEWEST_WEIGHTS} weights, but there are {size}: no other column "
                "varies; use other features of the environment, or a gate_step above 0"
            )
        if size > MOST_WEIGHTS:
            fewer = f"use a smaller {setting('network.width')}" if middle is None else FEWER_COLUMNS
            raise InputError(
                f"evolve moves at most {MOST_WEIGHTS:,} weights, but there are {size:,}; {fewer}"
            )
        self._strategy: Any = covariance_strategy(size, config.sigma, config.population, seed)
        self.losses: list[list[float]] = []

    @property
    def sigma(self) -> float:
        """The present step size."""
        return float(self._strategy.sigma)

    def mean(self) -> Tensors:
        """The rule in the middle of the distribution."""
        return self._tensors(np.asarray(self._strategy.mean, dtype=np.float64))

    def ask(self) -> list[Point]:
        """The population of the next generation."""
        places = [np.asarray(place, dtype=np.float64) for place in self._strategy.ask()]
        return [Point(place, self._tensors(place)) for place in places]

    def tell(self, population: Sequence[Point], losses: Sequence[float]) -> None:
        """How good each was; smaller is better."""
        self._strategy.tell([point.place for point in population], list(losses))
        self.losses.append([float(loss) for loss in losses])

    def repeat(self, losses: Sequence[Sequence[float]]) -> None:
        """Go through generations again that were played already."""
        for generation in losses:
            self.tell(self.ask(), generation)

    def _tensors(self, place: NDArray[np.float64]) -> Tensors:
        moves, moved = iter(place.tolist()), {}
        for name, step in self._steps.items():
            by = [size * next(moves) if size else 0.0 for size in step.ravel().tolist()]
            moved[name] = np.reshape(by, step.shape)
        for name, leaning in MOVED_BY_STATE.items():
            if self._middle is not None and leaning in moved:
                moved[name] = moved[name] - moved[leaning] @ self._middle
        first = {name: self._start[name].astype(np.float64) for name in moved}
        return self._start | {name: (first[name] + by).astype(np.float32) for name, by in moved.items()}


@register("algorithm", "evolve")
class Evolve(Algorithm):
    """CMA-ES in an environment, as an algorithm of runs: one process, whose threads play."""

    summary = "CMA-ES over a rule or a small network, in any environment"
    settings = EvolveConfig
    unit = "episode"
    defaults = {"network": {"kind": "rule"}}  # noqa: RUF012
    moves_rules = True

    @classmethod
    def resolve(cls, config: TrainConfig) -> TrainConfig:
        """One process; as many steps as episodes are played."""
        own: EvolveConfig = config.settings
        played = own.generations * own.population * own.episodes
        training = config.training.model_copy(update={"processes": 1, "steps": played})
        return config.model_copy(update={"training": training})

    @classmethod
    def prepare(cls, config: TrainConfig) -> tuple[TrainConfig, list[str]]:
        """Remarks on rules with so many weights that little will be found."""
        need_torch("evolve")
        config, remarks = super().prepare(config)
        if config.network.kind == "state-rule":
            model = Environments(config.environment).model("train")
            remarks += filter(None, [many_weights_in_words(model, config.settings)])
        return config, remarks

    @classmethod
    def loop(cls, directory: Path, config: TrainConfig, group: "ProcessGroup") -> "TrainingLoop":
        """Plays, validates, writes."""
        from gpuyard.learn.process.evolve_loop import EvolveLoop

        return EvolveLoop(directory, config, group)
