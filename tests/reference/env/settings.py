"""What a reference environment is made of: its settings, its refusals, clusters and names of policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuyard.cluster.model import Cluster
from reference.simulator.simulator import (
    ALL_ORDERS,
    ALL_PLACEMENTS,
    BACKFILLS,
    PREEMPTIVE_ORDERS,
    SPLITTING_RULES,
    UNLIMITED,
    Job,
    Node,
    Policy,
    Watts,
    can_hold,
    empty_cluster,
)
from reference.simulator.simulator import Settings as SimulatorSettings

KINDS = ("select-job", "select-job-and-pool", "select-host", "rank-hosts", "accept-or-skip")
HOST_KINDS = ("select-host", "rank-hosts")
JOB_KINDS = ("select-job", "select-job-and-pool")
STEP_MODES = ("instant", "event", "tick", "blocking")
TOKENS = ("nodes", "classes")
LOOKAHEADS = ("off", "per_gpu", "sorted", "cdf")
TERMS_BY_JOB = ("jct", "wait", "slowdown", "completions")
TERMS_WITH_HORIZON = ("backlog", "finish_early")
TERMS = (
    *("jct", "wait", "slowdown", "completed_work", "waiting_work"),
    *("utilization", "flops_utilization", "cpu_utilization", "completions", "energy", "makespan"),
    *("idle_while_feasible", "load_balance", "fairness", "backlog", "finish_early"),
    "versus_baseline",
)
BASELINE_METRICS = (
    *("mean_bounded_slowdown", "mean_wait_s", "mean_jct_s", "mean_slowdown", "gpu_utilization"),
)
LEAST_HOST_CANDIDATES = 64
LONGEST_LOOKAHEAD = 64


class InvalidActionError(ValueError):
    """The action can not be executed now; nothing has changed."""


@dataclass(frozen=True)
class EnvSettings:
    """Settings of an environment (docs/contract/mdp.md, docs/contract/observation.md) and of its simulator.

    `epoch_s` and `origin_s` belong to time 0 of the clock of the given jobs, which is not time 0 of the
    episode if the first job of the episode's window is submitted later. `seed` is the simulator's.
    """

    window: int = 16
    step_mode: str = "instant"
    tick_s: float = 60.0
    blocking_backfill: bool = False
    tokens: str = "nodes"
    lookahead: str = "off"
    lookahead_horizon_s: float = 3600.0
    asked_columns: bool = False  # those of jobs and globals that are there on request, behind all others
    rewards: Mapping[str, float] = field(default_factory=lambda: {"slowdown": 1.0})
    per_job: bool = True
    horizon_factor: float | None = None
    max_steps: int | None = None
    invalid: str = "error"  # or "noop"
    invalid_penalty: float = 0.0
    baseline: str = "fifo+easy"
    baseline_metric: str = "mean_bounded_slowdown"
    epoch_s: float = 0.0
    warmup: int = 0  # so many leading jobs of the table are run before the episode
    cooldown: int = 0  # so many of the last jobs of the table only keep the cluster busy
    locality_penalty: float = 0.0
    kill_at_estimate: bool = False
    seed: int = 0
    estimates: str = "requested"
    noise_sigma: float = 1.0
    usage_half_life_s: float = 604800.0
    origin_s: float = 0.0
    priorities: Mapping[str, Any] = field(default_factory=dict)  # more of the simulator's, for `multifactor`

    # Sizes of the spaces; None: those of the cluster.
    max_nodes: int | None = None  # hosts, and with tokens = nodes rows
    max_classes: int | None = None  # rows with tokens = classes
    max_pools: int | None = None
    lookahead_length: int | None = None

    def simulator(self, origin_s: float) -> SimulatorSettings:
        """The same for the reference simulator."""
        return SimulatorSettings(
            estimates=self.estimates,
            noise_sigma=self.noise_sigma,
            seed=self.seed,
            kill_at_estimate=self.kill_at_estimate,
            locality_penalty=self.locality_penalty,
            usage_half_life_s=self.usage_half_life_s,
            origin_s=origin_s,
            **self.priorities,
        )


def parse_policy(name: str) -> Policy:
    """`ORDER[+BACKFILL][+express:T0:K[:M]][+age:M][/PLACEMENT]`, if it can act in an environment."""
    front, _, placement = name.partition("/")
    order, *parts = front.split("+")
    backfill, express, max_wait_s = "strict", None, None
    for part in parts:
        name, *numbers = part.split(":")
        if name == "express":
            express = (float(numbers[0]), float(numbers[1]))
            max_wait_s = float(numbers[2]) if len(numbers) == 3 else max_wait_s
        elif name == "age":
            max_wait_s = float(numbers[0])
        else:
            backfill = part
    policy = Policy(order, backfill, express, placement or "consolidate", max_wait_s)
    if (order not in ALL_ORDERS and not order.startswith("power:")) or order in PREEMPTIVE_ORDERS:
        raise ValueError(f"{name}: the order can not act here")
    if backfill not in BACKFILLS:
        raise ValueError(f"{name}: the backfill can not act here")
    if policy.placement not in ALL_PLACEMENTS:
        raise ValueError(f"{name}: the placement can not act here")
    return policy


def policy_name(policy: Policy) -> str:
    """The name that `parse_policy` reads back."""
    express = "" if policy.express is None else "+express:{!r}:{!r}".format(*policy.express)
    age = "" if policy.max_wait_s is None else f"+age:{policy.max_wait_s!r}"
    return f"{policy.order}+{policy.backfill}{express}{age}/{policy.placement}"


def cluster_parts(cluster: Cluster) -> tuple[list[Node], dict[str, float], Watts]:
    """The nodes, speeds and watts of a cluster. CPUs or memory of 2^40 are the same as none given."""

    def given(capacity: int | None) -> int | None:
        return None if capacity is None or capacity >= UNLIMITED else capacity

    nodes = [
        Node(
            type=group.type,
            gpus=group.gpus,
            cpus=given(group.cpus),
            memory_mib=given(group.memory_mib),
            owner=group.owner,
            idle_w=group.idle_w,
        )
        for group in cluster.nodes
        for _ in range(group.count)
    ]
    speeds = {type.name: type.speed for type in cluster.gpu_types}
    watts = {
        type.name: (type.idle_w, type.peak_w)
        for type in cluster.gpu_types
        if type.idle_w is not None and type.peak_w is not None
    }
    return nodes, speeds, watts


def jobs_of_columns(columns: Mapping[str, Sequence[object]]) -> list[Job]:
    """Jobs from the columns of the native format, in its units; nulls stand for what is unknown."""
    names = list(columns)
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for row in rows:
        if row.get("gpu_types") is not None:
            row["gpu_types"] = tuple(row["gpu_types"])
    return [Job(**row) for row in rows]


def refuse(kind: str, policy: Policy, settings: EnvSettings) -> None:
    """Raises ValueError for what docs/contract/mdp.md does not offer."""
    if kind not in KINDS:
        raise ValueError(f"no such environment: {kind}")
    for value, known in (
        (settings.step_mode, STEP_MODES),
        (settings.tokens, TOKENS),
        (settings.lookahead, LOOKAHEADS),
        (settings.invalid, ("error", "noop")),
        (settings.baseline_metric, BASELINE_METRICS),
        *((term, TERMS) for term in settings.rewards),
    ):
        if value not in known:
            raise ValueError(f"{value!r} is none of {known}")
    if kind in HOST_KINDS and (policy.backfill in ("easy", "easy-sjf") or policy.express is not None):
        raise ValueError("easy, easy-sjf and admission have no effect where hosts are chosen")
    if kind == "select-job-and-pool" and policy.placement in SPLITTING_RULES:
        raise ValueError("rules that split freely have no pool")
    if settings.step_mode == "blocking" and kind not in JOB_KINDS:
        raise ValueError("blocking is for choices of jobs")
    if settings.horizon_factor is None and any(term in settings.rewards for term in TERMS_WITH_HORIZON):
        raise ValueError("backlog and finish_early need a horizon")


def fits_on_one_node(nodes: Sequence[Node], allowed: Sequence[int], job: Job) -> bool:
    """Whether one of the allowed nodes could hold the whole job if it were empty, and one is enough."""
    if (job.asked_nodes or 1) > 1:
        return False
    empty = empty_cluster(nodes)
    return any(can_hold(empty[id], job, job.gpus) for id in allowed)
