"""An environment in the form in which the native core takes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.native.inputs import CoreInputs, prepare
from gpuyard.observation.config import HOST_KINDS, EnvConfig
from gpuyard.observation.episodes import DrawnJobs, Source, WindowedJobs
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.policies.heuristics import Order
from gpuyard.policies.support import SPLITTING, tells_watts, types_without_watts
from gpuyard.workload import Workload
from gpuyard.workload.core_columns import asked_counts
from gpuyard.workload.identity import name_of

MOST_LOOKAHEAD = 64
ColumnRow = tuple[str, float, float]
"""Name and bounds of a column."""
EPISODE_STREAM = 6
"""Of the random draws that choose episodes (docs/contract/mdp.md)."""

REFUSED = {
    "defragment": "moving running jobs",
    "node_mtbf_s": "failing nodes",
    "sleep_after_s": "sleeping nodes",
    "power_cap_w": "a power cap",
    "group_quotas": "group quotas",
}


@dataclass(frozen=True)
class Columns:
    """One part of an observation: rows, and what stands in each column.

    Attributes:
        rows: How many there are.
        names: Of the columns, in order.
        low: Least value of each.
        high: Largest value of each.
    """

    rows: int
    names: tuple[str, ...]
    low: NDArray[np.float32]
    high: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array; the single row of ``globals`` is a vector."""
        return (self.rows, len(self.names)) if self.rows else (len(self.names),)

    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Least and largest value of every entry, in the shape of the array."""
        return np.broadcast_to(self.low, self.shape).copy(), np.broadcast_to(self.high, self.shape).copy()


class EnvModel:
    """Everything that environments of one vector share.

    Attributes:
        cluster: What jobs run on; where a generator draws that too, one of its draws.
        inputs: All jobs of a workload as the core takes them, or those of one draw.
        asked: Settings of the simulation before what depends on the jobs was filled in.

    Args:
        kind: Of the environment.
        config: Its settings.
        source: Where jobs come from.
        around: Finds warm-up and cool-down jobs where the settings say ``auto``; None: there are none.
    """

    def __init__(
        self,
        kind: str,
        config: EnvConfig,
        source: Source,
        around: "Callable[[EnvModel], tuple[int, int]] | None" = None,
    ) -> None:
        self.kind = kind
        self.source = source
        workload, self.cluster = source.sample()
        self.asked = config.simulated
        self.config = config = config.informed(workload)
        self.policy = acting_policy(config.base_policy_of(kind), kind)
        _check(kind, config, self.policy)
        self._drawn: dict[int, _core.EpisodeTable] = {}  # episodes that come up again
        self.inputs = sampled = self._prepare(workload, self.cluster)
        self.spec = self._core_spec(sampled, self.cluster)
        self._table = None
        if isinstance(source, WindowedJobs):
            self._table = _table_of(sampled, self.spec)
            kept = sampled.kept
            self._rows = (int(np.searchsorted(kept, source.begin)), int(np.searchsorted(kept, source.end)))
            if self._rows[1] - self._rows[0] < source.jobs:
                raise InputError(
                    f"{source.jobs:,} jobs an episode are more than are left: {len(sampled.dropped):,} jobs "
                    "that can never run on the cluster were dropped"
                )
        if not config.is_settled:
            self.config = config.settled(*(around(self) if around is not None else (0, 0)))

    # --- Episodes ---

    def supply(self, core: _core.VectorEnv) -> None:
        """Tell a core where its episodes come from."""
        if isinstance(self.source, WindowedJobs):
            assert self._table is not None
            core.set_windows(self._table, *self._rows, self.source.jobs, *self.config.around)

    @property
    def episode_rows(self) -> range:
        """Rows at which windows of the workload's split may start, counted without jobs that were dropped.

        They leave room for cool-down jobs, but give up at most half of the rows for it.
        """
        if not isinstance(self.source, WindowedJobs):
            raise InputError("episodes of a generator are not rows; they are named by its seeds")
        begin, end = self._rows
        spare = end - begin - self.source.jobs
        return range(begin, begin + spare - min(self.config.around[1], spare // 2) + 1)

    @property
    def draws(self) -> bool:
        """Whether every episode must be given to the core."""
        return isinstance(self.source, DrawnJobs)

    def give(self, core: _core.VectorEnv, i: int, seed: int, episode: int) -> None:
        """Give environment ``i`` the drawn episode of that number."""
        assert isinstance(self.source, DrawnJobs)
        chosen = _core.draw(seed, EPISODE_STREAM, episode, 0)
        seeds = self.source.seeds
        if seeds is None:
            return self.give_named(core, i, chosen >> 1)
        return self.give_named(core, i, seeds[int((chosen >> 11) * 2.0**-53 * len(seeds))])

    def check_name(self, name: Any) -> int:
        """The number of an episode: a first row, or a generator's seed.

        Raises:
            InputError: if there is no such episode.
        """
        if isinstance(name, bool) or not isinstance(name, int | np.integer):
            raise InputError(f"episode {name!r} is not a whole number: a first row, or a generator's seed")
        if self.draws:
            if not 0 <= name < 2**63:
                raise InputError(f"episode {name}: a generator's seed is from 0 to 2^63 - 1")
        elif name not in self.episode_rows:
            part = "" if self.config.split == "all" else f" of the {self.config.split} part"
            rows = self.episode_rows
            raise InputError(f"episode {name}: windows{part} start at rows {rows[0]} to {rows[-1]}")
        return int(name)

    def give_named(self, core: _core.VectorEnv, i: int, name: int) -> None:
        """Give environment ``i`` the window that starts at row ``name``, or the draw of seed ``name``."""
        core.give(i, *self.episode(name))

    def episode(self, name: int) -> tuple[_core.EpisodeTable, int, int, int, int]:
        """A table of jobs, and the window of it that an episode is.

        Returns:
            The table, the window's first row, its jobs, and the warm-up and cool-down jobs around it.
        """
        if isinstance(self.source, WindowedJobs):
            assert self._table is not None
            jobs, (warmup, cooldown) = self.source.jobs, self.config.around
            return self._table, name, jobs, warmup, min(cooldown, self._rows[1] - name - jobs)
        table = self._drawn.get(name)
        if table is None:
            inputs = self._prepare(*self.source.draw(name))
            table = _table_of(inputs, self.spec)
        if self.source.seeds is not None and name in self.source.seeds:
            self._drawn[name] = table
        warmup, cooldown = self.source.warmup, self.source.cooldown
        if len(table) <= warmup + cooldown:
            raise InputError(
                f"episode {name}: of the jobs that the generator drew, only {len(table):,} can run on the "
                f"cluster, no more than the {warmup + cooldown:,} of warm-up and cool-down"
            )
        return table, warmup, len(table) - warmup - cooldown, warmup, cooldown

    def _prepare(self, workload: Workload, cluster: Cluster) -> CoreInputs:
        if self.kind in HOST_KINDS:
            _check_one_node(workload, cluster)
        return prepare(
            workload,
            cluster,
            self.policy,
            self.config.simulated,
            for_learning=True,
            track_gpus=self.config.lookahead == "per_gpu",
        )

    # --- Shapes ---

    def _core_spec(self, inputs: CoreInputs, cluster: Cluster) -> _core.EnvSpec:
        config = self.config
        if config.rewards.get("energy") and not tells_watts(cluster):
            unknown = types_without_watts(cluster)
            whose = f"idle_w and peak_w of GPU type {unknown[0]}" if unknown else "the idle_w of nodes"
            raise InputError(
                f"reward term energy needs {whose}; state them in the cluster's TOML, or name a known GPU "
                "type, such as 64x8:v100"
            )
        baseline = acting_policy(config.baseline) if config.rewards.get("versus_baseline") else None
        if baseline is not None and not baseline.order_rule.runs_lean:
            raise InputError(
                f"baseline {baseline.name}: order {baseline.order} goes by what happened before, which "
                "versus_baseline does not keep; use another, such as sjf+easy"
            )
        spec = core_spec(self.kind, config, self.policy, inputs.settings, baseline)
        self.pools = int(inputs.cluster.pool.max()) + 1
        self.hosts = len(inputs.cluster.pool)
        self.lookahead = lookahead_columns(cluster)
        tokens = _core.token_rows(inputs.cluster, config.tokens)
        drawn_hosts = self.source.most_hosts() if isinstance(self.source, DrawnJobs) else None
        if drawn_hosts is not None:
            self.hosts = drawn_hosts
            tokens = drawn_hosts if config.tokens == "nodes" else tokens
        rows = config.window_of(self.kind)
        set_sizes(spec, config, rows, tokens, self.pools, self.lookahead, self.hosts)
        self.parts = {
            "jobs": _job_columns(config, rows),
            "nodes": _node_columns(config, tokens),
            "globals": _overall_columns(config, self.pools, self.lookahead),
        }
        return spec

    @property
    def actions(self) -> int:
        """Entries of the mask."""
        return self.spec.actions


def _table_of(inputs: CoreInputs, spec: _core.EnvSpec) -> _core.EpisodeTable:
    return _core.EpisodeTable(inputs.cluster, inputs.jobs, inputs.settings, spec)


def core_spec(
    kind: str,
    config: EnvConfig,
    policy: PolicySpec,
    settings: _core.Settings,
    baseline: PolicySpec | None = None,
) -> _core.EnvSpec:
    """An environment as the core takes it, but for its sizes."""
    spec = _core.EnvSpec(
        kind=kind,
        step_mode=config.step_mode,
        tokens=config.tokens,
        lookahead=config.lookahead,
        base=policy.compile(),
        settings=settings,
        rewards=list(config.rewards.items()),
        baseline=baseline.compile() if baseline else None,
        baseline_metric=config.baseline_metric,
    )
    spec.tick_us = max(1, round(config.tick_s * 1e6))
    spec.blocking_backfill = bool(config.blocking_backfill)
    spec.backfill_before_shadow = config.blocking_backfill == "before-shadow"
    spec.lookahead_horizon_us = max(1, round(config.lookahead_horizon_s * 1e6))
    spec.per_job = config.per_job
    spec.horizon_factor = config.horizon_factor or 0.0
    spec.max_steps = config.max_steps or 0
    spec.invalid_is_noop = config.invalid == "noop"
    spec.invalid_penalty = config.invalid_penalty
    return spec


def set_sizes(
    spec: _core.EnvSpec, config: EnvConfig, rows: int, tokens: int, pools: int, lookahead: int, hosts: int
) -> None:
    """Tell an environment how long the arrays of its observations are, and which columns they have."""
    spec.set_sizes(rows, tokens, pools, lookahead, hosts)
    overall = _global_columns(pools, lookahead)
    for name, table, chosen in (
        ("job_columns", _core.JOB_COLUMNS + _core.ASKED_JOB_COLUMNS, config.job_features),
        ("node_columns", _core.NODE_COLUMNS, config.node_features),
        ("global_columns", overall + _core.ASKED_GLOBAL_COLUMNS, config.global_features),
    ):
        if chosen is not None:
            setattr(spec, name, _numbers(table, chosen))


def _global_columns(pools: int, lookahead: int) -> list[ColumnRow]:
    repeats = {"free": pools, "base_pool": pools, "lookahead": lookahead}
    return [column for column in _core.GLOBAL_COLUMNS for _ in range(repeats.get(column[0], 1))]


def acting_policy(name: str, kind: str | None = None) -> PolicySpec:
    """A policy that can act in an environment, of that kind if one is given.

    Raises:
        InputError: if it preempts, reserves, optimises, is written in Python, or splits gangs where pools
            are chosen.
    """
    policy = parse_policy(name)
    if kind == "select-job-and-pool" and policy.placement in SPLITTING:
        raise InputError(
            f"policy {policy.name}: placement {policy.placement} splits gangs over pools, but pools are what "
            "is chosen here; use consolidate"
        )
    why = None
    if policy.preempts:
        why = "stops running jobs"
    elif policy.backfill in ("conservative", "slurm"):
        why = "plans ahead of events"
    elif policy.is_optimised:
        why = "places several jobs together"
    elif not isinstance(policy.order_rule, Order):
        why = "is an order written in Python"
    if why:
        raise InputError(
            f"policy {policy.name} {why}, which environments do not offer; use another, such as sjf+easy"
        )
    return policy


def _check(kind: str, config: EnvConfig, policy: PolicySpec) -> None:
    simulation = config.simulated
    for name, what in REFUSED.items():
        if getattr(simulation, name):
            raise InputError(f"environments do not offer {what} ({name}); leave that setting out")
    hosts = kind in HOST_KINDS
    if config.step_mode == "blocking" and (hosts or kind == "accept-or-skip"):
        raise InputError(
            f"step_mode blocking is for environments that select jobs, not for {kind}; use instant"
        )
    if hosts and (policy.backfill.startswith("easy") or policy.admission):
        raise InputError(
            f"base policy {policy.name}: where hosts are chosen, jobs come in order or greedily; "
            f"use {policy.order}+greedy or {policy.order}+strict"
        )


def _check_one_node(workload: Workload, cluster: Cluster) -> None:
    largest = max(group.gpus for group in cluster.nodes)
    gpus, nodes = workload.frame["gpus"].to_numpy(), asked_counts(workload.frame)
    needs_more = (gpus > largest) | (nodes > 1)
    if needs_more.any():
        row = int(np.argmax(needs_more))
        job = f"{name_of(workload, row)} of workload {workload.metadata.name}"
        needs = (
            f"asks for {nodes[row]} nodes"
            if nodes[row] > 1
            else f"needs {gpus[row]} GPUs, more than a node of cluster {cluster.name} has ({largest})"
        )
        raise InputError(f"{job} {needs}; where hosts are chosen a job sits on one: use gpuyard/SelectJob-v0")


def lookahead_columns(cluster: Cluster) -> int:
    """How many columns of ``globals`` the lookahead has."""
    return min(cluster.total_gpus, MOST_LOOKAHEAD)


def column_names(config: EnvConfig, cluster: Cluster, pools: int) -> dict[str, tuple[str, ...]]:
    """Names of the columns of every part of an observation, without making an environment."""
    overall = _overall_columns(config, pools, lookahead_columns(cluster))
    return {
        "jobs": _job_columns(config, 0).names,
        "nodes": _node_columns(config, 0).names,
        "globals": overall.names,
    }


def _job_columns(config: EnvConfig, rows: int) -> Columns:
    return _columns(_core.JOB_COLUMNS, config.job_features, rows, _core.ASKED_JOB_COLUMNS)


def _node_columns(config: EnvConfig, rows: int) -> Columns:
    return _columns(_core.NODE_COLUMNS, config.node_features, rows)


def _overall_columns(config: EnvConfig, pools: int, lookahead: int) -> Columns:
    table = _global_columns(pools, lookahead)
    return _columns(table, config.global_features, 0, _core.ASKED_GLOBAL_COLUMNS)


def _columns(
    table: list[ColumnRow], chosen: tuple[str, ...] | None, rows: int, asked: Sequence[ColumnRow] = ()
) -> Columns:
    """Those chosen; without a choice all but the ones that are there only if asked for."""
    known = [*table, *asked]
    picked = [known[i] for i in _numbers(known, chosen)] if chosen is not None else table
    names, low, high = zip(*picked, strict=True) if picked else ((), (), ())
    return Columns(rows, names, np.array(low, np.float32), np.array(high, np.float32))


def _numbers(table: Sequence[ColumnRow], chosen: tuple[str, ...]) -> list[int]:
    return [i for name in chosen for i, column in enumerate(table) if column[0] == name]
