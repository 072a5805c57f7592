"""Search: a grid over native policies, then CMA-ES over a linear score and gate.

docs/algorithms/search.md says what it does and how to read what it finds. Nothing here needs torch.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.learn.rules.cma import Generation, Held, RuleRunner, Tuning
from gpuyard.learn.rules.config import SearchConfig
from gpuyard.learn.rules.grid import (
    GridResult,
    Objective,
    grid_policies,
    search_grid,
)
from gpuyard.learn.rules.guard import Guard, ageing_bounds
from gpuyard.learn.rules.result import Choice, Judged, SearchResult, choose, judged_by
from gpuyard.learn.rules.rule import RuleModel, Units, rule_of, steps_of
from gpuyard.native.information import informed
from gpuyard.network.model_file import ModelFile
from gpuyard.network.policy import LearnedPolicy
from gpuyard.observation.config import EnvConfig
from gpuyard.policies.base import Policy
from gpuyard.policies.family import fixed_heuristics
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.simulation.busy import BusyTest, find_margins
from gpuyard.simulation.find import current_policy, find_policy
from gpuyard.simulation.window_set import Figures, WindowSet, race
from gpuyard.simulation.windows import COLD, Margins, Part, WindowCutter
from gpuyard.workload import Workload

Stage = Literal["heuristics", "grid", "limits", "rule"]
TESTED_BY = ("fifo+easy", "sjf+easy")
"""For these policies, and what runs today, windows must not depend on how the cluster began."""


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
        """Everything before CMA-ES: windows, the reference, the grid, limits, the rule to start from."""
        config = self._config
        train, validation = self._timed("windows", self._windows)
        self._guard = self._timed("windows", self._make_guard)
        self._reference, quickest = self._timed("heuristics", lambda: self._best_heuristics(train))
        limited = [quickest if config.limits_from is None else self._parsed(config.limits_from)]
        both = (train, validation)
        reached = [windows.run([self._reference], threads=config.threads)[0] for windows in both]
        on_train, on_validation = (
            Objective(config, {**figures, **_limits(windows.run(limited, threads=config.threads)[0])})
            for figures, windows in zip(reached, both, strict=True)
        )
        self._held_windows, self._objectives = both, (on_train, on_validation)
        self._grid = self._timed("grid", lambda: self._found(train, validation, on_train, on_validation))
        best, self._unguarded = self._timed("limits", self._keeping_limits)
        self._judged: dict[Choice, Judged] = {
            "current": self._judge_any(self._current),
            "heuristic": self._judge(self._reference),
            "grid": self._judge(best),
        }
        self._best = best
        self._held = (
            Held(self._runner(self._grid.best, "train"), train.rows, on_train),
            Held(self._runner(self._grid.best, "validation"), validation.rows, on_validation),
        )
        self._start = rule_of(self._grid.best, self._cluster.total_gpus, some_unknown=self._some_unknown)
        if config.generations:
            self.tuning = self._timed("rule", self._start_tuning)
            self._tell_generation(self.tuning.history[0])
        self._is_prepared = True

    # --- What runs today, and limits on waits ---

    def _make_guard(self) -> Guard:
        """Limits on waits in the whole training and validation part, against what runs today."""
        current = find_policy(current_policy(self._workload, self._config.current))
        if isinstance(current, PolicySpec):
            current = replace(current, placement=self._config.placement)
        self._current: Policy = current
        before = 0 if self._starts is None else self._starts.margins.before
        parts = [
            self._cutter.cut(part, count=1, jobs=None, margins=Margins(before))[0]
            for part in ("train", "validation")
        ]
        limits = self._config.tightened(self._config.guard_share)
        return Guard(parts, self._cluster, self._simulation, current, limits, self._config.threads)

    def _keeping_limits(self) -> tuple[PolicySpec, Judged]:
        """The best policy that keeps the limits on waits, and the best whatever it does to them.

        Where the grid's best breaks limits, the best ones and a few others are tried with ageing bounds.
        """
        best = self._judge(self._grid.best)
        if not best.broken:
            return self._grid.best, best
        config, (train, _) = self._config, self._held_windows
        bases = [trial.policy for trial in self._grid.trials[: config.guarded]]
        if self._simulation.estimates != "none":
            bases += [self._parsed(name) for name in config.also_guarded]
        least_s = config.least_age * self._guard.p99_s
        bounds = ageing_bounds(config.ages, self._guard.longest_s, least_s)
        aged = [replace(one, max_wait_s=bound) for one in bases for bound in bounds]
        pool = list({one.name: one for one in (*bases, *aged)}.values())
        which = train.spread(config.guard_windows)
        figures = train.run(pool, which, config.threads)
        losses = {
            one.name: self._objectives[0].loss(own, which) for one, own in zip(pool, figures, strict=True)
        }
        pool.sort(key=lambda one: (losses[one.name], one.name))
        for number, policy in enumerate(pool, start=1):
            self._tell("limits")(number, len(pool), policy.name, losses[policy.name])
            if not self._guard.broken(policy):
                return policy, best
        return self._grid.best, best

    def _judge(self, policy: PolicySpec) -> Judged:
        """A native policy on all windows and against the limits."""
        figures = [windows.run([policy], threads=self._config.threads)[0] for windows in self._held_windows]
        return judged_by(policy.name, figures, self._objectives, self._guard.broken(policy))

    def _judge_any(self, policy: Policy) -> Judged:
        """A policy of any kind on all windows; what runs today breaks no limit."""
        if isinstance(policy, PolicySpec) and not policy.is_optimised:
            return self._judge(policy)
        figures = [windows.run_one(policy, self._config.threads) for windows in self._held_windows]
        return judged_by(policy.name, figures, self._objectives, ())

    def _parsed(self, name: str) -> PolicySpec:
        return replace(parse_policy(name), placement=self._config.placement)

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
            figures = [train.figures(tuning.rule), validation.figures(tuning.rule)]
            broken = self._guard.broken(self._acting(train.runner.model_of(tuning.rule)))
            judged["rule"] = judged_by("rule", figures, self._objectives, broken)
        return SearchResult(
            chosen=choose(judged, self._config.least_gain),
            current=self._current.name,
            reference=self._reference.name,
            grid_policy=self._best.name,
            unguarded=self._unguarded,
            starts=self._starts,
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

    def _acting(self, rule: RuleModel) -> LearnedPolicy:
        """A rule as a policy that runs whole logs."""
        model = ModelFile(
            "select-job", rule.environment, self._cluster, rule.network, rule.sizes, rule.tensors, {}
        )
        return LearnedPolicy("rule", model)

    def _timed(self, stage: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        answer = work()
        self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - began
        return answer

    def _windows(self) -> tuple[WindowSet, WindowSet]:
        config = self._config
        self._cutter = WindowCutter(self._workload, self._cluster, self._simulation, config.placement)
        self._starts = None if config.cold else self._find_margins()
        margins = COLD if self._starts is None else self._starts.margins
        train, validation = (
            WindowSet(
                self._cutter.cut(part, count=count, jobs=config.jobs_per_window, margins=margins),
                self._cluster,
                self._simulation,
                config.placement,
            )
            for part, count in _counts(config)
        )
        return train, validation

    def _find_margins(self) -> BusyTest:
        config = self._config
        told = self._simulation.estimates != "none"
        names = TESTED_BY if told else ("fifo+greedy",)
        return find_margins(
            self._cutter,
            self._cluster,
            self._simulation,
            "train",
            [self._parsed(name) for name in names],
            jobs=config.jobs_per_window,
            placement=config.placement,
            metric=config.metric,
            threads=config.threads,
        )

    def _tell(self, stage: Stage) -> Callable[[int, int, str, float], None]:
        return lambda done, total, best, loss: self._progress(SearchProgress(stage, done, total, best, loss))

    def _best_heuristics(self, train: WindowSet) -> tuple[PolicySpec, PolicySpec]:
        """The fixed heuristics that are best by the metric, and by mean completion time."""
        policies = fixed_heuristics(self._cluster, self._simulation, self._config.placement)
        # Who submitted a job says little of how soon all are done, and takes long to go by.
        plain = [one for one in policies if not one.order_rule.sees_names]
        best, quickest = (
            race(
                train,
                entering,
                metric,
                threads=self._config.threads,
                progress=lambda done, total: self._tell("heuristics")(done, total, "", 0.0),
            )[0][0]
            for metric, entering in ((self._config.metric, policies), ("mean_jct_s", plain))
        )
        return best, quickest

    def _try_grid(self, train: WindowSet, objective: Objective) -> GridResult:
        policies = grid_policies(self._config, self._simulation)
        return search_grid(train, objective, policies, self._config, self._tell("grid"))

    @property
    def _some_unknown(self) -> bool:
        if self._simulation.estimates == "requested":
            return self._workload.frame["estimate_s"].null_count() > 0
        return self._simulation.estimates == "history"

    def _runner(self, base: PolicySpec, part: Literal["train", "validation"]) -> RuleRunner:
        margins = COLD if self._starts is None else self._starts.margins
        environment = EnvConfig(
            base_policy=base.name,
            warmup_jobs=margins.before,
            cooldown_jobs=margins.after,
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


def _limits(figures: Figures) -> Figures:
    return {metric: figures[metric] for metric in ("mean_jct_s", "p99_wait_s")}
