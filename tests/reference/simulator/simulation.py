"""The run loop of docs/contract/simulator.md and docs/contract/slurm.md."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from reference.simulator import beginning, conservative, dependencies, events, orders, passes, slurm
from reference.simulator.cluster import Watts, empty_cluster, make_pools, queue_of, queues
from reference.simulator.inputs import (
    LATEST_US,
    PREEMPTIVE_ORDERS,
    Beginning,
    Job,
    Node,
    Outcome,
    Partition,
    Policy,
    Qos,
    Request,
    Run,
    Settings,
    make_request,
)
from reference.simulator.partitions import settled, tier_of
from reference.simulator.placement import can_ever_start
from reference.simulator.state import State
from reference.simulator.support import check


@dataclass
class Simulation(State):
    plans: dict[str | None, conservative.Plan] = field(default_factory=dict)  # by queue
    backfill_is_due: bool = False  # at this instant, under `slurm`

    def run(self) -> None:
        jobs = len(self.arriving)
        while len(self.outcomes) < jobs:
            begins_us = [conservative.begins_us(self, *item) for item in self.plans.items()]
            now_us = min((*events.times_of_events_us(self), *chain(*begins_us)))
            self.backfill_is_due = slurm.next_backfill_us(self) == now_us
            self.now_us = now_us
            self.instant += 1
            if self.now_us > LATEST_US:
                raise ValueError("the simulation went past 2^62 microseconds")
            happened = self.what_happens()
            events.happen(self)
            self.mark_available()
            if self.now_us < self.beginning.decides_from_us:
                beginning.make_starts(self)
            else:
                self.decide(happened)

    def what_happens(self) -> conservative.Happened:
        """What will happen at this instant, as far as plans depend on it."""
        early = [
            run.request
            for run in self.running
            if run.begun and run.end_us == self.now_us and run.expected_end_us > self.now_us
        ]
        return conservative.Happened(any(node.changes_us == self.now_us for node in self.node_states), early)

    def decide(self, happened: conservative.Happened) -> None:
        scores = {request.id: self.score(request) for request in self.queued}
        if self.policy.order in PREEMPTIVE_ORDERS:
            scores |= {run.request.id: self.score(run.request) for run in self.running}
        in_queues = {queue: self.ranked(queue, scores) for queue in queues(self.pools)}
        if self.policy.backfill == "slurm":
            slurm.decide(self, in_queues, self.backfill_is_due)
            return
        for queue, in_queue in in_queues.items():
            if self.policy.backfill == "conservative":
                plan = self.plans.setdefault(queue, conservative.Plan())
                conservative.make_pass(self, queue, in_queue, plan, happened)
            else:
                passes.decide(self, queue, in_queue, scores)

    def ranked(self, queue: str | None, scores: passes.Scores) -> list[Request]:
        """The jobs of the queue, in order."""

        def rank(request: Request) -> tuple[float, ...]:
            tier = tier_of(request.job, self.partitions)
            return (-tier, scores[request.id], request.submit_us, request.id)

        waiting = [request for request in self.queued if queue_of(self.pools, request.job) == queue]
        return sorted(waiting, key=rank)

    def score(self, request: Request) -> float:
        return orders.score(self, request)


def simulate_with_runs(
    nodes: Sequence[Node],
    speeds: dict[str, float],
    jobs: Sequence[Job],
    policy: Policy,
    settings: Settings,
    watts: Watts | None = None,
    history: Sequence[Job] = (),
    given: Beginning | None = None,
    partitions: Sequence[Partition] = (),
    qos: Sequence[Qos] = (),
) -> tuple[list[Outcome], list[Run]]:
    """Simulates jobs that are sorted by submit time.

    Args:
        nodes: The cluster.
        speeds: Speeds of GPU types; 1 where not given.
        jobs: The workload.
        policy: The policy.
        settings: All else.
        watts: Idle and peak watts of GPU types.
        history: Jobs that count as finished from the beginning (section 19).
        given: Starts that are given (section 7).
        partitions: The cluster's partitions (docs/contract/slurm.md, as all that follows).
        qos: The qualities of service that the cluster describes.

    Returns:
        What became of each job, and all runs in order of (begin, job).

    Raises:
        ValueError: If a job can never start (it is named), if jobs wait for themselves, or if the combination
            is not supported (section 20).
    """
    watts = watts or {}
    check(nodes, jobs, policy, settings, watts, given, partitions, qos)
    dependencies.check(jobs)
    jobs = settled(jobs, partitions)
    requests = [make_request(id, job, settings) for id, job in enumerate(jobs)]
    if any(a.submit_us > b.submit_us for a, b in pairwise(requests)):
        raise ValueError("jobs must be sorted by submit time")
    for request in requests:
        how = (policy.placement, settings.seed, settings, watts, partitions, qos)
        if not can_ever_start(nodes, speeds, request.job, request.row, *how):
            raise ValueError(f"job {request.id} can never start: {request.job}")
    if given is not None:
        beginning.check(given, requests)
    simulation = Simulation(
        make_pools(nodes, speeds, partitions),
        empty_cluster(nodes),
        list(requests),
        policy,
        settings,
        nodes,
        watts,
        given or Beginning(0),
        partitions,
        qos,
    )
    for job in history:
        duration_us = make_request(0, replace(job, submit_s=0.0), settings).duration_us
        simulation.finished.add(job, duration_us, attained_us=duration_us)
    simulation.run()
    runs = sorted(simulation.runs, key=lambda run: (run.begin_us, run.job))
    return [simulation.outcomes[request.id] for request in requests], runs


def simulate(
    nodes: Sequence[Node],
    speeds: dict[str, float],
    jobs: Sequence[Job],
    policy: Policy,
    settings: Settings,
    watts: Watts | None = None,
    history: Sequence[Job] = (),
    given: Beginning | None = None,
    partitions: Sequence[Partition] = (),
    qos: Sequence[Qos] = (),
) -> list[Outcome]:
    """What became of each job; see `simulate_with_runs`."""
    outcomes, _ = simulate_with_runs(
        nodes, speeds, jobs, policy, settings, watts, history, given, partitions, qos
    )
    return outcomes
