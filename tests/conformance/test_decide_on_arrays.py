"""Every policy decides on a snapshot made of plain arrays as it does in its own run, to the last bit."""

import random
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from conformance.policy_cases import LEGAL, legal, mixed_cluster
from conformance.test_policies import VARIANTS, allows
from gpuyard import _core, registry
from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.native import make_snapshot, snapshot_arrays
from gpuyard.native.inputs import prepare
from gpuyard.network.policy import LearnedPolicy
from gpuyard.policies.base import Policy, as_policy
from gpuyard.policies.grammar import parse_policy
from gpuyard.simulation.run import simulate
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize
from support.paths import model_path

JOBS = 150
SOME = 0.08
"""Of all decision points are compared in the fast tests."""
LONG_QUEUES = (
    "wspt+easy",
    "fifo+conservative",
    "multifactor+easy-sjf",
    "drf+greedy",
    "gittins+greedy",
    "random+easy/fgd",
)


class OnArrays:
    """A policy that is asked twice: on the simulator's snapshot, and on one made of the arrays of that.

    Args:
        policy: The policy.
        workload: What it runs.
        cluster: On what.
        config: Settings.
        share: Of decision points that are compared.
    """

    def __init__(
        self, policy: Policy, workload: Workload, cluster: Cluster, config: SimulationConfig, share: float
    ) -> None:
        self.policy, self.cluster, self.config, self.share = policy, cluster, config, share
        self.preempts, self.backfills = policy.preempts, policy.backfills
        self.names = {name: sorted(set(workload.frame[name])) for name in ("user", "group")}
        self.random = random.Random(policy.name)
        self.compared = 0

    def made(self, snapshot: _core.Snapshot) -> _core.Snapshot:
        arrays = snapshot_arrays(snapshot, self.cluster)
        for table in ("users", "groups"):
            arrays[table]["name"] = self.names[table.removesuffix("s")]
        return make_snapshot(self.cluster, config=self.config, **arrays)

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        decision = self.policy.decide(snapshot)
        if self.random.random() < self.share:
            self.compared += 1
            made = self.policy.decide(self.made(snapshot))
            assert made.starts == decision.starts
            assert made.stops == decision.stops
            assert made == decision  # flags, GPUs, reservations and the next wake-up too
        return decision


def check(
    policy: Policy, workload: Workload, cluster: Cluster, config: SimulationConfig, share: float = SOME
) -> int:
    """The number of decisions that were compared, in a run that is the same as the simulator's own."""
    own = simulate(workload, cluster, policy, config)
    on_arrays = OnArrays(policy, workload, cluster, config, share)
    assert simulate(workload, cluster, on_arrays, config).schedule.hash() == own.schedule.hash()
    return on_arrays.compared


def cases() -> Iterator[Any]:
    for number, policy in enumerate(LEGAL):
        variants = [variant for variant in VARIANTS if allows(variant, policy)]
        variant = variants[number % len(variants)]
        yield pytest.param(policy, variant, id=f"{policy}, {variant}")


def check_case(policy: str, variant: str, jobs: int, share: float) -> int:
    how = legal(policy, **VARIANTS[variant])
    workload = make_workload(how.workload.frame.head(jobs))
    return check(parse_policy(policy), workload, mixed_cluster(), how.config, share)


@pytest.mark.parametrize(("policy", "variant"), list(cases()))
def test_every_heuristic_decides_on_arrays_as_in_its_run(policy: str, variant: str) -> None:
    assert check_case(policy, variant, 80 if policy.endswith("milp") else JOBS, SOME) > 3


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("policy", LEGAL)
def test_every_heuristic_decides_on_arrays_as_in_its_run_at_every_time(policy: str, variant: str) -> None:
    if not allows(variant, policy):
        pytest.skip("section 20")
    assert check_case(policy, variant, 300, 0.02 if policy.endswith("milp") else 1.0) > 3


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("fair-share+easy", {"user_shares": {"u0": 3.0}, "usage_half_life_s": 5000.0}),
        ("multifactor+easy", {"user_shares": {"u1": 0.5}, "age_weight": 500.0, "priority_weight": 3.0}),
        ("group-fair-share+greedy", {"group_shares": {"g0": 2.0}}),
        ("sjf+easy", {"group_quotas": {"g0": 6, "g1": 4}}),
        ("fifo+greedy", {"group_quotas": {"g0": 10, "g1": 10}, "quota_borrowing": False}),
        ("sjf+easy", {"estimates": "history"}),
        ("qssf+greedy", {"estimates": "noisy", "seed": 3}),
        ("tiresias+greedy", {"tiresias_levels_gpu_s": (500.0, 5000.0), "starvation_s": 3000.0}),
        ("srtf+strict", {"checkpoint_s": 30.0, "restore_s": 20.0, "kill_at_estimate": True}),
        ("wspt+easy+express:600:0.1", {}),
        ("wspt+easy-sjf+express:600:0.1:1800", {}),
        ("lifo+greedy+age:900", {}),
        ("multifactor+easy+age:900", {}),
        ("sjf+conservative+age:900", {}),
        ("power:0.5+easy/power-aware", {"power_cap_w": 6000.0}),
    ],
)
def test_settings_of_all_kinds_reach_decisions_on_arrays(policy: str, settings: dict[str, Any]) -> None:
    config = SimulationConfig(**({"estimates": "requested"} | settings))
    jobs = synthesize(SynthConfig(jobs=200, cluster_gpus=24, load=1.6, groups=3, overestimation=2))
    assert check(parse_policy(policy), jobs, parse_cluster("2x4:v100,2x8:a100"), config, 0.2) > 20


@pytest.mark.parametrize(
    "policy", ["fifo+easy", "sjf+conservative", "wspt+greedy/spread", "srtf+greedy", "fifo+easy/tier"]
)
def test_jobs_that_ask_for_nodes_are_decided_on_arrays(policy: str) -> None:
    frame = synthesize(SynthConfig(jobs=200, cluster_gpus=24, load=1.2)).frame
    gpus = pl.when(pl.col("row") % 5 == 0).then(0).otherwise(pl.min_horizontal("gpus", 8)).cast(pl.Int32)
    jobs = frame.with_columns(gpus=gpus, nodes=pl.Series([None, 2, 3, 1] * 50, dtype=pl.Int32))
    config = SimulationConfig(estimates="exact")
    assert check(parse_policy(policy), make_workload(jobs), parse_cluster("3x8"), config, 0.2) > 20


def test_an_order_written_in_python_decides_on_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._entries, "order", dict(registry._entries["order"]))
    registry.register("order", "by-wait")(lambda queue: queue["wait_s"] * queue["user_usage"])
    jobs = synthesize(SynthConfig(jobs=200, cluster_gpus=24, load=1.6))
    config = SimulationConfig(estimates="exact")
    assert check(parse_policy("by-wait+easy"), jobs, parse_cluster("6x4"), config, 0.2) > 20


# --- Models


MODELS = ("lublin-order", "philly-order", "ricc-order", "venus-long-order", "venus-order")
"""They decide on snapshots: they select jobs in instant mode."""


@pytest.mark.parametrize("name", MODELS)
def test_every_model_decides_on_arrays_as_it_is_replayed(name: str) -> None:
    policy = LearnedPolicy.open(model_path(name))
    cluster = policy.model.cluster
    jobs = synthesize(
        SynthConfig(
            jobs=120, cluster_gpus=cluster.total_gpus, load=1.5, gang_mix=((1, 4), (2, 2), (4, 2), (8, 1))
        )
    )
    config = SimulationConfig(estimates="exact")
    assert check(policy, jobs, cluster, config, 0.1) > 3


# --- Long queues


def long_queue(count: int, seed: int) -> Workload:
    """So many jobs that come nearly at once."""
    jobs = synthesize(
        SynthConfig(jobs=count, cluster_gpus=64, load=1.5, groups=3, overestimation=2, seed=seed)
    ).frame
    return make_workload(jobs.with_columns((pl.col("submit_s") / pl.col("submit_s").max() * 5.0).round(0)))


def check_long_queue(policy: Policy, cluster: Cluster, workload: Workload, decisions: int) -> None:
    config = SimulationConfig(estimates="requested")
    acting = as_policy(policy)
    inputs = prepare(workload, cluster, as_policy(OnArrays(acting, workload, cluster, config, 1.0)), config)
    simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past)
    on_arrays = OnArrays(acting, workload, cluster, config, 1.0)
    longest = 0
    while on_arrays.compared < decisions and simulator.advance():
        longest = max(longest, len(simulator.waiting))
        simulator.apply(on_arrays.decide(simulator.snapshot()))
    assert longest > 0.95 * len(workload)


@pytest.mark.parametrize("policy", LONG_QUEUES)
def test_queues_of_ten_thousand_jobs(policy: str) -> None:
    jobs = 2_000 if "conservative" in policy else 10_000
    check_long_queue(parse_policy(policy), parse_cluster("4x8,8x4"), long_queue(jobs, 1), 8)


def test_a_model_with_a_queue_of_ten_thousand_jobs() -> None:
    policy = LearnedPolicy.open(model_path("venus-order"))
    check_long_queue(policy, policy.model.cluster, long_queue(10_000, 2), 7)


@pytest.mark.slow
@pytest.mark.parametrize("policy", LEGAL)
def test_long_queues_of_every_heuristic(policy: str) -> None:
    if policy.endswith("milp"):
        pytest.skip("solves a program per window of jobs")
    jobs = 1_000 if "conservative" in policy else 10_000
    check_long_queue(parse_policy(policy), mixed_cluster_without_owners(), long_queue(jobs, 3), 12)


def mixed_cluster_without_owners() -> Cluster:
    return parse_cluster("3x4:v100@0.5,4x8:a100")


def test_arrays_of_a_made_snapshot_are_those_it_was_made_of() -> None:
    how = legal("las+greedy/consolidate", node_mtbf_s=40_000.0, node_mttr_s=3600.0)
    policy = OnArrays(parse_policy("las+greedy"), how.workload, mixed_cluster(), how.config, 0.0)
    inputs = prepare(how.workload, mixed_cluster(), as_policy(policy), how.config)
    simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past)
    for _ in range(300):
        simulator.advance()
        simulator.apply(policy.decide(simulator.snapshot()))
    snapshot = simulator.snapshot()
    given, made = (snapshot_arrays(one, mixed_cluster()) for one in (snapshot, policy.made(snapshot)))
    assert set(given) == set(made)
    for name, value in given.items():
        if isinstance(value, dict):
            assert set(value) == set(made[name])
            for column, values in value.items():
                assert repr(list(values)) == repr(list(made[name][column])), (name, column)
        else:
            assert value == made[name]
