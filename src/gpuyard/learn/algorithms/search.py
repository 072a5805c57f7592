"""Search: a grid over native policies, then CMA-ES over a linear score and gate.

docs/algorithms/search.md says what it does and how to read what it finds. Nothing here needs torch.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.learn.algorithm import Algorithm
from gpuyard.learn.config import EnvironmentSection, TrainConfig
from gpuyard.learn.rules.cma import Generation, Held, RuleRunner, Tuning
from gpuyard.learn.rules.config import SearchConfig
from gpuyard.learn.rules.grid import (
    GridResult,
    Objective,
    Tournament,
    grid_policies,
    search_grid,
)
from gpuyard.learn.rules.rule import RuleModel, Units, rule_of, steps_of
from gpuyard.native.information import informed
from gpuyard.observation.config import EnvConfig
from gpuyard.policies.family import fixed_heuristics
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.registry import register
from gpuyard.simulation.window_set import FIGURES, Figures, WindowSet
from gpuyard.simulation.windows import Part
from gpuyard.workload import Workload, read_workload
from gpuyard.workload.generators import preset_workload, preset_workloads
from gpuyard.workload.shaping.slices import split_by_time

if TYPE_CHECKING:
    from gpuyard.learn.process.group import ProcessGroup
    from gpuyard.learn.process.loop import TrainingLoop

Stage = Literal["heuristics", "grid", "rule"]
Choice = Literal["heuristic", "grid", "rule"]
LEAST_WINDOW = 16
"""Jobs of the shortest window that is chosen unless a size is given."""
TIE = 0.02
"""Heuristics whose mean logarithms of the metric differ by less are alike: the reference is the one of them
with the least mean completion time, which makes its limit the tightest."""


@dataclass(frozen=True)
class SearchProgress:
    """Where a search is.

    Attributes:
        stage: What is being tried.
        done: Policies tried in this round, or generations.
        total: Of how many.
        best: Name of the best policy so far; of rules, ``rule``.
        loss: Its loss on the windows that it was tried on.
        generation: Of CMA-ES, in that stage.
    """

    stage: Stage
    done: int
    total: int
    best: str
    loss: float
    generation: Generation | None = None


Progress = Callable[[SearchProgress], None]


@dataclass(frozen=True)
class Judged:
    """A policy on the training and the validation windows.

    Attributes:
        name: Of the policy, or ``rule``.
        train_loss: The objective on the training windows.
        validation_loss: The same on the validation windows.
        train: Mean metrics by name.
        validation: The same.
    """

    name: str
    train_loss: float
    validation_loss: float
    train: dict[str, float]
    validation: dict[str, float]


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        chosen: The kind of policy to use: the simplest that is not clearly worse on the validation windows.
        reference: Full name of the best fixed heuristic, from which limits are counted.
        grid_policy: Full name of the best policy of the grid.
        judged: All three (two without CMA-ES) on both sets of windows, by kind.
        grid_rule: The grid's policy as a rule: what CMA-ES and networks start from.
        rule: What CMA-ES made of it; None without CMA-ES.
        history: Its generations.
        grid: What was tried first: name, windows, loss and charge for exceeding limits, the best first.
        seconds: Wall time of each stage.
    """

    chosen: Choice
    reference: str
    grid_policy: str
    judged: Mapping[Choice, Judged]
    grid_rule: RuleModel
    rule: RuleModel | None
    history: tuple[Generation, ...]
    grid: tuple[tuple[str, int, float, float], ...]
    seconds: Mapping[str, float]

    @property
    def policy(self) -> str | None:
        """Name of the chosen policy; None if it is a rule."""
        return {"heuristic": self.reference, "grid": self.grid_policy, "rule": None}[self.chosen]

    @property
    def best_rule(self) -> RuleModel:
        """The rule to start a network from: what CMA-ES made, if that was chosen, else the grid's policy."""
        return self.rule if self.chosen == "rule" and self.rule is not None else self.grid_rule

    def summary(self) -> dict[str, Any]:
        """As JSON-ready values, without weights."""
        return {
            "chosen": self.chosen,
            "reference": self.reference,
            "grid_policy": self.grid_policy,
            "judged": {kind: asdict(one) for kind, one in self.judged.items()},
            "generations": len(self.history) - 1 if self.history else 0,
            "seconds": dict(self.seconds),
        }


def search(
    workload: Workload,
    cluster: Cluster,
    config: SearchConfig | None = None,
    simulation: SimulationConfig | None = None,
    *,
    progress: Progress | None = None,
) -> SearchResult:
    """Search for a rule that fares well on a workload.

    Args:
        workload: All jobs; those of the last 20 % of its time are not looked at.
        cluster: What they run on.
        config: How to search.
        simulation: Settings of the simulation.
        progress: Told now and then where the search is.

    Raises:
        InputError: if there are too few jobs, or settings that environments do not offer.
    """
    job = RuleSearch(workload, cluster, config or SearchConfig(), simulation or SimulationConfig(), progress)
    job.prepare()
    while not job.is_over:
        job.advance()
    return job.result()


class RuleSearch:
    """A search, a step at a time: ``prepare``, ``advance`` until it is over, ``result``.

    Attributes:
        tuning: CMA-ES, once the grid is done; None before, and if there are no generations.

    Args:
        workload: All jobs.
        cluster: What they run on.
        config: How to search.
        simulation: Settings of the simulation.
        progress: Told now and then where the search is.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        config: SearchConfig,
        simulation: SimulationConfig,
        progress: Progress | None = None,
    ) -> None:
        self._workload, self._cluster = workload, cluster
        self._config, self._simulation = config, informed(simulation, workload)
        self._progress = progress or (lambda _: None)
        self._seconds: dict[str, float] = {}
        self._is_prepared = False
        self.tuning: Tuning | None = None
        if not any(group.gpus for group in cluster.nodes):
            raise InputError(f"cluster {cluster.name} has no GPUs; a rule shares out GPUs")

    def prepare(self) -> None:
        """Everything before CMA-ES: windows, the reference, the grid, the rule to start from."""
        config = self._config
        train, validation = self._timed("windows", self._windows)
        self._reference = self._timed("heuristics", lambda: self._best_heuristic(train))
        reached = [
            windows.run([self._reference], threads=config.threads)[0] for windows in (train, validation)
        ]
        on_train, on_validation = (
            Objective(config, {**figures, **self._limited(windows)})
            for figures, windows in zip(reached, (train, validation), strict=True)
        )
        self._grid = self._timed("grid", lambda: self._found(train, validation, on_train, on_validation))
        best = self._grid.best
        seen = validation.run([best], threads=config.threads)[0]
        self._judged: dict[Choice, Judged] = {
            "heuristic": _judged(self._reference.name, (reached[0], reached[1]), on_train, on_validation),
            "grid": _judged(best.name, (self._grid.figures, seen), on_train, on_validation),
        }
        self._held = (
            Held(self._runner(best, "train"), train.rows, on_train),
            Held(self._runner(best, "validation"), validation.rows, on_validation),
        )
        self._start = rule_of(best, self._cluster.total_gpus, some_unknown=self._some_unknown)
        if config.generations:
            self.tuning = self._timed("rule", self._start_tuning)
            self._tell_generation(self.tuning.history[0])
        self._is_prepared = True

    @property
    def is_over(self) -> bool:
        """Whether the result is there."""
        return self._is_prepared and (self.tuning is None or self.tuning.is_over)

    def advance(self) -> None:
        """One generation of CMA-ES."""
        assert self.tuning is not None
        self._tell_generation(self._timed("rule", self.tuning.advance))

    def result(self) -> SearchResult:
        """What was found so far."""
        tuning, (train, validation) = self.tuning, self._held
        judged = dict(self._judged)
        if tuning is not None:
            figures = train.figures(tuning.rule), validation.figures(tuning.rule)
            judged["rule"] = _judged("rule", figures, train.objective, validation.objective)
        return SearchResult(
            chosen=_choose(judged, self._config.least_gain),
            reference=self._reference.name,
            grid_policy=self._grid.best.name,
            judged=judged,
            grid_rule=train.runner.model_of(self._start),
            rule=train.runner.model_of(tuning.rule) if tuning else None,
            history=tuple(tuning.history) if tuning else (),
            grid=tuple((t.policy.name, t.windows, t.loss, t.charge) for t in self._grid.trials),
            seconds=dict(self._seconds),
        )

    def _found(
        self, train: WindowSet, validation: WindowSet, on_train: Objective, on_validation: Objective
    ) -> GridResult:
        """What the grid found, with its figures on the training windows."""
        if self._config.grid_on == "train":
            return self._try_grid(train, on_train)
        known = {
            name: np.concatenate([on_train.reference[name], on_validation.reference[name]])
            for name in on_train.reference
        }
        count = len(train)
        parts = (range(count), range(count, count + len(validation)))
        found = self._try_grid(train.joined(validation), Objective(self._config, known, parts))
        return replace(found, figures={name: values[:count] for name, values in found.figures.items()})

    def _limited(self, windows: WindowSet) -> Figures:
        """What limits are counted from, if not from the reference."""
        if self._config.limits_from is None:
            return {}
        policy = replace(parse_policy(self._config.limits_from), placement=self._config.placement)
        figures = windows.run([policy], threads=self._config.threads)[0]
        return {metric: figures[metric] for metric in ("mean_jct_s", "p99_wait_s")}

    def _timed(self, stage: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        answer = work()
        self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - began
        return answer

    def _windows(self) -> tuple[WindowSet, WindowSet]:
        config = self._config
        train, validation = (
            WindowSet.of(
                self._workload,
                self._cluster,
                self._simulation,
                part,
                count=count,
                jobs=config.jobs_per_window,
                placement=config.placement,
            )
            for part, count in _counts(config)
        )
        return train, validation

    def _tell(self, stage: Stage) -> Callable[[int, int, str, float], None]:
        return lambda done, total, best, loss: self._progress(SearchProgress(stage, done, total, best, loss))

    def _best_heuristic(self, train: WindowSet) -> PolicySpec:
        """The best fixed heuristic on the training windows."""
        free = self._config.model_copy(update={"max_jct_increase": None, "max_p99_wait_increase": None})
        nothing: Figures = {name: np.ones(len(train)) for name in FIGURES}
        tournament = Tournament(train, Objective(free, nothing), self._config.threads)
        policies = fixed_heuristics(self._cluster, self._simulation, self._config.placement)
        last = tournament.rounds(policies, self._config, self._tell("heuristics"))
        least = min(trial.loss for trial in last)
        alike = [trial for trial in last if trial.loss <= least + TIE]
        return min(alike, key=lambda t: float(tournament.figures_of(t)["mean_jct_s"].mean())).policy

    def _try_grid(self, train: WindowSet, objective: Objective) -> GridResult:
        policies = grid_policies(self._config, self._simulation)
        return search_grid(train, objective, policies, self._config, self._tell("grid"))

    @property
    def _some_unknown(self) -> bool:
        if self._simulation.estimates == "requested":
            return self._workload.frame["estimate_s"].null_count() > 0
        return self._simulation.estimates == "history"

    def _runner(self, base: PolicySpec, part: Literal["train", "validation"]) -> RuleRunner:
        environment = EnvConfig(
            base_policy=base.name,
            window=self._config.rows,
            jobs_per_episode=self._config.jobs_per_window,
            tokens="classes",
            lookahead="off",
            simulation=self._simulation,
        )
        return RuleRunner(self._workload, self._cluster, environment, part, self._config.threads)

    def _start_tuning(self) -> Tuning:
        told = self._simulation.estimates != "none"
        steps = steps_of(Units.of(self._workload, self._cluster), told=told, some_unknown=self._some_unknown)
        return Tuning(self._start, steps, *self._held, self._config)

    def _tell_generation(self, generation: Generation) -> None:
        total = self._config.generations
        said = SearchProgress("rule", generation.number, total, "rule", generation.loss, generation)
        self._progress(said)


def _counts(config: SearchConfig) -> tuple[tuple[Part, int], ...]:
    return (("train", config.train_windows), ("validation", config.validation_windows))


def _judged(
    name: str, figures: tuple[Figures, Figures], on_train: Objective, on_validation: Objective
) -> Judged:
    means = [{metric: float(values.mean()) for metric, values in one.items()} for one in figures]
    return Judged(name, on_train.loss(figures[0]), on_validation.loss(figures[1]), *means)


def _choose(judged: Mapping[Choice, Judged], least_gain: float) -> Choice:
    """The simplest, unless a more complicated one is better by ``least_gain`` on the validation windows."""
    chosen: Choice = "heuristic"
    for kind, one in judged.items():
        if one.validation_loss <= judged[chosen].validation_loss - least_gain:
            chosen = kind
    return chosen


@register("algorithm", "search")
class Search(Algorithm):
    """Search as an algorithm of runs: one process, whose threads simulate."""

    summary = "the best heuristic, a grid over policies, CMA-ES over a linear rule; needs no torch"
    settings = SearchConfig
    unit = "generation"
    reads = {  # noqa: RUF012
        "environment": frozenset({"workload", "cluster", "estimates", "simulation"}),
        "training": frozenset({"seed", "minutes", "checkpoint_every_s"}),
    }

    @classmethod
    def resolve(cls, config: TrainConfig) -> TrainConfig:
        """The seed and the time that a run is given are those of the search; a step is a generation."""
        own: SearchConfig = config.settings
        given, training = config.training.model_fields_set, config.training
        changes: dict[str, Any] = {"seed": training.seed} if "seed" in given else {}
        if training.minutes is not None:
            changes["seconds"] = 60 * training.minutes
        own = own.model_copy(update=changes)
        steps = {"processes": 1, "steps": max(1, own.generations), "seed": own.seed, "minutes": None}
        return config.model_copy(update={"settings": own, "training": training.model_copy(update=steps)})

    @classmethod
    def prepare(cls, config: TrainConfig) -> tuple[TrainConfig, list[str]]:
        """Shorter windows than usual if the workload has too few jobs for those, and none were given."""
        workload, _ = jobs_of(config.environment)
        own: SearchConfig = config.settings
        usual: int = SearchConfig.model_fields["jobs_per_window"].default
        size = fitting_window(workload)
        if "jobs_per_window" in own.model_fields_set or size is None or size >= usual:
            if size is not None and size < own.jobs_per_window:
                _check_window(workload, own.jobs_per_window, size)
            return config, []
        fitting = own.model_copy(update={"jobs_per_window": size})
        remark = (
            f"windows of {size} jobs instead of {usual:,}, as {config.environment.workload} has only "
            f"{len(workload):,}; {setting('search.jobs_per_window')} sets another size"
        )
        return config.model_copy(update={"settings": fitting}), [remark]

    @classmethod
    def loop(cls, directory: Path, config: TrainConfig, group: "ProcessGroup") -> "TrainingLoop":
        """Searches, validates, writes."""
        from gpuyard.learn.process.search_loop import SearchLoop

        return SearchLoop(directory, config, group)


def jobs_of(environment: EnvironmentSection) -> tuple[Workload, Cluster]:
    """The jobs to search on, and what they run on.

    Raises:
        InputError: if either is missing or cannot be read.
    """
    source = environment.workload
    if source is None:
        raise InputError(
            f"which jobs? give {setting('environment.workload', 'FILE')} and "
            f"{setting('environment.cluster')}, such as 64x8"
        )
    machines = None if environment.cluster is None else parse_cluster(environment.cluster)
    if source in preset_workloads():
        trace = preset_workload(source)
        workload, machines = trace.workload, machines or trace.cluster
    else:
        workload = read_workload(source)
    if machines is None:
        raise InputError(
            f"which cluster shall run {source}? Give {setting('environment.cluster')}, such as 64x8"
        )
    return workload, machines


def fitting_window(workload: Workload) -> int | None:
    """The usual number of jobs per window if the workload has room for it, else what it has room for.

    That is the largest power of two which is at most three quarters of the smaller one of the training and
    the validation part, so that windows differ; None if that is too small to learn anything from.
    """
    smaller = _smaller_part(workload)
    usual: int = SearchConfig.model_fields["jobs_per_window"].default
    if smaller >= usual:
        return usual
    size = 1 << max(smaller * 3 // 4, 1).bit_length() - 1
    return size if size >= LEAST_WINDOW else None


def _smaller_part(workload: Workload) -> int:
    train, validation, _ = split_by_time(workload)
    return min(len(train), len(validation))


def _check_window(workload: Workload, size: int, fitting: int) -> None:
    smaller = _smaller_part(workload)
    if size > smaller:
        raise InputError(
            f"windows of {size:,} jobs: the smaller one of the training and the validation part has only "
            f"{smaller:,}; use shorter windows ({setting('search.jobs_per_window', fitting)})"
        )
