"""docs/contract/observation.md, column by column: jobs and globals; nodes are in reference/env/tokens.py."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from reference.env.lookahead import lookahead, share_of_horizon
from reference.env.settings import LONGEST_LOOKAHEAD, EnvSettings
from reference.env.state import EnvState
from reference.env.window import Start, pool_of, pools_in_order, queue_names, rows_of
from reference.simulator import passes
from reference.simulator.cluster import scaled_us
from reference.simulator.simulator import (
    SPLITTING_RULES,
    Allocation,
    FreeNode,
    Pool,
    Request,
    allowed_pools,
    copy_of,
    least_nodes,
    queue_of,
    take,
    to_s,
    to_us,
)

JOB_COLUMNS = (
    *("present", "wait", "estimate", "estimate_known", "gpus", "gpus_log", "area", "cpus", "memory"),
    *("priority", "slowdown", "deadline", "fits", "free_after", "nodes_needed", "fragmentation"),
    *("user_share", "group_share", "before_shadow", "base_choice", "speed"),
)
SINGLE_GLOBALS = (
    *("queue", "queue_beyond", "demand", "arrivals", "running", "gpu_use", "fragmentation", "shadow"),
    *("day_sin", "day_cos", "base_waits"),
)
ASKED_JOB_COLUMNS = ("starts_in", "holds_up")
ASKED_GLOBALS = ("drain",)
LONGEST_ESTIMATE_S = 2592000.0


def quotient(a: float, b: float) -> float:
    """A quotient by 0 counts as 0."""
    return 0.0 if b == 0 else float(a) / float(b)


def empty_on_partly_used(free: Sequence[FreeNode]) -> int:
    return sum(node.empty for node in free if 0 < node.empty < len(node.gpu_milli))


@dataclass
class View:
    """What is seen of a state.

    Attributes:
        state: The state, with the base policy as its policy.
        rows: The jobs of the window.
        choice: The job that the base policy starts next, or whose host is asked for, and its allocation.
        asks_host: Whether the environment is SelectHost or RankHosts.
        settings: Settings of the environment.
        time_0_us: Time 0 of the episode on the clock of the given jobs.
    """

    state: EnvState
    rows: list[Request]
    choice: Start | None
    asks_host: bool
    settings: EnvSettings
    time_0_us: int

    @cached_property
    def gpus(self) -> int:
        """C: all GPUs."""
        return sum(node.gpus for node in self.state.nodes)

    @cached_property
    def most_cpus(self) -> int:
        return max(node.cpus or 0 for node in self.state.nodes)

    @cached_property
    def most_memory_mib(self) -> int:
        return max(node.memory_mib or 0 for node in self.state.nodes)

    @cached_property
    def highest_speed(self) -> float:
        """V."""
        return max(1.0, *(pool.speed for pool in self.state.pools))

    @cached_property
    def chosen_nodes(self) -> set[int]:
        return set() if self.choice is None else {id for id, _ in self.choice[1]}

    @cached_property
    def allocations(self) -> dict[int, Allocation | None]:
        return {request.id: self.state.place(self.state.free, request) for request in self.rows}

    @cached_property
    def shadows_us(self) -> dict[str | None, tuple[Request, float]]:
        """The head of each queue that has one, and its shadow time."""
        found = {}
        for queue in queue_names(self.state):
            rows = rows_of(self.state, self.rows, queue)
            head = next((request for request in rows if self.allocations[request.id] is None), None)
            if head is not None:
                found[queue] = head, passes.shadow_time_us(self.state, queue, head)
        return found

    # --- jobs

    def jobs(self) -> list[list[float]]:
        rows = [self.job_row(request) for request in self.rows]
        blank = [0.0] * len(self.job_columns)
        return rows + [blank] * (self.settings.window - len(rows))

    def job_row(self, request: Request) -> list[float]:
        columns = self.columns_of_the_job(request) | self.columns_of_its_placement(request)
        if self.settings.asked_columns:
            columns |= self.columns_of_its_start(request)
        return [float(columns[name]) for name in self.job_columns]

    @property
    def job_columns(self) -> tuple[str, ...]:
        return JOB_COLUMNS + (ASKED_JOB_COLUMNS if self.settings.asked_columns else ())

    def columns_of_its_start(self, request: Request) -> dict[str, float]:
        gap = 0.0
        if self.allocations[request.id] is None:
            queue = queue_of(self.state.pools, request.job)
            start_us = passes.shadow_time_us(self.state, queue, request)
            if math.isinf(start_us):
                return {"starts_in": 1.0, "holds_up": 1.0}
            gap = to_s(int(start_us) - self.state.now_us)
        starts_in = min(math.log(1.0 + gap) / math.log(1.0 + LONGEST_ESTIMATE_S), 1.0)
        if request.estimate_us is None:
            return {"starts_in": starts_in, "holds_up": 1.0}
        c = float(self.gpus)
        area = to_s(request.estimate_us) * request.job.size + gap * c
        held = quotient(math.log(1.0 + area), math.log(1.0 + LONGEST_ESTIMATE_S * c))
        return {"starts_in": starts_in, "holds_up": min(held, 1.0)}

    def columns_of_the_job(self, request: Request) -> dict[str, float]:
        job, n, c = request.job, request.job.size, float(self.gpus)
        w = to_s(self.state.now_us - request.submit_us)
        known = request.estimate_us is not None
        r = to_s(request.estimate_us) if request.estimate_us is not None else 0.0
        b = max(1.0, (w + r) / max(r, 10.0))
        logs = math.log(1.0 + r) / math.log(1.0 + LONGEST_ESTIMATE_S)
        area = quotient(math.log(1.0 + r * n), math.log(1.0 + LONGEST_ESTIMATE_S * c))
        p = job.priority
        return {
            "present": 1.0,
            "wait": w / (w + 3600.0),
            "estimate": min(logs, 1.0) if known else 0.0,
            "estimate_known": known,
            "gpus": quotient(n, c),
            "gpus_log": quotient(math.log(1.0 + n), math.log(1.0 + c)),
            "area": min(area, 1.0) if known else 0.0,
            "cpus": min(quotient(job.cpus, self.most_cpus), 1.0),
            "memory": min(quotient(job.memory_mib, self.most_memory_mib), 1.0),
            "priority": 0.5 * (1.0 + p / (1.0 + abs(p))),
            "slowdown": 1.0 - 1.0 / b if known else 0.0,
            "deadline": self.slack(request, r),
            "user_share": quotient(self.held(user=job.user), c),
            "group_share": quotient(self.held(group=job.group), c),
        }

    def slack(self, request: Request, r: float) -> float:
        if request.job.deadline_s is None:
            return 1.0
        x = to_s(to_us(request.job.deadline_s) - self.time_0_us - self.state.now_us) - r
        return 0.5 * (1.0 + x / (3600.0 + abs(x)))

    def held(self, user: str | None = None, group: str | None = None) -> float:
        """GPUs held by jobs of the user or group."""
        jobs = [run.request.job for run in self.state.running]
        return float(sum(job.milli for job in jobs if user == job.user or group == job.group)) / 1000.0

    def columns_of_its_placement(self, request: Request) -> dict[str, float]:
        allocation = self.allocations[request.id]
        first_pool = pools_in_order(self.state, request)[0]
        speed = 1.0 if request.job.gpus == 0 else first_pool.speed
        columns: dict[str, float] = {"fits": 0.0, "free_after": 0.0, "fragmentation": 0.0}
        if allocation is not None:
            if request.job.gpus > 0:
                speed = min(pool_of(self.state, id).speed for id, _ in allocation)
            after = copy_of(self.state.free)
            take(after, request.job, allocation)
            growth = empty_on_partly_used(after) - empty_on_partly_used(self.state.free)
            columns = {
                "fits": 1.0,
                "free_after": self.free_after(request, allocation),
                "fragmentation": quotient(growth, self.gpus),
            }
        n_min = least_nodes(first_pool, request.job)
        return columns | {
            "nodes_needed": min(quotient(n_min, len(first_pool.nodes)), 1.0),
            "before_shadow": self.is_before_shadow(request, first_pool),
            "base_choice": self.choice is not None and self.choice[0].id == request.id,
            "speed": speed / self.highest_speed,
        }

    def free_after(self, request: Request, allocation: Allocation) -> float:
        if self.state.policy.placement in SPLITTING_RULES:
            pools = allowed_pools(self.state.pools, request.job)
        else:
            pools = [pool_of(self.state, allocation[0][0])]
        free = float(sum(self.state.free[id].free_milli for pool in pools for id in pool.nodes)) / 1000.0
        return quotient(free - request.job.size, sum(pool.size * len(pool.nodes) for pool in pools))

    def is_before_shadow(self, request: Request, first_pool: Pool) -> bool:
        queue = queue_of(self.state.pools, request.job)
        if queue not in self.shadows_us:
            return True
        allocation = self.allocations[request.id]
        run_us: float = math.inf
        if request.estimate_us is not None:
            if allocation is not None:
                run_us = self.state.expected_us(request, allocation)
            else:
                speed = first_pool.speed if request.job.gpus > 0 else 1.0
                run_us = scaled_us(request.estimate_us, speed, 0.0, self.settings.locality_penalty)
        return self.state.now_us + run_us <= self.shadows_us[queue][1]

    # --- globals

    def globals(self) -> list[float]:
        own = self.state.pools
        padding = [0.0] * ((self.settings.max_pools or len(own)) - len(own))
        free = [self.free_share(pool) for pool in own]
        base_pool = [float(bool(self.chosen_nodes & set(pool.nodes))) for pool in own]
        single = self.single_globals()
        return [
            *free,
            *padding,
            *base_pool,
            *padding,
            *(float(single[name]) for name in SINGLE_GLOBALS),
            *self.lookahead(),
            *([self.drain()] if self.settings.asked_columns else []),
        ]

    def drain(self) -> float:
        ends = [run.expected_end_us for run in self.state.running]
        if any(math.isinf(end_us) for end_us in ends):
            return 1.0
        last_us = max((int(end_us) for end_us in ends), default=self.state.now_us)
        d = to_s(max(last_us - self.state.now_us, 0))
        return d / (d + 36000.0)

    def free_share(self, pool: Pool) -> float:
        if pool.size > 0:
            free = float(sum(self.state.free[id].free_milli for id in pool.nodes)) / 1000.0
            return quotient(free, pool.size * len(pool.nodes))
        given = [id for id in pool.nodes if self.state.nodes[id].cpus is not None]
        free_cpus = sum(self.state.free[id].cpus for id in given)
        return quotient(free_cpus, sum(self.state.nodes[id].cpus or 0 for id in given))

    def single_globals(self) -> dict[str, float]:
        state, c = self.state, float(self.gpus)
        q, j = float(len(state.queued)), float(len(state.running))
        demand = float(sum(request.job.milli for request in state.queued)) / 1000.0
        a = state.arrivals_now()
        free = float(sum(node.free_milli for node in state.free)) / 1000.0
        f = (to_us(self.settings.epoch_s) + self.time_0_us + state.now_us) % 86_400_000_000
        x = f / 86_400_000_000
        return {
            "queue": q / (q + 64.0),
            "queue_beyond": quotient(q - float(len(self.rows)), q),
            "demand": demand / (demand + c) if c > 0 else 0.0,
            "arrivals": a / (a + 60.0),
            "running": j / (j + 64.0),
            "gpu_use": quotient(c - free, c),
            "fragmentation": quotient(
                empty_on_partly_used(state.free), sum(node.empty for node in state.free)
            ),
            "shadow": self.first_shadow(),
            "day_sin": math.sin(6.283185307179586 * x),
            "day_cos": math.cos(6.283185307179586 * x),
            "base_waits": self.choice is None and not self.asks_host,
        }

    def first_shadow(self) -> float:
        heads = {head.id: shadow_us for head, shadow_us in self.shadows_us.values()}
        for request in self.rows:
            if request.id in heads:
                return share_of_horizon(self.state, heads[request.id], self.settings.lookahead_horizon_s)
        return 0.0

    def lookahead(self) -> list[float]:
        length = self.settings.lookahead_length
        if length is None:
            length = min(self.gpus, LONGEST_LOOKAHEAD)
        return lookahead(self.state, self.settings.lookahead, length, self.settings.lookahead_horizon_s)
