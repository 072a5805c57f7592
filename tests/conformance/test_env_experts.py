"""Whoever follows a policy's own actions gets the schedule that `gpuyard simulate` gives.

See docs/contract/mdp.md.
"""

import random
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self

import pytest

from gpuyard import _core, simulate
from gpuyard.cluster.model import Cluster, GpuType, NodeGroup
from gpuyard.config import SimulationConfig
from gpuyard.native.inputs import prepare
from gpuyard.policies.grammar import parse_policy
from gpuyard.policies.heuristics import Heuristic
from gpuyard.registry import registered
from gpuyard.simulation.run import SimulationResult
from gpuyard.workload import Workload, make_workload
from reference.simulator.simulator import Job
from support.env_runs import (
    FAST_AND_SLOW,
    Episode,
    allocations,
    following,
    make_env,
    play,
    random_jobs,
    same_metrics,
    starts_and_ends,
)

# `drf` scores jobs by what their users hold, which changes with every start: mdp.md leaves it out.
ORDERS = tuple(
    rule.usable_name
    for name, rule in registered("order").items()
    if isinstance(rule, Heuristic) and not rule.preempts and name != "drf"
)
BACKFILLS = ("strict", "greedy", "easy", "easy-sjf")
PLACEMENTS = tuple(name for name in registered("placement") if name != "milp")
JOBS = 32

CLUSTERS = {
    "ones": Cluster(
        gpu_types=(GpuType(name="x", idle_w=50, peak_w=400),),
        nodes=(NodeGroup(count=12, gpus=1, type="x", idle_w=5),),
    ),
    "plain": Cluster(
        gpu_types=(GpuType(name="x", idle_w=50, peak_w=400),),
        nodes=(NodeGroup(count=3, gpus=4, type="x"),),
    ),
    "mixed": Cluster(
        gpu_types=FAST_AND_SLOW,
        nodes=(
            NodeGroup(count=2, gpus=4, type="slow", cpus=16, memory_mib=2000, idle_w=100),
            NodeGroup(count=1, gpus=8, type="fast", idle_w=200.5),
            NodeGroup(count=1, gpus=2, type="fast", cpus=8),
        ),
    ),
    "queues": Cluster(
        gpu_types=(GpuType(name="x", idle_w=50, peak_w=400),),
        nodes=(NodeGroup(count=2, gpus=4, type="x"), NodeGroup(count=1, gpus=8, type="x", owner="red")),
    ),
}
FARM = Cluster(
    nodes=(
        NodeGroup(count=2, gpus=0, type="cpu", cpus=8, memory_mib=1000, idle_w=100),
        NodeGroup(count=2, gpus=0, type="cpu", cpus=12, memory_mib=700, idle_w=150),
    )
)


def with_backfills(names: tuple[str, ...]) -> list[Any]:
    """Every rule with every backfill; half of the pairs are slow, each rule and backfill in both halves."""
    pairs = [(i + j, name, fill) for i, name in enumerate(names) for j, fill in enumerate(BACKFILLS)]
    return [pytest.param(*pair, marks=[pytest.mark.slow] * (number % 2)) for number, *pair in pairs]


@cache
def jobs_for(cluster: str, seed: int) -> list[Job]:
    """More than the cluster can take at a time, so that orders and backfilling matter."""
    rng = random.Random(f"{cluster} {seed}")
    return random_jobs(
        rng, JOBS, (1, 1, 2, 3, 4, 6, 8), cpus=cluster == "mixed", shared=cluster == "mixed", grid_s=2.0
    )


@dataclass(frozen=True)
class PassMadeAnew:
    """What a policy does if, at each decision point, it makes its pass again after every start.

    That is what following an expert amounts to. It makes no difference for `strict` and `greedy` under rules
    of placement for which no start makes room. Under `easy` and `easy-sjf` it may: a job that was passed
    over, as it would have delayed the head from where the rule puts it, may be put elsewhere after a start.
    """

    start_us: Any
    end_us: Any
    node_offset: Any
    node: Any
    node_gpus: Any

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster, policy: str, config: SimulationConfig) -> Self:
        spec = parse_policy(policy)
        inputs = prepare(workload, cluster, spec, config)
        simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past)
        while simulator.advance():
            while starts := _core.decide(simulator.snapshot(), spec.compile()).starts:
                first = _core.Decision()
                first.start(*starts[0])
                simulator.apply(first)
        arrays = simulator.schedule()
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})


def check_same(env: Any, policy: str, expected: SimulationResult) -> None:
    """Following the policy in the environment gives the schedule and the metrics of the simulation."""
    check_episode(play(env, following(policy)), expected)


def check_episode(episode: Episode, expected: SimulationResult) -> None:
    assert episode.terminated
    check_schedule(episode.schedule, expected.schedule)
    same_metrics(episode.metrics, expected.metrics())
    assert episode.metrics["unfinished_jobs"] == 0


def check_schedule(schedule: Any, expected: Any) -> None:
    assert starts_and_ends(schedule) == starts_and_ends(expected)
    assert allocations(schedule) == allocations(expected)


def is_simulated_as_is(policy: str, cluster: str) -> bool:
    """Whether a pass that is made anew after every start cannot differ."""
    spec = parse_policy(policy)
    if spec.backfill.startswith("easy"):
        return cluster == "ones"
    return not (spec.backfill == "greedy" and spec.placement.startswith("tier"))


def check(cluster: str, seed: int, policy: str, base: str, kind: str = "select-job", **settings: Any) -> None:
    machines = CLUSTERS[cluster]
    env = make_env(jobs_for(cluster, seed), machines, kind, base_policy=base, window=JOBS, **settings)
    workload, config = env.model.source.workload, env.model.config.simulated
    episode = play(env, following(policy))
    if is_simulated_as_is(policy, cluster):
        check_episode(episode, simulate(workload, machines, policy, config))
    check_schedule(episode.schedule, PassMadeAnew.of(workload, machines, policy, config))


def estimated(order: str) -> dict[str, Any]:
    """Requested times, which are sometimes too short, for some orders."""
    return {"estimates": "requested"} if random.Random(order).random() < 0.5 else {}


@pytest.mark.parametrize(("order", "backfill"), with_backfills(ORDERS))
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_following_a_policy_gives_its_simulation(cluster: str, order: str, backfill: str) -> None:
    policy = f"{order}+{backfill}"
    check(cluster, 1, policy, base=policy, **estimated(order))


@pytest.mark.parametrize(("order", "backfill"), with_backfills(ORDERS))
@pytest.mark.parametrize("cluster", ["ones", "mixed"])
def test_following_a_policy_gives_its_simulation_whatever_the_order_of_the_window(
    cluster: str, order: str, backfill: str
) -> None:
    base = {"wspt": "fifo+greedy"}.get(order, "wspt+easy")
    check(cluster, 2, f"{order}+{backfill}", base=base, **estimated(order))


@pytest.mark.parametrize(("placement", "backfill"), with_backfills(PLACEMENTS))
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_following_a_policy_places_jobs_by_the_rule_of_the_base_policy(
    cluster: str, placement: str, backfill: str
) -> None:
    check(cluster, 3, f"sjf+{backfill}/{placement}", base=f"fifo+easy/{placement}")


@pytest.mark.parametrize("placement", [name for name in PLACEMENTS if name != "worst-fit"])
def test_the_acting_policys_own_rule_of_placement_does_not_matter_where_jobs_are_chosen(
    placement: str,
) -> None:
    jobs = jobs_for("mixed", 4)
    env = make_env(jobs, CLUSTERS["mixed"], base_policy="fifo+greedy/worst-fit", window=JOBS)
    expected = simulate(env.model.source.workload, CLUSTERS["mixed"], "sjf+greedy/worst-fit")
    check_same(env, f"sjf+greedy/{placement}", expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"estimates": "requested", "simulation": SimulationConfig(kill_at_estimate=True)},
        {"estimates": "noisy", "simulation": SimulationConfig(noise_sigma=1.0, seed=5)},
        {"estimates": "none"},
        {"estimates": "history"},
        {"simulation": SimulationConfig(locality_penalty=0.5)},
        {"simulation": SimulationConfig(usage_half_life_s=60.0)},
    ],
    ids=["killed", "noisy", "none", "history", "locality", "usage"],
)
@pytest.mark.parametrize("policy", ["fifo+easy", "sjf+greedy", "fair-share+easy-sjf", "wfp3"])
@pytest.mark.parametrize("cluster", ["ones", "mixed"])
def test_following_a_policy_gives_its_simulation_under_all_settings(
    cluster: str, policy: str, settings: dict[str, Any]
) -> None:
    check(cluster, 5, policy, base=policy, **settings)


def test_a_start_may_move_a_job_that_easy_passed_over_to_where_it_delays_nobody() -> None:
    # Nodes of 4 GPUs. 3 GPUs of node 0 are held until 10 s, 2 of node 1 until 100 s. At 1 s come the head (4
    # GPUs: node 0, at 10 s), a long job (1 GPU) that the rule would put on node 0, and a short one (1 GPU)
    # that is done by 3 s. One pass passes over the long one and starts the short one. That fills node 0:
    # asked again, the rule puts the long one on node 1, where it delays nobody.
    jobs = [Job(0, 10, 3), Job(0, 100, 2), Job(1, 10, 4), Job(1, 50, 1), Job(1, 2, 1)]
    env = make_env(jobs, "2x4", base_policy="fifo+easy", window=5, estimates="exact")
    episode = play(env, following("fifo+easy"))
    assert [start_us / 1e6 for start_us, _ in starts_and_ends(episode.schedule)] == [0, 0, 10, 1, 1]
    exact = SimulationConfig(estimates="exact")
    simulated = simulate(env.model.source.workload, "2x4", "fifo+easy", exact).schedule
    assert [start_us / 1e6 for start_us, _ in starts_and_ends(simulated)] == [0, 0, 10, 10, 1]


def test_energy_that_the_inputs_do_not_tell_is_not_a_number() -> None:
    """As in docs/contract/metrics.md: null, never a guess."""
    machines = Cluster(nodes=(NodeGroup(gpus=0, type="cpu", cpus=8),))  # no watts anywhere
    env = make_env([Job(0, 10, 0, cpus=2)], machines)
    expected = simulate(env.model.source.workload, machines, "fifo")
    assert expected.metrics()["energy_kwh"] is None
    check_same(env, "fifo", expected)


# --- other kinds


@pytest.mark.parametrize(("order", "backfill"), with_backfills(ORDERS))
def test_accepting_as_the_base_policy_does_gives_its_simulation(order: str, backfill: str) -> None:
    policy = f"{order}+{backfill}"
    for cluster in ("ones", "mixed"):
        check(cluster, 6, policy, base=policy, kind="accept-or-skip", **estimated(order))


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("policy", ["fifo", "sjf+easy", "saf+greedy/worst-fit", "edf+easy-sjf/first-fit"])
def test_accepting_everything_gives_the_base_policys_simulation(cluster: str, policy: str) -> None:
    jobs = jobs_for(cluster, 7)
    env = make_env(jobs, CLUSTERS[cluster], "accept-or-skip", base_policy=policy, window=JOBS)
    expected = PassMadeAnew.of(env.model.source.workload, CLUSTERS[cluster], policy, SimulationConfig())
    check_schedule(play(env, lambda *_: 1).schedule, expected)


@pytest.mark.parametrize("policy", ["largest+strict", "largest+strict/spread", "largest+easy", "ljf"])
def test_a_policy_does_not_accept_what_only_fits_as_another_job_is_held_back(policy: str) -> None:
    # Next to a job that runs, so that skipping is legal, two GPUs are free. One job needs both and one needs
    # one. With nothing held back the policy starts the first, after which the second does not fit.
    jobs = [Job(0, 1000, 1), Job(1, 20, 2), Job(1, 10, 1), Job(100, 10, 1)]
    env = make_env(jobs, "3x1", "accept-or-skip", base_policy="largest+strict/anywhere", window=4)
    env.reset(seed=0)
    env.step(1)
    assert env.expert_action(policy) == 1
    env.step(0)
    assert env.action_masks().tolist() == [True, True]
    assert env.expert_action(policy) == 0


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("order", ["fifo", "sjf", "wfp3", "fair-share", "priority"])
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_following_a_policy_where_pools_are_chosen_gives_its_simulation(
    cluster: str, order: str, backfill: str
) -> None:
    policy = f"{order}+{backfill}"
    check(cluster, 8, policy, base="fifo+easy", kind="select-job-and-pool")


@cache
def farm_jobs(seed: int) -> list[Job]:
    rng = random.Random(seed)
    jobs = random_jobs(rng, 60, (0,), cpus=True)
    return [
        Job(job.submit_s, job.duration_s, 0, cpus=rng.randint(1, 8), memory_mib=rng.randrange(0, 700, 50))
        for job in jobs
    ]


@pytest.mark.parametrize("kind", ["select-host", "rank-hosts"])
@pytest.mark.parametrize("backfill", ["greedy", "strict"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_following_a_rule_of_placement_on_a_host_farm_gives_its_simulation(
    placement: str, backfill: str, kind: str
) -> None:
    policy = f"fifo+{backfill}/{placement}"
    env = make_env(farm_jobs(9), FARM, kind, base_policy=f"fifo+{backfill}", window=4)
    check_same(env, policy, simulate(env.model.source.workload, FARM, policy))


@pytest.mark.parametrize("order", ["fifo", "sjf", "lifo", "wfp3", "fair-share"])
@pytest.mark.parametrize("backfill", ["greedy", "strict"])
def test_hosts_are_asked_for_in_the_order_of_the_base_policy(order: str, backfill: str) -> None:
    policy = f"{order}+{backfill}/best-fit"
    env = make_env(farm_jobs(10), FARM, "select-host", base_policy=f"{order}+{backfill}", window=4)
    check_same(env, policy, simulate(env.model.source.workload, FARM, policy))


# Rules that split a job that would fit on one node; here it must sit on one.
SPLITS = ("anywhere", "spread", "random", "tier", "tier-balance", "tier-lex", "tier-cost")


@pytest.mark.parametrize("placement", [name for name in PLACEMENTS if name not in SPLITS])
def test_following_a_rule_of_placement_with_gpus_on_one_node_gives_its_simulation(placement: str) -> None:
    jobs = random_jobs(random.Random(11), 45, (1, 1, 2, 3, 4), grid_s=2.0)
    machines = CLUSTERS["plain"]
    env = make_env(jobs, machines, "select-host", base_policy="fifo+greedy", window=1)
    policy = f"fifo+greedy/{placement}"
    check_same(env, policy, simulate(env.model.source.workload, machines, policy))


# --- windows of a workload


def test_a_window_of_a_workload_is_simulated_like_a_workload_of_its_own() -> None:
    """From an empty cluster, at time 0, if the order does not depend on the clock's origin."""
    jobs = jobs_for("plain", 12)
    machines = CLUSTERS["plain"]
    for first in (0, 7, 12):
        cold = {"warmup_jobs": 0, "cooldown_jobs": 0}
        env = make_env(jobs, machines, base_policy="sjf+easy", window=JOBS, jobs_per_episode=20, **cold)
        episode = play(env, following("sjf+easy"), episode=first)
        part = part_of(env.model.source.workload, first, first + 20)
        expected = simulate(part, machines, "sjf+easy")
        shift_us = episode.schedule["submit_us"][0]
        own = [(start - shift_us, end - shift_us) for start, end in starts_and_ends(episode.schedule)]
        assert own == starts_and_ends(expected.schedule)
        same_metrics(episode.metrics, expected.metrics())


def part_of(workload: Workload, first: int, end: int) -> Workload:
    return make_workload(workload.frame[first:end])
