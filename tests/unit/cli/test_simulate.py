"""gpuyard simulate: what it prints and writes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from gpuyard import cli
from gpuyard.cli.simulate import Classes
from gpuyard.metrics.classes import KINDS
from gpuyard.registry import registered
from support.command_line import GOOD, HEADER, Run, assert_refused, document


def test_json_has_the_promised_shape(run: Run, jobs: Callable[..., Path]) -> None:
    path = jobs(*GOOD)
    policies = ("--policy", "fifo", "--policy", "sjf+easy/spread", "--current", "none")
    code, out, err = run("simulate", path, "--cluster", "2x8", *policies, "--json")
    assert code == 0
    assert err.startswith("note: Estimates are history: ")
    printed = document(out)
    assert printed["workload"] == str(path)
    assert printed["cluster"] == "2x8"
    assert [result["policy"] for result in printed["results"]] == [
        "fifo+strict/consolidate",
        "sjf+easy/spread",
    ]
    for result in printed["results"]:
        assert set(result["metrics"]) == set(registered("metric"))
        assert result["dropped_jobs"] == 0
        assert re.fullmatch("[0-9a-f]{64}", result["schedule_hash"])


def test_a_cluster_without_gpus_shows_the_use_of_its_cpus(
    run: Run, tmp_path: Path, jobs: Callable[..., Path]
) -> None:
    (tmp_path / "cpus.toml").write_text('name = "hosts"\n[[nodes]]\ncount = 2\ngpus = 0\ncpus = 8\n')
    path = jobs("submit_s,duration_s,gpus,cpus", "0,60,0,8", "0,60,0,4")
    policies = ("--policy", "fifo", "--policy", "sjf+easy")
    code, out, _ = run("simulate", path, "--cluster", str(tmp_path / "cpus.toml"), *policies)
    assert code == 0
    table = out.split("\n\n")[1]
    assert "75.0 %" in table
    assert "CPU" in table
    assert "GPU" not in table


def test_policies_are_compared_with_what_usually_runs_where_the_log_has_no_starts(run: Run) -> None:
    policies = ("--policy", "sjf/best-fit", "--policy", "wspt+easy/best-fit")
    _, out, _ = run("simulate", "demo", *policies, "--by", "gpus", "--json")
    printed = document(out)
    assert (printed["reference"], printed["reference_assumed"]) == ("fifo+easy/best-fit", True)
    today, *others = printed["results"]
    assert (today["policy"], today["role"]) == ("fifo+easy/best-fit", "reference")
    assert [one["role"] for one in others] == ["given", "given"]
    assert {one["changes"]["mean_wait_s"] for one in today["breakdown"]["classes"]} == {0.0}
    _, out, _ = run("simulate", "demo", *policies)
    assert "fifo+easy stands for what runs today, an assumption" in " ".join(out.split())


@pytest.mark.parametrize(
    ("flags", "rows"),
    [
        (("--policy", "sjf+easy", "--policy", "fifo+easy"), ["fifo+easy", "sjf+easy"]),
        (("--policy", "sjf+easy"), ["sjf+easy"]),
        (("--policy", "sjf+easy", "--current", "fifo"), ["fifo+strict", "sjf+easy"]),
        (
            ("--policy", "fifo", "--policy", "lifo", "--defragment"),
            ["fifo+greedy", "fifo+strict", "lifo+strict"],
        ),
    ],
    ids=["named", "alone", "said", "no reservations"],
)
def test_what_runs_today_is_one_row(run: Run, flags: tuple[str, ...], rows: list[str]) -> None:
    _, out, _ = run("simulate", "demo", *flags, "--json")
    assert [one["policy"] for one in document(out)["results"]] == [f"{row}/consolidate" for row in rows]


def test_json_gives_null_for_what_is_not_known(run: Run) -> None:
    _, out, _ = run("simulate", "demo", "--json")
    assert document(out)["results"][0]["metrics"]["energy_kwh"] is None


def test_metrics_are_those_of_a_schedule_worked_out_by_hand(run: Run, jobs: Callable[..., Path]) -> None:
    path = jobs(HEADER, "0,100,8", "1,100,8", "2,10,1")
    _, out, _ = run("simulate", path, "--cluster", "1x8", "--metric", "mean_wait_s", "--json")
    assert document(out)["results"][0]["metrics"] == {"mean_wait_s": (0 + 99 + 198) / 3}


def test_a_policy_named_twice_runs_once(run: Run) -> None:
    _, out, _ = run("simulate", "demo", "--policy", "fifo", "--policy", "fifo+strict/consolidate", "--json")
    assert len(document(out)["results"]) == 1


def test_the_best_value_of_each_column_is_marked(run: Run) -> None:
    _, out, _ = run("simulate", "demo", "--policy", "fifo", "--policy", "sjf+easy", "--current", "none")
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith(("fifo", "sjf"))}
    assert rows["fifo+strict"].count("*") == 1, "its longest wait is shorter"
    assert rows["sjf+easy"].count("*") == 5
    assert "* best of the column" in out


def test_waits_far_above_those_of_what_runs_today_are_marked_and_named(run: Run) -> None:
    _, out, _ = run("simulate", "demo", "--policy", "fifo+easy", "--policy", "lifo+greedy")
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith(("lifo", "fifo"))}
    assert "!" not in rows["fifo+easy"]
    assert rows["lifo+greedy"].count("!") == 3, "99th percentile, longest wait and worst class"
    assert re.search(r"! lifo\+greedy: jobs that run .* \(p99\), under fifo\+easy .*; \d more classes\.", out)
    assert "! wait far above that of fifo+easy" in out
    policies = ("--policy", "fifo", "--policy", "fifo+easy/best-fit", "--current", "none")
    _, out, _ = run("simulate", "demo", *policies)
    assert "far above" not in out
    assert "fifo+strict/consolidate" in out, "placements are told where they differ"


def test_the_comparison_fits_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    policies = ["fifo+easy", "sjf+easy", "wspt+easy+express:600:0.1", "fair-share+easy"]
    _, out, _ = run("simulate", "demo", *(part for name in policies for part in ("--policy", name)))
    assert max(map(len, out.splitlines())) <= 80
    assert "worst class" in out
    assert "max" in out
    assert "/consolidate" not in out
    assert not re.search(r"\d$", out.split("\n\n")[-2].splitlines()[0]), "no number parts from its unit"


def test_a_single_policy_shows_what_its_metrics_mean(run: Run) -> None:
    _, out, _ = run("simulate", "demo", "--metric", "makespan_s")
    assert "from the first submit to the last finish" in out
    assert "3 d 6 h" in out
    assert "*" not in out


def test_the_heading_says_what_was_simulated(run: Run, jobs: Callable[..., Path]) -> None:
    path = jobs(*GOOD)
    _, out, _ = run("simulate", path, "--cluster", "2x8", "--estimates", "none")
    heading = " ".join(out.split("\n\n")[0].split("\n"))
    for words in ("6 jobs", "2x8", "2 nodes, 16 GPUs", "estimates none", "fifo+strict/consolidate"):
        assert words in heading


def test_dropped_jobs_are_reported(run: Run, jobs: Callable[..., Path]) -> None:
    path = jobs(*GOOD, "6,1,17", "7,1,18")
    arguments = ["simulate", path, "--cluster", "2x8", "--oversize", "drop"]
    _, out, _ = run(*arguments)
    assert "2 jobs left out because they can never run" in out
    assert "row 6, 17 GPUs; row 7, 18 GPUs" in out
    _, out, _ = run(*arguments, "--json")
    assert document(out)["results"][0]["dropped_jobs"] == 2


def test_policies_that_drop_different_jobs_are_flagged(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join([*GOOD, "6,1,7"]))
    policies = ["--policy", "fifo", "--policy", "fifo/anywhere"]
    _, out, _ = run("simulate", path, "--cluster", "1x4,1x8:v100", *policies, "--oversize", "drop")
    assert "Beware" not in out
    _, out, _ = run("simulate", path, "--cluster", "1x6,1x5:v100", *policies, "--oversize", "drop")
    assert "fifo+strict/consolidate 3, fifo+strict/anywhere 0" in " ".join(out.split())


@pytest.mark.parametrize("by", ["priority", "group", "gpus", "runtime", "user"])
def test_metrics_by_class_are_shown_and_given(run: Run, by: str) -> None:
    arguments = ["simulate", "demo", "--policy", "fifo", "--policy", "sjf+easy", "--by", by]
    arguments += ["--current", "none"]
    _, out, _ = run(*arguments)
    classes = {"priority": "1", "group": "g0", "gpus": "2-4", "runtime": "1 to 6 hours", "user": "u0"}
    assert re.search(rf"^{classes[by]} +[\d,]+ +fifo\+strict +", out, re.M)
    assert re.search(r"^ +sjf\+easy .*-\d+ %$", out, re.M), "the change of the first metric"
    _, out, _ = run(*arguments, "--json")
    first, second = (one["breakdown"] for one in document(out)["results"])
    assert first["by"] == second["by"] == by
    assert sum(entry["jobs"] for entry in first["classes"]) == 2000
    assert {entry["changes"]["mean_wait_s"] for entry in first["classes"]} == {0.0}
    for one, other in zip(second["classes"], first["classes"], strict=True):
        assert one["changes"]["mean_jct_s"] == pytest.approx(one["mean_jct_s"] / other["mean_jct_s"] - 1)


@pytest.mark.parametrize("by", ["user", "gpus"])
def test_who_loses_most_stands_first(run: Run, by: str) -> None:
    policies = ("--policy", "sjf+easy", "--policy", "fifo+easy", "--policy", "ljf+easy")
    _, out, _ = run("simulate", "demo", *policies, "--by", by, "--json")
    today, *others = (one["breakdown"]["classes"] for one in document(out)["results"])
    names = [one["class"] for one in today]
    assert all([one["class"] for one in rows] == names for rows in others)
    rises = [
        max((rows[i]["mean_wait_s"] - row["mean_wait_s"]) / max(row["mean_wait_s"], 60.0) for rows in others)
        for i, row in enumerate(today)
    ]
    kept = [rise for rise, name in zip(rises, names, strict=True) if name != "(others)"]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > kept[-1]
    _, out, _ = run("simulate", "demo", *policies, "--by", by)
    rows = [line.split()[0] for line in out.splitlines() if re.search(r"\d +fifo\+easy", line)]
    assert rows == names


def test_classes_have_the_same_names_everywhere(run: Run) -> None:
    assert get_args(Classes) == KINDS
    code, out, err = run("simulate", "demo", "--by", "partition")
    assert (code, out) == (2, "")
    assert "these jobs have no column partition" in err


def test_files_are_written_for_each_policy(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    policies = ["--policy", "fifo", "--policy", "wspt+easy+express:600:0.1/spread", "--current", "none"]
    code, printed, _ = run("simulate", "demo", *policies, "--out", out, "--csv")
    assert code == 0
    assert "Written to" in printed
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    files = [f"schedules/{number}.{kind}" for number in (0, 1) for kind in ("csv", "parquet")]
    assert names == sorted(["results.json", "windows.parquet", "classes.parquet", *files])

    table = pl.read_parquet(out / "schedules" / "0.parquet")
    assert table.height == 2000
    assert (table["start_s"] >= table["submit_s"]).all()
    text = pl.read_csv(out / "schedules" / "1.csv", infer_schema_length=None)
    assert text["nodes"].cast(pl.String).str.contains("|", literal=True).any()
    assert text["end_s"].to_list() == pl.read_parquet(out / "schedules" / "1.parquet")["end_s"].to_list()

    stored = document((out / "results.json").read_text())
    assert stored["schedules"]["fifo+strict/consolidate"] == "schedules/0.parquet"
    first = stored["policies"][0]
    assert first["name"] == stored["reference"] == "fifo+strict/consolidate"
    assert first["metrics"]["mean_wait_s"] == pytest.approx((table["start_s"] - table["submit_s"]).mean())
    _, printed, _ = run("simulate", "demo", *policies, "--json")
    results = document(printed)["results"]
    assert first["schedule_hash"] == results[0]["schedule_hash"]
    known = {name: value for name, value in results[0]["metrics"].items() if value is not None}
    assert first["metrics"] == known
    classes = pl.read_parquet(out / "classes.parquet")
    assert set(classes["by"]) == {"group", "gpus", "user", "runtime"}, "all have the same priority"


def test_writing_again_gives_the_same_bytes(run: Run, tmp_path: Path) -> None:
    arguments = ("simulate", "demo", "--policy", "sjf+easy", "--out", tmp_path, "--csv", "--json")
    _, out, _ = run(*arguments)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    _, again, _ = run(*arguments)
    assert out == again
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_failing_run_leaves_written_files_alone(
    run: Run, tmp_path: Path, jobs: Callable[..., Path]
) -> None:
    out = tmp_path / "out"
    run("simulate", "demo", "--out", out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    code, _, _ = run("simulate", jobs(*GOOD), "--cluster", "1x4", "--out", out)
    assert code == cli.BAD_INPUT
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_file_in_the_way_of_the_directory_is_refused_before_simulating(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    assert_refused(*run("simulate", "demo", "--out", tmp_path / "taken"), ["--out", "taken"])
    assert (tmp_path / "taken").read_text() == "mine"


def test_the_directory_of_an_evaluation_is_refused_before_simulating(run: Run, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text("{}")
    refusal = run("simulate", "demo", "--out", tmp_path)
    assert_refused(*refusal, [f"--out {tmp_path}", "holds an evaluation", "with a new directory"])
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation.json"]


def test_a_price_of_energy_gives_its_cost(run: Run, tmp_path: Path) -> None:
    arguments = ["simulate", "demo", "--cluster", "64x8:v100", "--energy-price", "0.25"]
    _, out, _ = run(*arguments, "--out", tmp_path, "--json")
    printed = document(out)
    metrics = printed["results"][0]["metrics"]
    assert metrics["energy_cost"] == pytest.approx(0.25 * metrics["energy_kwh"])
    assert metrics["energy_kwh"] > 0
    assert (printed["price_per_kwh"], printed["import"]) == (0.25, None)
    assert document((tmp_path / "results.json").read_text())["setting"]["price_per_kwh"] == 0.25
    _, out, _ = run(*arguments)
    assert "energy x price per kWh" in out
    _, out, _ = run(*arguments, "--policy", "fifo", "--policy", "sjf")
    assert "currency" in out or "energy" in out


def test_prices_of_energy_by_hour_of_the_day(run: Run, tmp_path: Path) -> None:
    tariff = "0-7:0.12,7-20:0.31,20-24:0.18"
    arguments = ["simulate", "demo", "--cluster", "64x8:v100", "--energy-price", tariff]
    _, out, _ = run(*arguments, "--out", tmp_path, "--json")
    printed = document(out)
    metrics = printed["results"][0]["metrics"]
    assert 0.12 < metrics["energy_cost"] / metrics["energy_kwh"] < 0.31
    assert printed["price_per_kwh"] == tariff
    assert document((tmp_path / "results.json").read_text())["setting"]["price_per_kwh"] == tariff
