"""The command line: what it prints, writes, refuses and returns."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpuyard import cli, comparison, doctor
from gpuyard.registry import lookup, registered
from gpuyard.workload import read_workload
from gpuyard.workload.generators import preset_workloads

HEADER = "submit_s,duration_s,gpus"
GOOD = [HEADER, "0,100,8", "1,100,8", "2,10,1", "3,50,4", "4,20,2", "5,5,1"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("GPUYARD_DEBUG", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def jobs(tmp_path: Path) -> Callable[..., Path]:
    """Write lines to a CSV file."""

    def write(*lines: str) -> Path:
        path = tmp_path / "jobs.csv"
        path.write_text("\n".join(lines) + "\n" if lines else "")
        return path

    return write


def no_constants(name: str) -> Any:
    raise AssertionError(f"{name} in JSON")


def document(output: str) -> Any:
    return json.loads(output, parse_constant=no_constants)


# Bad input


BAD_FILES = {
    "a wrong column": (["submit_s,duration_s,gpu", "0,1,1"], ["'gpu'", "gpus"]),
    "a missing column": (["submit_s,duration_s", "0,1"], ["missing column gpus"]),
    "a negative duration on line 7": ([*GOOD[:6], "6,-5,1"], ["line 7", "duration_s", "-5"]),
    "nan": ([HEADER, "0,nan,1"], ["line 2", "duration_s", "nan"]),
    "part of a GPU for a gang": (
        [f"{HEADER},gpu_milli", "0,1,1,500", "0,1,2,500"],
        ["line 3", "gpu_milli", "500", "gpus = 2"],
    ),
    "a job larger than the cluster": ([*GOOD, "9,1,17"], ["job 6", "17 GPUs", "2x8", "--oversize drop"]),
    "no jobs": ([HEADER], ["has no jobs"]),
    "nothing": ([], ["is empty"]),
    "too few fields": ([HEADER, "0,1"], ["line 2", "2 fields"]),
}


@pytest.mark.parametrize(("lines", "words"), BAD_FILES.values(), ids=BAD_FILES.keys())
@pytest.mark.parametrize("as_json", [False, True])
def test_a_bad_file_is_one_paragraph_and_exit_code_2(
    run: Run, jobs: Callable[..., Path], lines: list[str], words: list[str], as_json: bool
) -> None:
    code, out, err = run("simulate", jobs(*lines), "--cluster", "2x8", *["--json"] * as_json)
    assert_refused(code, out, err, words)


BAD_ARGUMENTS = {
    "a missing file": (["simulate", "none.csv", "--cluster", "2x8"], ["none.csv", "no such file"]),
    "a misspelt order": (["simulate", "demo", "--policy", "sjff+easy"], ["did you mean 'sjf+easy'?"]),
    "a misspelt placement": (["simulate", "demo", "--policy", "sjf/spred"], ["'sjf/spread'"]),
    "a cluster of no nodes": (["simulate", "demo", "--cluster", "0x8"], ["0 nodes"]),
    "an unknown cluster": (["simulate", "demo", "--cluster", "phily"], ["'philly'"]),
    "no cluster": (["workload", "describe"], ["WORKLOAD"]),
    "an unknown metric": (["simulate", "demo", "--metric", "mean_wait"], ["'mean_wait_s'"]),
    "a setting out of bounds": (["simulate", "demo", "--noise-sigma", "-1"], ["--noise-sigma", "-1"]),
    "a setting that is nan": (["simulate", "demo", "--locality-penalty", "nan"], ["--locality-penalty nan"]),
    "a half-life of 0": (["simulate", "demo", "--usage-half-life", "0"], ["--usage-half-life"]),
    "a setting that is text": (["simulate", "demo", "--seed", "x"], ["--seed", "x"]),
    "an unknown choice": (["simulate", "demo", "--estimates", "exac"], ['Did you mean "exact"']),
    "an unknown option": (["simulate", "demo", "--polcy", "fifo"], ["Did you mean --policy"]),
    "an unknown command": (["simulat", "demo"], ['Did you mean "simulate"']),
    "a price below 0": (["simulate", "demo", "--energy-price", "-1"], ["--energy-price -1"]),
    "prices that leave hours out": (
        ["simulate", "demo", "--energy-price", "0-7:0.1,8-24:0.2"],
        ["--energy-price 0-7:0.1,8-24:0.2", "begins at hour 8, expected 7"],
    ),
    "more GPUs than there is memory for": (
        ["simulate", "demo", "--cluster", "1000000x1000000"],
        ["1,000,000,000,000 GPUs", "100,000,000"],
    ),
    "a picture of another kind": (["demo", "--svg", "x.png"], ["--svg x.png", ".svg"]),
    "a picture in no directory": (["demo", "--svg", "none/x.svg"], ["none/x.svg", "no directory"]),
    "results of no file": (
        ["simulate", "none.csv", "--cluster", "2x8", "--out", "results"],
        ["none.csv", "no such file"],
    ),
    "csv without out": (["simulate", "demo", "--csv"], ["--out"]),
    "no jobs to make": (["workload", "synth", "--out", "x.csv", "--jobs", "0"], ["--jobs 0"]),
    "a bad mix": (["workload", "synth", "--out", "x.csv", "--gang-mix", "1-2"], ["--gang-mix '1-2'"]),
    "a gang too large": (
        ["workload", "synth", "--out", "x.csv", "--cluster", "1x4"],
        ["--gang-mix has jobs of 8 GPUs", "--cluster"],
    ),
    "a load for no GPUs": (["workload", "synth", "--out", "x.csv", "--cluster", "farm-small"], ["no GPUs"]),
    "a strange suffix": (["workload", "synth", "--out", "x.txt", "--jobs", "5"], ["x.txt", ".parquet"]),
}


@pytest.mark.parametrize(("arguments", "words"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys())
def test_bad_usage_is_one_paragraph_and_exit_code_2(
    run: Run, arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(*run(*arguments), words)
    assert list(tmp_path.iterdir()) == []


def assert_refused(code: int, out: str, err: str, words: list[str]) -> None:
    assert code == cli.BAD_INPUT, err
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_a_workload_that_is_no_demo_needs_a_cluster(run: Run, jobs: Callable[..., Path]) -> None:
    assert_refused(*run("simulate", jobs(*GOOD)), ["--cluster", "64x8"])


def test_control_characters_of_a_file_never_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\nb.csv"
    _, _, err = run("simulate", path, "--cluster", "2x8")
    assert "\x1b" not in err
    assert err.count("\n") == 1


def test_an_unexpected_failure_is_exit_code_1_and_tells_how_to_see_more(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(doctor, "run_checks", fail)
    code, out, err = run("doctor", "--json")
    assert (code, out) == (cli.FAILED, "")
    assert err == "error: unexpected RuntimeError: boom (GPUYARD_DEBUG=1 shows where it happened)\n"
    monkeypatch.setenv("GPUYARD_DEBUG", "1")
    with pytest.raises(RuntimeError, match="boom"):
        run("doctor")


def test_an_interrupt_says_so_and_is_exit_code_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "simulate", interrupt)
    assert run("simulate", "demo") == (cli.INTERRUPTED, "", "interrupted\n")


@pytest.mark.parametrize("arguments", [["policies"], ["demo", "--minutes", "0", "--json"], ["--help"]])
def test_a_reader_that_goes_away_is_no_error_to_speak_of(arguments: list[str]) -> None:
    command = [sys.executable, "-c", "import sys; from gpuyard.cli import main; sys.exit(main())", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == cli.PIPE_CLOSED


# simulate


def test_json_has_the_promised_shape(run: Run, jobs: Callable[..., Path]) -> None:
    path = jobs(*GOOD)
    code, out, err = run(
        "simulate", path, "--cluster", "2x8", "--policy", "fifo", "--policy", "sjf+easy/spread", "--json"
    )
    assert (code, err) == (0, "")
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
    _, out, _ = run("simulate", "demo", "--policy", "fifo", "--policy", "sjf+easy")
    rows = {line.split()[0]: line for line in out.splitlines() if "/consolidate" in line}
    assert "*" not in rows["fifo+strict/consolidate"]
    assert rows["sjf+easy/consolidate"].count("*") == 6
    assert "* best of the column" in out


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
    assert "row 6 (17 GPUs), row 7 (18 GPUs)" in out
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


@pytest.mark.parametrize("by", ["priority", "group", "gpus"])
def test_metrics_by_class_are_shown_and_given(run: Run, by: str) -> None:
    arguments = ["simulate", "demo", "--policy", "fifo", "--policy", "sjf+easy", "--by", by]
    _, out, _ = run(*arguments)
    classes = {"priority": "1", "group": "g0", "gpus": "2-4"}
    assert re.search(rf"^{classes[by]} +[\d,]+ +fifo\+strict/consolidate", out, re.M)
    _, out, _ = run(*arguments, "--json")
    breakdown = document(out)["results"][0]["breakdown"]
    assert breakdown["by"] == by
    assert sum(entry["jobs"] for entry in breakdown["classes"]) == 2000


def test_files_are_written_for_each_policy(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    policies = ["--policy", "fifo", "--policy", "wspt+easy+express:600:0.1/spread"]
    code, printed, _ = run("simulate", "demo", *policies, "--out", out, "--csv")
    assert code == 0
    assert "Written to" in printed
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    files = ("metrics.json", "schedule.csv", "schedule.parquet")
    folders = ("fifo+strict_consolidate", "wspt+easy+express_600_0.1_spread")
    assert names == sorted(["results.json", *(f"{folder}/{name}" for folder in folders for name in files)])

    table = pl.read_parquet(out / folders[0] / "schedule.parquet")
    assert table.height == 2000
    assert (table["start_s"] >= table["submit_s"]).all()
    text = pl.read_csv(out / folders[1] / "schedule.csv", infer_schema_length=None)
    assert text["nodes"].cast(pl.String).str.contains("|", literal=True).any()
    assert (
        text["end_s"].to_list() == pl.read_parquet(out / folders[1] / "schedule.parquet")["end_s"].to_list()
    )

    stored = document((out / folders[0] / "metrics.json").read_text())
    everything = document((out / "results.json").read_text())
    assert stored["policy"] == "fifo+strict/consolidate"
    assert stored["metrics"] == everything["results"][0]["metrics"]
    assert stored["metrics"]["mean_wait_s"] == pytest.approx((table["start_s"] - table["submit_s"]).mean())
    assert set(stored["breakdowns"]) == {"priority", "group", "gpus"}
    assert stored["schedule_hash"] == everything["results"][0]["schedule_hash"]


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


def test_a_price_of_energy_gives_its_cost(run: Run, tmp_path: Path) -> None:
    arguments = ["simulate", "demo", "--cluster", "64x8:v100", "--energy-price", "0.25"]
    _, out, _ = run(*arguments, "--out", tmp_path, "--json")
    printed = document(out)
    metrics = printed["results"][0]["metrics"]
    assert metrics["energy_cost"] == pytest.approx(0.25 * metrics["energy_kwh"])
    assert metrics["energy_kwh"] > 0
    assert (printed["price_per_kwh"], printed["import"]) == (0.25, None)
    assert document((tmp_path / "results.json").read_text())["price_per_kwh"] == 0.25
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
    home = next(path for path in tmp_path.iterdir() if path.is_dir())
    assert document((home / "metrics.json").read_text())["price_per_kwh"] == tariff


# The other verbs


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_synth_writes_the_jobs_that_were_asked_for(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    mix = ["--gang-mix", "1:1,2:1", "--priority-mix", "1:3,5:1", "--overestimation", "2"]
    more = ["--users", "3", "--groups", "0", "--whole-seconds", "--user-activity", "uniform"]
    durations = ["--duration-median-s", "60", "--duration-min-s", "5", "--duration-max-s", "100"]
    shape = ["--jobs", "50", "--cluster", "2x8", "--load", "0.5", "--seed", "3", "--duration-sigma", "1"]
    code, out, _ = run("workload", "synth", "--out", path, *shape, *mix, *more, *durations, "--json")
    assert code == 0
    printed = document(out)
    assert printed["settings"]["cluster_gpus"] == 16
    frame = read_workload(path).frame
    assert frame.height == printed["jobs"] == 50
    assert set(frame["gpus"]) == {1, 2}
    assert set(frame["priority"]) == {1.0, 5.0}
    assert frame["duration_s"].is_between(5, 100).all()
    assert frame["estimate_s"].null_count() == 0


def test_describe_says_what_is_in_a_workload(run: Run, jobs: Callable[..., Path]) -> None:
    path = jobs(*GOOD)
    _, out, _ = run("workload", "describe", path, "--cluster", "2x8", "--json")
    described = document(out)
    assert described["jobs"] == 6
    assert described["load"] == pytest.approx((800 + 800 + 10 + 200 + 40 + 5) / (5 * 16))
    _, out, _ = run("workload", "describe", path)
    assert re.search(r"^jobs +6 *$", out, re.M)
    assert re.search(r"^ *8 +2 +33.3 % +86.3 %", out, re.M)


def test_lists_name_what_there_is(run: Run) -> None:
    _, out, _ = run("workload", "list", "--json")
    listed = document(out)
    clusters = {entry["name"]: entry["cluster"] for entry in listed["workloads"]}
    assert list(clusters) == list(preset_workloads())
    assert (clusters["diurnal"], clusters["host-farm"]) == ("8x8", "drawn")
    assert {"demo", "philly"} <= {entry["name"] for entry in listed["clusters"]}
    assert all(entry["summary"] for entries in listed.values() for entry in entries)
    _, out, _ = run("workload", "list")
    assert "philly" in out
    assert re.search(r"^bursty-8gpu +1x8 +400 jobs", out, re.M)
    _, out, _ = run("policies", "--json")
    assert {entry["name"] for entry in document(out)["placement"]} == set(registered("placement"))
    _, out, _ = run("policies")
    for kind in ("order", "backfill", "placement"):
        assert all(name in out for name in registered(kind))


def test_the_demo_compares_and_says_what_it_shows(run: Run, tmp_path: Path) -> None:
    code, out, err = run("demo", "--minutes", "0", "--svg", tmp_path / "demo.svg")
    assert (code, err) == (0, "")
    for words in ("Nodes matter", "Backfilling", "Order", "What to try next", "wspt+easy+express"):
        assert words in out
    picture = (tmp_path / "demo.svg").read_text()
    assert "fifo+strict/anywhere" in picture
    assert "url(http" not in picture
    code, out, err = run("demo", "--minutes", "0", "--json")
    printed = document(out)
    assert (code, err) == (0, "")
    assert len(printed["results"]) >= 8
    assert len(printed["findings"]) == 3
    assert printed["training"] is None


def test_every_next_step_of_the_demo_is_a_command_that_parses() -> None:
    from gpuyard.demo import NEXT_STEPS

    for _, command in NEXT_STEPS:
        program, *arguments = command.split()
        assert program == "gpuyard"
        cli.app.parse_args(arguments, print_error=False, exit_on_error=False)


def test_doctor_finds_this_installation_sound(run: Run) -> None:
    code, out, _ = run("doctor", "--json")
    printed = document(out)
    assert code == 0, printed
    assert printed["ok"]
    assert {check["name"]: check["status"] for check in printed["checks"]}["native core"] == "ok"
    _, out, _ = run("doctor")
    assert "gpuyard works here" in out


def test_doctor_fails_if_the_core_gives_another_schedule(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SMOKE_HASH", "another")
    code, out, _ = run("doctor")
    assert code == cli.FAILED
    assert "broken" in out
    assert "does not work" in out


def test_doctor_reports_a_core_that_does_not_load(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise ImportError("undefined symbol")

    monkeypatch.setattr(doctor, "smoke_schedule_hash", fail)
    code, out, _ = run("doctor", "--json")
    broken = next(check for check in document(out)["checks"] if check["status"] == "broken")
    assert code == cli.FAILED
    assert broken["name"] == "native core"
    assert "undefined symbol" in broken["found"]
    assert broken["advice"]


def test_version_is_the_packages(run: Run) -> None:
    from importlib.metadata import version

    assert run("--version") == (0, version("gpuyard") + "\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["workload"], ["simulate", "--help"]])
def test_help_is_not_an_error(run: Run, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert "Usage: gpuyard" in out


def test_bench_prints_what_was_measured_beside_its_peer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuyard import bench

    def measure() -> Iterator[bench.BenchResult]:
        yield bench.BenchResult("replay", 2.5, "s", "SimPy", 50.0, target=0.1, lower_is_better=True)

    monkeypatch.setattr(bench, "_load", lambda: None)
    monkeypatch.setattr(bench, "registered", lambda kind: {"replay": measure})
    monkeypatch.setattr(bench, "lookup", lambda kind, name: lookup(kind, name, known={"replay": measure}))
    code, out, err = run("bench", "replay", "--json")
    assert (code, err) == (0, "replay: 0.05x SimPy\n")
    wanted = {"name": "replay", "value": 2.5, "unit": "s", "peer": "SimPy", "peer_value": 50.0, "ratio": 0.05}
    assert document(out) == {"results": [wanted | {"target": 0.1, "met": True}]}
    _, out, _ = run("bench")
    assert out.splitlines()[-1].split() == [
        "replay",
        "2.50",
        "s",
        "0.05",
        "<=",
        "0.1",
        "yes",
        "SimPy:",
        "50.0",
    ]
    assert_refused(*run("bench", "repley"), ["did you mean 'replay'?"])
