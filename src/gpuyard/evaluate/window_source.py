"""Windows of a log or draws of a generator, as the engine of comparisons runs policies on them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig, available_cores
from gpuyard.evaluate import tables as frames
from gpuyard.evaluate.comparison import Comparison, WholeReplay
from gpuyard.evaluate.config import EvaluationConfig
from gpuyard.evaluate.contenders import Contender, checked, contender_of, find_contenders
from gpuyard.evaluate.engine import Figures, Outcomes, Progress, evaluate, ranked_by
from gpuyard.evaluate.setting import Setting
from gpuyard.evaluate.tables import drawn_noise, mean_classes, mean_figures, mean_row
from gpuyard.metrics.catalogue import compute_metrics
from gpuyard.metrics.classes import class_labels, common_users, several_classes
from gpuyard.policies.base import RECORDED
from gpuyard.policies.family import can_run, fixed_heuristics, preempting_heuristics, slower_heuristics
from gpuyard.policies.grammar import PolicySpec
from gpuyard.simulation.recorded_waits import RecordedWaits, recorded_waits, usual_policy
from gpuyard.simulation.replays import REPLAYS, Replays
from gpuyard.simulation.run import SimulationResult
from gpuyard.simulation.window_set import FIGURES, WindowSet, race, simulate_window
from gpuyard.simulation.windows import HeldOutWindow
from gpuyard.workload.recorded import recorded_jobs

Task = TypeVar("Task")
Answer = TypeVar("Answer")

MOST_JOBS_FOR_SLOWER = 2_048
"""Of a window, with those around it: beyond, backfills that take long would take minutes."""


@dataclass
class _Outcome:
    """What one policy did on one window, as far as it is kept."""

    row: dict[str, Any]
    classes: pl.DataFrame
    jobs: pl.DataFrame | None
    schedule: pl.DataFrame | None
    notes: str = ""
    marks: tuple[str, ...] = ()


class WindowSource:
    """Windows of a log or draws of a generator, as a source of the engine.

    Attributes:
        setting: What policies are compared on.
        choosing: Windows on which the best heuristic is chosen.
        whole: The whole part as one window; None: it is not replayed.
        part: The same, whether or not all policies replay it; None of draws.
    """

    choosing: Callable[[], list[HeldOutWindow]]
    whole: Callable[[], HeldOutWindow] | None = None
    part: Callable[[], HeldOutWindow] | None = None

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

    def compare(
        self, given: Sequence[Contender], current: str, *, assumed: bool = False, is_recorded: bool = False
    ) -> Comparison:
        """Compare policies with what runs today.

        Args:
            given: The policies.
            current: What runs today.
            assumed: Whether nobody said so.
            is_recorded: Whether the log says when jobs started.
        """
        return evaluate(
            self,
            [self._checked(one) for one in given],
            current=current,
            all_heuristics=self._config.all_heuristics,
            assumed=assumed,
            recorded=self._recorded() if is_recorded else None,
        )

    def _recorded(self) -> Contender | None:
        """What the log says happened; None if it says nothing of a window, which has no figures then."""
        started = (recorded_jobs(window.jobs) for window in self._windows)
        own = (window.own for window in self._windows)
        known = all(
            ((rows >= of.start) & (rows < of.stop)).any() for rows, of in zip(started, own, strict=True)
        )
        return self.contender(RECORDED).in_role("recorded") if known else None

    def contender(self, name: str) -> Contender:
        """A policy by name, if it can run here and would be compared fairly."""
        found, _ = find_contenders([name], self._placement, any_placement=self._config.any_placement)
        return self._checked(found[0])

    def _checked(self, contender: Contender) -> Contender:
        jobs = self._windows[0].jobs
        return checked(contender, jobs, self._cluster, self._simulation, transfer=self._config.transfer)

    def family(self) -> list[Contender]:
        """Every fixed heuristic that can run here, but those that preempt."""
        return self._of_family(fixed_heuristics(self._cluster, self._simulation, self._placement))

    def preempting(self) -> list[Contender]:
        """Heuristics that stop running jobs."""
        return self._of_family(preempting_heuristics(self._cluster, self._simulation, self._placement))

    def _of_family(self, specs: Sequence[PolicySpec]) -> list[Contender]:
        jobs = self._windows[0].jobs
        return [
            contender_of(spec, "family")
            for spec in specs
            if can_run(jobs, self._cluster, spec, self._simulation)
        ]

    def slower(self, ranked: Sequence[str]) -> list[Contender]:
        """Every order with the backfills that take many times as long, on short windows."""
        if self.setting.not_tried:
            return []
        orders = list(dict.fromkeys(one.name.partition("+")[0] for one in self.family()))
        some = self._choosing_windows[0].jobs
        found = slower_heuristics(orders, some, self._cluster, self._simulation, self._placement)
        return [contender_of(spec, "family") for spec in found]

    @cached_property
    def _choosing_windows(self) -> list[HeldOutWindow]:
        return self.choosing()

    # --- Fixed heuristics, for few metrics ---

    def ranked(self, contenders: Sequence[Contender], stage: str, *, validation: bool = False) -> Figures:
        """Few metrics of the better ones of heuristics, the best first."""
        windows = self._choosing_windows if validation else self._windows
        specs = [one.policy for one in contenders if isinstance(one.policy, PolicySpec)]
        if self._config.metric in FIGURES and not any(spec.is_optimised for spec in specs):
            return ranked_by(self._native_figures(windows, specs, stage), self.setting)
        tasks = [(one, window) for one in contenders for window in windows]
        rows = [outcome.row for outcome in self._run_all(tasks, stage, keep=False)]
        names = (*FIGURES, self._config.metric)
        found = {
            spec.name: {
                name: np.array([row[name] for row in rows if row["policy"] == spec.name], dtype=np.float64)
                for name in names
            }
            for spec in specs
        }
        return ranked_by(found, self.setting)

    def _native_figures(
        self, windows: Sequence[HeldOutWindow], specs: Sequence[PolicySpec], stage: str
    ) -> Figures:
        """Of the better ones of many policies, means over draws of the noise."""
        metric, threads = self._config.metric, self._threads
        first = WindowSet(windows, self._cluster, self._noises[0], self._placement)
        last = race(
            first, specs, metric, threads=threads, progress=lambda done, of: self._progress(stage, done, of)
        )
        found = [{spec.name: dict(figures) for spec, figures in last}]
        for noise in self._noises[1:]:
            prepared = WindowSet(windows, self._cluster, noise, self._placement)
            figures = prepared.run([spec for spec, _ in last], threads=threads)
            found.append({spec.name: dict(one) for (spec, _), one in zip(last, figures, strict=True)})
        return mean_figures(found)

    # --- All metrics, for the policies that are shown ---

    def run(self, contenders: Sequence[Contender], stage: str) -> Outcomes:
        """All that is kept of policies on the compared windows."""
        tasks = [(one, window) for one in contenders for window in self._windows]
        outcomes = self._run_all(tasks, stage, keep=True)
        jobs = [outcome.jobs for outcome in outcomes if outcome.jobs is not None]
        last_marked = sorted(outcomes, key=lambda outcome: len(outcome.marks))
        return Outcomes(
            rows=[outcome.row for outcome in outcomes],
            classes=several_classes(pl.concat([outcome.classes for outcome in outcomes])),
            jobs=pl.concat(jobs) if jobs else None,
            schedules={
                str(outcome.row["policy"]): outcome.schedule
                for outcome in outcomes
                if outcome.schedule is not None
            },
            whole=None if self.whole is None else self._replay_whole(contenders, self.whole()),
            notes={str(outcome.row["policy"]): outcome.notes for outcome in last_marked if outcome.notes},
            marks={
                one.name: tuple(
                    dict.fromkeys(
                        mark
                        for outcome in outcomes
                        if outcome.row["policy"] == one.name
                        for mark in outcome.marks
                    )
                )
                for one in contenders
            },
            waits=self._waits(contenders),
        )

    def _waits(self, contenders: Sequence[Contender]) -> RecordedWaits | None:
        """Whether the modelled cluster explains what was recorded, on the whole part."""
        if self.part is None or all(one.name != RECORDED for one in contenders):
            return None
        whole = self.part()
        usual = usual_policy(whole.jobs, self._cluster, self._simulation, self._placement)

        def again(spec: PolicySpec) -> SimulationResult:
            return simulate_window(whole, self._cluster, spec, self._noises[0])

        return recorded_waits(usual, (), again, whole.own)

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
            row = mean_row([self._row(one, window, each) for each in results])
            if not keep:
                return _Outcome(row, pl.DataFrame(), None, None)
            known = labels[window.name]
            classes = [frames.class_frame(one.name, window.name, each, known, window.own) for each in results]
            jobs = frames.with_names(one.name, window.name, frames.job_frame(results[0], window.own))
            return _Outcome(
                row,
                mean_classes(classes),
                jobs if window.name in kept else None,
                results[0].table() if window.name == names[0] else None,
                " ".join(results[0].notes) if one.entry.kind == "recorded" else "",
                results[0].marks,
            )

        return self._in_threads(run, tasks, stage)

    def _in_threads(self, work: Callable[[Task], Answer], tasks: Sequence[Task], stage: str) -> list[Answer]:
        answers = []
        with ThreadPoolExecutor(self._threads) as pool:
            for answer in pool.map(work, tasks):
                answers.append(answer)
                self._progress(stage, len(answers), len(tasks))
        return answers

    def _row(self, one: Contender, window: HeldOutWindow, result: SimulationResult) -> dict[str, Any]:
        values = compute_metrics(
            window.jobs, self._cluster, result.schedule, config=result.config, measured=window.own
        )
        return frames.window_row(one.name, window.name, values)

    def _simulate(self, one: Contender, window: HeldOutWindow, noise: SimulationConfig) -> SimulationResult:
        return simulate_window(window, self._cluster, one.policy, noise)

    # --- The whole part in one go ---

    def _replay_whole(self, contenders: Sequence[Contender], whole: HeldOutWindow) -> WholeReplay:
        """Every policy that is shown on the whole part, under the first draw of the noise."""
        labels = class_labels(whole.jobs.frame, common_users([whole.jobs.frame]))

        def run(one: Contender) -> tuple[dict[str, Any], pl.DataFrame, list[dict[str, Any]], pl.DataFrame]:
            def again(window: HeldOutWindow) -> SimulationResult:
                return self._simulate(one, window, self._noises[0])

            result = again(whole)
            jobs = frames.job_frame(result, range(len(whole.jobs)))
            at = result.schedule.job
            rows = [
                frames.window_row(one.name, window.name, frames.figures_of(jobs, at, window, whole))
                for window in self._windows
            ]
            classes = frames.class_frame(one.name, whole.name, result, labels, whole.own)
            replays = 1 if one.entry.kind == "recorded" else REPLAYS
            waits = Replays(whole).typical_waits(again, replays, first=result)
            return self._row(one, whole, result), classes, rows, waits.with_columns(policy=pl.lit(one.name))

        found = self._in_threads(run, contenders, "the whole part in one go")
        return WholeReplay(
            metrics=frames.window_frame([row for row, _, _, _ in found]).drop("window"),
            classes=several_classes(pl.concat([classes for _, classes, _, _ in found])).drop("window"),
            windows=frames.window_frame([row for _, _, rows, _ in found for row in rows]),
            waits=pl.concat([waits for _, _, _, waits in found]),
        )
