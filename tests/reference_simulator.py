"""The reference simulator: docs/simulator.md in slow, plain Python, and nothing else.

It exists to be compared with the C++ core, so it is written for obviousness. Every decision pass sorts the
whole queue, every count is counted anew, and every question about the future is answered by releasing jobs
one by one on a copy of the nodes. Section numbers refer to docs/simulator.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

UNLIMITED = 2**40
LATEST_US = 2**62
LARGEST_INPUT_US = 2**32 * 10**6
SPLITTING_RULES = ("anywhere", "spread", "random")
POOL_RULES = ("consolidate", "best-fit", "first-fit", "worst-fit", "first-available")
BACKFILLS = ("strict", "greedy", "easy", "easy-sjf")
ESTIMATES = ("exact", "requested", "noisy", "none")
ORDERS_BY_ESTIMATE = ("sjf", "ljf", "saf", "laf", "wspt", "wfp3", "unicep", "f1", "f2", "f3", "f4")
OTHER_ORDERS = ("fifo", "lifo", "smallest", "largest", "priority", "edf", "fair-share", "random")


@dataclass(frozen=True)
class Node:
    type: str
    gpus: int
    cpus: int | None = None
    memory_mib: int | None = None
    owner: str | None = None


@dataclass(frozen=True)
class Job:
    submit_s: float
    duration_s: float
    gpus: int
    gpu_milli: int = 1000
    cpus: int = 0
    memory_mib: int = 0
    estimate_s: float | None = None
    gpu_types: tuple[str, ...] | None = None
    priority: float = 1.0
    user: str = ""
    group: str = ""
    deadline_s: float | None = None
    row: int | None = None  # None: its position

    @property
    def is_shared(self) -> bool:
        return self.gpus == 1 and self.gpu_milli < 1000

    @property
    def size(self) -> float:
        return float(self.gpus * self.gpu_milli) / 1000.0


@dataclass(frozen=True)
class Policy:
    order: str
    backfill: str = "strict"
    express: tuple[float, float] | None = None  # (T0 in seconds, K)
    placement: str = "consolidate"


@dataclass(frozen=True)
class Settings:
    estimates: str = "exact"
    noise_sigma: float = 1.0
    seed: int = 0
    kill_at_estimate: bool = False
    locality_penalty: float = 0.0
    usage_half_life_s: float = 604800.0
    origin_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    start_us: int
    end_us: int
    status: str  # "completed" or "timeout"
    nodes: tuple[tuple[int, int], ...]  # (node, GPUs) by ascending node
    gpu_index: int  # -1 for jobs that are not shared
    backfilled: bool


# --- 1. Time and 2. random draws ------------------------------------------------------------------------


def to_us(seconds: float) -> int:
    us = round(seconds * 1e6)
    if abs(us) > LARGEST_INPUT_US:
        raise ValueError(f"{seconds} s is more than 2^53 microseconds")
    return us


def to_s(us: int) -> float:
    return float(us) / 1e6


def splitmix64(x: int) -> int:
    mask = 2**64 - 1
    z = (x + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def draw(seed: int, stream: int, a: int, b: int) -> int:
    return splitmix64(splitmix64(splitmix64(splitmix64(seed) ^ stream) ^ a) ^ b)


def uniform(seed: int, stream: int, a: int, b: int) -> float:
    return float(draw(seed, stream, a, b) >> 11) * 2.0**-53


def normal(seed: int, stream: int, a: int, b: int) -> float:
    u1 = float((draw(seed, stream, a, 2 * b) >> 11) + 1) * 2.0**-53
    u2 = uniform(seed, stream, a, 2 * b + 1)
    return math.sqrt(-2.0 * math.log(u1)) * math.cos(6.283185307179586 * u2)


# --- 3. Jobs and 4. estimates ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A job with its times in microseconds and with what the scheduler may know of it."""

    id: int
    row: int
    job: Job
    submit_us: int
    duration_us: int
    estimate_us: int | None


def make_request(id: int, job: Job, settings: Settings) -> Request:
    if not 1 <= job.gpu_milli <= 1000 or (job.gpu_milli < 1000 and job.gpus != 1):
        raise ValueError(f"job {id}: gpu_milli is {job.gpu_milli} with {job.gpus} GPUs")
    row = id if job.row is None else job.row
    duration_us = max(1, to_us(job.duration_s))
    return Request(id, row, job, to_us(job.submit_s), duration_us, estimate(job, row, duration_us, settings))


def estimate(job: Job, row: int, duration_us: int, settings: Settings) -> int | None:
    if settings.estimates == "exact":
        return duration_us
    if settings.estimates == "requested":
        return None if job.estimate_s is None else max(1, to_us(job.estimate_s))
    if settings.estimates == "noisy":
        noisy_s = to_s(duration_us) * math.exp(settings.noise_sigma * normal(settings.seed, 1, row, 0))
        return min(max(1, round(min(noisy_s * 1e6, 2.0**53))), 2**53)
    if settings.estimates == "none":
        return None
    raise ValueError(f"unknown estimates: {settings.estimates}")


# --- 5. Cluster -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    id: int
    size: int
    type: str
    owner: str | None
    speed: float
    nodes: tuple[int, ...]


def make_pools(nodes: Sequence[Node], speeds: dict[str, float]) -> list[Pool]:
    members: dict[tuple[str, str | None, int], list[int]] = {}
    for id, node in enumerate(nodes):
        members.setdefault((node.type, node.owner, node.gpus), []).append(id)
    return [
        Pool(id, size, type, owner, speeds.get(type, 1.0), tuple(ids))
        for id, ((type, owner, size), ids) in enumerate(members.items())
    ]


def queue_of(pools: list[Pool], job: Job) -> str | None:
    """The owner group whose nodes the job uses; None for the unowned nodes."""
    return job.group if any(pool.owner == job.group for pool in pools) else None


def allowed_pools(pools: list[Pool], job: Job) -> list[Pool]:
    return [
        pool
        for pool in pools
        if pool.owner == queue_of(pools, job)
        and (job.gpu_types is None or pool.type in job.gpu_types)
        and (job.gpus == 0 or pool.size >= 1)
    ]


@dataclass
class FreeNode:
    gpu_milli: list[int]  # free thousandths of each GPU
    cpus: int
    memory_mib: int

    @property
    def empty(self) -> int:
        return self.gpu_milli.count(1000)

    @property
    def free_milli(self) -> int:
        return sum(self.gpu_milli)

    def gpu_for(self, milli: int) -> int | None:
        """The fullest GPU with that much room, the lowest-numbered one among equals."""
        fitting = [(free, index) for index, free in enumerate(self.gpu_milli) if free >= milli]
        return min(fitting)[1] if fitting else None


def empty_cluster(nodes: Sequence[Node]) -> list[FreeNode]:
    def capacity(given: int | None) -> int:
        return UNLIMITED if given is None else given

    return [FreeNode([1000] * node.gpus, capacity(node.cpus), capacity(node.memory_mib)) for node in nodes]


def copy_of(free: list[FreeNode]) -> list[FreeNode]:
    return [FreeNode(list(node.gpu_milli), node.cpus, node.memory_mib) for node in free]


Allocation = tuple[tuple[int, int], ...]  # (node, GPUs) by ascending node


@dataclass(frozen=True)
class Held:
    """What a job holds on one node."""

    node: int
    gpu_indices: tuple[int, ...]
    gpu_milli: int  # of each of these GPUs
    cpus: int
    memory_mib: int


def share(job: Job, gpus: int) -> tuple[int, int]:
    """CPUs and MiB that a job takes on a node that holds so many of its GPUs."""
    if job.gpus == 0 or job.is_shared:
        return job.cpus, job.memory_mib
    return -(-job.cpus * gpus // job.gpus), -(-job.memory_mib * gpus // job.gpus)


def take(free: list[FreeNode], job: Job, allocation: Allocation) -> list[Held]:
    held = []
    for id, gpus in allocation:
        node = free[id]
        if job.is_shared:
            index = node.gpu_for(job.gpu_milli)
            assert index is not None
            indices = [index]
        else:
            indices = [index for index, milli in enumerate(node.gpu_milli) if milli == 1000][:gpus]
            assert len(indices) == gpus
        held.append(Held(id, tuple(indices), job.gpu_milli, *share(job, gpus)))
    change(free, held, -1)
    return held


def change(free: list[FreeNode], held: list[Held], sign: int) -> None:
    """Gives back (sign = 1) or takes away (sign = -1) exactly these GPUs, CPUs and this memory."""
    for part in held:
        node = free[part.node]
        for index in part.gpu_indices:
            node.gpu_milli[index] += sign * part.gpu_milli
        node.cpus += sign * part.cpus
        node.memory_mib += sign * part.memory_mib
        assert all(0 <= milli <= 1000 for milli in node.gpu_milli)
        assert node.cpus >= 0
        assert node.memory_mib >= 0


# --- 6. Run time on an allocation -----------------------------------------------------------------------


def least_nodes(pool: Pool, job: Job) -> int:
    return -(-job.gpus // pool.size) if job.gpus >= 1 else 1


def run_time_us(base_us: int, job: Job, allocation: Allocation, pools: list[Pool], penalty: float) -> int:
    used = {id for id, _ in allocation}
    used_pools = [pool for pool in pools if used & set(pool.nodes)]
    speed = min(pool.speed for pool in used_pools) if job.gpus >= 1 else 1.0
    n_min = min(least_nodes(pool, job) for pool in used_pools)
    excess = float(len(used) - n_min) / float(n_min)
    exact = (float(base_us) / speed) * (1.0 + penalty * excess)
    if exact > LATEST_US:
        raise ValueError("a run time is more than 2^62 microseconds")
    return max(1, round(exact))


# --- 9. Placement ---------------------------------------------------------------------------------------


def can_hold(node: FreeNode, job: Job, gpus: int) -> bool:
    cpus, memory_mib = share(job, gpus)
    if node.cpus < cpus or node.memory_mib < memory_mib:
        return False
    if job.gpus == 0:
        return True
    if job.is_shared:
        return node.gpu_for(job.gpu_milli) is not None
    return node.empty >= gpus


def place(
    pools: list[Pool], free: list[FreeNode], request: Request, rule: str, seed: int
) -> Allocation | None:
    """The allocation that the rule gives, or None if the job does not fit."""
    job = request.job
    allowed = allowed_pools(pools, job)
    if rule in SPLITTING_RULES:
        return place_anywhere(allowed, free, request, rule, seed)
    if rule not in POOL_RULES:
        raise ValueError(f"unknown placement: {rule}")
    if job.gpus == 0:
        allowed.sort(key=lambda pool: (pool.size, pool.id))
    else:
        allowed.sort(key=lambda pool: (-pool.speed, least_nodes(pool, job), pool.id))
    choices = [place_in_pool(pool, free, job, rule) for pool in allowed]
    found = [choice for choice in choices if choice is not None]
    if rule == "first-available":
        return min(found, key=lambda allocation: allocation[0][0], default=None)
    return found[0] if found else None


def place_in_pool(pool: Pool, free: list[FreeNode], job: Job, rule: str) -> Allocation | None:
    if job.gpus == 0 or job.is_shared:
        return place_on_one_node(pool.nodes, free, job, job.gpus, rule)
    full_count, remainder = divmod(job.gpus, pool.size)
    full = [id for id in pool.nodes if can_hold(free[id], job, pool.size)][:full_count]
    if len(full) < full_count:
        return None
    allocation = [(id, pool.size) for id in full]
    if remainder > 0:
        others = [id for id in pool.nodes if id not in full]
        last = place_on_one_node(others, free, job, remainder, rule)
        if last is None:
            return None
        allocation += last
    return tuple(sorted(allocation))


def place_on_one_node(
    ids: Sequence[int], free: list[FreeNode], job: Job, gpus: int, rule: str
) -> Allocation | None:
    def rank(id: int) -> tuple[int, ...]:
        node = free[id]
        if rule in ("first-fit", "first-available"):
            return (id,)
        if job.is_shared:
            index = node.gpu_for(job.gpu_milli)
            assert index is not None
            return (
                (-node.free_milli, id)
                if rule == "worst-fit"
                else (node.gpu_milli[index], node.free_milli, id)
            )
        amount = node.cpus if job.gpus == 0 else node.empty
        return (-amount, id) if rule == "worst-fit" else (amount, id)

    holders = [id for id in ids if can_hold(free[id], job, gpus)]
    return ((min(holders, key=rank), gpus),) if holders else None


def place_anywhere(
    allowed: list[Pool], free: list[FreeNode], request: Request, rule: str, seed: int
) -> Allocation | None:
    job = request.job

    def rank(id: int) -> tuple[int, ...]:
        if rule == "anywhere":
            return (id,)
        if rule == "random":
            return (draw(seed, 3, request.row, id), id)
        node = free[id]
        return (-(node.cpus if job.gpus == 0 else node.free_milli if job.is_shared else node.empty), id)

    ids = sorted((id for pool in allowed for id in pool.nodes), key=rank)
    if job.gpus == 0 or job.is_shared:
        return next((((id, job.gpus),) for id in ids if can_hold(free[id], job, job.gpus)), None)
    allocation: list[tuple[int, int]] = []
    needed = job.gpus
    for id in ids:
        most = min(free[id].empty, needed)
        gpus = next((k for k in range(most, 0, -1) if can_hold(free[id], job, k)), 0)
        if gpus > 0:
            allocation.append((id, gpus))
            needed -= gpus
        if needed == 0:
            return tuple(sorted(allocation))
    return None


def can_ever_start(
    nodes: Sequence[Node], speeds: dict[str, float], job: Job, row: int, placement: str, seed: int
) -> bool:
    """Whether the rule places the job on the empty cluster; `row` is its original row."""
    request = Request(0, row, job, 0, 1, None)
    return place(make_pools(nodes, speeds), empty_cluster(nodes), request, placement, seed) is not None


# --- 7, 8, 10, 11. Events, order, backfill, admission ---------------------------------------------------


@dataclass(frozen=True)
class Running:
    request: Request
    allocation: Allocation
    held: list[Held]
    end_us: int
    expected_end_us: float  # an int, or infinity


@dataclass
class Usage:
    gpu_s: float = 0.0
    updated_us: int = 0
    milli: int = 0

    def at(self, now_us: int, half_life_s: float) -> float:
        x = float(now_us - self.updated_us) / 1e6
        f = math.exp2(-(x / half_life_s))
        held = (float(self.milli) / 1000.0) * (half_life_s / 0.6931471805599453) * (1.0 - f)
        return self.gpu_s * f + held


@dataclass
class Simulation:
    pools: list[Pool]
    free: list[FreeNode]
    arriving: list[Request]
    policy: Policy
    settings: Settings
    now_us: int = 0
    instant: int = -1
    queued: list[Request] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    def run(self) -> None:
        while self.arriving or self.running:
            times = [job.end_us for job in self.running] + [request.submit_us for request in self.arriving]
            self.now_us = min(times)
            self.instant += 1
            if self.now_us > LATEST_US:
                raise ValueError("the simulation went past 2^62 microseconds")
            for job in [job for job in self.running if job.end_us == self.now_us]:
                self.finish(job)
            self.queued += [request for request in self.arriving if request.submit_us == self.now_us]
            self.arriving = [request for request in self.arriving if request.submit_us > self.now_us]
            self.decide()
        assert not self.queued

    def decide(self) -> None:
        ranked = sorted(self.queued, key=lambda request: (self.score(request), request.submit_us, request.id))
        queues = {request.id: queue_of(self.pools, request.job) for request in ranked}
        for queue in dict.fromkeys(pool.owner for pool in self.pools):
            self.make_pass(queue, [request for request in ranked if queues[request.id] == queue])

    def make_pass(self, queue: str | None, ranked: list[Request]) -> None:
        some_job_did_not_fit = False
        for position, request in enumerate(ranked):
            allocation = self.place(self.free, request)
            if allocation is not None:
                if self.is_admitted(request, allocation):
                    self.start(request, allocation, backfilled=some_job_did_not_fit)
            elif self.policy.backfill == "strict":
                return
            elif self.policy.backfill in ("easy", "easy-sjf"):
                self.backfill(queue, request, ranked[position + 1 :])
                return
            else:
                some_job_did_not_fit = True

    def backfill(self, queue: str | None, head: Request, others: list[Request]) -> None:
        shadow_us = self.shadow_time_us(queue, head)
        if self.policy.backfill == "easy-sjf":
            others = sorted(others, key=lambda r: math.inf if r.estimate_us is None else r.estimate_us)
        for request in others:
            allocation = self.place(self.free, request)
            if allocation is None or not self.is_admitted(request, allocation):
                continue
            ends_in_time = self.now_us + self.expected_us(request, allocation) <= shadow_us
            if ends_in_time or self.head_still_fits(queue, head, shadow_us, request, allocation):
                self.start(request, allocation, backfilled=True)

    def running_in(self, queue: str | None) -> list[Running]:
        return [job for job in self.running if queue_of(self.pools, job.request.job) == queue]

    def expected_end_us(self, job: Running) -> float:
        return max(job.expected_end_us, self.now_us)

    def shadow_time_us(self, queue: str | None, head: Request) -> float:
        free = copy_of(self.free)
        running = self.running_in(queue)
        ends = {self.expected_end_us(job) for job in running}
        for end_us in sorted(ends - {math.inf}):
            for job in running:
                if self.expected_end_us(job) == end_us:
                    change(free, job.held, +1)
            if self.place(free, head) is not None:
                return end_us
        return math.inf

    def head_still_fits(
        self, queue: str | None, head: Request, shadow_us: float, request: Request, allocation: Allocation
    ) -> bool:
        free = copy_of(self.free)
        take(free, request.job, allocation)  # the very GPUs that it would get now
        for job in self.running_in(queue):
            if self.expected_end_us(job) <= shadow_us:
                change(free, job.held, +1)
        return self.place(free, head) is not None

    def is_admitted(self, request: Request, allocation: Allocation) -> bool:
        if self.policy.express is None:
            return True
        job, (t0_s, k) = request.job, self.policy.express
        if job.gpus == 0 or k == 0:
            return True
        if self.policy.placement in SPLITTING_RULES:
            its_pools = allowed_pools(self.pools, job)  # of size >= 1, since the job has GPUs
        else:
            its_pools = [pool for pool in self.pools if allocation[0][0] in pool.nodes]
        ids = {id for pool in its_pools for id in pool.nodes}
        if not any(part.node in ids for other in self.running for part in other.held):
            return True
        if request.estimate_us is None:
            return False
        r = to_s(request.estimate_us)
        free = float(sum(self.free[id].free_milli for id in ids)) / 1000.0
        c = float(sum(pool.size * len(pool.nodes) for pool in its_pools))
        return (free - job.size) / c >= k * math.log(max(r, t0_s) / t0_s)

    def place(self, free: list[FreeNode], request: Request) -> Allocation | None:
        return place(self.pools, free, request, self.policy.placement, self.settings.seed)

    def expected_us(self, request: Request, allocation: Allocation) -> float:
        if request.estimate_us is None:
            return math.inf
        return self.run_us(request.estimate_us, request, allocation)

    def run_us(self, base_us: int, request: Request, allocation: Allocation) -> int:
        return run_time_us(base_us, request.job, allocation, self.pools, self.settings.locality_penalty)

    def start(self, request: Request, allocation: Allocation, backfilled: bool) -> None:
        job = request.job
        held = take(self.free, job, allocation)
        run_us = self.run_us(request.duration_us, request, allocation)
        expected_us = self.expected_us(request, allocation)
        status = "completed"
        if self.settings.kill_at_estimate and expected_us < run_us:
            run_us, status = int(expected_us), "timeout"
        end_us = self.now_us + run_us
        self.add_usage(job, +1)
        self.queued.remove(request)
        self.running.append(Running(request, allocation, held, end_us, self.now_us + expected_us))
        gpu_index = held[0].gpu_indices[0] if job.is_shared else -1
        self.outcomes[request.id] = Outcome(self.now_us, end_us, status, allocation, gpu_index, backfilled)

    def finish(self, job: Running) -> None:
        change(self.free, job.held, +1)
        self.add_usage(job.request.job, -1)
        self.running.remove(job)

    def add_usage(self, job: Job, sign: int) -> None:
        usage = self.usage.setdefault(job.user, Usage())
        usage.gpu_s = usage.at(self.now_us, self.settings.usage_half_life_s)
        usage.updated_us = self.now_us
        usage.milli += sign * job.gpus * job.gpu_milli

    def score(self, request: Request) -> float:
        """The table of section 8."""
        job, order, n = request.job, self.policy.order, request.job.size
        s, w = to_s(request.submit_us), to_s(self.now_us - request.submit_us)
        if order in ORDERS_BY_ESTIMATE:
            if request.estimate_us is None:
                return math.inf
            r, t = to_s(request.estimate_us), max(self.settings.origin_s + s, 1.0)
            return score_by_estimate(order, r, n, w, t)
        if order == "edf":
            return math.inf if job.deadline_s is None else to_s(to_us(job.deadline_s))
        if order == "fair-share":
            return self.usage.get(job.user, Usage()).at(self.now_us, self.settings.usage_half_life_s)
        if order == "random":
            return uniform(self.settings.seed, 2, self.instant, request.row)
        return {"fifo": s, "lifo": -s, "smallest": n, "largest": -n, "priority": -job.priority}[order]


def score_by_estimate(order: str, r: float, n: float, w: float, t: float) -> float:
    q = w / r
    return {
        "sjf": r,
        "ljf": -r,
        "saf": r * n,
        "laf": -(r * n),
        "wspt": r * max(r, 10.0) * n,
        "wfp3": -(q * q * q * n),
        "unicep": -(w / (math.log2(max(n, 2.0)) * r)),
        "f1": math.log10(r) * n + 870.0 * math.log10(t),
        "f2": math.sqrt(r) * n + 25600.0 * math.log10(t),
        "f3": r * n + 6860000.0 * math.log10(t),
        "f4": r * math.sqrt(n) + 530000.0 * math.log10(t),
    }[order]


def simulate(
    nodes: list[Node], speeds: dict[str, float], jobs: list[Job], policy: Policy, settings: Settings
) -> list[Outcome]:
    """Simulates jobs that are sorted by submit time; raises ValueError naming a job that can never start."""
    if policy.backfill not in BACKFILLS or policy.order not in ORDERS_BY_ESTIMATE + OTHER_ORDERS:
        raise ValueError(f"unknown policy: {policy}")
    requests = [make_request(id, job, settings) for id, job in enumerate(jobs)]
    if any(a.submit_us > b.submit_us for a, b in pairwise(requests)):
        raise ValueError("jobs must be sorted by submit time")
    for request in requests:
        if not can_ever_start(nodes, speeds, request.job, request.row, policy.placement, settings.seed):
            raise ValueError(f"job {request.id} can never start: {request.job}")
    simulation = Simulation(make_pools(nodes, speeds), empty_cluster(nodes), requests, policy, settings)
    simulation.run()
    return [simulation.outcomes[request.id] for request in requests]
