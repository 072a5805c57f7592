"""Policies on windows that nothing was chosen by: run, and put together as a comparison."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate import tables as frames
from gpuyard.evaluate.comparison import ChosenOn, Comparison
from gpuyard.evaluate.config import BEST, EvaluationConfig
from gpuyard.evaluate.contenders import (
    Contender,
    checked,
    contender_of,
    find_contenders,
    heuristics,
    usual_heuristics,
    with_labels,
    without_doubles,
)
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
    all_processors,
    cut_windows,
    disjoint_equivalent,
    drawn_windows,
    overlapping,
    without_oversize,
)
from gpuyard.workload import Workload
from gpuyard.workload.generators.base import GeneratorConfig

Policies = Iterable[str | PolicySpec | LearnedPolicy]
Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""

CHOSEN_IN: dict[Part, Part] = {
    "test": "validation",
    "validation": "train",
    "train": "validation",
    "all": "validation",
}
"""In which part the best fixed heuristic is chosen, by the part that policies are compared on."""
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
    job = _Evaluation(cluster, config, simulation, setting, windows, placement, progress)
    return job.run(given, lambda: cut(CHOSEN_IN[config.part], config.validation_windows))


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
    job = _Evaluation(cluster, config, simulation, setting, windows, placement, progress)
    return job.run(
        given, lambda: runnable(drawn_windows(generator, VALIDATION_DRAWS, config.validation_windows))
    )


@dataclass
class _Outcome:
    """What one policy did on one window, as far as it is kept."""

    row: dict[str, Any]
    classes: pl.DataFrame
    jobs: pl.DataFrame | None
    schedule: pl.DataFrame | None


class _Evaluation:
    def __init__(
        self,
        cluster: Cluster,
        config: EvaluationConfig,
        simulation: SimulationConfig,
        setting: Setting,
        windows: Sequence[HeldOutWindow],
        placement: str,
        progress: Progress | None,
    ) -> None:
        self._cluster, self._config, self._simulation = cluster, config, simulation
        self._noises = drawn_noise(simulation, config.noise_draws)
        self._setting, self._windows, self._placement = setting, windows, placement
        self._progress = progress or (lambda stage, done, total: None)
        self._threads = config.threads or all_processors()

    def run(self, given: Sequence[Contender], validation: Callable[[], list[HeldOutWindow]]) -> Comparison:
        """Choose the reference, run everything, put it together."""
        given = [self._checked(one) for one in given]
        family = [contender_of(spec, "family") for spec in self._family()]
        chosen_on: ChosenOn = "validation" if self._config.against == BEST else "given"
        if chosen_on == "validation":
            reference, family = self._best_on(validation(), family)
        else:
            found, _ = find_contenders(
                [self._config.against], self._placement, any_placement=self._config.any_placement
            )
            reference = self._checked(found[0])
        usual = usual_heuristics(self._simulation) if self._config.usual else ()
        beside = [
            one
            for one in heuristics(usual, self._placement, "usual")
            if isinstance(one.policy, PolicySpec) and self._can_run(one.policy)
        ]
        shown = without_doubles([*given, reference, *beside])
        shown = [one.in_role("reference") if one.name == reference.name else one for one in shown]
        everything = self._config.all_heuristics
        if everything is None:
            everything = chosen_on == "validation"
        figures = self._figures(self._windows, family, "every heuristic") if everything else {}
        hindsight = next(iter(self._ranked(figures)), None)
        if hindsight and hindsight not in {one.name for one in shown}:
            best = next(one for one in family if one.name == hindsight)
            shown.append(best.in_role("hindsight"))
        return self._put_together(with_labels(shown), family, figures, reference.name, chosen_on, hindsight)

    def _checked(self, contender: Contender) -> Contender:
        jobs = self._windows[0].jobs
        return checked(contender, jobs, self._cluster, self._simulation, transfer=self._config.transfer)

    def _family(self) -> list[PolicySpec]:
        specs = fixed_heuristics(self._cluster, self._simulation, self._placement)
        return [spec for spec in specs if self._can_run(spec)]

    def _can_run(self, spec: PolicySpec) -> bool:
        return can_run(self._windows[0].jobs, self._cluster, spec, self._simulation)

    # --- Fixed heuristics, for few metrics ---

    def _figures(
        self, windows: Sequence[HeldOutWindow], family: Sequence[Contender], stage: str
    ) -> dict[str, dict[str, Any]]:
        """Metrics of each policy of the family on every window, by policy and metric."""
        specs = [one.policy for one in family if isinstance(one.policy, PolicySpec)]
        if self._config.metric in FIGURES and not any(spec.is_optimised for spec in specs):
            return mean_figures(
                [self._native_figures(windows, specs, stage, number) for number in range(len(self._noises))]
            )
        runs = self._run_all([(one, window) for one in family for window in windows], stage, keep=False)
        rows = [outcome.row for outcome in runs]
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

    def _ranked(self, figures: dict[str, dict[str, Any]]) -> list[str]:
        """Policies from the best mean of the metric over windows to the worst, without those of unknown."""
        sign = 1.0 if self._setting.lower_is_better else -1.0
        means = {name: sign * float(found[self._config.metric].mean()) for name, found in figures.items()}
        return sorted(
            (name for name, mean in means.items() if np.isfinite(mean)), key=lambda name: means[name]
        )

    def _best_on(
        self, windows: Sequence[HeldOutWindow], family: list[Contender]
    ) -> tuple[Contender, list[Contender]]:
        """The best fixed heuristic on these windows, and all that were tried.

        The best orders are tried with the slower backfills too.
        """
        if not family:
            raise InputError(
                "no fixed heuristic can run with these settings, so none is best; say against which policy"
            )
        figures = self._figures(windows, family, "choosing the best heuristic")
        ranked = self._ranked(figures)
        if not ranked:
            raise InputError(
                f"metric {self._config.metric} is not known here, so no heuristic is best by it; compare by "
                "another metric, or say against which policy"
            )
        more = self._with_slower_backfills(windows, ranked)
        if more:
            figures |= self._figures(windows, more, "with other backfills")
        family = [*family, *more]
        best = self._ranked(figures)[0]
        return next(one for one in family if one.name == best).in_role("reference"), family

    def _with_slower_backfills(
        self, windows: Sequence[HeldOutWindow], ranked: Sequence[str]
    ) -> list[Contender]:
        """The best orders with the backfills that take many times as long."""
        some = windows[0].jobs
        if len(some) > MOST_JOBS_FOR_SLOWER:
            return []
        orders = list(dict.fromkeys(name.partition("+")[0] for name in ranked))[:BEST_ORDERS]
        slower = slower_heuristics(orders, some, self._cluster, self._simulation, self._placement)
        return [contender_of(spec, "family") for spec in slower]

    # --- All metrics, for the policies that are shown ---

    def _run_all(
        self, tasks: Sequence[tuple[Contender, HeldOutWindow]], stage: str, *, keep: bool
    ) -> list[_Outcome]:
        users = common_users(window.jobs.frame for window in self._windows)
        labels = {w.name: class_labels(w.jobs.frame, users) for w in self._windows} if keep else {}
        names = [window.name for window in self._windows]
        rows = len({one.name for one, _ in tasks}) * self._setting.jobs_per_window
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
        order = policy.order if isinstance(policy, PolicySpec) else policy.base.order
        looks_back = self._simulation.estimates == "history" or order == "qssf"
        history = window.history() if looks_back else None
        return simulate(window.jobs, self._cluster, policy, noise, history=history)

    def _put_together(
        self,
        shown: Sequence[Contender],
        family: Sequence[Contender],
        figures: dict[str, dict[str, Any]],
        reference: str,
        chosen_on: ChosenOn,
        hindsight: str | None,
    ) -> Comparison:
        tasks = [(one, window) for one in shown for window in self._windows]
        outcomes = self._run_all(tasks, "policies", keep=True)
        rows = [outcome.row for outcome in outcomes]
        names = {one.name for one in shown}
        others = [one for one in family if one.name not in names and one.name in figures]
        for one in others:
            found = figures[one.name]
            for i, window in enumerate(self._windows):
                values = {name: column[i] for name, column in found.items()}
                rows.append(frames.window_row(one.name, window.name, values))
        jobs = [outcome.jobs for outcome in outcomes if outcome.jobs is not None]
        schedules = {
            str(outcome.row["policy"]): outcome.schedule
            for outcome in outcomes
            if outcome.schedule is not None
        }
        return Comparison(
            setting=self._setting,
            policies=tuple(one.entry for one in (*shown, *others)),
            reference=reference,
            chosen_on=chosen_on,
            hindsight=hindsight,
            windows=frames.window_frame(rows),
            classes=several_classes(pl.concat([outcome.classes for outcome in outcomes])),
            jobs=pl.concat(jobs) if jobs else None,
            schedules=schedules,
        )
