"""Types of the native core (core/python). Times in arrays are int64 microseconds."""

from collections.abc import Callable
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from gpuyard.errors import InputError

ENDLESS: int
UNLIMITED: int

_F64 = NDArray[np.float64]
_I32 = NDArray[np.int32]
_I64 = NDArray[np.int64]

def draw(seed: int, stream: int, a: int, b: int) -> int: ...
def uniforms(seed: int, stream: int, count: int) -> _F64: ...
def normals(seed: int, stream: int, count: int) -> _F64: ...
def exponentials(seed: int, stream: int, count: int) -> _F64: ...
def lognormals(seed: int, stream: int, count: int, mu: float, sigma: float) -> _F64: ...
def noisy_estimates(duration_us: _I64, row: _I64, seed: int, sigma: float) -> _I64: ...

class ClusterSpec:
    def __init__(
        self,
        type: _I32,
        gpus: _I32,
        cpus: _I64,
        memory_mib: _I64,
        owner: _I32,
        type_speed: _F64,
        track_gpus: bool,
        node_idle_w: _F64 | None = None,
        type_idle_w: _F64 | None = None,
        type_peak_w: _F64 | None = None,
        partitions: list[tuple[list[int], int, int]] = ...,
    ) -> None: ...
    @property
    def idle_w(self) -> float: ...
    @property
    def pool(self) -> _I32: ...
    @property
    def queues(self) -> int: ...

class JobTable:
    def __init__(
        self,
        cluster: ClusterSpec,
        submit_us: _I64,
        duration_us: _I64,
        estimate_us: _I64,
        gpus: _I32,
        gpu_milli: _I32 | None = None,
        cpus: _I64 | None = None,
        memory_mib: _I64 | None = None,
        queue: _I32 | None = None,
        type_set: _I32 | None = None,
        priority: _F64 | None = None,
        deadline_us: _I64 | None = None,
        user: _I32 | None = None,
        group: _I32 | None = None,
        row: _I64 | None = None,
        nodes: _I32 | None = None,
        partition: _I32 | None = None,
        qos: _I32 | None = None,
        association: _I32 | None = None,
        after_offset: _I64 | None = None,
        after: _I64 | None = None,
        type_sets: list[list[int]] = ...,
        users: int = 1,
        groups: int = 1,
        origin_s: float = 0.0,
        epoch_us: int = 0,
    ) -> None: ...
    def __len__(self) -> int: ...

class Multifactor:
    age: float
    fair_share: float
    size: float
    partition: float
    qos: float
    gpus: float
    cpus: float
    memory: float
    priority: float
    max_age_s: float
    favor_small: bool
    classic: bool
    calc_us: int
    association_group: list[int]
    association_share: list[float]
    group_share: list[float]
    qos_factor: list[float]
    def calculated_us(self, now_us: int) -> int: ...

class SlurmBackfill:
    interval_us: int
    max_jobs: int
    max_jobs_of_partition: int
    max_jobs_of_user: int
    window_us: int
    resolution_us: int
    always_changed: bool
    goes_by_calc: bool

class Settings:
    seed: int
    kill_at_estimate: bool
    locality_penalty: float
    usage_half_life_s: float
    predict: bool
    user_weight: list[float]
    group_weight: list[float]
    quota_milli: list[int]
    quota_of_group: list[int]
    quota_borrowing: bool
    ticks: bool
    reschedule_us: int
    min_run_us: int
    checkpoint_us: int
    restore_us: int
    defragment: bool
    tiresias_levels_gpu_s: list[float]
    starvation_us: int
    mtbf_us: int
    mttr_us: int
    checkpoint_every_us: int
    sleep_after_us: int
    wake_us: int
    power_cap_mw: int

    def __init__(self) -> None: ...
    multifactor: Multifactor
    slurm: SlurmBackfill
    def add_limit(self, of_qos: bool, number: int, per: str, milli: int = ..., jobs: int = ...) -> None: ...

class Policy:
    def __init__(
        self,
        order: str,
        backfill: str,
        placement: str,
        express_t0_s: float = 1.0,
        express_k: float = 0.0,
        scores: Callable[[dict[str, Any]], _F64] | None = None,
        order_parameter: float = 1.0,
        max_wait_us: int = ...,
    ) -> None: ...

class Snapshot:
    """What a scheduler may know at a decision point."""

    @property
    def now_s(self) -> float: ...
    @property
    def queue(self) -> dict[str, NDArray[Any]]: ...
    @property
    def running(self) -> dict[str, NDArray[Any]]: ...
    @property
    def nodes(self) -> dict[str, NDArray[Any]]: ...
    def nodes_of(self, job: int) -> list[tuple[int, int]]: ...
    def allowed_pools(self, job: int) -> list[int]: ...

class Decision:
    """Jobs to start now, in this order."""

    def __init__(self) -> None: ...
    def start(
        self, job: int, nodes: list[tuple[int, int]], stop: list[int] = ..., backfilled: bool = False
    ) -> None: ...
    def wake_at(self, wake_us: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def starts(self) -> list[tuple[int, list[tuple[int, int]]]]: ...
    @property
    def stops(self) -> list[tuple[int, list[int]]]: ...
    @property
    def backfilled(self) -> list[int]: ...
    @property
    def reservations(self) -> list[tuple[int, float, float, list[tuple[int, int]]]]: ...
    @property
    def wake_s(self) -> float: ...

class Past:
    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, user: _I32, group: _I32, gpus: _I32, milli: _I64, run_us: _I64) -> None: ...

class Beginning:
    """Starts that are given, up to the moment from which on a policy decides."""

    def __init__(
        self, jobs: JobTable, decides_from_us: int, starts: list[tuple[int, int, list[tuple[int, int]]]]
    ) -> None: ...

class CheckedSimulator:
    def __init__(
        self,
        cluster: ClusterSpec,
        jobs: JobTable,
        settings: Settings,
        past: Past = ...,
        beginning: Beginning | None = None,
    ) -> None: ...
    def advance(self) -> bool: ...
    @property
    def now_s(self) -> float: ...
    @property
    def finished(self) -> int: ...
    @property
    def waiting(self) -> _I64: ...
    def has_finished(self, job: int) -> bool: ...
    def snapshot(self) -> Snapshot: ...
    def apply(self, decision: Decision) -> None: ...
    def schedule(self) -> dict[str, Any]: ...

class WatchedRun:
    def __init__(
        self,
        cluster: ClusterSpec,
        jobs: JobTable,
        policy: Policy,
        settings: Settings,
        past: Past,
        job: int,
        keeps_plan: bool = False,
    ) -> None: ...
    def run(self, progress: Callable[[int], None] | None = None) -> None: ...
    def schedule(self) -> dict[str, Any]: ...
    @property
    def started_as_planned(self) -> bool: ...
    def look(self, every: int) -> None: ...
    def advance(self) -> bool: ...
    @property
    def finished(self) -> int: ...
    @property
    def decision(self) -> Decision: ...
    @property
    def stops(self) -> list[tuple[float, int]]: ...
    def snapshot(self) -> Snapshot: ...

class EndlessFailuresError(InputError): ...
class ImpossibleBeginningError(InputError): ...
class SnapshotError(ValueError): ...

def make_snapshot(
    cluster: ClusterSpec, settings: Settings, tables: dict[str, Any], type_sets: list[list[int]]
) -> Snapshot: ...
def snapshot_columns(snapshot: Snapshot) -> dict[str, Any]: ...
def decide(snapshot: Snapshot, policy: Policy) -> Decision: ...
def ranking(snapshot: Snapshot, policy: Policy) -> tuple[_I64, _F64]: ...
def explain(snapshot: Snapshot, policy: Policy, job: int) -> dict[str, Any]: ...
def needs_full_simulator(
    cluster: ClusterSpec, jobs: JobTable, policy: Policy, settings: Settings
) -> bool: ...
def simulate(
    cluster: ClusterSpec,
    jobs: JobTable,
    policy: Policy,
    settings: Settings,
    progress: Callable[[int], None] | None = None,
    past: Past = ...,
    beginning: Beginning | None = None,
) -> dict[str, Any]: ...
def never_placeable(
    cluster: ClusterSpec, jobs: JobTable, placement: str, power_cap_mw: int = ...
) -> _I64: ...
def orders() -> list[dict[str, Any]]: ...
def time_means(
    start_us: _I64,
    end_us: _I64,
    node_offset: _I64,
    node: _I32,
    node_gpus: _I32,
    gpu_index: _I32,
    gpu_milli: _I32,
    node_size: _I32,
    from_us: int,
    to_us: int,
) -> tuple[float, float, _F64]: ...
def users_active(user: _I32, submit_us: _I64, end_us: _I64) -> _I32: ...

OBSERVATION_VERSION: int
JOB_COLUMNS: list[tuple[str, float, float]]
ASKED_JOB_COLUMNS: list[tuple[str, float, float]]
ASKED_GLOBAL_COLUMNS: list[tuple[str, float, float]]
NODE_COLUMNS: list[tuple[str, float, float]]
GLOBAL_COLUMNS: list[tuple[str, float, float]]
REWARD_TERMS: list[str]
EPISODE_METRICS: list[str]

class InvalidActionError(ValueError): ...

class EnvSpec:
    tick_us: int
    blocking_backfill: bool
    backfill_before_shadow: bool
    lookahead_horizon_us: int
    per_job: bool
    horizon_factor: float
    max_steps: int
    invalid_is_noop: bool
    invalid_penalty: float
    job_columns: list[int] | None
    node_columns: list[int] | None
    global_columns: list[int] | None

    def __init__(
        self,
        kind: str,
        step_mode: str,
        tokens: str,
        lookahead: str,
        base: Policy,
        settings: Settings,
        rewards: list[tuple[str, float]],
        baseline: Policy | None,
        baseline_metric: str,
    ) -> None: ...
    def set_sizes(self, rows: int, tokens: int, pools: int, lookahead: int, hosts: int) -> None: ...
    @property
    def actions(self) -> int: ...

class EpisodeTable:
    def __init__(self, cluster: ClusterSpec, jobs: JobTable, settings: Settings, spec: EnvSpec) -> None: ...
    def __len__(self) -> int: ...

class VectorEnv:
    def __init__(self, spec: EnvSpec, count: int, threads: int, autoreset: str) -> None: ...
    def set_windows(
        self, table: EpisodeTable, begin: int, end: int, jobs: int, warmup: int, cooldown: int
    ) -> None: ...
    def give(self, i: int, table: EpisodeTable, row: int, jobs: int, warmup: int, cooldown: int) -> None: ...
    def attach(self, arrays: dict[str, NDArray[Any]]) -> None: ...
    def reset(self, seeds: NDArray[np.uint64] | None, which: NDArray[np.uint8] | None) -> None: ...
    def resume(
        self, i: int, seed: int, drawn: int, actions: _I64 | None, priorities: NDArray[np.float32] | None
    ) -> None: ...
    def step(self, actions: _I64) -> None: ...
    def step_ranked(self, priorities: NDArray[np.float32]) -> None: ...
    def expert_actions(self, policy: Policy) -> _I64: ...
    def random_actions(self) -> _I64: ...
    def snapshot(self, i: int) -> Snapshot: ...
    def window(self, i: int) -> list[int]: ...
    def record(self, i: int) -> dict[str, Any]: ...
    def clock_s(self, i: int) -> float: ...

def token_rows(cluster: ClusterSpec, tokens: str) -> int: ...

class Network:
    def __init__(
        self,
        config: dict[str, Any],
        sizes: dict[str, Any],
        tensors: dict[str, NDArray[np.float32]],
        kernels: str = "auto",
    ) -> None: ...
    def forward(
        self,
        jobs: NDArray[np.float32],
        nodes: NDArray[np.float32],
        globals: NDArray[np.float32],
        mask: NDArray[np.int8],
    ) -> tuple[NDArray[np.float32], float]: ...
    def forward_batch(
        self,
        jobs: NDArray[np.float32],
        nodes: NDArray[np.float32],
        globals: NDArray[np.float32],
        masks: NDArray[np.int8],
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
    def choose(
        self,
        jobs: NDArray[np.float32],
        nodes: NDArray[np.float32],
        globals: NDArray[np.float32],
        mask: NDArray[np.int8],
    ) -> int: ...

_Episodes = list[tuple[EpisodeTable, int, int, int, int]]
_Outcomes = tuple[_F64, _F64, _I64]

class Rollouts:
    def __init__(self, spec: EnvSpec, threads: int) -> None: ...
    def run(self, episodes: _Episodes, chooser: Network | Policy) -> _Outcomes: ...
    def run_many(self, episodes: _Episodes, networks: list[Network]) -> _Outcomes: ...

def replay(
    spec: EnvSpec,
    table: EpisodeTable,
    network: Network,
    progress: Callable[[int], None] | None = None,
    first: int = 0,
) -> dict[str, NDArray[Any]]: ...
def decide_by_network(snapshot: Snapshot, spec: EnvSpec, network: Network) -> Decision: ...
def observe(
    snapshot: Snapshot, spec: EnvSpec
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]: ...
def observed_sizes(snapshot: Snapshot, tokens: str) -> tuple[int, int, int, int]: ...
def time_decisions(
    spec: EnvSpec, table: EpisodeTable, network: Network, count: int
) -> tuple[_F64, _F64, _I64]: ...

class testing:  # noqa: N801 - a module
    """Parts of the core by themselves, for tests that compare them with another implementation."""

    BACKFILLS: list[str]
    PLACEMENTS: list[str]
    NETWORK_KERNELS: list[str]

    @staticmethod
    def score(
        order: str,
        submit_us: int,
        estimate_us: int,
        size_gpus: float,
        priority: float,
        deadline_us: int,
        row: int,
        user_usage: float,
        now_us: int,
        instant: int,
        seed: int,
        origin_s: float,
        order_parameter: float = 1.0,
    ) -> float: ...
    @staticmethod
    def run_time(
        duration_us: int, speed: float, nodes_used: int, fewest_nodes: int, locality_penalty: float
    ) -> int: ...
    @staticmethod
    def decayed_usage(changes: list[tuple[int, int]], now_us: int, half_life_s: float) -> float: ...
    @staticmethod
    def place(
        cluster: ClusterSpec,
        jobs: JobTable,
        placement: str,
        held: list[tuple[int, list[tuple[int, int]]]],
        job: int,
        mix: list[tuple[int, int, int]] = ...,
        seed: int = 0,
    ) -> list[tuple[int, int]] | None: ...
    @staticmethod
    def placeable(
        cluster: ClusterSpec,
        jobs: JobTable,
        placement: str,
        held: list[tuple[int, list[tuple[int, int]]]],
        job: int,
    ) -> bool: ...

class Bars:
    """The jobs of a schedule on the GPUs of nodes, from which pictures of any part of it are made."""

    def __init__(
        self,
        node_gpus: _I32,
        job: _I32,
        from_us: _I64,
        to_us: _I64,
        gpu_index: _I32,
        node_offset: _I64,
        node: _I32,
        held: _I32,
    ) -> None: ...
    @property
    def first_lanes(self) -> _I32: ...
    @property
    def memory_bytes(self) -> int: ...
    def __len__(self) -> int: ...
    def at(self, at_us: int) -> _I32: ...
    def draw(
        self,
        keys: NDArray[np.uint8],
        from_us: int,
        to_us: int,
        first_node: int,
        last_node: int,
        columns: int,
        rows: int,
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]: ...
