"""Random environments, small and nasty, on which the core and the reference must agree to the last bit.

As in `differential.cases`, each feature is switched on with some probability, and most times lie on a coarse
grid. Jobs are in the columns and units of the native format and the cluster is a `gpuyard.Cluster`, so that
both sides can be built from a case; `reference_env_of` builds the reference. All cases respect the refusals
of docs/contract/mdp.md, and none ends before its first step.
"""

import random
from dataclasses import dataclass, replace

from differential.asked_cases import random_request
from differential.cases import (
    Case,
    Mix,
    limit,
    random_duration_us,
    random_estimate_s,
    random_max_wait_s,
    random_nodes,
    random_types,
    with_submits,
)
from differential.core_runs import cluster_of
from gpuyard.cluster.model import Cluster
from reference.env.environment import ReferenceEnv
from reference.env.settings import (
    BASELINE_METRICS,
    HOST_KINDS,
    JOB_KINDS,
    KINDS,
    LOOKAHEADS,
    TERMS,
    TERMS_WITH_HORIZON,
    TOKENS,
    EnvSettings,
    fits_on_one_node,
    jobs_of_columns,
    parse_policy,
    policy_name,
)
from reference.simulator.simulator import (
    ORDERS_BY_ESTIMATE,
    OTHER_ORDERS,
    POOL_RULES,
    SPLITTING_RULES,
    TIER_RULES,
    Job,
    Node,
    Policy,
    Watts,
    allowed_pools,
    can_ever_start,
    make_pools,
)

COLUMNS = (
    *("submit_s", "duration_s", "gpus", "gpu_milli", "cpus", "memory_mib", "estimate_s", "priority"),
    *("user", "group", "deadline_s", "gpu_types", "nodes"),
)
ORDERS = (*ORDERS_BY_ESTIMATE, *OTHER_ORDERS, "qssf", "group-fair-share", "drf", "multifactor", "power-aware")
PLACEMENTS = (*POOL_RULES, *SPLITTING_RULES, *TIER_RULES, "tetris", "fgd", "power-aware")
TYPES = ("a100", "v100", "t4")
SPEEDS = (0.3, 1 / 3, 0.5, 1.0, 1.0, 1.3, 2.0)
SHARES_MILLI = (1, 100, 250, 333, 500, 500, 501, 999)
GROUPS = ("vision", "speech", "guests", "")
UNITS_US = (7, 333_333, 1_000_000, 1_000_000, 60_000_000, 60_000_000, 3_600_000_000)


@dataclass(frozen=True)
class EnvCase:
    """An environment and its one episode.

    Attributes:
        seed: What `env_case` makes it from.
        kind: One of `reference_env.settings.KINDS`.
        jobs: Columns of the native format. Submit times begin at 0; with `settings.warmup` leading jobs of
            warm-up the episode begins with the next row, and `settings.cooldown` of the last are cool-down.
            The original row of a job is its position.
        cluster: The cluster.
        base_policy: Its full name.
        settings: Settings; padding included.
        expert: A policy to ask for actions.
    """

    seed: int
    kind: str
    jobs: dict[str, list[object]]
    cluster: Cluster
    base_policy: str
    settings: EnvSettings
    expert: str


def env_case(seed: int) -> EnvCase:
    """A case of 2 to 40 jobs on 1 to 8 nodes; every kind of environment with equal chance."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    nodes, speeds, watts, limits = cluster_parts(rng)
    base, expert = random_policy(rng, kind), random_policy(rng, kind)
    unit_us = rng.choice(UNITS_US)
    base = replace(base, max_wait_s=random_max_wait_s(rng, unit_us, "base"))
    expert = replace(expert, max_wait_s=random_max_wait_s(rng, unit_us, "expert"))
    simulator_seed = rng.choice((0, 1, rng.getrandbits(32)))
    baseline = rng.choice(("fifo+easy", "fifo+strict", "sjf+greedy", "lifo+easy/first-fit"))
    policies = (base, expert, parse_policy(baseline))
    jobs = random_jobs(rng, kind, nodes, speeds, watts, limits, unit_us, policies, simulator_seed)
    settings = random_settings(rng, kind, jobs, unit_us, nodes)
    settings = replace(settings, seed=simulator_seed, baseline=baseline)
    columns: dict[str, list[object]] = {name: [getattr(job, name) for job in jobs] for name in COLUMNS}
    cluster = cluster_of(Case(nodes, speeds, jobs, base, None, watts))  # type: ignore[arg-type]
    case = EnvCase(seed, kind, columns, cluster, policy_name(base), settings, policy_name(expert))
    return without_early_end(case)


def reference_env_of(case: EnvCase) -> ReferenceEnv:
    return ReferenceEnv(case.kind, jobs_of_columns(case.jobs), case.cluster, case.base_policy, case.settings)


def without_early_end(case: EnvCase) -> EnvCase:
    """The case, without its horizon if that would pass before the first step."""
    env = reference_env_of(case)
    env.reset()
    if not env.is_over:
        return case
    rewards = {term: w for term, w in case.settings.rewards.items() if term not in TERMS_WITH_HORIZON}
    return replace(case, settings=replace(case.settings, horizon_factor=None, rewards=rewards))


# --- clusters


def cluster_parts(rng: random.Random) -> tuple[list[Node], dict[str, float], Watts, bool]:
    """Nodes, speeds, watts, and whether CPUs and memory are limited."""
    limits, types, owned = rng.random() < 0.45, rng.random() < 0.6, rng.random() < 0.35
    nodes = random_nodes(rng, rng.randint(1, rng.choice((2, 4, 8))), limits, types, owned)
    if rng.random() < 0.05:
        nodes = [replace(node, gpus=0) for node in nodes]
    if rng.random() < 0.06:
        nodes += [Node("a100", 9)] * 8  # more than 64 GPUs
    nodes = [node if node.gpus or node.cpus else replace(node, cpus=limit_of_cpus(rng)) for node in nodes]
    nodes = [at_least_one(replace(node, idle_w=rng.choice((0.0, 0.0, 250.5)))) for node in nodes]
    speeds = {type: rng.choice(SPEEDS) for type in TYPES} if types else {}
    watts = {type: (rng.choice((10.0, 30.5)), rng.choice((100.0, 300.25))) for type in TYPES}
    return nodes, speeds, watts, limits


def limit_of_cpus(rng: random.Random) -> int:
    """Nodes without GPUs must state their CPUs."""
    return limit(rng, Node("a100", 3), 4) or 16


def at_least_one(node: Node) -> Node:
    """The API refuses nodes with 0 CPUs or MiB."""
    cpus = None if node.cpus is None else max(1, node.cpus)
    memory_mib = None if node.memory_mib is None else max(1, node.memory_mib)
    return replace(node, cpus=cpus, memory_mib=memory_mib)


# --- policies


def random_policy(rng: random.Random, kind: str) -> Policy:
    """A base policy of the kind of environment, or an expert in it."""
    backfill = rng.choice(("strict", "greedy", "easy", "easy", "easy-sjf"))
    express = (rng.choice((1.0, 60.0, 600.0)), rng.choice((0.0, 0.1, 0.5, 2.0)))
    placement = rng.choice(("consolidate", *PLACEMENTS))
    if kind == "select-job-and-pool" and placement in SPLITTING_RULES:
        placement = "worst-fit"
    admission = express if rng.random() < 0.2 else None
    if kind in HOST_KINDS:
        backfill, admission = rng.choice(("strict", "greedy")), None
    order = rng.choice((*ORDERS, "fifo", "fifo", "wspt", "sjf"))
    return Policy(order, backfill, admission, placement)


# --- jobs


def random_jobs(
    rng: random.Random,
    kind: str,
    nodes: list[Node],
    speeds: dict[str, float],
    watts: Watts,
    limits: bool,
    unit_us: int,
    policies: tuple[Policy, ...],
    seed: int,
) -> list[Job]:
    mix = Mix(
        limits=limits,
        shared=rng.random() < 0.4,
        cpu_only=rng.random() < 0.3,
        types=rng.random() < 0.3,
        estimates=rng.random() < 0.85,
        deadlines=rng.random() < 0.5,
        rows=False,
        unit_us=unit_us,
        durations=rng.choice(((1, 2, 3), (1, 1, 2, 4, 20), (2, 5, 10, 50), tuple(range(1, 30)))),
        off_grid=rng.random() < 0.2,
    )
    # Tiers try all ways: small gangs keep them quick.
    has_tiers = any(policy.placement in TIER_RULES for policy in policies)
    count = rng.randint(2, rng.choice((6, 14, 25 if has_tiers else 40)))
    pools = make_pools(nodes, speeds)

    def is_possible(job: Job, row: int) -> bool:
        if not all(
            can_ever_start(nodes, speeds, job, row, policy.placement, seed, None, watts)
            for policy in policies
        ):
            return False
        allowed = [node for pool in allowed_pools(pools, job) for node in pool.nodes]
        return kind not in HOST_KINDS or fits_on_one_node(nodes, allowed, job)

    # Where hosts are chosen, pools whose nodes are too small for a job are not allowed; the reference does
    # not know that.
    smallest = min((node.gpus for node in nodes if node.gpus > 0), default=0)
    most_gpus = smallest if kind in HOST_KINDS else sum(node.gpus for node in nodes)
    last_resort = Job(0.0, unit_us / 1e6, gpus=0, group=nodes[0].owner or "")
    jobs = []
    for row in range(count):
        drawn = (random_job(rng, mix, nodes, most_gpus) for _ in range(20))
        jobs.append(next((job for job in drawn if is_possible(job, row)), last_resort))
    # Draws of their own, so that the cases without such jobs stay as they are.
    own = random.Random(f"asking {seed} {count}")
    if own.random() < 0.4:
        some = [(job, own.random() < 0.5) for job in jobs]
        asking = [asked(own, kind, job, nodes) if wanted else job for job, wanted in some]
        pairs = enumerate(zip(jobs, asking, strict=True))
        jobs = [wide if is_possible(wide, row) else job for row, (job, wide) in pairs]
    return with_submits(rng, jobs, nodes, mix)


def asked(rng: random.Random, kind: str, job: Job, nodes: list[Node]) -> Job:
    """The job with a number of nodes; where hosts are chosen, one."""
    return replace(job, nodes=1) if kind in HOST_KINDS else random_request(rng, job, nodes)


def random_job(rng: random.Random, mix: Mix, nodes: list[Node], most_gpus: int) -> Job:
    duration_us = max(1.0, random_duration_us(rng, mix))
    gpus, gpu_milli = min(random_gang(rng, mix, nodes), most_gpus), 1000
    if mix.shared and rng.random() < 0.5:
        gpus, gpu_milli = 1, rng.choice(SHARES_MILLI)
    estimate_s = random_estimate_s(rng, duration_us, mix)
    return Job(
        submit_s=0.0,
        duration_s=duration_us / 1e6,
        gpus=gpus,
        gpu_milli=gpu_milli,
        cpus=rng.choice((0, 1, 2, 3, 4 * gpus, 3 * gpus + 1)) if mix.limits or gpus == 0 else 0,
        memory_mib=rng.choice((0, 0, 1, 500, 1000 * gpus, 901 * gpus)) if mix.limits else 0,
        estimate_s=None if estimate_s is None else max(estimate_s, 1e-6),
        gpu_types=random_types(rng) if mix.types and rng.random() < 0.4 else None,
        priority=rng.choice((1.0, 1.0, 2.0, 0.5, -3.0, 0.0)),
        user=rng.choice(("ada", "bo", "cy", "")),
        group=rng.choice(GROUPS),
        deadline_s=rng.randrange(80) * mix.unit_us / 1e6 if mix.deadlines and rng.random() < 0.8 else None,
    )


def random_gang(rng: random.Random, mix: Mix, nodes: list[Node]) -> int:
    largest, total = max(node.gpus for node in nodes), sum(node.gpus for node in nodes)
    if largest == 0 or (mix.cpu_only and rng.random() < 0.4):
        return 0
    sizes = (1, 1, 2, 4, largest, rng.randint(1, largest), rng.randint(1, largest + 3))
    return min(total, rng.choice(sizes))


# --- settings


def random_settings(
    rng: random.Random, kind: str, jobs: list[Job], unit_us: int, nodes: list[Node]
) -> EnvSettings:
    modes = ("instant", "instant", "event", "tick", *(("blocking",) if kind in JOB_KINDS else ()))
    horizon_factor = rng.choice((None, None, None, 0.3, 1.0, 3.0, 10.0))
    estimates = rng.choice(("requested", "requested", "requested", "exact", "noisy", "none"))
    if all(job.estimate_s is None for job in jobs) and estimates == "requested":
        estimates = "none"  # the API refuses `requested` where nobody requested anything
    unit_s = unit_us / 1e6
    settings = EnvSettings(
        window=rng.choice((1, 2, 3, 5, 8, 64)),
        step_mode=rng.choice(modes),
        tick_s=rng.choice((0.7, 1.0, 2.0, 5.0, 13.0)) * max(unit_s, 1e-5),
        blocking_backfill=rng.random() < 0.5,
        tokens=rng.choice(TOKENS),
        lookahead=rng.choice(LOOKAHEADS),
        lookahead_horizon_s=rng.choice((1.0, 3.0, 10.0, 100.0)) * unit_s,
        rewards=random_rewards(rng, horizon_factor is not None),
        per_job=rng.random() < 0.6,
        horizon_factor=horizon_factor,
        max_steps=rng.randint(1, 20) if rng.random() < 0.12 else None,
        invalid=rng.choice(("error", "noop")),
        invalid_penalty=rng.choice((0.0, 0.25, 1.0)),
        baseline_metric=rng.choice(BASELINE_METRICS),
        epoch_s=rng.choice((0.0, 1506815999.5, float(rng.randrange(86400)))),
        warmup=rng.randrange(len(jobs)) if rng.random() < 0.35 else 0,
        locality_penalty=rng.choice((0.0, 0.0, 0.1, 1.0)),
        kill_at_estimate=rng.random() < 0.25,
        estimates=estimates,
        noise_sigma=rng.choice((0.1, 1.0)),
        origin_s=rng.choice((0.0, 0.0, 86400.5)),
        usage_half_life_s=rng.choice((604800.0, 3600.0, max(7 * unit_s, 1.0))),
    )
    settings = with_padding(rng, settings, nodes) if rng.random() < 0.3 else settings
    return replace(settings, cooldown=random_cooldown(len(jobs) - settings.warmup - 1, unit_us, settings))


def random_cooldown(most: int, unit_us: int, settings: EnvSettings) -> int:
    """In a third of the cases some of the last jobs; drawn so that it changes nothing else of a case."""
    rng = random.Random(f"{most} {unit_us} {settings.tick_s} {settings.epoch_s} {settings.max_steps}")
    return rng.randint(0, most) if rng.random() < 0.35 else 0


def random_rewards(rng: random.Random, has_horizon: bool) -> dict[str, float]:
    """One term, some, or all."""
    terms = [term for term in TERMS if has_horizon or term not in TERMS_WITH_HORIZON]
    chosen = rng.sample(terms, rng.choice((1, 1, 2, 4, len(terms))))
    return {term: rng.choice((1.0, 1.0, 0.5, -2.0)) for term in chosen}


def with_padding(rng: random.Random, settings: EnvSettings, nodes: list[Node]) -> EnvSettings:
    """The sizes of a larger cluster."""
    pools = make_pools(nodes, {})
    gpus = sum(node.gpus for node in nodes)
    classes = sum(pool.size + 1 if pool.size > 0 else 9 for pool in pools)
    return replace(
        settings,
        max_nodes=len(nodes) + rng.randrange(4),
        max_classes=classes + rng.randrange(4),
        max_pools=len(pools) + rng.randrange(3),
        lookahead_length=min(64, gpus + rng.randrange(5)),
    )
