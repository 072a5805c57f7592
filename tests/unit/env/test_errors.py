"""Environments that cannot be: every refusal is an InputError that says what is wrong and what to do."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import polars as pl
import pytest

from gpuyard import registry
from gpuyard.cluster.model import Cluster, NodeGroup
from gpuyard.config import SimulationConfig
from gpuyard.env import KINDS, SchedulingEnv, SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.workload import make_workload
from support.small_environments import HOST_KINDS, KIND_NAMES, draws, single, vector, windows


def refusal(kind: str, **arguments: Any) -> str:
    """The message, the same from a single environment and a vector, and through Gymnasium."""
    messages = []
    env_id = next(env_id for env_id, name in KINDS.items() if name == kind)
    for make in (
        lambda: SchedulingEnv(kind, **arguments),
        lambda: SchedulingVectorEnv(kind, 2, **arguments),
        lambda: gymnasium.make(env_id, **arguments),
        lambda: gymnasium.make_vec(env_id, 2, **arguments),
    ):
        with pytest.raises(InputError) as error:
            make()
        messages.append(str(error.value))
    assert len(set(messages)) == 1, messages
    assert "\n" not in messages[0]
    return messages[0]


# --- Settings ---

SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"windo": 3}, "unknown setting 'windo' of an environment; did you mean 'window'"),
    ({"workloads": "demo"}, "unknown setting 'workloads' of an environment; did you mean 'workload'"),
    ({"xyzzy": 3}, "unknown setting 'xyzzy' of an environment; known: workload, generator, cluster"),
    ({"window": 0}, "window: "),
    ({"window": 65_537}, "window: "),
    ({"window": "many"}, "window: "),
    ({"step_mode": "jump"}, "step_mode: expected 'instant', 'event', 'tick' or 'blocking'"),
    ({"tick_s": 0.0}, "tick_s: "),
    ({"tick_s": float("nan")}, "tick_s: "),
    ({"tick_s": float("inf")}, "tick_s: "),
    ({"lookahead_horizon_s": -1.0}, "lookahead_horizon_s: "),
    ({"tokens": "pools"}, "tokens: expected 'nodes' or 'classes'"),
    ({"lookahead": "far"}, "lookahead: expected 'off', 'per_gpu', 'sorted' or 'cdf'"),
    ({"flatten": "perhaps"}, "flatten: "),
    ({"job_features": ("wiat",)}, "unknown feature 'wiat'; did you mean 'wait'"),
    ({"node_features": ("wait",)}, "unknown feature 'wait'"),
    ({"global_features": ("queu",)}, "unknown feature 'queu'; did you mean 'queue"),
    ({"rewards": {"slowdwon": 1.0}}, "unknown reward term 'slowdwon'; did you mean 'slowdown'"),
    ({"rewards": {"wait": float("nan")}}, "rewards.wait: "),
    ({"rewards": {"wait": "much"}}, "rewards.wait: "),
    ({"rewards": {"backlog": 1.0}}, "reward term backlog needs a horizon; set horizon_factor"),
    ({"rewards": {"finish_early": 1.0}}, "reward term finish_early needs a horizon; set horizon_factor"),
    ({"baseline_metric": "mean_wait"}, "unknown baseline_metric 'mean_wait'; did you mean 'mean_wait_s'"),
    ({"baseline_metric": "makespan_s"}, "unknown baseline_metric 'makespan_s'"),
    ({"invalid": "ignore"}, "invalid: expected 'raise' or 'noop'"),
    ({"invalid_penalty": -1.0}, "invalid_penalty: "),
    ({"split": "dev"}, "split: expected 'all', 'train', 'validation' or 'test'"),
    ({"jobs_per_episode": 0}, "jobs_per_episode: "),
    ({"warmup_jobs": -1}, "warmup_jobs: "),
    ({"cooldown_jobs": -1}, "cooldown_jobs: "),
    ({"horizon_factor": 0.0}, "horizon_factor: "),
    ({"horizon_factor": float("nan")}, "horizon_factor: "),
    ({"max_steps": 0}, "max_steps: "),
    ({"estimates": "guessed"}, "estimates: "),
    ({"blocking_backfill": True}, 'blocking_backfill has no effect without step_mode="blocking"'),
    ({"warmup_jobs": 2, "rewards": {"versus_baseline": 1.0}}, "cannot follow a warm-up; leave one out"),
    ({"cooldown_jobs": 2, "rewards": {"versus_baseline": 1.0}}, "cannot be followed by a cool-down"),
    (
        {"estimates": "none", "simulation": SimulationConfig(estimates="noisy")},
        "estimates is none, but simulation.estimates noisy",
    ),
]


@pytest.mark.parametrize(("settings", "words"), SETTINGS, ids=lambda value: str(value)[:48])
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    assert words in refusal("select-job", **windows(**settings))


@pytest.mark.parametrize(
    ("setting", "value", "what"),
    [
        ("defragment", True, "moving running jobs"),
        ("node_mtbf_s", 1000.0, "failing nodes"),
        ("sleep_after_s", 60.0, "sleeping nodes"),
        ("power_cap_w", 1e6, "a power cap"),
        ("group_quotas", {"vision": 2}, "group quotas"),
    ],
)
@pytest.mark.parametrize("kind", KIND_NAMES)
def test_what_the_environments_do_not_offer_is_refused(
    kind: str, setting: str, value: Any, what: str
) -> None:
    message = refusal(kind, **windows(simulation=SimulationConfig(**{setting: value})))
    assert message == f"environments do not offer {what} ({setting}); leave that setting out"


# --- Policies ---


@pytest.fixture
def python_order(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an order that is known for the time of a test."""
    monkeypatch.setitem(registry._entries, "order", dict(registry._entries["order"]))
    registry.register("order", "largest-number-first")(lambda queue: -queue["job"])
    return "largest-number-first"


POLICIES: list[tuple[str, str]] = [
    ("srtf+greedy", "stops running jobs"),
    ("fifo+conservative", "plans ahead of events"),
    ("fifo/milp", "places several jobs together"),
]


@pytest.mark.parametrize(("policy", "why"), POLICIES)
@pytest.mark.parametrize("kind", KIND_NAMES)
def test_policies_that_cannot_act_are_refused(kind: str, policy: str, why: str) -> None:
    message = refusal(kind, **windows(base_policy=policy))
    assert f" {why}, which environments do not offer; use another, such as sjf+easy" in message
    if kind not in HOST_KINDS:
        baseline = refusal(kind, **windows(baseline=policy, rewards={"versus_baseline": 1.0}))
        assert why in baseline
    env = single(kind)
    env.reset(seed=0)
    with pytest.raises(InputError, match=why):
        env.expert_action(policy)


def test_orders_written_in_python_are_refused(python_order: str) -> None:
    assert "is an order written in Python" in refusal("select-job", **windows(base_policy=python_order))


@pytest.mark.parametrize("policy", ["sfj+easy", "fifo+esay", "fifo/consolidat", "fifo+easy+express:1"])
def test_unknown_policies_are_refused(policy: str) -> None:
    assert policy.split("+")[0].split("/")[0] in refusal("select-job", **windows(base_policy=policy))
    env = single("select-job")
    env.reset(seed=0)
    with pytest.raises(InputError):
        env.expert_action(policy)


@pytest.mark.parametrize("rule", ["anywhere", "spread", "random"])
def test_rules_that_split_freely_cannot_choose_pools(rule: str) -> None:
    message = refusal("select-job-and-pool", **windows(base_policy=f"fifo/{rule}"))
    assert f"placement {rule} splits gangs over pools" in message
    assert "use consolidate" in message
    single("select-job", base_policy=f"fifo/{rule}").reset(seed=0)  # fine where pools are not chosen


@pytest.mark.parametrize("kind", ["select-host", "rank-hosts", "accept-or-skip"])
def test_blocking_is_for_selecting_jobs(kind: str) -> None:
    message = refusal(kind, **windows(step_mode="blocking"))
    assert message == f"step_mode blocking is for environments that select jobs, not for {kind}; use instant"


@pytest.mark.parametrize("policy", ["sjf+easy", "sjf+easy-sjf", "sjf+greedy+express:60:0.1"])
@pytest.mark.parametrize("kind", HOST_KINDS)
def test_backfill_and_admission_are_refused_where_hosts_are_chosen(kind: str, policy: str) -> None:
    assert "use sjf+greedy or sjf+strict" in refusal(kind, **windows(base_policy=policy))


# --- Jobs and clusters ---


def jobs(**columns: list[Any]) -> Any:
    return make_workload(
        pl.DataFrame({"submit_s": [0.0, 1.0], "duration_s": [5.0, 5.0], "gpus": [1, 1]} | columns)
    )


@pytest.mark.parametrize("kind", HOST_KINDS)
def test_jobs_that_need_more_than_a_node_are_refused_where_hosts_are_chosen(kind: str) -> None:
    message = refusal(kind, workload=jobs(gpus=[1, 5]), cluster="2x4")
    assert "row 1 of workload" in message
    assert "needs 5 GPUs, more than a node of cluster 2x4 has (4)" in message
    assert "use gpuyard/SelectJob-v0" in message


@pytest.mark.parametrize("kind", HOST_KINDS)
def test_jobs_whose_cpus_no_node_has_are_refused_where_hosts_are_chosen(kind: str) -> None:
    cluster = Cluster(name="small", nodes=(NodeGroup(count=2, gpus=4, cpus=8),))
    assert "row 1 of workload" in refusal(kind, workload=jobs(gpus=[2, 2], cpus=[1, 9]), cluster=cluster)


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_jobs_that_can_never_run_are_refused(kind: str) -> None:
    assert "row 0 of workload" in refusal(kind, workload=jobs(gpus=[99, 1]), cluster="2x4")


def test_windows_must_be_found_among_the_jobs_that_can_run() -> None:
    drop = SimulationConfig(oversize="drop")
    message = refusal("select-job", workload=jobs(gpus=[99, 1]), cluster="2x4", simulation=drop)
    assert "2 jobs an episode are more than are left: 1 jobs" in message
    SchedulingEnv(
        "select-job", workload=jobs(gpus=[99, 1]), cluster="2x4", simulation=drop, jobs_per_episode=1
    )


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_per_gpu_needs_nodes_of_at_most_64_gpus(kind: str) -> None:
    arguments = {"workload": jobs(), "cluster": "2x65"}
    message = refusal(kind, lookahead="per_gpu", **arguments)
    assert "lookahead per_gpu needs nodes of at most 64 GPUs" in message
    SchedulingEnv(kind, **arguments).reset(seed=0)
    SchedulingEnv(kind, lookahead="per_gpu", workload=jobs(), cluster="2x64").reset(seed=0)


def test_jobs_that_share_gpus_need_nodes_of_at_most_64_gpus() -> None:
    message = refusal("select-job", workload=jobs(gpu_milli=[500, 1000]), cluster="2x65")
    assert "nodes of at most 64 GPUs" in message


def test_energy_needs_watts() -> None:
    message = refusal("select-job", workload=jobs(), cluster="2x4", rewards={"energy": 1.0})
    assert "reward term energy needs idle_w and peak_w of GPU type" in message
    assert "64x8:v100" in message  # what to do


def test_requested_estimates_need_requests() -> None:
    assert "use exact, noisy, history or none" in refusal(
        "select-job", workload=jobs(), cluster="2x4", estimates="requested"
    )


SOURCES: list[tuple[dict[str, Any], str]] = [
    (windows(generator="bursty-8gpu"), "give a workload or a generator, not both"),
    ({"workload": windows()["workload"]}, "name the cluster that the workload runs on"),
    (windows(jobs_per_episode=61), "jobs_per_episode 61 is more than the 60 jobs of the all part of"),
    (windows(jobs_per_episode=50, split="test"), "jobs of the test part of"),
    (windows(generator_seeds=(1, 2)), "generator_seeds need a generator"),
    (draws(split="train"), "split is for workloads"),
    (draws(generator_seeds=(-1,)), "generator_seeds[0]: "),
    ({"generator": "burst"}, "generator 'burst' is no preset of a workload; known: demo"),
    ({"generator": {"jobs": 5}}, "generator None is no preset of a workload; known: demo"),
    ({"generator": {"preset": "bursty-8gpu", "jbos": 5}}, "jbos"),
    ({"generator": {"preset": "bursty-8gpu", "jobs": 0}}, "jobs"),
    ({"workload": Path("no/such/file.swf"), "cluster": "8x8"}, "no/such/file.swf"),
    (windows(cluster="8by8"), "8by8"),
    ({"preset": "lublin-12"}, "did you mean 'lublin-128'"),
    ({"preset": "host-farm"}, "preset host-farm is for select-host or rank-hosts, not for select-job"),
]


@pytest.mark.parametrize(("arguments", "words"), SOURCES, ids=[words[:48] for _, words in SOURCES])
def test_jobs_that_cannot_be_found_are_refused(arguments: dict[str, Any], words: str) -> None:
    assert words in refusal("select-job", **arguments)


def test_a_generator_without_any_draws_to_choose_from_is_refused() -> None:
    assert "generator_seeds" in refusal("select-job", **draws(generator_seeds=()))


# --- Calls ---


def test_unknown_kinds_are_refused_with_the_closest() -> None:
    for make in (SchedulingEnv, SchedulingVectorEnv):
        with pytest.raises(
            InputError, match="unknown kind of environment 'select-jobs'; did you mean 'select-job'"
        ):
            make("select-jobs")


def test_render_modes_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="render_mode 'human': expected ansi or rgb_array"):
        single("select-job", render_mode="human")
    with pytest.raises(InputError, match=r"make a single one with gymnasium\.make"):
        vector("select-job", render_mode="ansi")


@pytest.mark.parametrize("arguments", [{"num_envs": 0}, {"num_envs": -1}, {"threads": 0}])
def test_vectors_of_nothing_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="num_envs and threads must be at least 1"):
        SchedulingVectorEnv("select-job", **windows(), **arguments)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "7"])
def test_wrong_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(InputError, match="is not a whole number from 0 to 2"):
        single("select-job").reset(seed=seed)
    with pytest.raises(InputError, match=r"is not a whole number from 0 to 2|seeds for 3 environments"):
        vector("select-job").reset(seed=seed)
    with pytest.raises(InputError, match="is not a whole number from 0 to 2"):
        vector("select-job").reset(seed=[1, seed, 2])


def test_seeds_must_be_one_an_environment() -> None:
    with pytest.raises(InputError, match="2 seeds for 3 environments"):
        vector("select-job").reset(seed=[1, 2])


@pytest.mark.parametrize("options", [{"epsiode": 3}, {"seed": 1}])
def test_unknown_options_of_reset_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"unknown option .* of reset; known: episode"):
        single("select-job").reset(options=options)
    with pytest.raises(InputError, match=r"unknown option .* of reset; known: episode, reset_mask"):
        vector("select-job").reset(options=options)


@pytest.mark.parametrize(
    "mask", [[True] * 3, np.ones(3), np.ones(2, bool), np.ones((3, 1), bool), True], ids=str
)
def test_wrong_reset_masks_are_refused(mask: Any) -> None:
    with pytest.raises(InputError, match=r"reset_mask must be a numpy array of bool, shape \(3,\)"):
        vector("select-job").reset(options={"reset_mask": mask})


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_nothing_can_be_done_before_reset(kind: str) -> None:
    env, many = single(kind), vector(kind)
    hosts = env.model.hosts
    ranks = kind == "rank-hosts"
    for call in (
        lambda: env.step(np.zeros(hosts, np.float32) if ranks else 0),
        lambda: many.step(np.zeros((3, hosts), np.float32) if ranks else np.zeros(3, np.int64)),
        lambda: env.expert_action("fifo"),
        lambda: many.expert_actions("fifo"),
        env.random_action,
        many.random_actions,
        env.schedule,
        env.snapshot,
    ):
        with pytest.raises((InputError, RuntimeError), match=r"call reset\(\)"):
            call()


def test_none_beside_a_preset_takes_precedence_too() -> None:
    env = SchedulingEnv("select-job", preset="bursty-8gpu", max_steps=None)
    assert env.model.config.max_steps is None


def test_features_named_twice_and_rewards_without_a_term_are_refused() -> None:
    with pytest.raises(InputError, match="twice"):
        SchedulingEnv("select-job", job_features=("wait", "wait"))
    with pytest.raises(InputError, match="no term"):
        SchedulingEnv("select-job", rewards={})
