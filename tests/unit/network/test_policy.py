"""Trained networks as policies: in simulations, one decision at a time, and where they cannot be used."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.config import SimulationConfig
from gpuyard.env import SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.network.config import NetworkConfig
from gpuyard.network.model_file import ModelFile, write_model
from gpuyard.network.policy import LearnedPolicy
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import expected_tensors
from gpuyard.policies.grammar import PolicySpec
from gpuyard.simulation.find import find_policy
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, write_workload
from gpuyard.workload.generators import preset_workload

CLUSTER = "2x4:p100,2x4:v100"
NETWORK_OF = {
    "select-job": "job-scorer",
    "select-job-and-pool": "cross-attention",
    "accept-or-skip": "job-scorer",
    "select-host": "host-attention",
    "rank-hosts": "host-attention",
}


def jobs(count: int = 80, seed: int = 3, **settings: Any) -> Workload:
    return preset_workload("bursty-8gpu", **{"jobs": count, "max_gpus": 4, "seed": seed} | settings).workload


def some_model(kind: str = "select-job", seed: int = 0, **settings: Any) -> ModelFile:
    """A network with weights by chance."""
    network = settings.pop("network", {})
    settings = {"workload": jobs(), "cluster": CLUSTER, "window": 6} | settings
    env = SchedulingVectorEnv(kind, 1, threads=1, **settings)
    config = NetworkConfig(**{"kind": NETWORK_OF[kind], "width": 16} | network)
    rng = np.random.default_rng(seed)
    shapes = expected_tensors(config, NetworkSizes.of(env.model))
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return ModelFile.of(env.model, config, tensors, {})


def untrained(kind: str, **settings: Any) -> ModelFile:
    """A network that has learnt nothing beyond its base policy."""
    model = some_model(kind, network={"kind": NETWORK_OF[kind], "residual": "base"}, **settings)
    for name, values in model.tensors.items():
        if name.startswith(("policy", "noop.")):
            values.fill(0)
    return model


class OneByOne:
    """The same policy, asked at every decision point."""

    def __init__(self, policy: LearnedPolicy) -> None:
        self.decide = policy.decide


def at_once(workload: Workload) -> Workload:
    """The same jobs, all submitted at the beginning: nothing is to arrive while the cluster is idle."""
    return Workload(workload.frame.with_columns(submit_s=0.0 * workload.frame["submit_s"]), workload.metadata)


@pytest.mark.parametrize("kind", ["select-job", "select-job-and-pool", "accept-or-skip"])
@pytest.mark.parametrize("base", ["wspt+easy", "fifo+greedy", "sjf+easy/best-fit", "fair-share+easy"])
def test_one_decision_at_a_time_gives_the_schedule_of_the_replay(kind: str, base: str) -> None:
    waits = 0
    for seed in range(6):
        policy = LearnedPolicy("model", some_model(kind, seed, base_policy=base))
        workload = at_once(jobs(60, seed=seed))
        whole = simulate(workload, CLUSTER, policy)
        assert whole.schedule.hash() == simulate(workload, CLUSTER, OneByOne(policy)).schedule.hash()
        waits += whole.schedule.hash() != simulate(workload, CLUSTER, base).schedule.hash()
    assert waits  # not only what the base policy would have done


@pytest.mark.parametrize("base", ["wspt+easy", "fifo+greedy", "unicep+easy"])
def test_a_rule_decides_as_it_is_replayed_while_jobs_arrive(base: str) -> None:
    for seed in range(4):
        model = some_model(seed=seed, base_policy=base, network={"kind": "rule"})
        policy = LearnedPolicy("model", model)
        workload = jobs(150, seed=seed)
        whole = simulate(workload, CLUSTER, policy)
        assert whole.schedule.hash() == simulate(workload, CLUSTER, OneByOne(policy)).schedule.hash()


@pytest.mark.parametrize("base", ["sjf", "wspt+easy", "fifo+easy", "saf+greedy+express:600:0.1"])
@pytest.mark.parametrize("kind", ["select-job", "accept-or-skip"])
def test_an_untrained_residual_network_runs_as_its_base_policy(kind: str, base: str) -> None:
    workload = jobs(300)
    policy = LearnedPolicy("model", untrained(kind, base_policy=base, window=300))
    learned, rule = simulate(workload, CLUSTER, policy), simulate(workload, CLUSTER, base)
    np.testing.assert_array_equal(learned.schedule.start_us, rule.schedule.start_us)
    np.testing.assert_array_equal(learned.schedule.node, rule.schedule.node)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("select-job", {"step_mode": "event"}),
        ("select-job", {"step_mode": "tick", "tick_s": 30.0}),
        ("select-job", {"step_mode": "blocking", "blocking_backfill": True}),
        ("select-job-and-pool", {"step_mode": "blocking"}),
        ("accept-or-skip", {"step_mode": "event"}),
        ("select-host", {}),
        ("rank-hosts", {"step_mode": "tick", "tick_s": 30.0}),
    ],
)
def test_models_of_every_kind_and_step_mode_simulate(kind: str, settings: dict[str, Any]) -> None:
    result = simulate(jobs(), CLUSTER, LearnedPolicy("model", some_model(kind, **settings)))
    assert result.metrics()["completed_jobs"] == 80
    with pytest.raises(InputError, match="step mode instant"):
        simulate(jobs(), CLUSTER, OneByOne(LearnedPolicy("model", some_model(kind, **settings))))


def test_times_are_those_of_the_workload_even_if_it_begins_late() -> None:
    workload = jobs()
    frame = workload.frame.with_columns(submit_s=workload.frame["submit_s"] + 5000.0)
    late = Workload(frame, workload.metadata)
    policy = LearnedPolicy("model", some_model(global_features=("free", "queue", "running")))
    first, second = simulate(workload, CLUSTER, policy), simulate(late, CLUSTER, policy)
    np.testing.assert_array_equal(first.schedule.start_us + 5_000_000_000, second.schedule.start_us)
    np.testing.assert_array_equal(first.schedule.end_us + 5_000_000_000, second.schedule.end_us)


def test_the_settings_of_the_simulation_are_those_of_the_caller() -> None:
    policy = LearnedPolicy("runs/x", some_model())
    exact = simulate(jobs(), CLUSTER, policy)
    assert exact.notes == ()
    config = SimulationConfig(estimates="noisy", noise_sigma=1.0)
    noisy = simulate(jobs(), CLUSTER, policy, config)
    assert noisy.notes == ("policy runs/x was trained with estimates history, but runs with noisy",)
    assert noisy.schedule.hash() != exact.schedule.hash()
    (elsewhere,) = simulate(jobs(), "1x8:p100,1x8:v100", policy).notes
    assert elsewhere.startswith("policy runs/x was trained on cluster ")
    assert elsewhere.endswith("but runs on 1x8:p100,1x8:v100 (2 nodes, 16 GPUs)")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"node_mtbf_s": 1e5}, "policy runs/x: environments do not offer failing nodes"),
        ({"defragment": True}, "moving running jobs"),
        ({"sleep_after_s": 60.0}, "sleeping nodes"),
        ({"group_quotas": {"a": 1}}, "group quotas"),
    ],
)
def test_what_environments_do_not_offer_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(jobs(), CLUSTER, LearnedPolicy("runs/x", some_model()), SimulationConfig(**settings))


def test_another_cluster_is_refused_where_it_looks_different() -> None:
    policy = LearnedPolicy("runs/x", some_model())
    with pytest.raises(InputError, match=r"on cluster .* \(4 nodes, 16 GPUs\) with 31 columns of globals"):
        simulate(jobs(), "4x4", policy)
    with pytest.raises(InputError, match=r"trained on cluster .* \(4 nodes, 16 GPUs\)"):
        simulate(jobs(), "4x4", OneByOne(policy))
    # As many pools and GPUs: it looks the same to all but a flat network.
    other = "4x2:p100,2x4:v100"
    assert simulate(jobs(), other, policy).metrics()["completed_jobs"] == 80
    flat = LearnedPolicy("runs/x", some_model(network={"kind": "mlp"}))
    with pytest.raises(InputError, match=r"with 4 rows of nodes, but on .* there are 6"):
        simulate(jobs(), other, flat)


def test_a_host_model_runs_on_another_number_of_hosts() -> None:
    policy = LearnedPolicy("m", some_model("select-host", global_features=("queue", "running")))
    assert simulate(jobs(), "3x4:p100,2x4:v100", policy).metrics()["completed_jobs"] == 80
    with pytest.raises(InputError, match="a job sits on one"):
        simulate(jobs(max_gpus=8), CLUSTER, policy)


def test_jobs_that_never_fit_are_dropped_or_refused() -> None:
    policy = LearnedPolicy("m", some_model())
    large = jobs(max_gpus=32, seed=5)
    gpus = large.frame["gpus"]
    large = Workload(large.frame.with_columns(gpus=gpus.replace({4: 20}).cast(gpus.dtype)), large.metadata)
    with pytest.raises(InputError, match=r"policy m: row 1 of .* with `oversize=drop`"):
        simulate(large, CLUSTER, policy)
    result = simulate(large, CLUSTER, policy, SimulationConfig(oversize="drop"))
    assert len(result.dropped) > 0
    assert len(result.schedule.start_us) == 80 - len(result.dropped)


def test_a_path_is_a_policy_wherever_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_model(run / "best.safetensors", some_model())
    write_workload(jobs(), tmp_path / "jobs.csv")
    assert simulate(tmp_path / "jobs.csv", CLUSTER, str(run)).policy == str(run)
    assert isinstance(find_policy(str(run / "best.safetensors")), LearnedPolicy)
    from gpuyard.cli import app

    arguments = [str(tmp_path / "jobs.csv"), "--cluster", CLUSTER, "--policy", str(run)]
    more = ["--policy", "sjf+easy", "--json", "--out", str(tmp_path / "out"), "--estimates", "noisy"]
    with pytest.raises(SystemExit):
        app(["simulate", *arguments, *more])
    printed = capsys.readouterr()
    results = json.loads(printed.out)["results"]
    named = ["fifo+easy/consolidate", str(run), "sjf+easy/consolidate"]
    assert [result["policy"] for result in results] == named
    assert results[1]["metrics"]["completed_jobs"] == 80
    assert "was trained with estimates history, but runs with noisy" in printed.err
    assert len(list((tmp_path / "out").glob("schedules/*.parquet"))) == 3


def test_name_of_a_run_without_its_folder_is_told_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "ppo-1").mkdir(parents=True)
    with pytest.raises(InputError, match=r"policy 'ppo-1': did you mean the training run runs/ppo-1\?"):
        find_policy("ppo-1")


def test_names_that_are_nothing_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="nor is there a run directory or model file runs/none"):
        find_policy("runs/none")
    with pytest.raises(InputError, match="there is no such run directory or model file"):
        find_policy("best.safetensors")
    with pytest.raises(InputError, match="no such model comes with gpuyard"):
        find_policy("model:none")
    with pytest.raises(InputError, match="there is no model in this directory"):
        find_policy(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sjf").mkdir()
    assert isinstance(find_policy("sjf"), PolicySpec)


def test_an_idle_cluster_is_never_left_idle_by_a_decision() -> None:
    model = some_model()
    model.tensors["noop.bias"].fill(1e6)
    policy = LearnedPolicy("m", model)
    assert simulate(jobs(), CLUSTER, OneByOne(policy)).metrics()["completed_jobs"] == 80
