"""When waiting jobs will start: rollouts of the simulator from the live state, with run times drawn.

Jobs that will be submitted later are not part of it.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.errors import InputError
from gpuyard.native.inputs import prepare
from gpuyard.policies.base import Policy
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job
from gpuyard.serve.waits.run_times import RunTimes
from gpuyard.serve.waits.scene import Homes, Scene
from gpuyard.simulation.find import find_policy

Floats = NDArray[np.float64]

BUDGET_S = 10.0
"""Wall time of one forecast, at most, but for the draw that is under way."""
QUANTILES = (0.1, 0.5, 0.9)
"""Of the drawn start times: the low, middle and high one that are reported."""
OUTSIDE = ("depend", "begin", "hold", "held", "licen", "reserv", "suspend", "limit of", "nodes named")
"""Words in the reason for which a job is left alone that stand for something the simulator cannot know."""


@dataclass(frozen=True, slots=True)
class Eta:
    """When a job will start, seconds on the cluster's clock.

    Attributes:
        low_s: One in ten draws starts it no later than this; None: it does not start in so many.
        mid_s: The same of half of the draws.
        high_s: The same of nine in ten.
        drawn: Rollouts that this comes from.
        started_share: Share of them in which it started before they were cut off.
    """

    low_s: float | None
    mid_s: float | None
    high_s: float | None
    drawn: int
    started_share: float


@dataclass(frozen=True)
class Forecast:
    """Start times of all waiting jobs.

    Attributes:
        at_s: The moment of the state that it begins with, on the cluster's clock.
        policy: Name of the policy that was simulated.
        etas: By job id.
        reasons: Why a waiting job has none, by job id.
        notes: What to know about it, in whole sentences.
        elapsed_s: Wall time that it took.
    """

    at_s: float
    policy: str
    etas: dict[str, Eta] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    elapsed_s: float = 0.0

    def of(self, job: str) -> dict[str, Any]:
        """What is known of one job, ready for JSON."""
        eta = self.etas.get(job)
        known: dict[str, Any] = {"job": job, "at_s": self.at_s, "policy": self.policy, "notes": [*self.notes]}
        if eta is None:
            return known | {"eta": None, "reason": self.reasons.get(job, "it does not wait")}
        names = ("low_s", "mid_s", "high_s", "drawn", "started_share")
        return known | {"eta": {name: getattr(eta, name) for name in names}, "reason": ""}


class _OutOfTimeError(Exception):
    """A rollout that took too long."""


def forecast(
    state: ClusterState,
    policy: Policy,
    settings: ServeSettings,
    ratios: RunTimes,
    draws: int = 16,
    seed: int = 0,
    *,
    predictions_s: Mapping[str, float] | None = None,
    budget_s: float = BUDGET_S,
) -> Forecast:
    """Simulate what comes next several times. Never raises, whatever the state.

    Where the policy cannot be simulated from here (it preempts, or its network needs another cluster), the
    fallback of the settings is, and a note says so.

    Args:
        state: The cluster now.
        policy: Who decides. One that learned may not be asked by another thread at the same time.
        settings: Of the agent: its fallback, its estimates and its simulation's.
        ratios: Run times of finished jobs.
        draws: Rollouts.
        seed: Of the draws. A job draws the same from round to round.
        predictions_s: Predicted run times by job, where ``settings.estimates`` is ``history``.
        budget_s: Wall time after which no further rollout begins, seconds.
    """
    began = time.monotonic()
    try:
        made = _forecast(state, policy, settings, ratios, draws, seed, predictions_s or {}, budget_s)
    except Exception as error:  # a live state may be odd in ways that nobody thought of; say so, and live on
        reasons = {job.id: f"the state cannot be simulated: {error}" for job in state.waiting}
        made = Forecast(state.now_s, policy.name, reasons=reasons)
    return replace(made, elapsed_s=time.monotonic() - began)


def _forecast(
    state: ClusterState,
    policy: Policy,
    settings: ServeSettings,
    ratios: RunTimes,
    draws: int,
    seed: int,
    predictions_s: Mapping[str, float],
    budget_s: float,
) -> Forecast:
    homes = Homes(state)
    reasons = {job.id: why for job in state.waiting if (why := _why_none(job, homes))}
    jobs = [job for job in state.waiting if job.id not in reasons]
    if not jobs:
        return Forecast(state.now_s, policy.name, reasons=reasons)
    scene = Scene(state, jobs, settings, predictions_s)
    durations = scene.durations(ratios, max(1, draws), seed)
    acting, notes = policy, []
    try:
        if policy.preempts:
            raise InputError(f"policy {policy.name} stops running jobs, which forecasts do not follow")
        starts_s = _rollouts(scene, policy, durations, budget_s)
    except Exception as error:  # whatever a policy's own code raises, the fallback can still be simulated
        acting = find_policy(settings.fallback)
        notes.append(f"This is a forecast of {acting.name}, because there is none of {policy.name}: {error}.")
        starts_s = _rollouts(scene, acting, durations, budget_s)
    etas = _etas(jobs, starts_s, state.now_s)
    reasons |= {
        job.id: "it can never start on the nodes that are open now" for job in jobs if job.id not in etas
    }
    if len(starts_s) < draws:
        notes.append(f"There was time for {len(starts_s)} of {draws} draws.")
    notes.append("Jobs that are submitted from now on are not part of it.")
    return Forecast(state.now_s, acting.name, etas, reasons, tuple(notes))


def _why_none(job: Job, homes: Homes) -> str:
    """Why a waiting job's start cannot be forecast; empty if it can."""
    if job.held == "other":
        return "it is held by its user or an administrator"
    if any(word in job.left.lower() for word in OUTSIDE):
        return f"it waits for something that cannot be simulated: {job.left}"
    return homes.of(job)[1] if homes.any_open else "no node is open"


def _rollouts(scene: Scene, policy: Policy, durations: Floats, budget_s: float) -> list[Floats]:
    """Start times of the waiting jobs in each rollout: inf if it was cut off before, NaN if never."""
    until = time.monotonic() + budget_s
    found: list[Floats] = []
    for duration_s in durations:
        try:
            found.append(_rollout(scene, policy, duration_s, until))
        except _OutOfTimeError:
            if not found:
                raise InputError(f"one rollout takes longer than {budget_s:g} s") from None
        if time.monotonic() > until:
            break
    return found


def _rollout(scene: Scene, policy: Policy, duration_s: Floats, until: float) -> Floats:
    inputs = prepare(scene.workload(duration_s), scene.cluster, policy, scene.config)
    given, native = scene.beginning.for_core(inputs), policy.native()
    starts_s = np.full(len(duration_s), np.nan)
    if native is None:
        simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past, given)
        starts_s[inputs.kept] = _asked_starts_s(simulator, policy.for_run(), len(inputs.kept), until)
    else:

        def in_time(_: int) -> None:
            if time.monotonic() > until:
                raise _OutOfTimeError

        arrays = _core.simulate(
            inputs.cluster, inputs.jobs, native, inputs.settings, in_time, inputs.past, given
        )
        starts_s[inputs.kept] = arrays["start_us"] / 1e6
    return scene.on_clock(starts_s[scene.waiting_rows])


def _asked_starts_s(simulator: _core.CheckedSimulator, policy: Policy, jobs: int, until: float) -> Floats:
    """The same of a policy that is asked, until nothing waits or the time is over."""
    starts_s = np.full(jobs, np.inf)
    while simulator.advance():
        if len(simulator.waiting):
            decision = policy.decide(simulator.snapshot())
            simulator.apply(decision)
            starts_s[[job for job, _ in decision.starts]] = simulator.now_s
        # All jobs arrived before the moment: once nothing waits, everything has started.
        if not len(simulator.waiting) or time.monotonic() > until:
            break
    return starts_s


def _etas(jobs: Sequence[Job], starts_s: list[Floats], now_s: float) -> dict[str, Eta]:
    table = np.sort(np.stack(starts_s), axis=0)
    places = [max(0, math.ceil(share * len(starts_s)) - 1) for share in QUANTILES]
    etas = {}
    for column, job in enumerate(jobs):
        if math.isnan(table[0, column]):
            continue
        low_s, mid_s, high_s = (_finite(max(float(table[place, column]), now_s)) for place in places)
        started = float(np.isfinite(table[:, column]).mean())
        etas[job.id] = Eta(low_s, mid_s, high_s, len(starts_s), started)
    return etas


def _finite(moment_s: float) -> float | None:
    return moment_s if math.isfinite(moment_s) else None
