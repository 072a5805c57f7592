"""The command line's other verbs: synth, describe, lists, demo, doctor, version, help, bench."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuyard import cli
from gpuyard.cli import doctor
from gpuyard.registry import lookup, registered
from gpuyard.workload import read_workload
from gpuyard.workload.generators import preset_workloads
from support.command_line import GOOD, Run, assert_refused, document


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
    assert "model:bursty-order" in out
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
    from gpuyard.cli.demo import NEXT_STEPS

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
    from gpuyard.cli import bench
    from harness import BenchResult

    def measure() -> Iterator[BenchResult]:
        yield BenchResult("replay", 2.5, "s", "SimPy", 50.0, target=0.1, lower_is_better=True)

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
