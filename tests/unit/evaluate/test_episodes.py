"""Policies that act in an environment, on episodes that are new to them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.env.vector import make_model
from gpuyard.errors import InputError
from gpuyard.evaluate import episodes, evaluate_episodes, evaluate_run
from gpuyard.network.rollout import run_episodes
from gpuyard.simulation.windows import TEST_DRAWS
from gpuyard.workload import write_workload
from support.evaluation_cases import CLUSTER, comparison_of, like_its_base, some_jobs, written
from support.paths import model_path

BURSTY = {"preset": "bursty-8gpu", "generator": {"preset": "bursty-8gpu", "jobs": 12}}
FARM = {
    "id": "gpuyard/SelectHost-v0",
    "estimates": "exact",
    "generator": {"preset": "host-farm", "jobs": 25, "hosts": [6, 6]},
}


def test_returns_are_those_of_the_environment_and_heuristics_are_all_tried() -> None:
    found = evaluate_episodes(BURSTY, ["sjf+greedy"], 6)
    names = list(range(TEST_DRAWS, TEST_DRAWS + 6))
    assert list(found.setting.windows) == names
    model = make_model("select-job", None, BURSTY["generator"], None, "bursty-8gpu", {})
    expected = run_episodes(model, names, "sjf+greedy")
    assert found.values("sjf+greedy", "return") == pytest.approx(expected.returns)
    assert found.values("sjf+greedy", "mean_wait_s") == pytest.approx(expected.metrics["mean_wait_s"])
    assert found.setting.lower_is_better is False
    assert found.hindsight == max((entry.name for entry in found.policies), key=found.mean)
    assert len(found.policies) > 40
    assert (found.setting.kind, found.setting.block) == ("episodes", 1)
    assert "6 episodes" in found.summary()


def test_each_network_sees_the_episodes_as_it_was_trained_to(tmp_path: Path) -> None:
    models = [
        written(tmp_path, like_its_base(**BURSTY, window=window, lookahead=lookahead), lookahead)
        for window, lookahead in ((50, "off"), (8, "cdf"))
    ]
    found = evaluate_episodes(
        BURSTY, models, 5, metric="mean_wait_s", current="fifo+greedy", all_heuristics=False
    )
    assert found.difference(models[0]).ratio == 0.0
    assert [found.policy(name).label for name in models] == ["off", "cdf"]
    assert np.isfinite(found.values(models[1])).all()


def test_windows_of_a_workload_are_those_of_its_test_part(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    write_workload(some_jobs(), path)
    environment = {"workload": str(path), "cluster": CLUSTER, "step_mode": "event", "jobs_per_episode": 30}
    found = evaluate_episodes(
        environment, ["sjf+greedy"], 4, metric="mean_wait_s", current="fifo+greedy", all_heuristics=False
    )
    assert found.setting.windows[-1] == 600 - 30
    assert found.setting.jobs_per_window == 30
    assert found.setting.cluster["name"] == CLUSTER


def test_the_reference_is_never_chosen_on_the_compared_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes, "CHOOSING", 4)
    every = episodes.fixed_heuristics
    monkeypatch.setattr(episodes, "fixed_heuristics", lambda *settings: every(*settings)[::16])
    path = tmp_path / "jobs.csv"
    write_workload(some_jobs(), path)
    environment = {"workload": str(path), "cluster": CLUSTER, "jobs_per_episode": 30}
    found = evaluate_episodes(environment, ["sjf+greedy"], 4, metric="mean_wait_s", split="validation")
    assert found.reference is not None
    assert "the best fixed heuristic on episodes of the train part" in found.summary()
    # The best on the episodes that the reference is chosen on, by the same function.
    train = evaluate_episodes(environment, ["sjf+greedy"], 4, metric="mean_wait_s", split="train")
    assert found.reference == train.hindsight != found.hindsight


def test_where_hosts_are_chosen_placements_are_compared() -> None:
    found = evaluate_episodes(FARM, ["fifo+greedy/worst-fit"], 4, metric="mean_wait_s")
    placements = {entry.placement for entry in found.policies}
    assert {"first-available", "best-fit", "worst-fit", "tetris"} <= placements
    assert len({entry.label for entry in found.policies}) == len(found.policies)


@pytest.mark.parametrize(
    ("environment", "trained", "message"),
    [
        (BURSTY, {"step_mode": "instant"}, "step_mode instant, but runs with event"),
        (BURSTY, {"estimates": "none"}, "estimates none, but runs with exact"),
        (BURSTY, {"base_policy": "fifo+greedy/spread"}, "places jobs by spread"),
        (FARM, {}, "is for select-job, but is compared in select-host"),
    ],
)
def test_policies_that_act_otherwise_are_refused(
    tmp_path: Path, environment: dict[str, Any], trained: dict[str, Any], message: str
) -> None:
    model = written(tmp_path, like_its_base(**{**BURSTY, **trained}))
    with pytest.raises(InputError, match=message):
        evaluate_episodes(environment, [model], 2)


@pytest.mark.parametrize(
    ("policies", "settings", "message"),
    [
        (["fifo+easy/spread"], {}, "leave the placement out"),
        (["srtf"], {}, "stops running jobs"),
        (["sjf"], {"metric": "returns"}, "unknown metric 'returns'; did you mean 'return'"),
        (["sjf"], {"current": "nonsense"}, "unknown order"),
    ],
)
def test_what_cannot_act_is_refused(policies: list[str], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate_episodes(BURSTY, policies, 2, **settings)


@pytest.mark.parametrize(
    ("count", "settings", "message"),
    [
        (0, {}, "0 episodes: expected 1 to"),
        (2, {"first_draw": -1}, "first draw -1"),
        (2, {"split": "tests"}, "unknown part 'tests'; did you mean 'test'"),
    ],
)
def test_episodes_that_cannot_be_are_refused(count: int, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate_episodes(BURSTY, ["sjf+greedy"], count, **settings)


def make_run(directory: Path) -> Path:
    """A run as training leaves it, but for the training."""
    directory.mkdir()
    (directory / "config.toml").write_text(
        'algorithm = "ppo"\n[environment]\npreset = "bursty-8gpu"\n[environment.generator]\n'
        'preset = "bursty-8gpu"\njobs = 12\n'
    )
    written(directory, like_its_base(**BURSTY, window=50), "best")
    return directory


def test_a_run_is_tested_on_draws_beyond_those_of_its_validation(tmp_path: Path) -> None:
    run = make_run(tmp_path / "bursty")
    found = evaluate_run(run, ["sjf+greedy"], 3, current="fifo+greedy", all_heuristics=False)
    assert found.setting.windows[0] == TEST_DRAWS
    assert found.setting.metric == "return"
    assert found.policy("bursty").source == str(run)
    assert found.difference("bursty").verdict == "tie"


def test_a_search_is_compared_in_the_environment_of_its_model_by_its_own_metric(tmp_path: Path) -> None:
    """The settings of a search name only jobs; its model says how the rule acts on them."""
    jobs = tmp_path / "jobs.csv"
    write_workload(some_jobs(), jobs)
    base = {"base_policy": "sjf+easy", "jobs_per_episode": 30, "estimates": "exact"}
    environment = {"id": "gpuyard/SelectJob-v0", "workload": str(jobs), "cluster": CLUSTER, **base}
    training = {
        "algorithm": "search",
        "environment": environment,
        "validation": {"rule": {"mean_wait_s": 1.0}},
    }
    run = tmp_path / "search"
    run.mkdir()
    (run / "config.toml").write_text(
        f'algorithm = "search"\n[environment]\nworkload = "{jobs}"\n[search]\nmetric = "mean_wait_s"\n'
    )
    model = written(run, replace(like_its_base(**base), training=training), "best")
    settings: dict[str, Any] = {"count": 4, "current": "sjf+easy", "all_heuristics": False}
    found = evaluate_run(run, ["fifo+easy"], **settings)
    assert (found.setting.metric, found.setting.jobs_per_window) == ("mean_wait_s", 30)
    assert found.difference(str(run)).ratio == 0.0
    assert found.values("fifo+easy").mean() > found.values(str(run)).mean()
    alone = evaluate_run(model, **settings)
    assert alone.setting.metric == "mean_bounded_slowdown"
    assert alone.setting.windows == found.setting.windows


def test_what_is_no_run_of_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no model in this directory"):
        evaluate_run(tmp_path)
    (tmp_path / "config.toml").write_text("[environment]\nenvs = 0\n")
    with pytest.raises(InputError, match=r"config\.toml: environment\.envs: expected 1 or more \(is 0\)"):
        evaluate_run(tmp_path)
    (tmp_path / "config.toml").write_text('algorithm = "search"\n')
    with pytest.raises(InputError, match="there is no model in this directory"):
        evaluate_run(tmp_path)
    run = make_run(tmp_path / "empty")
    (run / "best.safetensors").unlink()
    with pytest.raises(InputError, match="there is no model in this directory"):
        evaluate_run(run, count=2)


def test_models_that_come_with_gpuyard_are_compared_in_their_own_environment() -> None:
    found = evaluate_run("model:bursty-order", count=3, current="largest+greedy", all_heuristics=False)
    assert (found.setting.kind, found.setting.metric) == ("episodes", "return")
    assert found.mean("model:bursty-order") > found.mean("largest+greedy")
    with pytest.raises(InputError, match=r"philly-order.*: was trained on jobs that do not come with it"):
        evaluate_run(model_path("philly-order"), count=3)


def test_returns_can_be_negative_and_the_larger_still_wins() -> None:
    found = comparison_of(
        {"base": [-3.0, -2.0, -4.0], "good": [-1.0, -1.2, -0.5]}, metric="return", lower_is_better=False
    )
    assert found.ranking() == ["good", "base"]
    assert found.difference("good").verdict == "better"
