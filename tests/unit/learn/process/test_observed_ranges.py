"""Which values a network saw in training: measured when its model is written, the same every time."""

from typing import Any

import numpy as np
import pytest

from gpuyard.env import SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.learn.process import observed_ranges as measuring
from gpuyard.learn.process.observed_ranges import observed_ranges
from gpuyard.learn.process.validation import Judgement, model_of
from gpuyard.network.config import NetworkConfig
from gpuyard.network.model_file import ModelFile, read_model, write_model
from gpuyard.network.observed import KEY, Observed
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import expected_tensors
from gpuyard.observation.spec import EnvModel
from support.training_runs import tiny_config

SMALL = {"workload": "demo", "split": "train", "jobs_per_episode": 24, "window": 8}


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "OBSERVATIONS", 320)


def model_for(kind: str = "select-job", **settings: Any) -> EnvModel:
    return SchedulingVectorEnv(kind, 1, threads=1, **{**SMALL, **settings}).model


def weights(model: EnvModel, network: NetworkConfig, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = expected_tensors(network, NetworkSizes.of(model))
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def measured(model: EnvModel, kind: str = "job-scorer", seed: int = 0) -> Observed | None:
    network = NetworkConfig(kind=kind, width=8)
    return observed_ranges(model, network, weights(model, network, seed))


@pytest.mark.parametrize(
    ("kind", "network", "changes"),
    [
        ("select-job", "job-scorer", {}),
        ("select-job", "job-scorer", {"warmup_jobs": 0, "job_features": ("wait", "gpus", "estimate")}),
        ("select-job-and-pool", "cross-attention", {"cluster": "4x8:p100,4x8:v100"}),
        (
            "select-job",
            "job-scorer",
            {"workload": None, "split": "all", "generator": "demo", "cluster": "4x8"},
        ),
    ],
)
def test_every_column_is_measured_within_its_bounds(kind: str, network: str, changes: Any) -> None:
    model = model_for(kind, **changes)
    found = measured(model, network)
    assert found is not None
    assert 576 <= found.observations <= 640
    for part, columns in (("jobs", found.jobs), ("nodes", found.nodes), ("globals", found.globals)):
        known = model.parts[part]
        assert tuple(one.name for one in columns) == known.names
        for one, low, high in zip(columns, known.low, known.high, strict=True):
            assert low <= one.least <= one.largest <= high, one.name
    wait = next(one for one in found.jobs if one.name == "wait")
    assert wait.largest > wait.least


def test_rows_without_a_job_do_not_count() -> None:
    found = measured(model_for(window=64))
    assert found is not None
    present, gpus = found.jobs[0], next(one for one in found.jobs if one.name == "gpus")
    assert (present.least, present.largest) == (1.0, 1.0)
    assert gpus.least >= 1 / 64


def test_the_ranges_are_those_of_the_episodes_that_were_played() -> None:
    """Played again through the environment, step by step, by the base policy alone."""
    env = SchedulingVectorEnv("select-job", 1, threads=1, **SMALL)
    model = env.model
    rows = model.episode_rows
    seen = []
    for row in np.linspace(rows[0], rows[-1], measuring.BUSY_EPISODES).round():
        observation, _ = env.reset(options={"episode": int(row)})
        for _ in range(measuring.OBSERVATIONS // measuring.BUSY_EPISODES):
            seen.append(observation["globals"][0].copy())
            observation, *_ = env.step(env.expert_actions(model.policy.name))
    assert model.config.around[0] > 0
    network = NetworkConfig(kind="job-scorer", width=8, residual="base")
    tensors = weights(model, network)
    for name, values in tensors.items():
        if name.startswith(("policy", "noop.")):
            values.fill(0)  # acts as its base policy does
    found = observed_ranges(model, network, tensors)
    assert found is not None
    assert [one.least for one in found.globals] == np.min(seen, axis=0).tolist()
    assert [one.largest for one in found.globals] == np.max(seen, axis=0).tolist()


def test_the_same_weights_give_the_same_ranges_and_others_may_give_others() -> None:
    model = model_for()
    first = measured(model)
    assert first == measured(model)
    assert first == measured(model_for())
    assert first != measured(model, seed=1)


def test_what_cannot_serve_a_live_cluster_is_not_measured() -> None:
    assert measured(model_for(step_mode="event")) is None
    assert measured(model_for("accept-or-skip")) is None
    hosts = SchedulingVectorEnv("select-host", 1, threads=1).model
    assert measured(hosts, "host-attention") is None


def test_a_model_that_is_written_after_training_has_them(tmp_path: Any) -> None:
    config = tiny_config("ppo")
    model = model_for()
    tensors = weights(model, config.network)
    write_model(tmp_path / "a", model_of(config, model, tensors, 5, Judgement(1.0, {})))
    read = read_model(tmp_path / "a")
    found, expected = Observed.of(read), observed_ranges(model, config.network, tensors)
    assert found is not None
    assert expected is not None
    assert found == Observed.from_json(expected.to_json())
    assert read.training["steps"] == 5
    for mine, exact in zip(found.jobs + found.globals, expected.jobs + expected.globals, strict=True):
        assert mine.least == pytest.approx(exact.least, abs=1e-6)


def test_models_without_the_entry_say_so_and_a_wrong_one_is_refused() -> None:
    model, network = model_for(), NetworkConfig(kind="job-scorer", width=8)

    def with_entry(training: dict[str, Any]) -> ModelFile:
        return ModelFile.of(model, network, weights(model, network), training)

    assert Observed.of(with_entry({})) is None
    found = measured(model)
    assert found is not None
    document = found.to_json()
    for wrong in (
        {"jobs": document["jobs"]},
        {**document, "jobs": [["wait", 1.0, 0.0]]},
        {**document, "jobs": [["wait", None, 0.0]]},
        {**document, "jobs": document["jobs"][1:]},
        [1, 2],
    ):
        with pytest.raises(InputError, match=r"observed of a model: .* train the model again"):
            Observed.of(with_entry({KEY: wrong}))
