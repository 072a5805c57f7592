"""The state of a simulation and what is done to it: sections 14 to 17 of docs/contract/simulator.md."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from reference.simulator.cluster import (
    Allocation,
    FreeNode,
    Held,
    Pool,
    Watts,
    change,
    queue_of,
    run_time_us,
    take,
    work_us,
)
from reference.simulator.inputs import (
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
    checkpoint_us,
    exponential_us,
    restore_us,
    to_us,
)
from reference.simulator.limits import is_within
from reference.simulator.memory import Finished, Usage, UsageOverTime
from reference.simulator.placement import World, place

MOST_FAILURES = 100_000


@dataclass
class Kept:
    """What is kept of a job from run to run (section 14)."""

    done_us: int = 0
    attained_us: int = 0
    promoted_us: int = 0  # the attained service that no longer counts for its level (`tiresias`)
    entered_us: int = 0  # when it last entered its queue
    failures: int = 0


@dataclass(eq=False)
class Running:
    """A run of a job that holds its GPUs: it waits for nodes to wake, makes progress or is being stopped."""

    request: Request
    allocation: Allocation
    held: list[Held]
    taken_us: int
    begin_us: int
    restore_us: int
    run_us: int  # of progress, if it is not stopped
    status: str  # how it ends then
    expected_end_us: float  # an int, or infinity
    waited_us: int  # time in the queue
    backfilled: bool
    begun: bool = False
    stopped_us: int | None = None  # when its progress ended, if it is being stopped
    effect_us: int = 0  # when that stop takes effect

    @property
    def end_us(self) -> int:
        return self.begin_us + self.restore_us + self.run_us

    def progress_us(self, now_us: int) -> int:
        if not self.begun:
            return 0
        until_us = now_us if self.stopped_us is None else self.stopped_us
        return max(0, until_us - self.begin_us - self.restore_us)


@dataclass(frozen=True)
class Promise:
    """A job that has left its queue and takes an allocation when others have stopped (section 15)."""

    request: Request
    allocation: Allocation
    begin_us: int
    waited_us: int
    backfilled: bool
    is_move: bool = False


@dataclass
class NodeState:
    idle_since_us: int = 0  # last released, reopened or repaired
    awake_us: int = 0  # when it is or was awake after it last woke
    failures: int = 0
    is_down: bool = False
    changes_us: int | None = None  # next failure, or its repair if it is down; None: never


@dataclass
class State:
    pools: list[Pool]
    free: list[FreeNode]
    arriving: list[Request]
    policy: Policy
    settings: Settings
    nodes: Sequence[Node] = ()
    watts: Watts = field(default_factory=dict)
    beginning: Beginning = field(default_factory=lambda: Beginning(0))
    partitions: Sequence[Partition] = ()
    qos: Sequence[Qos] = ()
    now_us: int = 0
    instant: int = -1
    jobs: int = 0  # of the workload
    waiting_for_others: list[Request] = field(
        default_factory=list
    )  # submitted, but have to wait for other jobs
    queued: list[Request] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    promises: dict[int, Promise] = field(default_factory=dict)  # by job
    kept: dict[int, Kept] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)  # by user
    group_usage: dict[str, Usage] = field(default_factory=dict)
    association_usage: dict[tuple[str, str], UsageOverTime] = field(default_factory=dict)
    associations: list[tuple[str, str]] = field(default_factory=list)  # of the workload, (group, user)
    finished: Finished = field(default_factory=Finished)
    predictions_us: dict[int, int] = field(default_factory=dict)
    arrived: Counter[tuple[int, int]] = field(default_factory=Counter)
    node_states: list[NodeState] = field(default_factory=list)
    changed_us: int | None = None  # when last a job entered a queue, took or released, or a node changed
    last_backfill_us: int = 0  # when the last backfill pass of `slurm` was
    first_begin: dict[int, tuple[int, bool]] = field(default_factory=dict)  # and whether backfilled
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.jobs = len(self.arriving)
        self.associations = sorted({(request.job.group, request.job.user) for request in self.arriving})
        self.node_states = [NodeState() for _ in self.free]
        if self.settings.node_mtbf_s is not None:
            for id, state in enumerate(self.node_states):
                state.changes_us = self.time_to_failure_us(id)

    # --- what is known of jobs and nodes now

    @property
    def preempts(self) -> bool:
        return self.policy.order in PREEMPTIVE_ORDERS or self.settings.defragment

    def kept_of(self, job: int) -> Kept:
        return self.kept.setdefault(job, Kept())

    def run_of(self, job: int) -> Running | None:
        return next((run for run in self.running if run.request.id == job), None)

    def done_now_us(self, job: int) -> int:
        run, done_us = self.run_of(job), self.kept_of(job).done_us
        return done_us if run is None else done_us + self.work_us(run, run.progress_us(self.now_us))

    def attained_now_us(self, job: int) -> int:
        run, attained_us = self.run_of(job), self.kept_of(job).attained_us
        return attained_us if run is None else attained_us + run.progress_us(self.now_us)

    def work_us(self, run: Running, progress_us: int) -> int:
        penalty = self.settings.locality_penalty
        return work_us(progress_us, run.request.job, run.allocation, self.pools, penalty)

    def running_in(self, queue: str | None) -> list[Running]:
        return [run for run in self.running if queue_of(self.pools, run.request.job) == queue]

    def is_named(self, node: int) -> bool:
        """Whether a promise names the node: then it is closed."""
        return any(node == id for promise in self.promises.values() for id, _ in promise.allocation)

    def is_asleep(self, node: int) -> bool:
        if self.settings.sleep_after_s is None or self.node_states[node].is_down or self.is_named(node):
            return False
        if any(part.node == node for run in self.running for part in run.held):
            return False
        return self.now_us >= self.node_states[node].idle_since_us + to_us(self.settings.sleep_after_s)

    def begin_at_us(self, allocation: Allocation) -> int:
        """When the last of the nodes is awake, if those that sleep are woken now."""
        wake_s = 60.0 if self.settings.wake_s is None else self.settings.wake_s
        return max(
            self.now_us + to_us(wake_s)
            if self.is_asleep(node)
            else max(self.now_us, self.node_states[node].awake_us)
            for node, _ in allocation
        )

    def wake(self, allocation: Allocation) -> None:
        for node, gpus in allocation:
            if self.is_asleep(node):
                self.node_states[node].awake_us = self.begin_at_us(((node, gpus),))

    def mark_available(self) -> None:
        for id, node in enumerate(self.free):
            node.available = not self.node_states[id].is_down and not self.is_named(id)

    def place(self, free: list[FreeNode], request: Request) -> Allocation | None:
        asleep = frozenset(id for id in range(len(free)) if self.is_asleep(id))
        world = World(self.nodes, self.watts, self.settings.power_cap_w, asleep, self.arrived)
        return place(self.pools, free, request, self.policy.placement, self.settings.seed, world)

    def is_within_limits(self, request: Request) -> bool:
        """Section 2 of docs/contract/slurm.md."""
        running = [run.request.job for run in self.running]
        return is_within(request.job, running, self.partitions, self.qos)

    # --- run times

    def restore_us(self, request: Request) -> int:
        return restore_us(request.job, self.settings) if self.kept_of(request.id).done_us > 0 else 0

    def expected_work_us(self, request: Request) -> int | None:
        """E of section 14."""
        if request.estimate_us is None:
            return None
        return max(1, request.estimate_us - self.kept_of(request.id).done_us)

    def run_us(self, base_us: int, request: Request, allocation: Allocation) -> int:
        return run_time_us(base_us, request.job, allocation, self.pools, self.settings.locality_penalty)

    def expected_us(self, request: Request, allocation: Allocation) -> float:
        """From the begin of a run to its expected end."""
        work_us = self.expected_work_us(request)
        if work_us is None:
            return math.inf
        return self.restore_us(request) + self.run_us(work_us, request, allocation)

    # --- runs

    def start(self, request: Request, allocation: Allocation, backfilled: bool) -> None:
        """Takes a job out of its queue; it begins now, or when its nodes are awake."""
        begin_us = self.begin_at_us(allocation)
        self.wake(allocation)
        self.queued.remove(request)
        waited_us = self.now_us - self.kept_of(request.id).entered_us
        run = self.take(request, allocation, begin_us, waited_us, backfilled)
        if begin_us == self.now_us:
            self.begin(run)

    def take(
        self, request: Request, allocation: Allocation, begin_us: int, waited_us: int, backfilled: bool
    ) -> Running:
        self.changed_us = self.now_us
        held = take(self.free, request.job, allocation)
        self.add_usage(request.job, +1)
        restore_us = self.restore_us(request)
        left_us = request.duration_us - self.kept_of(request.id).done_us
        run_us, status = self.run_us(left_us, request, allocation), "completed"
        work_us, expected_end_us = self.expected_work_us(request), math.inf
        if work_us is not None:
            allowed_us = self.run_us(work_us, request, allocation)
            expected_end_us = begin_us + restore_us + allowed_us
            if self.settings.kill_at_estimate and allowed_us < run_us:
                run_us, status = allowed_us, "timeout"
        run = Running(
            request,
            allocation,
            held,
            self.now_us,
            begin_us,
            restore_us,
            run_us,
            status,
            expected_end_us,
            waited_us,
            backfilled,
        )
        self.running.append(run)
        return run

    def begin(self, run: Running) -> None:
        run.begun = True
        job = run.request.id
        if run.waited_us >= to_us(self.settings.starvation_s):
            self.kept_of(job).promoted_us = self.kept_of(job).attained_us
        self.first_begin.setdefault(job, (run.begin_us, run.backfilled))

    def fulfil(self, promise: Promise) -> None:
        """A promised job takes its allocation and begins."""
        del self.promises[promise.request.id]
        self.begin(
            self.take(promise.request, promise.allocation, self.now_us, promise.waited_us, promise.backfilled)
        )

    def stop(self, run: Running, effect_us: int) -> None:
        """The run makes no more progress and holds what it holds until the stop takes effect."""
        run.stopped_us, run.effect_us = self.now_us, effect_us

    def checkpoint_us(self, run: Running) -> int:
        return checkpoint_us(run.request.job, self.settings)

    def enter_queue(self, request: Request) -> None:
        self.changed_us = self.now_us
        self.kept_of(request.id).entered_us = self.now_us
        self.queued.append(request)

    def release(self, run: Running) -> None:
        self.changed_us = self.now_us
        change(self.free, run.held, +1)
        self.add_usage(run.request.job, -1)
        self.running.remove(run)
        for part in run.held:
            self.node_states[part.node].idle_since_us = self.now_us

    def record(self, run: Running, stop_us: int, ending: str, lost_us: int = 0) -> None:
        gpu_index = run.held[0].gpu_indices[0] if run.request.job.is_shared else -1
        self.runs.append(
            Run(
                run.request.id,
                run.taken_us,
                run.begin_us,
                stop_us,
                self.now_us,
                ending,
                run.restore_us,
                lost_us,
                run.allocation,
                gpu_index,
            )
        )

    def keep(self, run: Running, progress_us: int, kept_us: int) -> None:
        """Counts a run's progress, and as work done the part of it that is kept."""
        kept = self.kept_of(run.request.id)
        kept.attained_us += progress_us
        kept.done_us = min(kept.done_us + self.work_us(run, kept_us), run.request.duration_us - 1)

    def add_usage(self, job: Job, sign: int) -> None:
        for usages, name in ((self.usage, job.user), (self.group_usage, job.group)):
            usage = usages.setdefault(name, Usage())
            usage.add(sign * job.milli, self.now_us, self.settings.usage_half_life_s)
        over_time = self.association_usage.setdefault((job.group, job.user), UsageOverTime())
        over_time.add(sign * job.milli, self.now_us, self.settings.usage_half_life_s)

    # --- nodes

    def time_to_failure_us(self, node: int) -> int:
        assert self.settings.node_mtbf_s is not None
        mean_us, count = to_us(self.settings.node_mtbf_s), self.node_states[node].failures
        return exponential_us(mean_us, self.settings.seed, 4, node, count)

    def time_to_repair_us(self, node: int) -> int:
        given_s = self.settings.node_mttr_s
        mean_us, count = to_us(3600.0 if given_s is None else given_s), self.node_states[node].failures
        return exponential_us(mean_us, self.settings.seed, 5, node, count)
