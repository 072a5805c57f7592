"""CMA-ES over rules: what it moves, by how much, and that it gets better at something known."""

from typing import Any

import numpy as np
import pytest

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.learn.algorithms.evolve import (
    Evolution,
    Evolve,
    EvolveConfig,
    Spread,
    spread_of_columns,
    steps_of_rule,
)
from gpuyard.learn.config import read_config
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.process.evolve_loop import EvolveLoop
from gpuyard.learn.process.validation import Measure, Validation
from gpuyard.network.config import NetworkConfig
from gpuyard.network.rollout import EpisodeResults, native_network
from gpuyard.network.sizes import NetworkSizes
from support.training_runs import records

START = {"score.weight": np.zeros((1, 3), np.float32), "gate_jobs.bias": np.ones(1, np.float32)}
STEPS = {"score.weight": np.array([[1.0, 0.0, 2.0]]), "gate_jobs.bias": np.array([0.5])}
RULE = {"score": {"estimate": 1.0}}  # the longest first: as bad as it gets
TABLES: dict[str, Any] = {
    "algorithm": "evolve",
    "environment": {"workload": "surges", "jobs_per_episode": 96, "window": 16, "base_policy": "fifo+greedy"},
    "rule": RULE,
    "validation": {"windows": 6, "metric": "mean_bounded_slowdown", "heuristics": ["fifo+greedy"]},
    "evolve": {"generations": 6, "population": 8, "episodes": 6, "check_every": 3},
}
ANY_WAIT = {"max_p99_increase": 1000, "max_longest_increase": 1000}
"""No limits on waits to speak of."""


def settings(**changes: Any) -> EvolveConfig:
    return EvolveConfig(population=8, **changes)


def test_weights_without_a_step_stay_where_they_are() -> None:
    evolution = Evolution(START, STEPS, settings(), seed=1)
    for point in evolution.ask():
        assert point.place.shape == (3,)
        assert point.tensors["score.weight"][0, 1] == 0.0
        assert point.tensors["score.weight"][0, 2] == np.float32(2 * point.place[1])
        assert point.tensors["gate_jobs.bias"][0] == np.float32(1 + 0.5 * point.place[2])


def test_too_few_weights_to_move_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2 weights, but there are 1"):
        Evolution(START, {"score.weight": np.array([[1.0, 0.0, 0.0]])}, settings(), seed=1)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 602),  # 21 columns of jobs, 13 of globals without lookahead: 2 x 21 x 13 + 2 x 21 + 13 + 1
        ({"job_features": ["estimate", "gpus"], "global_features": ["queue", "drain"]}, None),
    ],
)
def test_many_weights_of_a_state_rule_are_told(changes: dict[str, Any], count: int | None) -> None:
    tables = {**TABLES, "environment": {**TABLES["environment"], **changes}}
    tables["rule"] = {"score": {"estimate": 1.0}}
    config = read_config({**tables, "network": {"kind": "state-rule"}}, "here")
    told = "".join(Evolve.prepare(config)[1])
    assert ("with few columns something is found sooner" in told) == (count is not None)
    if count is not None:
        assert f"has up to {count:,} weights to move" in told
    assert "weights to move" not in "".join(Evolve.prepare(read_config(tables, "here"))[1])


def test_a_state_rule_of_too_many_weights_is_told_to_take_fewer_columns() -> None:
    steps = {"score.weight": np.ones((1, 2001))}
    with pytest.raises(InputError, match=r"at most 2,000 weights.*`environment\.job_features`"):
        Evolution(START, steps, settings(), seed=1, middle=np.zeros(3))
    with pytest.raises(InputError, match=r"at most 2,000 weights.*`network\.width`"):
        Evolution(START, steps, settings(), seed=1)


def test_mean_moves_towards_what_is_better() -> None:
    evolution = Evolution(START, STEPS, settings(), seed=1)
    target = np.array([3.0, -2.0])
    for _ in range(60):
        population = evolution.ask()
        losses = [float(((p.tensors["score.weight"][0, [0, 2]] - target) ** 2).sum()) for p in population]
        evolution.tell(population, losses)
    assert evolution.mean()["score.weight"][0, [0, 2]] == pytest.approx(target, abs=0.05)


def test_telling_the_same_losses_again_leads_to_the_same_place() -> None:
    first, second = (Evolution(START, STEPS, settings(), seed=7) for _ in range(2))
    for _ in range(5):
        population = first.ask()
        first.tell(population, [float(np.sum(p.place**2)) for p in population])
    second.repeat(first.losses)
    assert second.losses == first.losses
    for own, other in zip(first.ask(), second.ask(), strict=True):
        assert (own.place == other.place).all()


def test_steps_are_one_over_what_columns_vary_by() -> None:
    env = SchedulingVectorEnv("select-job", 4, threads=1, workload="demo", jobs_per_episode=32, window=8)
    jobs, overall = (env.model.parts[part].names for part in ("jobs", "globals"))
    columns = np.linspace(0.0, 1.0, len(jobs)), np.full(len(overall), 0.25)
    deviations = Spread(*columns, np.zeros(len(overall)))
    steps = steps_of_rule(env.model, settings(gate_step=0.5), deviations)
    assert steps["score.weight"][0, 0] == 0.0
    assert steps["score.weight"][0, -1] == 1.0
    assert steps["gate_jobs.weight"][0, -1] == 0.5
    shares = dict(zip(overall, steps["gate_globals.weight"][0], strict=True))
    assert shares["queue"] == 2.0
    assert shares["lookahead"] == 0.0
    chosen = steps_of_rule(env.model, settings(global_columns=("demand",)), deviations)
    assert np.count_nonzero(chosen["gate_globals.weight"]) == 1


def test_a_state_rule_moves_by_a_step_for_each_pair_of_columns() -> None:
    env = SchedulingVectorEnv("select-job", 4, threads=1, workload="demo", jobs_per_episode=32, window=8)
    jobs, overall = (env.model.parts[part].names for part in ("jobs", "globals"))
    columns = np.full(len(jobs), 0.5), np.full(len(overall), 0.25)
    deviations = Spread(*columns, np.zeros(len(overall)))
    config = settings(gate_step=0.1, state_step=0.5, global_columns=("queue", "demand"))
    steps = steps_of_rule(env.model, config, deviations, leans=True)
    assert steps["score_state.weight"].shape == (len(jobs), len(overall))
    assert np.count_nonzero(steps["score_state.weight"]) == 2 * len(jobs)
    assert steps["score_state.weight"].max() == 0.5 * 2.0 * 4.0
    assert steps["gate_state.weight"].max() == pytest.approx(0.1 * 0.5 * 2.0 * 4.0)


def test_a_state_rule_evolves_from_a_rule_that_is_written_down(tmp_path: Any) -> None:
    features = {"job_features": ["present", "estimate", "gpus"], "global_features": ["queue", "running"]}
    tables = {
        **TABLES,
        "environment": {**TABLES["environment"], **features},
        "network": {"kind": "state-rule"},
    }
    worker = EvolveLoop(tmp_path, read_config(tables))
    points = worker._evolution.ask()
    assert points[0].tensors["score.weight"].shape == (1, 3)
    assert (points[0].tensors["score_state.weight"] != 0).any()
    assert (points[0].tensors["gate_state.weight"] != points[1].tensors["gate_state.weight"]).any()


def test_what_moves_weights_by_the_state_leaves_them_in_the_middle_state() -> None:
    start = {"score.weight": np.ones((1, 2), np.float32), "score_state.weight": np.zeros((2, 3), np.float32)}
    steps = {"score.weight": np.zeros((1, 2)), "score_state.weight": np.full((2, 3), 2.0)}
    middle = np.array([0.5, 0.25, 1.0])
    for point in Evolution(start, steps, settings(), seed=1, middle=middle).ask():
        leaning = point.tensors["score_state.weight"]
        assert (leaning != 0).all()
        assert point.tensors["score.weight"][0] + leaning @ middle == pytest.approx([1.0, 1.0], abs=1e-5)


def test_spread_is_that_of_legal_rows_alone() -> None:
    env = SchedulingVectorEnv("select-job", 4, threads=1, workload="demo", jobs_per_episode=32, window=8)
    sizes = NetworkSizes.of(env.model)
    jobs = len(env.model.parts["jobs"].names)
    tensors = {
        "score.weight": np.ones((1, jobs), np.float32),
        "gate_jobs.weight": np.zeros((1, jobs), np.float32),
        "gate_jobs.bias": np.ones(1, np.float32),
        "gate_globals.weight": np.zeros((1, sizes.global_columns), np.float32),
    }
    spread = spread_of_columns(env, native_network(NetworkConfig(kind="rule"), sizes, tensors))
    columns = dict(zip(env.model.parts["jobs"].names, spread.jobs, strict=True))
    assert columns["present"] == columns["fits"] == 0.0  # every legal row is there and fits
    assert columns["estimate"] > 0


def test_a_rule_that_starts_as_the_worst_order_becomes_better_than_fifo(tmp_path: Any) -> None:
    worker = EvolveLoop(tmp_path, read_config(TABLES))
    assert worker.run() == "finished"
    judged = [line for line in records(tmp_path) if line["event"] == "validation"]
    assert len(judged) == 3
    assert worker.best_score == max(line["score"] for line in judged) > judged[0]["score"]
    heuristic = next(v for k, v in judged[0]["values"].items() if k == "fifo+greedy/consolidate/score")
    assert worker.best_score > heuristic > judged[0]["score"]
    assert worker.step == 6 * 8 * 6


def test_small_networks_evolve_too_and_keep_what_is_frozen(tmp_path: Any) -> None:
    tables = {**TABLES, "network": {"kind": "job-scorer", "width": 4, "residual": "rule"}}
    worker = EvolveLoop(tmp_path, read_config(tables))
    points = worker._evolution.ask()
    names = set(points[0].tensors)
    moved = {n for n in names if (points[0].tensors[n] != points[1].tensors[n]).any()}
    assert {n for n in names if not n.startswith(("rule.", "value"))} == moved


def test_more_weights_than_a_covariance_can_hold_are_refused(tmp_path: Any) -> None:
    tables = {**TABLES, "network": {"kind": "mlp", "width": 64, "residual": "rule"}}
    with pytest.raises(InputError, match="at most 2,000 weights"):
        EvolveLoop(tmp_path, read_config(tables))


def test_evolution_is_one_process_and_its_steps_are_episodes() -> None:
    config = read_config({**TABLES, "training": {"processes": 2}})
    assert config.training.processes == 1
    assert config.training.steps == 6 * 8 * 6
    assert config.network.kind == "rule"


def test_limits_are_counted_from_the_named_heuristics_not_from_a_better_base() -> None:
    environment = {**TABLES["environment"], "base_policy": "sjf+greedy"}
    config = read_config(
        tables_with(environment=environment, validation={"heuristics": ["fifo"], **ANY_WAIT})
    )
    validation = Validation(Environments(config.environment), config.validation, config.network, threads=1)
    assert validation.best_heuristic()[0] == "sjf+greedy/consolidate"
    assert validation.reference == "fifo+strict/consolidate"


def tables_with(**tables: Any) -> dict[str, Any]:
    """The usual settings with some of their entries changed."""
    return {**TABLES, **{name: {**TABLES.get(name, {}), **entries} for name, entries in tables.items()}}


def first_judgement(directory: Any, tables: dict[str, Any]) -> dict[str, Any]:
    """What the untrained rule reaches on the validation windows."""
    written: list[dict[str, Any]] = []
    worker = EvolveLoop(directory, read_config(tables))
    worker.write = written.append  # type: ignore[method-assign]
    worker.validate()
    return written[0]


@pytest.mark.parametrize(
    "network",
    [{"kind": "rule"}, {"kind": "state-rule"}, {"kind": "job-scorer", "width": 4, "residual": "rule"}],
    ids=lambda network: network["kind"],
)
def test_a_rule_keeps_acting_alike_with_other_columns(tmp_path: Any, network: dict[str, Any]) -> None:
    rule = {"score": {"estimate": -3.0, "gpus": 1.0}, "gate": {"free_after": 1.0, "globals.queue": 0.1}}
    tables = {**TABLES, "rule": rule}
    before = first_judgement(tmp_path, tables)
    features = {
        "job_features": ["gpus", "starts_in", "present", "free_after", "estimate"],
        "global_features": ["drain", "running", "queue"],
    }
    on = tables_with(environment=features, network=network)
    del on["rule"]
    after = first_judgement(tmp_path, {**on, "init_from": str(tmp_path / "last.safetensors")})
    assert after["score"] == before["score"]
    assert after["values"]["policy/mean_jct_s"] == before["values"]["policy/mean_jct_s"]


@pytest.mark.parametrize(
    ("features", "missing"),
    [
        (
            {"job_features": ["present", "gpus"]},
            "columns of jobs that the environment does not show: estimate, area; name .*job_features",
        ),
        (
            {"global_features": ["running"]},
            "columns of globals that the environment does not show: queue; name .*global_features",
        ),
    ],
)
def test_a_rule_is_not_started_without_a_column_it_goes_by(
    tmp_path: Any, features: dict[str, Any], missing: str
) -> None:
    rule = {"score": {"estimate": 1.0, "area": 1.0}, "gate": {"globals.queue": 0.1}}
    first_judgement(tmp_path, {**TABLES, "rule": rule})
    tables = tables_with(environment=features, network={"kind": "state-rule"})
    del tables["rule"]
    with pytest.raises(InputError, match=missing):
        EvolveLoop(tmp_path, read_config({**tables, "init_from": str(tmp_path / "last.safetensors")}))


def test_the_limit_may_hold_for_the_typical_window_too() -> None:
    def loss(jct_of: str) -> float:
        limit = {"max_jct_increase": 0.1, "jct_of": jct_of}
        config = read_config(tables_with(validation=limit))
        validation = Validation(
            Environments(config.environment), config.validation, config.network, threads=1
        )
        jct = np.array([150.0, 150.0, 700.0])  # longer in two windows, shorter where it took longest
        return validation.loss(
            EpisodeResults(
                (0, 1, 2),
                np.zeros(3),
                np.zeros(3, np.int64),
                {"mean_jct_s": jct, "mean_bounded_slowdown": np.full(3, 2.0)},
            ),
            Measure(jct=np.array([100.0, 100.0, 800.0])),
        )

    assert loss("mean") == pytest.approx(2.0)
    typical = (1.5 * 1.5 * 7 / 8) ** (1 / 3)
    assert loss("typical") == pytest.approx(2.0 * np.exp(10 * (typical - 1.1)))


def test_a_typical_window_without_a_limit_is_refused() -> None:
    with pytest.raises(InputError, match="jct_of has no effect without a limit; give max_jct_increase"):
        read_config(tables_with(validation={"jct_of": "typical"}))
