"""One decision on a live state: the snapshot, what a policy makes of it, and its order of the queue."""

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.policies.base import Policy
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.serve.decision.guard import overdue
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.decision.snapshot import Encoder, LiveSnapshot
from gpuyard.serve.records import Planned, Ranked
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job


class IllegalDecisionError(Exception):
    """A policy that decides what cannot be.

    Attributes:
        cause: One word for counters.
    """

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Made:
    """What a policy made of a state.

    Attributes:
        order: The jobs that it may decide on, as it ranks them.
        starts: What it would start now, in this order.
        backfilled: Of these, jobs that start past one that ranks before them.
        reservations: Its plan, for ``Memory``.
        wake_s: When it wants to decide again at the latest, on the policy's clock; None: when something
            changes.
        live: What it decided on.
        encode_s: How long the snapshot took.
        decide_s: How long the policy took.
    """

    order: tuple[Ranked, ...]
    starts: tuple[Planned, ...]
    live: LiveSnapshot
    backfilled: frozenset[str] = frozenset()
    reservations: list[Any] = field(default_factory=list)
    wake_s: float | None = None
    encode_s: float = 0.0
    decide_s: float = 0.0


def may_decide(job: Job, settings: ServeSettings) -> bool:
    """Whether a waiting job is one that a policy may start or rank.

    With ``start`` control that acts on all jobs, those that nobody holds are the scheduler's own business.
    """
    if settings.control == "start" and settings.mode == "active":
        return job.held == "agent"
    return job.held != "other"


def encoder_for(policy: Policy, settings: ServeSettings, cluster: Cluster | None = None) -> Encoder:
    """Makes the snapshots on which a policy decides."""
    config = policy.configured(settings.simulation)
    return Encoder(config, settings.estimates, lambda job: may_decide(job, settings), cluster)


def decide_on(
    state: ClusterState,
    memory: Memory,
    policy: Policy,
    settings: ServeSettings,
    cluster: Cluster | None = None,
) -> Made:
    """What a policy makes of a state that its memory has seen.

    Raises:
        InputError: if the state cannot be, or the policy does not take it.
        IllegalDecisionError: if the decision cannot be.
    """
    began = time.perf_counter()
    policy = aged(policy, state, settings)
    live = encoder_for(policy, settings, cluster).encode(state, memory)
    return decide_live(live, policy, time.perf_counter() - began)


def decide_live(live: LiveSnapshot, policy: Policy, encode_s: float = 0.0) -> Made:
    """What a policy makes of a snapshot.

    Raises:
        IllegalDecisionError: if that is no decision, or starts jobs that it may not.
    """
    began = time.perf_counter()
    if not live.queue:
        return Made((), (), live, encode_s=encode_s)
    decision = policy.decide(live.snapshot)
    if not isinstance(decision, _core.Decision):
        raise IllegalDecisionError(f"decide() returned {type(decision).__name__}", "illegal")
    starts = _planned(live, decision)
    order = ranked(live, policy, starts)
    wake_s = decision.wake_s
    return Made(
        order,
        starts,
        live,
        frozenset(live.ids[job] for job in decision.backfilled),
        _plan(live, decision),
        None if math.isnan(wake_s) else wake_s,
        encode_s,
        time.perf_counter() - began,
    )


def ranked(live: LiveSnapshot, policy: Policy, starts: tuple[Planned, ...] = ()) -> tuple[Ranked, ...]:
    """The queue as a policy ranks it, with scores where it has any.

    A rule ranks by its order. Other policies put what they start first, and the rest in the order that they
    are shown it in.

    Raises:
        IllegalDecisionError: if a score is no number.
    """
    jobs, scores = _core.ranking(live.snapshot, _ordering(policy).compile())
    names = list(map(live.ids.__getitem__, jobs.tolist()))
    if policy.rules is None:
        first = [planned.job for planned in starts]
        started = set(first)
        return tuple(Ranked(job) for job in [*first, *(job for job in names if job not in started)])
    if np.isnan(scores).any():
        raise IllegalDecisionError(
            f"the score of job {names[int(np.argmax(np.isnan(scores)))]} is not a number", "nan"
        )
    known = scores.tolist()
    if not np.isfinite(scores).all():
        # Infinite scores, of jobs without an estimate or beyond their ageing bound, are none.
        known = [score if math.isfinite(score) else None for score in known]
    return tuple(map(Ranked._make, zip(names, known, strict=True)))


def _ordering(policy: Policy) -> PolicySpec:
    """The rule that ranks what a policy leaves waiting."""
    if policy.rules is not None:
        return policy.rules
    base: PolicySpec | None = getattr(policy, "base", None)
    return base if isinstance(base, PolicySpec) else parse_policy("fifo")


def _planned(live: LiveSnapshot, decision: _core.Decision) -> tuple[Planned, ...]:
    stops = dict(decision.stops)
    queue = set(live.queue)
    planned: list[Planned] = []
    for job, parts in decision.starts:
        id = live.ids[job] if 0 <= job < len(live.ids) else ""
        if id not in queue:
            raise IllegalDecisionError(f"it starts job number {job}, which does not wait", "illegal")
        queue.discard(id)
        for node, _ in parts:
            if not 0 <= node < len(live.nodes):
                raise IllegalDecisionError(
                    f"it starts job {id} on node number {node}, which there is not", "illegal"
                )
        makes_room = tuple(live.ids[stop] for stop in stops.get(job, ()))
        planned.append(Planned(id, tuple((live.nodes[node], gpus) for node, gpus in parts), makes_room))
    return tuple(planned)


def _plan(live: LiveSnapshot, decision: _core.Decision) -> list[Any]:
    return [
        [
            live.ids[job],
            None if math.isnan(begin_s) else begin_s,
            None if math.isnan(end_s) else end_s,
            [[live.nodes[node], gpus] for node, gpus in parts],
        ]
        for job, begin_s, end_s, parts in decision.reservations
    ]


def aged(policy: Policy, state: ClusterState, settings: ServeSettings) -> Policy:
    """The policy, or while jobs are overdue the same rule with ``max_wait_s`` as its ageing bound."""
    rules = policy.rules
    if (
        rules is None
        or policy is not rules
        or rules.preempts
        or rules.is_optimised
        or rules.backfill == "slurm"
    ):
        return policy
    if not overdue(state.waiting, state.now_s, settings):
        return policy
    bound_s = settings.max_wait_s if rules.max_wait_s is None else min(rules.max_wait_s, settings.max_wait_s)
    return replace(rules, max_wait_s=bound_s)


def check_served(policy: Policy) -> None:
    """Refuse a policy that cannot serve a live cluster.

    Raises:
        InputError: saying why, and what to use.
    """
    if policy.name == "recorded":
        raise InputError("policy recorded replays a log; name a policy that decides, such as fifo+easy")
    model = getattr(policy, "model", None)
    if model is not None and (
        model.environment.step_mode != "instant" or model.kind not in ("select-job", "select-job-and-pool")
    ):
        raise InputError(
            f"policy {policy.name}: {model.kind} in step mode {model.environment.step_mode} acts in "
            "simulations only; train one that selects jobs in step mode instant"
        )
