"""Sections 1 to 4 of docs/contract/simulator.md: numbers, random draws, jobs, settings and estimates.

And the inputs of docs/contract/slurm.md: partitions and qualities of service.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

UNLIMITED = 2**40
LATEST_US = 2**62
LARGEST_INPUT_US = 2**32 * 10**6

# What plain simulations are made of: no preemption, failures, sleep, power, quotas or history.
SPLITTING_RULES = ("anywhere", "spread", "random")
POOL_RULES = ("consolidate", "best-fit", "first-fit", "worst-fit", "first-available")
BACKFILLS = ("strict", "greedy", "easy", "easy-sjf")
ESTIMATES = ("exact", "requested", "noisy", "none")
POWERS = ("power:0.25", "power:0.5", "power:1.7")  # of the many that there are
ORDERS_BY_ESTIMATE = (
    *("sjf", "ljf", "saf", "laf", "wspt"),
    *POWERS,
    *("wfp3", "unicep", "f1", "f2", "f3", "f4"),
)
OTHER_ORDERS = ("fifo", "lifo", "smallest", "largest", "priority", "edf", "fair-share", "random")
# And the rest of the page.
ENERGY_POOL_RULES = ("power-aware",)
NEW_POOL_RULES = ("tetris", "fgd", *ENERGY_POOL_RULES)
TIER_RULES = ("tier", "tier-balance", "tier-lex", "tier-cost")
NEW_ORDERS = ("power-aware", "qssf", "group-fair-share", "drf", "multifactor")
PREEMPTIVE_ORDERS = ("srtf", "ssf", "las", "las-2d", "tiresias", "gittins")
ALL_ORDERS = ORDERS_BY_ESTIMATE + OTHER_ORDERS + NEW_ORDERS + PREEMPTIVE_ORDERS
ALL_BACKFILLS = (*BACKFILLS, "conservative", "slurm")
ALL_ESTIMATES = (*ESTIMATES, "history")
ALL_PLACEMENTS = POOL_RULES + SPLITTING_RULES + NEW_POOL_RULES + TIER_RULES


@dataclass(frozen=True)
class Node:
    type: str
    gpus: int
    cpus: int | None = None
    memory_mib: int | None = None
    owner: str | None = None
    idle_w: float = 0.0


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
    nodes: int | None = None  # that its user asked for
    partition: str = ""
    qos: str = ""
    after: tuple[int, ...] = ()  # positions of the jobs that have to end before

    @property
    def asked_nodes(self) -> int | None:
        """N of section 3; None for a job that does not ask for nodes."""
        if self.nodes is None:
            return None
        count = min(self.nodes, self.gpus) if self.gpus >= 1 else self.nodes
        return None if count == 1 and self.gpus <= 1 else count

    @property
    def is_shared(self) -> bool:
        return self.gpus == 1 and self.gpu_milli < 1000

    @property
    def is_whole(self) -> bool:
        """A whole-GPU job: neither shared nor CPU-only."""
        return self.gpus >= 1 and self.gpu_milli == 1000

    @property
    def milli(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.gpu_milli

    @property
    def size(self) -> float:
        return float(self.milli) / 1000.0


@dataclass(frozen=True)
class Partition:
    """As `gpuyard.cluster.model.Partition`, with node ids in place of names."""

    name: str
    nodes: tuple[int, ...]
    default: bool = False
    priority_tier: int = 1
    priority_job_factor: int = 1
    max_time_s: float | None = None
    max_nodes: int | None = None
    max_gpus_per_job: int | None = None
    max_gpus_per_user: int | None = None
    max_jobs_per_user: int | None = None


@dataclass(frozen=True)
class Qos:
    """As `gpuyard.cluster.model.Qos`."""

    name: str
    priority: int = 0
    max_time_s: float | None = None
    max_gpus_per_job: int | None = None
    max_gpus_per_user: int | None = None
    max_jobs_per_user: int | None = None
    max_gpus_per_group: int | None = None
    max_gpus: int | None = None


@dataclass(frozen=True)
class Policy:
    order: str
    backfill: str = "strict"
    express: tuple[float, float] | None = None  # (T0 in seconds, K)
    placement: str = "consolidate"
    max_wait_s: float | None = None  # the ageing bound


@dataclass(frozen=True)
class Settings:
    """As `gpuyard.config.SimulationConfig`, and the workload's `origin_s` and `epoch_s`."""

    estimates: str = "exact"
    noise_sigma: float = 1.0
    seed: int = 0
    kill_at_estimate: bool = False
    locality_penalty: float = 0.0
    usage_half_life_s: float = 604800.0
    origin_s: float = 0.0
    epoch_s: float = 0.0  # what the log's clock showed at time 0

    user_shares: Mapping[str, float] = field(default_factory=dict)
    group_shares: Mapping[str, float] = field(default_factory=dict)
    age_weight: float = 1000.0
    fair_share_weight: float = 1000.0
    size_weight: float = 100.0
    partition_weight: float = 0.0
    qos_weight: float = 0.0
    gpu_weight: float = 0.0
    cpu_weight: float = 0.0
    memory_weight: float = 0.0
    priority_weight: float = 1000.0
    max_age_s: float = 604800.0
    favor_small: bool = False
    fair_share: str = "tree"  # or "classic"
    priority_calc_s: float = 300.0
    group_quotas: Mapping[str, int] = field(default_factory=dict)
    quota_borrowing: bool = True

    bf_interval_s: float = 30.0
    bf_max_job_test: int = 500
    bf_max_job_part: int = 0
    bf_max_job_user: int = 0
    bf_window_s: float = 86400.0
    bf_resolution_s: float = 60.0

    reschedule_s: float = 60.0
    min_run_s: float = 300.0
    checkpoint_s: float | None = None
    restore_s: float | None = None
    defragment: bool = False
    tiresias_levels_gpu_s: tuple[float, ...] = (3600.0, 36000.0)
    starvation_s: float = 28800.0

    node_mtbf_s: float | None = None
    node_mttr_s: float | None = None  # 3600 if nodes fail
    checkpoint_every_s: float | None = None

    sleep_after_s: float | None = None
    wake_s: float | None = None  # 60 if nodes sleep
    power_cap_w: float | None = None


@dataclass(frozen=True)
class Beginning:
    """Section 7: starts that are given, up to the moment from which on the policy decides."""

    decides_from_us: int
    starts: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...] = ()  # (job, start in us, allocation)


@dataclass(frozen=True)
class Outcome:
    start_us: int
    end_us: int
    status: str  # "completed" or "timeout"
    nodes: tuple[tuple[int, int], ...]  # (node, GPUs) by ascending node
    gpu_index: int  # -1 for jobs that are not shared
    backfilled: bool


@dataclass(frozen=True)
class Run:
    """A row of the table of runs (section 14)."""

    job: int
    taken_us: int
    begin_us: int
    stop_us: int  # progress ends
    released_us: int
    ending: str  # "completed", "timeout", "stopped" or "failed"
    restore_us: int
    lost_us: int
    nodes: tuple[tuple[int, int], ...]
    gpu_index: int


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


def exponential_us(mean_us: int, seed: int, stream: int, node: int, count: int) -> int:
    """Section 16: a time between failures (stream 4) or to a repair (stream 5)."""
    return max(1, round(float(mean_us) * -math.log(1.0 - uniform(seed, stream, node, count))))


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
    """The job as the simulator sees it; an estimate from `history` is put in when the job arrives."""
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
    if settings.estimates in ("none", "history"):
        return None
    raise ValueError(f"unknown estimates: {settings.estimates}")


# --- 14. Checkpoints ------------------------------------------------------------------------------------


def default_checkpoint_s(job: Job) -> float:
    """Half of 7, 30 or 60 s."""
    return 3.5 if job.gpus <= 8 else 15.0 if job.gpus <= 32 else 30.0


def checkpoint_us(job: Job, settings: Settings) -> int:
    given = settings.checkpoint_s
    return max(1, to_us(default_checkpoint_s(job) if given is None else given))


def restore_us(job: Job, settings: Settings) -> int:
    given = settings.restore_s
    return to_us(default_checkpoint_s(job) if given is None else given)
