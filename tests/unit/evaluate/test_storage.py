"""A comparison as a directory: what is written comes back, and what is wrong is refused."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gpuyard.cli import main
from gpuyard.cluster import parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, compare
from gpuyard.evaluate.replay import replay_comparison, run_policies
from gpuyard.evaluate.setting import fingerprint_of
from gpuyard.report import write_report
from gpuyard.workload import make_workload
from support.evaluation_cases import CLUSTER, comparison_of, some_jobs

VALUES = {"base": [1.0, 2.0, 3.0], "good": [0.5, 1.0, 1.8]}


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    found = compare(
        ["saf"], some_jobs(), CLUSTER, current="sjf", windows=3, jobs_per_window=40, all_heuristics=False
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
    assert found.whole is not None
    assert read.whole is not None
    for name in ("metrics", "classes", "windows", "waits"):
        assert getattr(read.whole, name).equals(getattr(found.whole, name)), name


def test_jobs_that_ask_for_other_nodes_have_another_fingerprint() -> None:
    jobs = make_workload(pl.DataFrame({"submit_s": [0.0, 5.0], "duration_s": [9.0, 9.0], "gpus": [4, 4]}))
    spread = [make_workload(jobs.frame.with_columns(nodes=pl.Series(nodes))) for nodes in ([2, None], [2, 4])]
    assert len({fingerprint_of(one) for one in (jobs, *spread)}) == 3


def test_the_best_heuristic_and_a_missing_replay_come_back(tmp_path: Path) -> None:
    found = replace(comparison_of(VALUES), rival="good")
    found.write(tmp_path)
    assert (Comparison.read(tmp_path).rival, Comparison.read(tmp_path).whole) == ("good", None)
    assert not list(tmp_path.glob("whole-*.parquet"))
    changed(tmp_path, rival="other")
    with pytest.raises(InputError, match="names the policy other"):
        Comparison.read(tmp_path)
    changed(tmp_path, rival=None, has_whole=True)
    with pytest.raises(InputError, match=r"whole-metrics\.parquet: cannot be read"):
        Comparison.read(tmp_path)


def test_an_evaluation_is_written_over_and_nothing_of_it_stays(tmp_path: Path) -> None:
    whole = compare(["saf"], some_jobs(), CLUSTER, current="sjf", windows=2, jobs_per_window=40)
    whole.write(tmp_path)
    comparison_of(VALUES).write(tmp_path)
    assert Comparison.read(tmp_path).jobs is None
    assert not list((tmp_path / "schedules").iterdir())
    assert not (tmp_path / "jobs.parquet").exists()
    assert not list(tmp_path.glob("whole-*.parquet"))


def test_a_replay_of_a_log_is_a_comparison_of_one_window(tmp_path: Path) -> None:
    jobs, cluster = some_jobs(), parse_cluster(CLUSTER)
    runs = run_policies(jobs, cluster, ["fifo", "sjf+easy", "fifo"], SimulationConfig(), current="none")
    found = replay_comparison("jobs.csv", runs)
    found.write(tmp_path)
    read = Comparison.read(tmp_path)
    assert read.setting == found.setting
    assert read.policies == found.policies
    assert (read.reference, read.chosen_on) == ("fifo+strict/consolidate", "first")
    assert read.accounts == found.accounts
    assert read.windows.equals(found.windows)
    assert read.mean("sjf+easy", "mean_wait_s") == runs[1].metrics["mean_wait_s"]
    assert read.schedules["sjf+easy/consolidate"].equals(runs[1].result.table())
    whole = compare(["sjf+easy"], jobs, CLUSTER, current="fifo", jobs_per_window=None, part="all")
    same = whole.classes.filter(pl.col("policy").is_in(read.ranking()))
    assert_frame_equal(read.classes, same, check_row_order=False)


OLD = {"evaluation.json": "{}", "results.json": '{"workload": "jobs.csv", "results": []}'}


@pytest.mark.parametrize("name", OLD)
def test_results_of_an_older_version_are_not_written_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(OLD[name])
    with pytest.raises(InputError, match=r"of an older gpuyard; gpuyard \w+ --out with a new directory"):
        comparison_of(VALUES).write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == OLD[name]


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="holds no results"):
        comparison_of(VALUES).write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(InputError, match="is a file"):
        comparison_of(VALUES).write(tmp_path / "thesis.txt")


def changed(directory: Path, **changes: Any) -> None:
    path = directory / "results.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 1}, "has format 1 of results, but this gpuyard reads 3"),
        ({"setting": {}}, "is damaged"),
        ({"setting": []}, "is damaged"),
        ({"reference": "other"}, "names the policy other"),
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole") / "of"
    settings = {"windows": 3, "jobs_per_window": 40}
    compare(["saf"], some_jobs(), CLUSTER, current="sjf", **settings).write(directory)
    return directory


DAMAGE: dict[str, tuple[str, Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "rows of windows are missing": (
        "windows",
        lambda table: table[:-1],
        "has 2 windows and results.json 3",
    ),
    "windows come in another order": ("windows", lambda table: table.reverse(), "has other windows than"),
    "a metric is missing": (
        "windows",
        lambda table: table.drop("mean_bounded_slowdown"),
        "lacks the column mean_bounded_slowdown",
    ),
    "there is another policy": (
        "windows",
        lambda table: table.with_columns(policy=pl.lit("fifo")),
        "has 0 windows and results.json 3",
    ),
    "columns come in another order": (
        "windows",
        lambda table: table.select(reversed(table.columns)),
        "first columns are not policy and window",
    ),
    "a metric is no number": (
        "windows",
        lambda table: table.with_columns(max_wait_s=pl.lit("long")),
        "column max_wait_s holds no numbers",
    ),
    "classes lack a column": ("classes", lambda table: table.drop("by"), "lacks the column by"),
    "classes have another window": (
        "classes",
        lambda table: table.with_columns(window=pl.lit(7)),
        "has the window 7, which results.json does not name",
    ),
    "jobs lack a column": ("jobs", lambda table: table.drop("start_s"), "lacks the column start_s"),
    "names of jobs are numbers": (
        "jobs",
        lambda table: table.with_columns(user=pl.lit(1)),
        "column user holds no text",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_tables_are_refused_with_what_is_wrong(whole: Path, tmp_path: Path, damage: str) -> None:
    name, change, message = DAMAGE[damage]
    path = Path(shutil.copytree(whole, tmp_path / "copy")) / f"{name}.parquet"
    change(pl.read_parquet(path)).write_parquet(path)
    with pytest.raises(InputError, match=rf"{name}\.parquet: is damaged, .*{message}.*; make the results"):
        Comparison.read(path.parent)


def test_windows_that_the_document_alone_has_are_refused(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    setting = json.loads((copy / "results.json").read_text())["setting"]
    changed(copy, setting={**setting, "windows": [*setting["windows"], 1_000]})
    assert main(["report", str(copy), "--out", str(tmp_path / "report.html")]) == 2
    assert "has 3 windows and results.json 4; make the results" in capsys.readouterr().err


def test_what_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no results"):
        Comparison.read(tmp_path / "nowhere")
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(InputError, match="is not valid JSON"):
        Comparison.read(tmp_path)
    comparison_of(VALUES).write(tmp_path)
    (tmp_path / "windows.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"windows\.parquet: cannot be read"):
        Comparison.read(tmp_path)


def test_a_comparison_is_reported_without_being_written(tmp_path: Path) -> None:
    found = compare(["saf"], some_jobs(), CLUSTER, current="sjf", windows=3, jobs_per_window=40)
    write_report(tmp_path / "report.html", [found])
    assert "saf+strict" in (tmp_path / "report.html").read_text(encoding="utf-8")
