"""The demo trains a policy, tests it on jobs it has not seen, and says in words what came of it."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gpuyard.cli import demo_training
from gpuyard.cli.demo_training import SHOWN, USUAL, DemoTraining, train_and_test
from gpuyard.evaluate import Comparison
from gpuyard.evaluate.setting import PolicyEntry, Setting
from gpuyard.evaluate.tables import CLASS_SCHEMA, window_frame, window_row
from gpuyard.terminal.console import errors


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


def comparison_of(slowdowns: dict[str, np.ndarray]) -> Comparison:
    count = len(slowdowns[USUAL])
    setting = Setting(
        *("demo", 0, "", {}, {}, "test", "episodes", tuple(range(count)), 48, 1, float(count)),
        metric="mean_bounded_slowdown",
        lower_is_better=True,
    )
    entries = tuple(PolicyEntry(name, name, "heuristic", None, "consolidate") for name in slowdowns)
    rows = [
        window_row(name, i, dict.fromkeys(SHOWN, value))
        for name, values in slowdowns.items()
        for i, value in enumerate(values)
    ]
    classes = pl.DataFrame(schema=CLASS_SCHEMA)
    return Comparison(setting, entries, USUAL, "given", None, window_frame(rows), classes)


@pytest.mark.parametrize(
    ("factor", "noise", "words"),
    [(0.8, 0.01, "won: 20 % lower"), (1.25, 0.01, "lost: 25 % higher"), (1.0, 0.3, "A tie")],
)
def test_verdict_follows_the_interval(factor: float, noise: float, words: str) -> None:
    chance = np.random.default_rng(1)
    rival = chance.uniform(2, 6, 96)
    learned = rival * factor * np.exp(noise * chance.normal(size=96))
    test = comparison_of({"learned": learned, USUAL: rival})
    sentences = DemoTraining(None, test, "learned").words()  # type: ignore[arg-type]
    assert words in sentences[0]
    assert "completion time" in sentences[1]
