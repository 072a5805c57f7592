"""Serving a policy on the simulator as a live cluster gives the schedule of ``simulate``, to the last bit."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conformance.policy_cases import LEGAL, PREEMPTIVE, legal, mixed_cluster, whole_gpu_workload
from gpuyard import _core
from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.inputs import prepare
from gpuyard.native.snapshot import snapshot_arrays
from gpuyard.network.policy import LearnedPolicy
from gpuyard.policies.base import Policy, as_policy
from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.journal import Journal
from gpuyard.serve.process.agent import Agent
from gpuyard.serve.process.log import Log
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from gpuyard.serve.simulated import OVER, SimulatedCluster
from gpuyard.simulation.run import simulate
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize
from support.paths import model_path

COMPARED = ("start_us", "end_us", "node", "node_gpus", "backfilled")
SERVED = [policy for policy in LEGAL if parse_policy(policy).order not in PREEMPTIVE]
SAMPLE = (
    *("fifo+strict", "lifo+greedy", "sjf+easy", "ljf+easy-sjf", "wspt+easy+express:600:0.1", "saf+greedy"),
    *("wfp3+easy", "unicep+strict", "f1+easy", "f4+greedy", "priority+easy", "edf+easy-sjf", "drf+greedy"),
    *("fair-share+easy", "group-fair-share+easy", "random+easy", "power-aware+greedy/power-aware"),
    *("qssf+easy", "multifactor+easy", "multifactor+slurm", "sjf+conservative", "lifo+greedy+age:900"),
    *("fifo+easy/best-fit", "fifo+easy/worst-fit", "sjf+easy/first-fit", "fifo+greedy/anywhere"),
    *("wspt+greedy/spread", "fifo+easy/random", "fifo+easy/fgd", "sjf+easy/tetris", "fifo+easy/tier"),
    *("fifo+greedy/tier-balance", "sjf+easy/tier-lex", "fifo+easy/tier-cost", "saf+easy/first-available"),
)
MODELS = ("lublin-order", "philly-order", "ricc-order", "venus-long-order", "venus-order")
PARTITIONED = """
[[gpu_types]]
name = "a100"
[[nodes]]
names = "n[0-5]"
gpus = 4
type = "a100"
cpus = 32
memory_mib = 4000
[[partitions]]
name = "whole"
nodes = "n[0-5]"
default = true
[[partitions]]
name = "short"
nodes = "n[3-5]"
priority_tier = 2
"""


def serve(
    directory: Path, workload: Workload, cluster: Cluster, policy: Policy, config: SimulationConfig
) -> dict[str, Any]:
    """The schedule of an agent that holds and starts every job; it never falls back, and refuses nothing."""
    settings = ServeSettings(
        policy=policy.name, mode="active", control="start", simulation=config, estimates=config.estimates,
        state_dir=directory, max_wait_s=1e9, max_starts=10_000, deadline_ms=60_000,
    )  # fmt: skip
    adapter = SimulatedCluster(workload, cluster, policy, config)
    signs = Signs(directory)
    signs.make()
    with Journal.open(settings.journal) as journal:
        fallback = parse_policy("fifo+strict")
        log = Log(io.StringIO())
        agent = Agent(settings, adapter, policy, fallback, journal, signs, log, cluster=cluster)
        with pytest.raises(AdapterError, match="all jobs have ended") as over:
            rounds(agent)
        agent.stop()
    assert over.value.code == OVER
    return adapter.schedule()


def rounds(agent: Agent) -> None:
    while True:
        record = agent.round()
        assert record is not None
        assert (record.decider, record.words, agent.errors) == ("policy", "", [])
        assert [verdict for verdict in record.verdicts if verdict.rule or verdict.error] == []


def check(
    directory: Path, policy: Policy | str, workload: Workload, cluster: Cluster, config: SimulationConfig
) -> None:
    chosen = as_policy(parse_policy(policy)) if isinstance(policy, str) else policy
    own = simulate(workload, cluster, chosen, config).schedule
    served = serve(directory, workload, cluster, chosen, config)
    assert len(own.start_us) == len(workload)
    for name in COMPARED:
        np.testing.assert_array_equal(served[name], getattr(own, name), err_msg=name)


def plain(jobs: int, seed: int, gpus: int = 24) -> Workload:
    return synthesize(
        SynthConfig(jobs=jobs, cluster_gpus=gpus, load=1.5, groups=3, overestimation=2, seed=seed)
    )


@pytest.mark.parametrize(("number", "policy"), list(enumerate(SAMPLE)), ids=SAMPLE)
def test_a_heuristic_serves_as_it_simulates(number: int, policy: str, tmp_path: Path) -> None:
    estimates = ("requested", "history")[number % 2]
    config = SimulationConfig(estimates=estimates, seed=number)
    check(tmp_path, policy, plain(50, seed=number), parse_cluster("2x4:v100,2x8:a100"), config)


@pytest.mark.parametrize("estimates", ["requested", "history"])
@pytest.mark.parametrize(
    "policy",
    ["fifo+easy", "sjf+easy", "drf+greedy", "multifactor+slurm", "fifo+greedy/spread", "wfp3+easy/tier"],
)
def test_jobs_and_nodes_of_all_kinds_are_served_as_simulated(
    policy: str, estimates: str, tmp_path: Path
) -> None:
    jobs = make_workload(whole_gpu_workload().frame.head(60))
    settings = legal(policy).config.model_dump() | {"estimates": estimates}
    check(tmp_path, policy, jobs, mixed_cluster(), SimulationConfig(**settings))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("policy", ["fifo+easy", "sjf+conservative", "random+greedy", "fair-share+easy"])
def test_other_seeds_are_served_as_simulated(policy: str, seed: int, tmp_path: Path) -> None:
    config = SimulationConfig(estimates="requested", seed=seed, usage_half_life_s=5000.0)
    check(tmp_path, policy, plain(40, seed, 32), parse_cluster("4x8"), config)


@pytest.mark.parametrize("policy", ["fifo+easy", "sjf+conservative", "wspt+greedy/spread", "fifo+easy/tier"])
def test_jobs_that_ask_for_nodes_are_served_as_simulated(policy: str, tmp_path: Path) -> None:
    frame = plain(60, seed=7).frame
    gpus = pl.when(pl.col("row") % 5 == 0).then(0).otherwise(pl.min_horizontal("gpus", 8)).cast(pl.Int32)
    jobs = frame.with_columns(gpus=gpus, nodes=pl.Series([None, 2, 3, 1] * 15, dtype=pl.Int32))
    config = SimulationConfig(estimates="requested")
    check(tmp_path, policy, make_workload(jobs), parse_cluster("3x8"), config)


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("fair-share+easy", {"user_shares": {"u0": 3.0}, "usage_half_life_s": 5000.0}),
        ("multifactor+easy", {"user_shares": {"u1": 0.5}, "age_weight": 500.0, "priority_weight": 3.0}),
        ("group-fair-share+greedy", {"group_shares": {"g0": 2.0}}),
        ("sjf+easy", {"group_quotas": {"g0": 6, "g1": 4}}),
        ("fifo+greedy", {"group_quotas": {"g0": 10, "g1": 10}, "quota_borrowing": False}),
        ("fifo+easy", {"kill_at_estimate": True}),
        ("wspt+easy/spread", {"locality_penalty": 0.3}),
    ],
)
def test_settings_of_all_kinds_are_served_as_simulated(
    policy: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = SimulationConfig(**({"estimates": "requested"} | settings))
    check(tmp_path, policy, plain(60, seed=5), parse_cluster("2x4:v100,2x8:a100"), config)


@pytest.mark.parametrize("policy", ["multifactor+slurm", "fifo+easy", "multifactor+easy", "sjf+greedy"])
def test_partitions_that_overlap_are_served_as_simulated(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(PARTITIONED, encoding="utf-8")
    frame = plain(60, seed=9).frame.with_columns(gpus=pl.min_horizontal("gpus", 12).cast(pl.Int32))
    jobs = frame.with_columns(partition=pl.Series(["short", None, "whole", None] * 15, dtype=pl.String))
    config = SimulationConfig(estimates="requested")
    check(tmp_path, policy, make_workload(jobs), parse_cluster(str(path)), config)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_serves_as_it_simulates(name: str, tmp_path: Path) -> None:
    policy = LearnedPolicy.open(model_path(name))
    cluster = policy.model.cluster
    mix = ((1, 4), (2, 2), (4, 2), (8, 1))
    jobs = synthesize(
        SynthConfig(jobs=40, cluster_gpus=cluster.total_gpus, load=1.5, gang_mix=mix, overestimation=2)
    )
    check(tmp_path, policy, jobs, cluster, SimulationConfig(estimates="requested"))


def test_plans_on_nodes_of_all_kinds_are_served_as_simulated(tmp_path: Path) -> None:
    jobs = make_workload(whole_gpu_workload().frame.head(80))
    config = SimulationConfig(estimates="requested", seed=5)
    check(tmp_path, "fifo+conservative", jobs, mixed_cluster(), config)


def test_the_core_wakes_when_a_decision_from_outside_asks_for_it() -> None:
    cluster, policy, config = parse_cluster("1x8"), as_policy(parse_policy("fifo")), SimulationConfig()
    jobs = make_workload(plain(2, seed=1).frame.with_columns(submit_s=pl.lit(0.0), duration_s=pl.lit(100.0)))
    inputs = prepare(jobs, cluster, policy, config)
    simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past)
    assert simulator.advance()
    decision = _core.Decision()
    decision.start(0, [(0, int(jobs.frame["gpus"][0]))])
    decision.wake_at(7_000_000)
    simulator.apply(decision)
    assert simulator.advance()
    assert snapshot_arrays(simulator.snapshot(), cluster)["now_s"] == 7.0


def test_jobs_that_share_a_gpu_are_refused_by_a_simulated_cluster() -> None:
    frame = plain(5, 1).frame.with_columns(gpus=pl.lit(1, pl.Int32), gpu_milli=pl.lit(500, pl.Int32))
    policy = as_policy(parse_policy("fifo+easy"))
    with pytest.raises(InputError, match="share a GPU"):
        SimulatedCluster(make_workload(frame), parse_cluster("1x8"), policy, SimulationConfig())


def test_policies_that_stop_jobs_are_refused_by_a_simulated_cluster() -> None:
    policy = as_policy(parse_policy("srtf+greedy"))
    with pytest.raises(InputError, match="stops running jobs"):
        SimulatedCluster(plain(5, 1), parse_cluster("1x8"), policy, SimulationConfig())


@pytest.mark.slow
@pytest.mark.parametrize("estimates", ["requested", "history"])
@pytest.mark.parametrize("policy", SERVED)
def test_every_heuristic_serves_as_it_simulates(policy: str, estimates: str, tmp_path: Path) -> None:
    jobs = make_workload(whole_gpu_workload().frame.head(40 if policy.endswith("milp") else 120))
    how = legal(policy)
    if policy.endswith("milp"):
        jobs = make_workload(how.workload.frame.head(40))
    settings = how.config.model_dump() | {"estimates": estimates}
    check(tmp_path, policy, jobs, mixed_cluster(), SimulationConfig(**settings))
