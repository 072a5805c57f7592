"""The demo trains a policy, tests it on jobs it has not seen, and says in words what came of it."""

from pathlib import Path

import numpy as np
import pytest

from gpuyard import demo_training
from gpuyard.demo_training import USUAL, DemoTraining, train_and_test
from gpuyard.learn.final_test import FinalTest
from gpuyard.network.rollout import EpisodeResults
from gpuyard.terminal import errors


def test_demo_trains_and_tests_on_new_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_training, "WINDOWS", 8)
    training = train_and_test(tmp_path / "run", 0.02, errors())
    assert training is not None
    document = training.document()
    assert document["draws"] == 8
    assert {"learned", document["rival"]} <= {entry["policy"] for entry in document["results"]}
    low, high = document["interval"]
    assert low <= document["difference"] <= high
    validated = {name for one in training.run.validations for name in one.scores}
    assert document["rival"] in validated


def results(slowdowns: np.ndarray) -> EpisodeResults:
    names = ("mean_bounded_slowdown", "mean_jct_s", "p99_wait_s", "max_wait_s")
    metrics = dict.fromkeys(names, slowdowns)
    return EpisodeResults(
        tuple(range(len(slowdowns))), -slowdowns, np.ones(len(slowdowns), np.int64), metrics
    )


@pytest.mark.parametrize(
    ("factor", "noise", "words"),
    [(0.8, 0.01, "won: 20 % lower"), (1.25, 0.01, "lost: 25 % higher"), (1.0, 0.3, "A tie")],
)
def test_verdict_follows_the_interval(factor: float, noise: float, words: str) -> None:
    chance = np.random.default_rng(1)
    rival = chance.uniform(2, 6, 96)
    learned = rival * factor * np.exp(noise * chance.normal(size=96))
    both = {"learned": results(learned), USUAL: results(rival)}
    test = FinalTest(both, "mean_bounded_slowdown", USUAL)
    sentences = DemoTraining(None, test).words()  # type: ignore[arg-type]
    assert words in sentences[0]
    assert "completion time" in sentences[1]
