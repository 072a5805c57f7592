"""Run a policy over a workload on a cluster."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import ValidationError

from gpuyard import _core
from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig, refusal
from gpuyard.errors import InputError
from gpuyard.metrics.catalogue import Price, compute_breakdown, compute_metrics
from gpuyard.native.beginning import Beginning
from gpuyard.native.information import informed
from gpuyard.native.inputs import CoreInputs, History, Ints, prepare
from gpuyard.native.schedule import Downtime, Runs, Schedule
from gpuyard.policies.base import RECORDED, Decider, Policy, ReplayingPolicy, as_policy
from gpuyard.policies.support import check_beginning
from gpuyard.simulation.find import find_policy
from gpuyard.units import html_table, metric_label, metric_text, plural
from gpuyard.workload import Workload, read_workload
from gpuyard.workload.identity import name_of
from gpuyard.workload.recorded import early_starts
from gpuyard.workload.schema import is_pandas, to_pandas

Progress = Callable[[int], None]
IN_NOTEBOOKS = ("mean_wait_s", "p99_wait_s", "max_wait_s", "mean_jct_s", "mean_bounded_slowdown")
"""Metrics that a notebook shows of a result."""


@dataclass(frozen=True)
class SimulationResult:
    """What a policy did.

    Attributes:
        workload: The jobs, dropped ones included.
        cluster: The cluster.
        policy: Full name of the policy.
        config: Settings of the simulation.
        schedule: When and where each job ran.
        dropped: Rows left out because they can never run on the cluster (``oversize = drop``), or, by the
            policy ``recorded``, because the log does not say when they started.
        elapsed_s: Wall time of the simulation, seconds.
        counters: What a policy that is not native counted, such as how often a solver was replaced.
        notes: What to know about the run, in whole sentences.
        impossible: Why the schedule cannot be on this cluster, which is one of the notes; None if it can.
            Only what a log records may be impossible.
    """

    workload: Workload
    cluster: Cluster
    policy: str
    config: SimulationConfig
    schedule: Schedule
    dropped: Ints
    elapsed_s: float
    counters: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    impossible: str | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """What keeps the run from being comparable, in words that stand with its name; empty if nothing does.

        Only what a log records has any: nothing of it is bent to fit.
        """
        early = self.policy == RECORDED and len(early_starts(self.workload)) > 0
        said = {"impossible": self.impossible is not None, "negative waits": early}
        return tuple(word for word, holds in said.items() if holds)

    def metrics(self, price_per_kwh: Price | None = None) -> dict[str, float | int | None]:
        """All metrics by name (docs/contract/metrics.md); None where the inputs do not tell.

        Args:
            price_per_kwh: Price of energy, in any currency: a number or a tariff by time of day; without it
                ``energy_cost`` is None.
        """
        return compute_metrics(
            self.workload, self.cluster, self.schedule, price_per_kwh=price_per_kwh, config=self.config
        )

    def breakdown(self, by: str) -> pl.DataFrame:
        """Metrics of each class of jobs; ``by`` is one of ``metrics.classes.KINDS``."""
        return compute_breakdown(self.workload, self.cluster, self.schedule, by)

    def table(self) -> pl.DataFrame:
        """The workload's jobs with when and where each ran, one row a simulated job.

        ``nodes`` are those it ran on; the number of nodes that it asked for is ``nodes_asked``.
        """
        outcome = self.schedule.frame().rename({"status": "outcome"}).drop("job")
        jobs = self.workload.frame[self.schedule.job].rename({"nodes": "nodes_asked"}, strict=False)
        return pl.concat([jobs, outcome], how="horizontal")

    def to_pandas(self) -> Any:
        """``table()`` as a frame of pandas."""
        return to_pandas(self.table())

    def __repr__(self) -> str:
        return f"SimulationResult({self.policy} on {self.cluster.name}, {self.workload!r})"

    def _repr_html_(self) -> str:
        """For notebooks: what ran, and the metrics that one looks at first."""
        found = self.metrics()
        rows = [(metric_label(name), metric_text(name, found[name])) for name in IN_NOTEBOOKS]
        return html_table(repr(self), [("metric", "value"), *rows])


def simulate(
    workload: Workload | str | Path,
    cluster: Cluster | str,
    policy: Policy | Decider | str = "fifo",
    config: SimulationConfig | None = None,
    *,
    history: History | None = None,
    beginning: Beginning | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> SimulationResult:
    """Run a workload to its end under a policy.

    Args:
        workload: The jobs, or the path of a file of them in any known format.
        cluster: A cluster, or what ``parse_cluster`` takes, such as ``64x8``.
        policy: A policy's name, such as ``sjf+easy``, the path of a run directory or model file, or an object
            with ``decide(snapshot) -> Decision``.
        config: Settings; the defaults if None.
        history: Jobs that have finished before, for predictions from history (docs/contract/simulator.md,
            section 19), or what the core keeps of them, which learned policies do not take.
        beginning: What ran before the policy decides; None: it decides from the first submit on.
        progress: Called now and then with the number of jobs finished so far.
        settings: Fields of ``SimulationConfig``, such as ``estimates="exact"``, in place of ``config``.

    Raises:
        InputError: for a name that is unknown, a file that cannot be read, jobs that can never run on the
            cluster, settings that contradict each other, a beginning that cannot have been, or something of
            another kind than expected.
    """
    if config is not None and settings:
        raise InputError(f"{next(iter(settings))} is given beside config; put it into the config")
    workload = read_workload(workload) if isinstance(workload, str | Path) else workload
    _check_kinds(workload, policy)
    cluster = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    acting = as_policy(find_policy(policy) if isinstance(policy, str) else policy)
    config = informed(config or _config(settings), workload)
    began = time.perf_counter()
    inputs, arrays, counters = _run(workload, cluster, acting, config, history, beginning, progress)
    schedule = schedule_of(inputs, arrays)
    elapsed_s = time.perf_counter() - began
    notes, impossible = acting.notes(workload, cluster, config), acting.impossible(workload, cluster, config)
    return SimulationResult(
        workload,
        cluster,
        acting.name,
        config,
        schedule,
        inputs.dropped,
        elapsed_s,
        counters,
        notes if impossible is None else (*notes, impossible),
        impossible,
    )


def _config(settings: Mapping[str, Any]) -> SimulationConfig:
    try:
        return SimulationConfig(**settings)
    except ValidationError as error:
        raise refusal(error, known=lambda _: SimulationConfig.model_fields) from None


def _run(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    config: SimulationConfig,
    history: History | None,
    beginning: Beginning | None,
    progress: Progress | None,
) -> tuple[CoreInputs, dict[str, Any], dict[str, int]]:
    """The simulation as the core took it, the arrays of the schedule, and what the policy counted."""
    # What was recorded begins as it did in any case.
    if isinstance(policy, ReplayingPolicy) and (beginning is None or policy.name == RECORDED):
        if isinstance(history, _core.Past):
            raise TypeError(f"policy {policy.name} takes finished jobs one by one")
        return *policy.replay(workload, cluster, config, history, progress), {}
    if beginning is not None:
        check_beginning(config, workload)
    inputs = prepare(workload, cluster, policy, config, history)
    given = None if beginning is None else beginning.for_core(inputs)
    native, asked = policy.native(), policy.for_run()
    if native is not None:
        arrays = _core.simulate(
            inputs.cluster, inputs.jobs, native, inputs.settings, progress, inputs.past, given
        )
    else:
        arrays = _run_asking(workload, inputs, asked, given, progress)
    return inputs, arrays, dict(asked.counters)


def schedule_of(inputs: CoreInputs, arrays: dict[str, Any]) -> Schedule:
    """The schedule that the core's arrays are."""
    runs, downtime = arrays.pop("runs", None), arrays.pop("downtime", None)
    arrays["backfilled"] = arrays["backfilled"].view(np.bool_)
    return Schedule(
        job=inputs.kept,
        **arrays,
        runs=None if runs is None else Runs(**runs),
        downtime=None if downtime is None else Downtime(**downtime),
    )


def _check_kinds(workload: object, policy: object) -> None:
    if not isinstance(workload, Workload):
        hint = "; make_workload(frame) makes one of it" if is_pandas(workload) else ""
        raise InputError(
            f"workload is a {type(workload).__name__}; expected a Workload, as read_workload and the "
            f"generators return it, or the path of a file of jobs{hint}"
        )
    if not isinstance(policy, str) and not callable(getattr(policy, "decide", None)):
        raise InputError(
            f"policy is a {type(policy).__name__}; expected a policy's name, such as 'sjf+easy', or an "
            "object with decide(snapshot) -> Decision"
        )


def _run_asking(
    workload: Workload,
    inputs: CoreInputs,
    policy: Policy,
    given: _core.Beginning | None,
    progress: Progress | None,
) -> dict[str, Any]:
    simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past, given)
    while simulator.advance():
        if len(simulator.waiting):
            decision = policy.decide(simulator.snapshot())
            if not isinstance(decision, _core.Decision):
                raise InputError(
                    f"{policy.name}.decide() returned {_kind(decision)}; expected a Decision, "
                    "an empty one to start nothing"
                )
            simulator.apply(decision)
        if progress:
            progress(simulator.finished)
    if len(left := simulator.waiting):
        first = name_of(workload, int(inputs.kept[left[0]]))
        raise InputError(
            f"{policy.name} left {plural(len(left), 'job')} waiting, {first} "
            "first, with nothing running and nothing to arrive; decide() must start every job in the end"
        )
    return simulator.schedule()


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
