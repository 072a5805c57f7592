"""The demo trains a policy, tests it on jobs it has not seen, and says in words what came of it."""

from pathlib import Path

import pytest
from rich.console import Console

from gpuyard.cli import demo
from gpuyard.cli.demo import DemoTraining, train_and_test
from gpuyard.terminal.console import errors
from support.evaluation_cases import comparison_of


def test_demo_trains_and_tests_on_new_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "WINDOWS", 8)
    training = train_and_test(tmp_path / "run", 0.02, errors())
    assert training is not None
    document = training.document()
    assert document["run"] == str(tmp_path / "run")
    assert len(document["setting"]["windows"]) == 8
    found = {entry["label"]: entry for entry in document["results"]}
    assert {"learned", document["reference"].rpartition("/")[0]} <= set(found)
    difference = found["learned"]["differences"]["mean_bounded_slowdown"]
    assert difference["interval"][0] <= difference["ratio"] <= difference["interval"][1]
    validated = {name for one in training.run.validations for name in one.scores}
    assert document["reference"] in validated


@pytest.mark.parametrize(("factor", "words"), [(0.8, "20 % lower than base (better"), (1.25, "25 % higher")])
def test_the_screen_shows_the_table_and_the_verdict(factor: float, words: str) -> None:
    base = [2.0 + 0.1 * (i % 7) for i in range(40)]
    test = comparison_of({"base": base, "learned": [factor * one for one in base]})
    console = Console(record=True, width=160)
    DemoTraining(None, test).show(console)  # type: ignore[arg-type]
    shown = " ".join(console.export_text().split())
    assert words in shown
    assert "mean JCT" in shown
    assert shown.index("learned") < shown.index(words)


def test_the_screen_leaves_out_how_heuristics_compare_with_each_other() -> None:
    base = [2.0 + 0.1 * (i % 7) for i in range(40)]
    test = comparison_of(
        {"base": base, "other": [1.1 * one for one in base], "learned": [0.8 * one for one in base]}
    )
    console = Console(record=True, width=160)
    DemoTraining(None, test).show(console)  # type: ignore[arg-type]
    shown = " ".join(console.export_text().split())
    assert "Other metrics, learned:" in shown
    assert "other: not recommended." not in shown
    assert "other: not recommended." in " ".join(test.summary().split())
