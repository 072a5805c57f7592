"""Random simulations of what docs/contract/slurm.md adds, small and nasty.

Partitions overlap, are nested, apart or the same; limits are low enough to bind; chains of dependencies hold
jobs back; intervals of passes and priorities lie on the case's grid of time. Whatever the page says no to is
left out. Every job can start on the empty cluster, within its limits.
"""

import random
from collections.abc import Callable
from dataclasses import replace

from differential.asked_cases import random_request
from differential.cases import Case, random_job, with_submits
from differential.lifecycle_cases import CALM_ORDERS, Builder
from differential.lifecycle_cases import GENERATORS as LIFECYCLE_GENERATORS
from reference.simulator.simulator import (
    ALL_ESTIMATES,
    ALL_PLACEMENTS,
    NEW_POOL_RULES,
    POOL_RULES,
    TIER_RULES,
    Job,
    Partition,
    Qos,
    can_ever_start,
)

ONE_POOL_PLACEMENTS = (*POOL_RULES, *POOL_RULES, *NEW_POOL_RULES, *TIER_RULES)
PARTITION_NAMES = ("gpu", "debug", "long", "all")
QOS_NAMES = ("normal", "high", "scavenge")
GONE = 10**6  # a job that is not in the workload


class SlurmBuilder(Builder):
    """Draws the parts of one case, as `Builder`, and partitions, limits and dependencies."""

    def __init__(self, name: str, seed: int, placements: tuple[str, ...], owned: float = 0.0) -> None:
        super().__init__(name, seed, placements, owned=owned, limits=0.5, most_jobs=50)
        self.partitions: tuple[Partition, ...] = ()
        self.qos: tuple[Qos, ...] = ()
        self.asks, self.dependence = 0.0, 0.0  # parts of the jobs
        self.set(estimates=self.rng.choice((*ALL_ESTIMATES, "exact", "requested", "requested")))
        if self.settings.estimates == "history":
            self.remember()
        if self.sometimes(0.4):
            self.asks = self.rng.choice((0.2, 0.5))

    # --- features

    def divide(self) -> None:
        """Partitions of the nodes; some nodes may be in none."""
        rng, names = self.rng, self.rng.sample(PARTITION_NAMES, self.rng.randint(1, 4))
        ids = list(range(len(self.nodes)))
        kind = rng.choice(("any", "any", "any", "nested", "apart", "same"))
        default = rng.choice((None, *names))
        parts = []
        for place, name in enumerate(names):
            some = rng.sample(ids, rng.randint(1, len(ids)))
            if kind == "nested":
                some = ids[: max(1, len(ids) - place)]
            elif kind == "apart":
                some = ids[place :: len(names)] or some
            elif kind == "same":
                some = ids
            parts.append(Partition(name, tuple(sorted(some)), default=name == default, **self.tiers()))
        self.partitions = tuple(parts)

    def tiers(self) -> dict[str, int]:
        rng = self.rng
        return {
            "priority_tier": rng.choice((1, 1, 1, 0, 2, 5)),
            "priority_job_factor": rng.choice((1, 1, 0, 3, 1000)),
        }

    def limit_partitions(self) -> None:
        self.partitions = tuple(
            replace(partition, **self.some_limits(max_nodes=(1, 1, 2, 3))) for partition in self.partitions
        )

    def describe_qos(self, limited: float = 0.7) -> None:
        rng, total, largest = self.rng, *self.sizes()
        qos = [Qos(name, rng.choice((0, 1, 5, 2**31))) for name in rng.sample(QOS_NAMES, rng.randint(1, 3))]
        many = (largest, (total + largest) // 2, total // 2, total - 1, rng.randint(1, total), 0)
        self.qos = tuple(
            replace(quality, **self.some_limits(max_gpus_per_group=many, max_gpus=many))
            if self.sometimes(limited)
            else quality
            for quality in qos
        )

    def some_limits(self, **others: tuple[int, ...]) -> dict[str, float | None]:
        """One to three limits of a partition or QOS, of those that both have and of others."""
        rng, total, largest = self.rng, *self.sizes()
        choices: dict[str, tuple[int, ...]] = {
            "max_gpus_per_job": (2, largest, largest, total),
            "max_gpus_per_user": (largest, largest, largest + 2, total // 2, total - 1),
            "max_jobs_per_user": (1, 1, 2, 3),
            **others,
        }
        picked = rng.sample(sorted(choices), rng.randint(1, 3))
        limits: dict[str, float | None] = {name: rng.choice(choices[name]) for name in picked}
        if self.sometimes(0.15):
            limits["max_time_s"] = self.time_s(5, 10, 30)
        return limits

    def sizes(self) -> tuple[int, int]:
        """GPUs of the cluster and of the largest node, at least 1."""
        gpus = [node.gpus for node in self.nodes]
        return max(1, sum(gpus)), max(1, *gpus)

    def depend(self) -> None:
        self.dependence = self.rng.choice((0.1, 0.3, 0.7))

    def backfill_as_slurm(self) -> None:
        """The rule `slurm`, with passes that are rare enough for long jobs."""
        rng, longest = self.rng, max(self.mix.durations)
        self.policy = replace(self.policy, backfill="slurm", express=None)
        self.fewest_jobs = min(24, 4 + 3 * len(self.nodes))
        scale = max(1, longest // 8)
        self.set(
            locality_penalty=0.0,
            bf_interval_s=self.time_s(scale, scale, 2 * scale, 0.5 * scale, 3 * scale),
            bf_max_job_test=rng.choice((0, 500, 500, 1, 2, 3, 8)),
            bf_max_job_part=rng.choice((0, 0, 0, 1, 2, 5)),
            bf_max_job_user=rng.choice((0, 0, 0, 1, 2, 5)),
            bf_window_s=self.time_s(1000, 1000, 1000, 0, 2, longest, 3 * longest),
            bf_resolution_s=self.time_s(0.001, 0.25, 1, 1, 2, 7, longest),
            epoch_s=rng.choice((0.0, 0.5, 1.6e9, rng.randrange(2 * 10**15) / 1e6)),
        )

    def crowd(self) -> None:
        """Long gangs of whole nodes and short small jobs, most of them there from the beginning on."""
        rng, size = self.rng, self.rng.choice((2, 4, 4, 8))
        kinds = [replace(self.nodes[0], gpus=size), replace(self.nodes[-1], gpus=rng.choice((size, size, 2)))]
        self.nodes = [rng.choice(kinds) for _ in range(rng.randint(2, 6))]
        self.mix = replace(self.mix, cpu_only=self.sometimes(0.1), shared=self.sometimes(0.2))
        self.mix = replace(
            self.mix, durations=rng.choice(((1, 1, 2, 3, 10, 30), (1, 2, 20), (1, 2, 3, 4, 5, 6)))
        )
        self.fewest_jobs = 15
        self.set(estimates=rng.choice(("exact", "requested", "requested", "noisy", "history")))

    def weigh(self) -> None:
        super().weigh()
        rng, weights = self.rng, (0.0, 0.0, 1.0, 100.0, 1000.0, 0.1)
        self.set(
            fair_share=rng.choice(("tree", "tree", "classic")),
            priority_calc_s=self.time_s(0.5, 1, 1, 3, 10, 100),
            favor_small=self.sometimes(0.3),
            partition_weight=rng.choice(weights),
            qos_weight=rng.choice(weights),
            gpu_weight=rng.choice(weights),
            cpu_weight=rng.choice(weights),
            memory_weight=rng.choice(weights),
        )

    # --- jobs

    def case(self) -> Case:
        rng, mix = self.rng, self.mix
        count = rng.randint(self.fewest_jobs, max(self.fewest_jobs, rng.choice((6, 20, self.most_jobs))))
        rows = rng.sample(range(10 * count), count) if mix.rows else [None] * count
        jobs = [self.job(position, row) for position, row in enumerate(rows)]
        jobs = with_submits(rng, jobs, self.nodes, mix)
        jobs = [replace(job, submit_s=round(job.submit_s * 1e6) * self.stretch / 1e6) for job in jobs]
        jobs = with_dependencies(rng, jobs, self.dependence)
        return Case(
            self.nodes,
            self.speeds,
            jobs,
            self.policy,
            self.settings,
            self.watts,
            self.history,
            partitions=self.partitions,
            qos=self.qos,
        )

    def job(self, position: int, row: int | None) -> Job:
        """A job that can start; not all jobs name what they use."""
        rng = self.rng
        default = next((partition.name for partition in self.partitions if partition.default), None)
        where = [partition.name for partition in self.partitions] or ["", "somewhere"]
        which = [quality.name for quality in self.qos] * 3 + [*QOS_NAMES, ""]
        for _ in range(30):
            job = random_job(rng, self.mix, self.nodes)
            if self.sometimes(self.asks):
                job = random_request(rng, job, self.nodes)
            named = replace(job, row=row, partition=rng.choice(where), qos=rng.choice(which))
            if self.can_start(named, position):
                break
        else:
            named = Job(0.0, self.mix.unit_us / 1e6, gpus=0, group=self.nodes[0].owner or "", row=row)
            named = replace(named, partition=where[0])
        return replace(named, partition="") if named.partition == default and rng.random() < 0.5 else named

    def can_start(self, job: Job, position: int) -> bool:
        row = position if job.row is None else job.row
        how = (self.policy.placement, self.settings.seed, self.settings, self.watts)
        return can_ever_start(self.nodes, self.speeds, job, row, *how, self.partitions, self.qos)


def with_dependencies(rng: random.Random, jobs: list[Job], part: float) -> list[Job]:
    """That part of the jobs wait for up to three others, most of which come shortly before them."""
    places = [(position + rng.choice((0, 0, 0, 0.5, 4.5)), position) for position in range(len(jobs))]
    answer = []
    for position, job in enumerate(jobs):
        earlier = [other for other in range(len(jobs)) if places[other] < places[position]]
        near = [other for other in earlier if abs(other - position) <= 6]
        after: list[int] = []
        if rng.random() < part:
            after = [rng.choice(near or earlier or [GONE]) for _ in range(rng.choice((1, 1, 2, 3)))]
            after += [GONE + position] * rng.choice((0, 0, 0, 1))
        answer.append(replace(job, after=tuple(dict.fromkeys(after))))
    return answer


def depending(make_case: Callable[[int], Case]) -> Callable[[int], Case]:
    """The same cases, in which some jobs wait for others."""

    def make(seed: int) -> Case:
        case, rng = make_case(seed), random.Random(f"depending {seed}")
        return replace(case, jobs=with_dependencies(rng, case.jobs, rng.choice((0.1, 0.3, 0.7))))

    make.__name__ = f"{make_case.__name__}-depending"
    return make


def random_slurm(seed: int) -> Case:
    """The rule `slurm` on clusters without partitions, some with owned nodes."""
    builder = SlurmBuilder("slurm", seed, ONE_POOL_PLACEMENTS, owned=0.25)
    builder.backfill_as_slurm()
    builder.weigh()
    if builder.sometimes(0.4):
        builder.describe_qos()
    if builder.sometimes(0.3):
        builder.depend()
    if builder.sometimes(0.2):
        builder.fail()
    return builder.case()


def random_backfill(seed: int) -> Case:
    """The rule `slurm` where there is much to backfill."""
    builder = SlurmBuilder("backfill", seed, ONE_POOL_PLACEMENTS)
    builder.crowd()
    if builder.sometimes(0.5):
        builder.divide()
    builder.backfill_as_slurm()
    if builder.sometimes(0.7):
        builder.set(bf_max_job_test=0, bf_max_job_part=0, bf_max_job_user=0)
        builder.set(bf_interval_s=builder.time_s(1, 1, 2), bf_resolution_s=builder.time_s(0.001, 0.5, 1))
    if builder.sometimes(0.2):
        builder.describe_qos()
    if builder.sometimes(0.1):
        builder.fail()
    return builder.case()


def random_partitions(seed: int) -> Case:
    """Partitions with and without limits, under all backfill rules that they go with."""
    builder = SlurmBuilder("partitions", seed, ONE_POOL_PLACEMENTS)
    builder.fewest_jobs = min(20, 4 + 3 * len(builder.nodes))
    builder.divide()
    if builder.sometimes(0.5):
        builder.limit_partitions()
    if builder.sometimes(0.3):
        builder.describe_qos()
    if builder.sometimes(0.4):
        builder.backfill_as_slurm()
    elif builder.sometimes(0.2):
        builder.express()
    if builder.sometimes(0.15):
        builder.fail()
    return builder.case()


def random_limits(seed: int) -> Case:
    """Qualities of service on clusters without partitions, with all that running limits go with."""
    builder = SlurmBuilder("limits", seed, ALL_PLACEMENTS, owned=0.2)
    builder.fewest_jobs = min(20, 4 + 3 * len(builder.nodes))
    builder.describe_qos(limited=1.0)
    kind = builder.rng.choice(("plain", "plain", "sleep", "cap", "quotas"))
    if kind == "sleep":
        builder.sleep()
    elif kind == "cap":
        builder.cap()
    elif kind == "quotas" and all(node.owner is None for node in builder.nodes):
        builder.limit_groups()
    if builder.sometimes(0.2):
        builder.express()
    if builder.sometimes(0.3):
        builder.depend()
    if builder.sometimes(0.15):
        builder.fail()
    return builder.case()


def random_priorities(seed: int) -> Case:
    """Slurm's priority with all its factors, under all backfill rules."""
    builder = SlurmBuilder("priorities", seed, ONE_POOL_PLACEMENTS)
    builder.order_by("multifactor")
    builder.weigh()
    if builder.sometimes(0.6):
        builder.divide()
    if builder.sometimes(0.5):
        builder.describe_qos(limited=0.2 if builder.partitions else 0.0)
    if builder.sometimes(0.6):
        builder.backfill_as_slurm()
    elif not builder.partitions and builder.sometimes(0.3):
        builder.reserve()
    if builder.sometimes(0.3):
        builder.depend()
    return builder.case()


def random_slurm_cluster(seed: int) -> Case:
    """All at once: what a real cluster of Slurm has."""
    builder = SlurmBuilder("slurm cluster", seed, ONE_POOL_PLACEMENTS)
    builder.order_by("multifactor", "multifactor", "multifactor", *CALM_ORDERS)
    builder.weigh()
    builder.divide()
    builder.describe_qos()
    if builder.sometimes(0.5):
        builder.limit_partitions()
    if builder.sometimes(0.6):
        builder.depend()
    if builder.sometimes(0.8):
        builder.backfill_as_slurm()
    if builder.sometimes(0.3):
        builder.fail()
    return builder.case()


GENERATORS = (
    random_slurm,
    random_backfill,
    random_partitions,
    random_limits,
    random_priorities,
    random_slurm_cluster,
)
DEPENDING = tuple(depending(make) for make in LIFECYCLE_GENERATORS)
