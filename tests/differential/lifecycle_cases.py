"""Random simulations of what sections 14 to 19 of docs/contract/simulator.md add, small and nasty.

All times (how long a run is safe, checkpoints, failures, sleep, levels) are drawn in the case's unit of
time, so that jobs are really stopped, nodes really fail under them, and ties are the rule. Whatever section
20 says no to is left out. Every job can start on the empty cluster, under its power cap and quotas.
"""

import random
from dataclasses import replace

from differential.cases import (
    GROUPS,
    ORDERS,
    SPEEDS,
    TYPES,
    UNITS_US,
    Case,
    Mix,
    random_job,
    random_max_wait_s,
    random_nodes,
    random_settings,
    runnable_jobs,
    with_submits,
)
from reference.simulator.simulator import (
    ALL_ESTIMATES,
    ALL_PLACEMENTS,
    BACKFILLS,
    LARGEST_INPUT_US,
    NEW_ORDERS,
    NEW_POOL_RULES,
    POOL_RULES,
    PREEMPTIVE_ORDERS,
    SPLITTING_RULES,
    TIER_RULES,
    Job,
    Policy,
    Watts,
    draw_mw,
    empty_cluster,
)

CALM_ORDERS = ORDERS + NEW_ORDERS
PLAIN_PLACEMENTS = POOL_RULES + SPLITTING_RULES
WATTS = (0.0, 0.0004, 0.0005, 25.0, 50.5, 55.1235, 100.0)
PEAKS = (0.0, 1.0, 100.0, 250.25, 300.0, 400.0015)


class Builder:
    """Draws the parts of one case; each method adds a feature, and `case` puts them together."""

    def __init__(
        self,
        name: str,
        seed: int,
        placements: tuple[str, ...] = PLAIN_PLACEMENTS,
        shared: float = 0.3,
        owned: float = 0.25,
        limits: float = 0.35,
        most_jobs: int = 60,
    ) -> None:
        rng = self.rng = random.Random(f"{name} {seed}")
        limited, types = rng.random() < limits, rng.random() < 0.4
        placement = rng.choice(placements)
        most_nodes = rng.choice((2, 4, 6 if placement in TIER_RULES else 12))
        nodes = random_nodes(rng, rng.randint(1, most_nodes), limited, types, rng.random() < owned)
        # The API wants nodes without GPUs to state their CPUs, and some rules ask whether they do.
        self.nodes = [
            replace(node, cpus=8) if node.gpus == 0 and node.cpus is None else node for node in nodes
        ]
        self.speeds = {type: rng.choice(SPEEDS) for type in TYPES if rng.random() < 0.7} if types else {}
        self.mix = Mix(
            limits=limited,
            shared=rng.random() < shared,
            cpu_only=rng.random() < 0.25,
            types=types and rng.random() < 0.7,
            estimates=rng.random() < 0.8,
            deadlines=rng.random() < 0.5,
            rows=rng.random() < 0.3,
            unit_us=rng.choice(UNITS_US),
            durations=rng.choice(((1, 2, 3), (1, 1, 2, 4, 20), (2, 5, 10, 50), tuple(range(1, 30)))),
            off_grid=rng.random() < 0.25,
        )
        self.policy = Policy(
            rng.choice((*CALM_ORDERS, "fifo", "fifo")),
            rng.choice(BACKFILLS),
            None,
            placement,
            random_max_wait_s(rng, self.mix.unit_us),
        )
        self.settings = random_settings(rng, self.mix.unit_us)
        self.watts: Watts = {}
        self.history: list[Job] = []
        self.fewest_jobs, self.most_jobs = 2, most_jobs
        self.stretch = 1  # of the submit times
        if "power-aware" in (self.policy.order, placement):
            self.give_watts()

    def set(self, **changes: object) -> None:
        self.settings = replace(self.settings, **changes)

    def sometimes(self, probability: float) -> bool:
        return self.rng.random() < probability

    def time_s(self, *choices: float) -> float:
        """One of so many units of time, now and then off the grid; at least 1 microsecond unless it is 0."""
        us = self.rng.choice(choices) * self.mix.unit_us
        if us > 0:
            us = max(1, int(us) + (self.rng.choice((-1, 1, 0)) if self.mix.off_grid else 0))
        return us / 1e6

    def order_by(self, *orders: str) -> None:
        self.policy = replace(self.policy, order=self.rng.choice(orders))
        if self.policy.order == "power-aware":
            self.give_watts()

    def give_watts(self) -> None:
        if not self.watts:
            rng = self.rng
            for type in TYPES:
                idle = rng.choice(WATTS)
                self.watts[type] = (idle, idle + rng.choice(PEAKS))
            self.nodes = [replace(node, idle_w=rng.choice((0.0, *WATTS))) for node in self.nodes]

    # --- features

    def preempt(self, orders: tuple[str, ...] = PREEMPTIVE_ORDERS, defragment: float = 0.35) -> None:
        """A preemptive order, or any with `defragment`; strict or greedy; many jobs."""
        self.fewest_jobs = min(30, 6 + 2 * len(self.nodes))
        self.coarsen()
        self.order_by(*orders)
        is_preemptive = self.policy.order in PREEMPTIVE_ORDERS
        self.policy = replace(
            self.policy, backfill=self.rng.choice(("strict", "greedy")), express=None, max_wait_s=None
        )
        unit_s = self.mix.unit_us / 1e6
        levels = self.rng.choice(((1,), (1, 3), (2, 6, 30), (0.5, 1, 2, 4), ()))
        self.set(
            defragment=not is_preemptive or self.sometimes(defragment),
            reschedule_s=self.time_s(1, 1, 2, 3, 7),
            min_run_s=self.time_s(0, 0, 1, 1, 2, 5),
            tiresias_levels_gpu_s=tuple(level * unit_s for level in levels),
            starvation_s=self.time_s(1, 3, 10, 50),
        )
        self.checkpoint()
        if self.policy.order in ("srtf", "ssf") and self.settings.estimates == "none":
            self.set(estimates="exact")

    def coarsen(self) -> None:
        """Makes time units long enough: on a slow GPU a microsecond of progress is no work, for ever."""
        if self.mix.unit_us < 1000 and (self.speeds or self.settings.locality_penalty > 0):
            self.mix = replace(self.mix, unit_us=100_000)

    def scatter(self) -> None:
        """After `preempt`: small jobs on many nodes and some as large as a node; moving one makes room."""
        rng, size = self.rng, self.rng.choice((2, 4, 4, 8))
        self.nodes = [replace(self.nodes[0], gpus=size) for _ in range(rng.randint(2, 5))]
        self.policy = replace(self.policy, placement=rng.choice(("worst-fit", "spread", "random", "fgd")))
        self.mix = replace(self.mix, cpu_only=False, shared=False, types=False, durations=(1, 5, 20, 40))
        self.stretch = rng.choice((1, 2, 3, 4))
        self.set(defragment=self.sometimes(0.9), min_run_s=self.time_s(0, 0, 1))

    def checkpoint(self) -> None:
        is_slow = self.mix.unit_us >= 500_000  # the defaults are seconds
        if not is_slow or self.sometimes(0.8):
            self.set(
                checkpoint_s=self.time_s(0, 0.25, 0.5, 1, 1, 2), restore_s=self.time_s(0, 0.25, 0.5, 1, 1, 2)
            )

    def fail(self) -> None:
        """Failures so rare that every job is done some day, with or without checkpoints; after `sleep`."""
        rng = self.rng
        self.coarsen()
        many = min(len(self.nodes), 6)  # nodes of a gang
        slowest = min([1.0, *self.speeds.values()])
        slow_down = (1.0 + self.settings.locality_penalty * many) / slowest
        longest_us = int((max(self.mix.durations) + 1) * self.mix.unit_us * slow_down)
        self.checkpoint()
        if self.settings.sleep_after_s is not None:
            self.set(wake_s=self.time_s(0, 0.5, 1, 1, 3))
            longest_us += 3 * self.mix.unit_us
        if self.sometimes(0.5):
            fails_us = max(1, longest_us * many * rng.choice((1, 2, 3, 10)) // 2)
            self.set(node_mtbf_s=min(fails_us, LARGEST_INPUT_US) / 1e6)
        else:
            every_s = self.time_s(0.5, 1, 1, 2)
            restore_s = 3.5 if self.settings.restore_s is None else self.settings.restore_s
            wake_s = self.settings.wake_s or 0.0
            step_us = int((every_s * slow_down + restore_s + wake_s) * 1e6) + 1
            fails_us = max(step_us * many, longest_us * many // rng.choice((1, 2, 4)))
            self.set(node_mtbf_s=min(fails_us, LARGEST_INPUT_US) / 1e6, checkpoint_every_s=every_s)
        mtbf_s = self.settings.node_mtbf_s
        assert mtbf_s is not None
        if self.sometimes(0.3):
            longest_s = min(mtbf_s / 2, 20 * self.mix.unit_us / 1e6)  # not so long that ticks are without end
            self.set(checkpoint_s=int(longest_s * rng.choice((0.2, 0.5, 1.0)) * 1e6) / 1e6)
        if mtbf_s < 600 or self.sometimes(0.8):
            self.set(node_mttr_s=max(1, int(mtbf_s * rng.choice((0.01, 0.1, 0.5)) * 1e6)) / 1e6)

    def sleep(self) -> None:
        self.set(sleep_after_s=self.time_s(0, 0.5, 1, 2, 5))
        if self.mix.unit_us < 500_000 or self.sometimes(0.8):
            self.set(wake_s=self.time_s(0, 0.5, 1, 1, 3))
        self.stretch *= self.rng.choice((1, 2, 4))

    def cap(self) -> None:
        """A cap between what the idle cluster draws and what the busy one does."""
        if self.policy.placement == "random":
            self.policy = replace(self.policy, placement="anywhere")
        self.give_watts()
        free = empty_cluster(self.nodes)
        idle = draw_mw(self.nodes, self.watts, free)
        for node in free:
            node.gpu_milli = [0] * len(node.gpu_milli)
        busy = draw_mw(self.nodes, self.watts, free)
        steps = max(1, sum(node.gpus for node in self.nodes))
        cap = idle + (busy - idle) * self.rng.randint(0, steps) // steps + self.rng.choice((0, 0, -1, 1))
        self.set(power_cap_w=max(cap, idle, 1) / 1000)

    def limit_groups(self) -> None:
        total = sum(node.gpus for node in self.nodes)
        quotas = {}
        for group in self.rng.sample(GROUPS, self.rng.randint(1, 3)):
            quotas[group] = self.rng.choice(
                (0, self.rng.randint(0, total), min(1, total), total // 2, total // 4)
            )
            total -= quotas[group]
        self.set(group_quotas=quotas, quota_borrowing=self.sometimes(0.5))

    def express(self) -> None:
        rng = self.rng
        k = rng.choice((0.0, 0.01, 0.1, 0.25, 0.5, 1.0, 3.0))
        self.policy = replace(self.policy, express=(rng.choice((1, 2, 3, 10)) * self.mix.unit_us / 1e6, k))

    def weigh(self) -> None:
        rng, weights = self.rng, (0.0, 1.0, 100.0, 1000.0, 0.1)
        shares = (0.5, 1.0, 2.0, 3.0, 0.1)
        self.set(
            user_shares={user: rng.choice(shares) for user in ("ada", "bo", "", "dee") if rng.random() < 0.5},
            group_shares={group: rng.choice(shares) for group in GROUPS if rng.random() < 0.5},
            age_weight=rng.choice(weights),
            size_weight=rng.choice(weights),
            fair_share_weight=rng.choice(weights),
            priority_weight=rng.choice((*weights, 0.0, 0.0)),
            max_age_s=self.time_s(1, 5, 20, 100),
        )

    def remember(self) -> None:
        count = self.rng.choice((0, 0, 1, 3, 12))
        self.history = [random_job(self.rng, self.mix, self.nodes) for _ in range(count)]

    def reserve(self) -> None:
        """Conservative backfill, and nothing that does not go with it."""
        self.policy = replace(self.policy, backfill="conservative", express=None)
        self.mix = replace(self.mix, shared=False)
        if self.policy.placement in SPLITTING_RULES + TIER_RULES:
            self.set(locality_penalty=0.0)

    def case(self) -> Case:
        rng, mix = self.rng, self.mix
        most = rng.choice((6, 20, self.most_jobs))
        count = rng.randint(self.fewest_jobs, max(self.fewest_jobs, most))
        args = (self.nodes, self.speeds, self.policy, self.settings, self.watts)
        jobs = with_submits(rng, runnable_jobs(rng, count, mix, *args), self.nodes, mix)
        stretched = [replace(job, submit_s=round(job.submit_s * 1e6) * self.stretch / 1e6) for job in jobs]
        return Case(self.nodes, self.speeds, stretched, self.policy, self.settings, self.watts, self.history)


def random_preemption(seed: int) -> Case:
    """Jobs are stopped for others, and moved."""
    builder = Builder("preemption", seed)
    if builder.sometimes(0.25):
        builder.preempt((*CALM_ORDERS, *PREEMPTIVE_ORDERS))
        builder.scatter()
    else:
        builder.preempt()
    return builder.case()


def random_failures(seed: int) -> Case:
    """Nodes fail, in half of the cases under a policy that preempts."""
    builder = Builder("failures", seed)
    if builder.sometimes(0.5):
        builder.preempt(("fifo", "wfp3", "random", *PREEMPTIVE_ORDERS, *PREEMPTIVE_ORDERS), defragment=0.5)
        if builder.sometimes(0.3):
            builder.scatter()
    elif builder.sometimes(0.3):
        builder.reserve()
    if builder.policy.backfill != "conservative" and builder.sometimes(0.3):
        builder.sleep()
    builder.fail()
    return builder.case()


def random_sleep(seed: int) -> Case:
    """Nodes fall asleep and wake."""
    builder = Builder("sleep", seed, (*PLAIN_PLACEMENTS, "power-aware", "power-aware"))
    if builder.sometimes(0.35):
        builder.preempt((*PREEMPTIVE_ORDERS, *CALM_ORDERS))
    builder.sleep()
    if builder.sometimes(0.25):
        builder.fail()
    return builder.case()


def random_power(seed: int) -> Case:
    """A power cap, and orders and placements that go by watts."""
    builder = Builder("power", seed, (*PLAIN_PLACEMENTS, *NEW_POOL_RULES, *["power-aware"] * 6))
    if builder.sometimes(0.4):
        builder.order_by("power-aware")
    if builder.sometimes(0.8):
        builder.cap()
    if builder.sometimes(0.3):
        builder.sleep()
    if builder.sometimes(0.2):
        builder.express()
    return builder.case()


def random_quotas(seed: int) -> Case:
    """Groups with quotas, with and without borrowing."""
    builder = Builder("quotas", seed, owned=0.0)
    builder.limit_groups()
    if builder.sometimes(0.2):
        builder.express()
    if builder.sometimes(0.1):
        builder.fail()
    return builder.case()


def random_fairness(seed: int) -> Case:
    """Orders that remember what users and groups used or hold."""
    builder = Builder("fairness", seed, limits=0.6)
    builder.order_by("drf", "drf", "multifactor", "multifactor", "fair-share", "group-fair-share")
    builder.weigh()
    if builder.sometimes(0.15):
        builder.reserve()
    return builder.case()


def random_history(seed: int) -> Case:
    """Predictions from finished jobs, and the order that learns how long jobs take."""
    builder = Builder("history", seed)
    if builder.sometimes(0.4):
        builder.preempt(("gittins", "gittins", "srtf", "ssf"))
    elif builder.sometimes(0.5):
        builder.order_by("qssf")
    if builder.sometimes(0.7):
        builder.set(estimates="history")
    if not builder.settings.defragment and builder.policy.order in CALM_ORDERS and builder.sometimes(0.2):
        builder.reserve()
    builder.remember()
    return builder.case()


def random_conservative(seed: int) -> Case:
    """Every job holds a reservation."""
    builder = Builder("conservative", seed, ALL_PLACEMENTS)
    builder.reserve()
    builder.set(estimates=builder.rng.choice((*ALL_ESTIMATES, "exact", "requested", "requested")))
    if builder.sometimes(0.15):
        builder.fail()
    return builder.case()


def random_tiers(seed: int) -> Case:
    """Placements that compare ways or nodes by what they leave free."""
    builder = Builder(
        "tiers", seed, (*TIER_RULES, *TIER_RULES, "tetris", "fgd", "fgd"), shared=0.4, limits=0.5
    )
    if builder.sometimes(0.2):
        builder.preempt()
    elif builder.sometimes(0.1):
        builder.reserve()
    if builder.sometimes(0.15):
        builder.fail()
    return builder.case()


def random_everything(seed: int) -> Case:
    """Whatever section 20 says yes to, all at once."""
    builder = Builder("everything", seed, ALL_PLACEMENTS, owned=0.3)
    builder.set(estimates=builder.rng.choice(ALL_ESTIMATES))
    builder.weigh()
    builder.remember()
    kind = builder.rng.choice(("preemptive", "preemptive", "conservative", "plain", "plain", "plain"))
    if kind == "preemptive":
        builder.preempt((*PREEMPTIVE_ORDERS, *PREEMPTIVE_ORDERS, *CALM_ORDERS))
    elif kind == "conservative":
        builder.reserve()
    else:
        if builder.sometimes(0.3):
            builder.cap()
        if builder.sometimes(0.3) and all(node.owner is None for node in builder.nodes):
            builder.limit_groups()
        if builder.sometimes(0.25):
            builder.express()
    if kind != "conservative" and builder.sometimes(0.4):
        builder.sleep()
    if builder.sometimes(0.4):
        builder.fail()
    return builder.case()


GENERATORS = (
    random_preemption,
    random_failures,
    random_sleep,
    random_power,
    random_quotas,
    random_fairness,
    random_history,
    random_conservative,
    random_tiers,
    random_everything,
)
