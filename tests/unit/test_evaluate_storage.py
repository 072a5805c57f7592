"""A comparison as a directory: what is written comes back, and what is wrong is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaluation_cases import CLUSTER, comparison_of, some_jobs
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, compare

VALUES = {"base": [1.0, 2.0, 3.0], "good": [0.5, 1.0, 1.8]}


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    found = compare(
        ["saf"], some_jobs(), CLUSTER, against="sjf", windows=3, jobs_per_window=40, all_heuristics=False
    )
    found.write(tmp_path / "a" / "b")
    read = Comparison.read(tmp_path / "a" / "b")
    assert read.setting == found.setting
    assert read.policies == found.policies
    assert (read.reference, read.chosen_on, read.hindsight) == (found.reference, "given", None)
    assert read.windows.equals(found.windows)
    assert read.classes.equals(found.classes)
    assert found.jobs is not None
    assert read.jobs is not None
    assert read.jobs.equals(found.jobs)
    assert {name: frame.to_dicts() for name, frame in read.schedules.items()} == {
        name: frame.to_dicts() for name, frame in found.schedules.items()
    }
    assert read.summary() == found.summary()


def test_an_evaluation_is_written_over_and_nothing_of_it_stays(tmp_path: Path) -> None:
    whole = compare(["saf"], some_jobs(), CLUSTER, against="sjf", windows=2, jobs_per_window=40, usual=False)
    whole.write(tmp_path)
    comparison_of(VALUES).write(tmp_path)
    assert Comparison.read(tmp_path).jobs is None
    assert not list((tmp_path / "schedules").iterdir())
    assert not (tmp_path / "jobs.parquet").exists()


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="holds no evaluation"):
        comparison_of(VALUES).write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(InputError, match="is a file"):
        comparison_of(VALUES).write(tmp_path / "thesis.txt")


def changed(directory: Path, **changes: Any) -> None:
    path = directory / "evaluation.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "has format 2 of evaluations, but this gpuyard reads 1"),
        ({"setting": {}}, "is damaged"),
        ({"policies": [{}]}, "is damaged"),
        ({"schedules": {"base": "../../elsewhere.parquet"}}, "lies elsewhere"),
        ({"schedules": {"base": "schedules/9.parquet"}}, "cannot be read"),
        ({"has_jobs": True}, "jobs.parquet: cannot be read"),
    ],
)
def test_other_versions_and_damage_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    comparison_of(VALUES).write(tmp_path)
    changed(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        Comparison.read(tmp_path)


def test_what_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no evaluation"):
        Comparison.read(tmp_path / "nowhere")
    (tmp_path / "evaluation.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        Comparison.read(tmp_path)
    comparison_of(VALUES).write(tmp_path)
    (tmp_path / "windows.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"windows\.parquet: cannot be read"):
        Comparison.read(tmp_path)


def test_a_comparison_writes_its_own_report(tmp_path: Path) -> None:
    found = compare(["saf"], some_jobs(), CLUSTER, against="sjf", windows=3, jobs_per_window=40)
    found.report(tmp_path / "report.html")
    assert "saf+strict" in (tmp_path / "report.html").read_text(encoding="utf-8")
