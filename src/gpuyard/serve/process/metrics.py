"""Metrics of the agent for Prometheus: base units, histograms, and never a label of a user or job."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args

from gpuyard.serve.adapter import Outcome, Start
from gpuyard.serve.records import PHASES, RoundRecord
from gpuyard.serve.settings import Mode
from gpuyard.serve.state import ClusterState, Job, Node

MODES = (*get_args(Mode), "halted")
GANGS = (1, 2, 4, 8)
"""Gang sizes for which GPUs that are free and of no use are counted."""
ROUND_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
WAIT_BUCKETS_S = (1, 10, 60, 300, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 604_800)
_CODES = ("timeout", "exit", "parse", "refused", "missing")
_MOST_QUEUES = 200
_OTHERS = "(others)"


Kind = Literal["counter", "gauge", "rounds", "waits"]

# Names without the ending that Prometheus adds to counters (_total).
_METRICS: tuple[tuple[Kind, str, str, tuple[str, ...]], ...] = (
    ("gauge", "build_info", "Version of gpuyard and hash of its model", ("version", "model")),
    ("gauge", "mode", "1 for the mode that the agent is in", ("mode",)),
    ("gauge", "leader", "Whether this agent is the one that acts", ()),
    ("counter", "rounds", "Rounds, by whose decision counted", ("decider",)),
    ("rounds", "cycle_duration_seconds", "Time of the parts of a round", ("phase",)),
    ("gauge", "snapshot_age_seconds", "Age of the last state that was decided on", ()),
    ("gauge", "heartbeat_timestamp_seconds", "Unix time of the last round", ()),
    ("counter", "decisions", "Actions, by what became of them", ("action", "verdict")),
    ("counter", "guard_rejections", "Actions that the guard refused", ("rule",)),
    ("counter", "fallbacks", "Rounds that the fallback decided", ("cause",)),
    (
        "counter",
        "shadow_decisions",
        "Starts of the scheduler, and whether the policy wanted them",
        ("agrees",),
    ),
    ("counter", "apply_errors", "What the scheduler did not do or say", ("backend", "code")),
    ("gauge", "jobs_held", "Waiting jobs that are held for the agent", ()),
    ("gauge", "pending_jobs", "Waiting jobs", ("queue", "reason")),
    ("gauge", "pending_gpus", "GPUs that waiting jobs ask for", ("queue",)),
    ("waits", "job_wait_seconds", "Waits of jobs that started", ("queue",)),
    ("gauge", "oldest_pending_seconds", "Longest wait of a job that still waits", ("queue",)),
    ("gauge", "gpus", "GPUs that are used, free, or on closed nodes", ("state",)),
    ("gauge", "unusable_free_gpus", "Free GPUs that no gang of this size fits on", ("gang",)),
    ("counter", "preemptions", "Jobs that were stopped", ("cause",)),
)


class Metrics:
    """Everything that ``/metrics`` shows. Rounds are observed by one thread, and shown to others.

    Args:
        version: Of gpuyard.
        model: Hash of the model or policy file; empty for heuristics.
        clock: Unix time, seconds.
    """

    def __init__(self, version: str, model: str = "", clock: Callable[[], float] = time.time) -> None:
        import prometheus_client as prometheus  # which takes time to load

        self.registry = prometheus.CollectorRegistry()
        self._text = prometheus.generate_latest
        self._clock, self._lock = clock, threading.Lock()
        self._seen_s: float | None = None
        self._planned: set[str] = set()
        self._queues: set[str] = set()
        kinds: dict[Kind, Callable[..., Any]] = {"counter": prometheus.Counter, "gauge": prometheus.Gauge}
        buckets = {"rounds": ROUND_BUCKETS_S, "waits": WAIT_BUCKETS_S}
        self._of: dict[str, Any] = {}
        for kind, name, words, labels in _METRICS:
            options = {"buckets": buckets[kind]} if kind in buckets else {}
            make = kinds.get(kind, prometheus.Histogram)
            self._of[name] = make(f"gpuyard_{name}", words, labels, registry=self.registry, **options)
        self._of["build_info"].labels(version, model).set(1)

    def observe_round(self, record: RoundRecord, state: ClusterState) -> None:
        """Count a round.

        Args:
            record: What became of it.
            state: What it was decided on.
        """
        with self._lock:
            self._observe_agent(record)
            self._observe_decisions(record)
            self._observe_shadow(record)
            self._observe_waits(record, state)
            self._observe_queues(state)
            self._observe_gpus(state)

    def count_outcomes(self, outcomes: Iterable[Outcome], backend: str) -> None:
        """Count what the scheduler refused, and the jobs that it stopped.

        Args:
            outcomes: Of actions.
            backend: Name of the adapter.
        """
        for outcome in outcomes:
            if not outcome.ok:
                self.count_error(backend, outcome.code)
            elif isinstance(outcome.action, Start) and outcome.action.stop:
                self._of["preemptions"].labels("policy").inc(len(outcome.action.stop))

    def count_error(self, backend: str, code: str) -> None:
        """Count something that the scheduler did not do, or a state that it did not give."""
        self._of["apply_errors"].labels(backend, code if code in _CODES else "other").inc()

    def set_leader(self, leads: bool) -> None:
        """Say whether this agent is the one that acts."""
        self._of["leader"].set(leads)

    def render(self) -> bytes:
        """As Prometheus reads it."""
        with self._lock:
            if self._seen_s is not None:
                self._of["snapshot_age_seconds"].set(max(0.0, self._clock() - self._seen_s))
            return self._text(self.registry)

    def _observe_agent(self, record: RoundRecord) -> None:
        self._seen_s = record.wall_s
        self._of["heartbeat_timestamp_seconds"].set(record.wall_s)
        self._of["rounds"].labels(record.decider).inc()
        for mode in MODES:
            self._of["mode"].labels(mode).set(mode == record.mode)
        for phase in PHASES:
            if phase in record.timings_s:
                self._of["cycle_duration_seconds"].labels(phase).observe(record.timings_s[phase])
        if record.decider == "fallback":
            self._of["fallbacks"].labels(record.cause or "unknown").inc()

    def _observe_decisions(self, record: RoundRecord) -> None:
        for verdict in record.verdicts:
            became = "refused" if verdict.rule else "failed" if verdict.error else "allowed"
            self._of["decisions"].labels(verdict.action, became).inc()
            if verdict.rule:
                self._of["guard_rejections"].labels(verdict.rule).inc()

    def _observe_shadow(self, record: RoundRecord) -> None:
        """What the scheduler started since the round before, against what the policy would have started."""
        if record.mode in ("shadow", "advise"):
            for one in record.happened:
                if one.what == "started":
                    agrees = "true" if one.job in self._planned else "false"
                    self._of["shadow_decisions"].labels(agrees).inc()
        self._planned = {one.job for one in record.starts}

    def _observe_waits(self, record: RoundRecord, state: ClusterState) -> None:
        for one in record.happened:
            job = state.by_id.get(one.job)
            if one.what == "started" and job is not None:
                wait_s = max(0.0, one.at_s - job.submit_s)
                self._of["job_wait_seconds"].labels(self._queue(job)).observe(wait_s)

    def _observe_queues(self, state: ClusterState) -> None:
        jobs: Counter[tuple[str, str]] = Counter()
        gpus: Counter[str] = Counter()
        oldest_s = dict.fromkeys((one.name for one in state.partitions), 0.0)
        held = 0
        for job in state.waiting:
            queue = self._queue(job)
            reason = "held" if job.held == "other" else "left" if job.left else "queued"
            jobs[queue, reason] += 1
            gpus[queue] += job.gpus
            oldest_s[queue] = max(oldest_s.get(queue, 0.0), state.now_s - job.submit_s)
            held += job.held == "agent"
        self._of["jobs_held"].set(held)
        # Queues that are empty now must not keep their last value.
        for name in ("pending_jobs", "pending_gpus", "oldest_pending_seconds"):
            self._of[name].clear()
        for queue, age_s in oldest_s.items():
            self._of["pending_gpus"].labels(queue).set(gpus[queue])
            self._of["oldest_pending_seconds"].labels(queue).set(age_s)
        for labels, count in jobs.items():
            self._of["pending_jobs"].labels(*labels).set(count)

    def _observe_gpus(self, state: ClusterState) -> None:
        totals = dict.fromkeys(("used", "free", "closed"), 0)
        unusable = dict.fromkeys(GANGS, 0)
        for node, busy in busy_gpus(state):
            free = node.gpus - busy
            totals["used"] += busy
            totals["closed" if node.closed else "free"] += free
            for gang in GANGS:
                unusable[gang] += unusable_gpus(node, busy, gang)
        for kind, count in totals.items():
            self._of["gpus"].labels(kind).set(count)
        for gang, count in unusable.items():
            self._of["unusable_free_gpus"].labels(str(gang)).set(count)

    def _queue(self, job: Job) -> str:
        """A job's partition, as long as there are not too many: names come from the cluster."""
        name = job.partition.partition(",")[0]
        if len(self._queues) < _MOST_QUEUES:
            self._queues.add(name)
        return name if name in self._queues else _OTHERS


def busy_gpus(state: ClusterState) -> Iterator[tuple[Node, int]]:
    """Every node with its GPUs in use, as the jobs say or the node itself, whichever is more."""
    used: Counter[str] = Counter()
    for job in state.running:
        for share in job.shares:
            used[share.node] += share.gpus
    for node in state.nodes:
        yield node, min(node.gpus, max(used[node.name], node.gpus_used or 0))


def unusable_gpus(node: Node, busy: int, gang: int) -> int:
    """Free GPUs of a node that no gang of this size fits on."""
    return 0 if node.closed else (node.gpus - busy) % gang
