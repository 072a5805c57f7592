"""Policies on windows of a log, or on draws of a generator, that nothing was chosen by."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig, available_cores
from gpuyard.evaluate import tables as frames
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.config import EvaluationConfig
from gpuyard.evaluate.contenders import (
    Contender,
    Policy,
    checked,
    contender_of,
    find_contenders,
    heuristics,
    usual_heuristics,
)
from gpuyard.evaluate.engine import CHOSEN_IN, Figures, Outcomes, Progress, evaluate, no_progress
from gpuyard.evaluate.noise import drawn_noise, mean_classes, mean_figures, mean_row
from gpuyard.evaluate.setting import Setting, fingerprint_of, lower_is_better
from gpuyard.metrics.classes import class_labels, common_users, several_classes
from gpuyard.network.policy import LearnedPolicy
from gpuyard.policies.family import can_run, fixed_heuristics, slower_heuristics
from gpuyard.policies.grammar import PolicySpec
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.simulation.windows import (
    FIGURES,
    TEST_DRAWS,
    VALIDATION_DRAWS,
    HeldOutWindow,
    Part,
    WindowSet,
    cut_windows,
    disjoint_equivalent,
    drawn_windows,
    overlapping,
    without_oversize,
)
from gpuyard.workload import Workload
from gpuyard.workload.generators.base import GeneratorConfig

Policies = Iterable[str | PolicySpec | LearnedPolicy]

BEST_ORDERS = 2
"""How many orders are tried with the backfills that take many times as long."""
MOST_JOBS_FOR_SLOWER = 16_384
"""Of a window: in longer ones, with queues of tens of thousands, they would take hours."""


def evaluate_windows(
    workload: Workload,
    cluster: Cluster,
    policies: Policies,
    config: EvaluationConfig | None = None,
    simulation: SimulationConfig | None = None,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare policies on windows of one part of a workload.

    Args:
        workload: All jobs; parts are cut by time.
        cluster: What they run on.
        policies: Names, run directories or model files.
        config: On which windows, by which metric, against whom.
        simulation: Settings of the simulation, the same for all.
        progress: Told where the evaluation is.

    Raises:
        InputError: if a policy cannot run here, would not be compared fairly, or a part has too few jobs.
    """
    config, simulation = config or EvaluationConfig(), simulation or SimulationConfig()
    lower_is_better(config.metric)
    given, placement = find_contenders(policies, config.placement, any_placement=config.any_placement)

    def cut(part: Part, count: int) -> list[HeldOutWindow]:
        jobs = config.jobs_per_window
        return cut_windows(workload, cluster, simulation, part, count=count, jobs=jobs, placement=placement)

    windows = cut(config.part, config.windows)
    rows, size = [window.name for window in windows], len(windows[0].jobs)
    setting = Setting(
        workload=workload.metadata.name,
        jobs=len(workload),
        fingerprint=fingerprint_of(workload),
        cluster=cluster.model_dump(mode="json", exclude_none=True),
        information=simulation.model_dump(mode="json"),
        part=config.part,
        kind="whole" if config.jobs_per_window is None else "windows",
        windows=tuple(rows),
        jobs_per_window=size,
        block=overlapping(rows, size),
        disjoint=disjoint_equivalent(rows, size),
        metric=config.metric,
        lower_is_better=lower_is_better(config.metric),
        left_out=len(workload) - len(windows[0].earlier or workload),
        noise_draws=config.noise_draws,
    )
    source = _Windows(cluster, config, simulation, setting, windows, placement, progress or no_progress)
    source.validation = lambda: cut(CHOSEN_IN[config.part], config.validation_windows)
    return source.compare(given)


def evaluate_draws(
    generator: GeneratorConfig,
    cluster: Cluster,
    policies: Policies,
    config: EvaluationConfig | None = None,
    simulation: SimulationConfig | None = None,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare policies on fresh draws of a generator, which are independent of each other.

    Args:
        generator: Its settings; seed and, if the configuration says so, number of jobs are replaced.
        cluster: What jobs run on.
        policies: Names, run directories or model files.
        config: How many draws of how many jobs, by which metric, against whom.
        simulation: Settings of the simulation, the same for all.
        progress: Told where the evaluation is.

    Raises:
        InputError: if a policy cannot run here, or would not be compared fairly.
    """
    config, simulation = config or EvaluationConfig(), simulation or SimulationConfig()
    if config.jobs_per_window is not None:
        generator = generator.model_copy(update={"jobs": config.jobs_per_window})
    given, placement = find_contenders(policies, config.placement, any_placement=config.any_placement)
    first = TEST_DRAWS if config.first_draw is None else config.first_draw

    def runnable(drawn: Sequence[HeldOutWindow]) -> list[HeldOutWindow]:
        return [without_oversize(one, cluster, simulation, placement) for one in drawn]

    drawn = drawn_windows(generator, first, config.windows)
    windows = runnable(drawn)
    seeds = tuple(window.name for window in windows)
    setting = Setting(
        workload=generator.name,
        jobs=0,
        fingerprint=fingerprint_of(drawn[0].jobs),
        cluster=cluster.model_dump(mode="json", exclude_none=True),
        information=simulation.model_dump(mode="json"),
        part=config.part,
        kind="draws",
        windows=seeds,
        jobs_per_window=len(drawn[0].jobs),
        block=1,
        disjoint=float(len(windows)),
        metric=config.metric,
        lower_is_better=lower_is_better(config.metric),
        left_out=sum(len(one.jobs) for one in drawn) - sum(len(one.jobs) for one in windows),
        noise_draws=config.noise_draws,
    )
    source = _Windows(cluster, config, simulation, setting, windows, placement, progress or no_progress)
    source.validation = lambda: runnable(
        drawn_windows(generator, VALIDATION_DRAWS, config.validation_windows)
    )
    return source.compare(given)


@dataclass
class _Outcome:
    """What one policy did on one window, as far as it is kept."""

    row: dict[str, Any]
    classes: pl.DataFrame
    jobs: pl.DataFrame | None
    schedule: pl.DataFrame | None


class _Windows:
    """Windows of a log or draws of a generator, as a source of the engine."""

    validation: Callable[[], list[HeldOutWindow]]
    """Windows on which the best heuristic is chosen."""

    def __init__(
        self,
        cluster: Cluster,
        config: EvaluationConfig,
        simulation: SimulationConfig,
        setting: Setting,
        windows: Sequence[HeldOutWindow],
        placement: str,
        progress: Progress,
    ) -> None:
        self.setting = setting
        self._cluster, self._config, self._simulation = cluster, config, simulation
        self._noises = drawn_noise(simulation, config.noise_draws)
        self._windows, self._placement, self._progress = windows, placement, progress
        self._threads = config.threads or available_cores()

    def compare(self, given: Sequence[Contender]) -> Comparison:
        checked_ones = [self._checked(one) for one in given]
        config = self._config
        return evaluate(self, checked_ones, against=config.against, all_heuristics=config.all_heuristics)

    def contender(self, name: str) -> Contender:
        found, _ = find_contenders([name], self._placement, any_placement=self._config.any_placement)
        return self._checked(found[0])

    def _checked(self, contender: Contender) -> Contender:
        jobs = self._windows[0].jobs
        return checked(contender, jobs, self._cluster, self._simulation, transfer=self._config.transfer)

    def usual(self) -> list[Contender]:
        names = usual_heuristics(self._simulation) if self._config.usual else ()
        return [one for one in heuristics(names, self._placement, "usual") if self._can_run(one.policy)]

    def family(self) -> list[Contender]:
        specs = fixed_heuristics(self._cluster, self._simulation, self._placement)
        return [contender_of(spec, "family") for spec in specs if self._can_run(spec)]

    def _can_run(self, policy: Policy) -> bool:
        return isinstance(policy, PolicySpec) and can_run(
            self._windows[0].jobs, self._cluster, policy, self._simulation
        )

    def slower(self, ranked: Sequence[str]) -> list[Contender]:
        """The best orders with the backfills that take many times as long."""
        some = self._validation_windows[0].jobs
        if len(some) > MOST_JOBS_FOR_SLOWER:
            return []
        orders = list(dict.fromkeys(name.partition("+")[0] for name in ranked))[:BEST_ORDERS]
        found = slower_heuristics(orders, some, self._cluster, self._simulation, self._placement)
        return [contender_of(spec, "family") for spec in found]

    @cached_property
    def _validation_windows(self) -> list[HeldOutWindow]:
        return self.validation()

    # --- Fixed heuristics, for few metrics ---

    def figures(self, contenders: Sequence[Contender], stage: str, *, validation: bool = False) -> Figures:
        windows = self._validation_windows if validation else self._windows
        specs = [one.policy for one in contenders if isinstance(one.policy, PolicySpec)]
        if self._config.metric in FIGURES and not any(spec.is_optimised for spec in specs):
            return mean_figures(
                [self._native_figures(windows, specs, stage, number) for number in range(len(self._noises))]
            )
        tasks = [(one, window) for one in contenders for window in windows]
        rows = [outcome.row for outcome in self._run_all(tasks, stage, keep=False)]
        names = (*FIGURES, self._config.metric)
        return {
            spec.name: {
                name: np.array([row[name] for row in rows if row["policy"] == spec.name], dtype=np.float64)
                for name in names
            }
            for spec in specs
        }

    def _native_figures(
        self, windows: Sequence[HeldOutWindow], specs: Sequence[PolicySpec], stage: str, noise: int
    ) -> dict[str, dict[str, Any]]:
        """The same under one draw of the noise, many policies at once."""
        prepared = WindowSet(windows, self._cluster, self._noises[noise], self._placement)
        before, total = noise * len(windows), len(self._noises) * len(windows)
        found = prepared.run(
            specs, threads=self._threads, progress=lambda done: self._progress(stage, before + done, total)
        )
        return {spec.name: dict(figures) for spec, figures in zip(specs, found, strict=True)}

    # --- All metrics, for the policies that are shown ---

    def _run_all(
        self, tasks: Sequence[tuple[Contender, HeldOutWindow]], stage: str, *, keep: bool
    ) -> list[_Outcome]:
        users = common_users(window.jobs.frame for window in self._windows)
        labels = {w.name: class_labels(w.jobs.frame, users) for w in self._windows} if keep else {}
        names = [window.name for window in self._windows]
        rows = len({one.name for one, _ in tasks}) * self.setting.jobs_per_window
        kept = frames.kept_windows(names, rows) if keep and self._config.keep_jobs else set()

        def run(task: tuple[Contender, HeldOutWindow]) -> _Outcome:
            one, window = task
            results = [self._simulate(one, window, noise) for noise in self._noises]
            row = mean_row([frames.window_row(one.name, window.name, each.metrics()) for each in results])
            if not keep:
                return _Outcome(row, pl.DataFrame(), None, None)
            known = labels[window.name]
            classes = [frames.class_frame(one.name, window.name, each, known) for each in results]
            jobs = frames.with_names(one.name, window.name, frames.job_frame(results[0]))
            return _Outcome(
                row,
                mean_classes(classes),
                jobs if window.name in kept else None,
                results[0].table() if window.name == names[0] else None,
            )

        outcomes = []
        with ThreadPoolExecutor(self._threads) as pool:
            for outcome in pool.map(run, tasks):
                outcomes.append(outcome)
                self._progress(stage, len(outcomes), len(tasks))
        return outcomes

    def _simulate(self, one: Contender, window: HeldOutWindow, noise: SimulationConfig) -> SimulationResult:
        policy = one.policy
        predicts = policy.predicts if isinstance(policy, PolicySpec) else policy.base.predicts
        looks_back = self._simulation.estimates == "history" or predicts
        history = window.history() if looks_back else None
        return simulate(window.jobs, self._cluster, policy, noise, history=history)

    def run(self, contenders: Sequence[Contender], stage: str) -> Outcomes:
        tasks = [(one, window) for one in contenders for window in self._windows]
        outcomes = self._run_all(tasks, stage, keep=True)
        jobs = [outcome.jobs for outcome in outcomes if outcome.jobs is not None]
        return Outcomes(
            rows=[outcome.row for outcome in outcomes],
            classes=several_classes(pl.concat([outcome.classes for outcome in outcomes])),
            jobs=pl.concat(jobs) if jobs else None,
            schedules={
                str(outcome.row["policy"]): outcome.schedule
                for outcome in outcomes
                if outcome.schedule is not None
            },
        )
