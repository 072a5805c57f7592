"""gpuyard workload: what its commands print, write, refuse and return."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpuyard import cli
from gpuyard.cli.imports.logs import FORMATS
from gpuyard.simulation.run import simulate
from gpuyard.workload import read_workload
from gpuyard.workload.shaping.config import ShapeConfig
from support.command_line import Run, runner
from support.written_pages import OWN_SCRIPTS, WrittenPage

# Job, submit, wait, run, procs, cpu, memory, requested procs, requested time, ..., status, user, ..., queue.
SWF = """\
; UnixStartTime: 1598918400
; MaxNodes: 4
; MaxProcs: 8
1 0 0 100 2 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1
2 5 0 50 2 -1 -1 2 60 -1 1 2 1 -1 1 -1 -1 -1
3 10 0 30 4 -1 -1 4 60 -1 0 1 1 -1 2 -1 -1 -1
4 20 0 -1 4 -1 -1 4 60 -1 5 1 1 -1 2 -1 -1 -1
5 30 0 80 8 -1 -1 8 100 -1 1 3 1 -1 1 -1 -1 -1
6 40 0 10 1 -1 -1 1 20 -1 1 2 1 -1 1 -1 -1 -1
"""
SCHEDULE_HASH = "ae486c1eeffa1c95c16a99b01b8e62a0d4a825bc59231f24e25e8c8e243330cb"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "120")
    return runner(capfd, "workload")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(SWF)
    return path


@pytest.fixture
def jobs(run: Run, log: Path, tmp_path: Path) -> Path:
    out = tmp_path / "jobs.parquet"
    assert run("import", log, "--out", out)[0] == 0
    return out


def ok(result: tuple[int, str, str]) -> str:
    code, out, err = result
    assert (code, without_replaced(err)) == (0, ""), err
    return out


def without_replaced(err: str) -> str:
    """What was said but that a file of an earlier command of the test is written over."""
    return "".join(line for line in err.splitlines(keepends=True) if "that is there is replaced" not in line)


def document(result: tuple[int, str, str]) -> Any:
    return json.loads(ok(result))


def refused(result: tuple[int, str, str], *words: str) -> None:
    code, out, err = result
    assert (code, out) == (cli.BAD_INPUT, ""), err
    assert without_replaced(err).count("\n") == 1
    for word in words:
        assert word in err


# import


def test_import_writes_jobs_report_and_cluster(run: Run, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "jobs.parquet"
    printed = ok(run("import", log, "--out", out, "--cluster-out", tmp_path / "c.toml"))
    assert "rejected: never ran" in printed
    assert "small.swf:7" in printed
    assert "Assumed: processors are taken as GPUs" in printed
    report = json.loads((tmp_path / "jobs.import.json").read_text())
    assert (report["rows_read"], report["jobs"], report["rejected"][0]["rows"]) == (6, 5, 1)
    assert "count = 4" in (tmp_path / "c.toml").read_text()
    assert len(read_workload(out)) == 5


def test_import_as_json_is_one_document(run: Run, log: Path, tmp_path: Path) -> None:
    out, beside = tmp_path / "jobs.csv.gz", tmp_path / "r.json"
    printed = document(run("import", log, "--out", out, "--report", beside, "--format", "swf", "--json"))
    assert printed["files"] == [str(out), str(beside)]
    assert printed["report"]["jobs"] == 5
    assert json.loads(beside.read_text()) == printed["report"]


def test_what_was_imported_simulates_as_what_was_read(
    run: Run, log: Path, jobs: Path, tmp_path: Path
) -> None:
    csv = tmp_path / "jobs.csv"
    ok(run("convert", jobs, "--out", csv))
    for path in (log, jobs, csv):
        result = simulate(read_workload(path), "4x2", "sjf+easy")
        # Job 5 needs all 8 GPUs and waits for job 1; job 6 is short and passes it.
        assert result.table()["start_s"].to_list() == [0.0, 5.0, 10.0, 100.0, 40.0]
        assert result.schedule.hash() == SCHEDULE_HASH, path


def test_the_history_tells_how_a_file_was_made(run: Run, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "part.parquet"
    ok(
        run(
            "shape",
            jobs,
            "--from",
            "5",
            "--gpus",
            "2-",
            "--estimates",
            "round:2",
            "--seed",
            "4",
            "--out",
            out,
        )
    )
    metadata = read_workload(out).metadata
    assert [step.name for step in metadata.history] == ["import", "between", "keep", "round-estimates"]
    assert metadata.history[0].settings["format"] == "swf"
    assert metadata.history[3].settings == {"overestimation": 2.0, "seed": 4}
    assert (metadata.origin_s, metadata.epoch_s) == (5.0, 1598918405.0)


def test_imports_that_cannot_be_are_refused(run: Run, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    refused(run("import", log, "--out", tmp_path / "a.txt"), "a.txt", ".parquet")
    refused(run("import", tmp_path / "none.swf", "--out", out), "none.swf", "no such file")
    refused(run("import", log, "--out", out, "--format", "swff"), "did you mean 'swf'")
    refused(run("import", log, "--out", out, "--option", "x"), "--option 'x'", "NAME=VALUE")
    refused(run("import", log, "--out", out, "--option", "x=1"), "option x")
    refused(run("import", log, "--out", out, "--option", "x=[1"), "not valid JSON")
    assert list(tmp_path.iterdir()) == [log]


def test_a_cluster_that_the_files_do_not_show_is_refused(run: Run, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("submit_s,duration_s,gpus\n0,10,1\n")
    arguments = ["import", jobs, "--out", tmp_path / "b.parquet", "--cluster-out", tmp_path / "c.toml"]
    refused(run(*arguments), "does not say on which nodes jobs ran", "NodeList", "gpuyard cluster import")
    assert not (tmp_path / "b.parquet").exists()


# audit


def test_audit_finds_the_import_report_beside_the_file(run: Run, jobs: Path) -> None:
    card = document(run("audit", jobs, "--cluster", "4x2", "--json"))
    ids = {finding["id"] for finding in card["findings"]}
    assert {"rejected-rows", "bad-times", "assumptions", "few-jobs", "overload"} <= ids
    assert card["skipped"] == []


def test_audit_prints_findings_and_writes_cards(run: Run, jobs: Path, tmp_path: Path) -> None:
    printed = ok(run("audit", jobs, "--cluster", "400x2", "--out", tmp_path / "card.html"))
    assert "SERIOUS  the load on 400x2" in printed
    assert "gpuyard workload shape FILE --load 0.9" in printed
    assert "no-contention" in (tmp_path / "card.html").read_text()
    ok(run("audit", jobs, "--out", tmp_path / "card.json"))
    stored = json.loads((tmp_path / "card.json").read_text())
    assert stored["jobs"] == 5
    assert "Not looked at: needs a cluster" in ok(run("audit", jobs))


def test_audits_that_cannot_be_are_refused(run: Run, jobs: Path, tmp_path: Path) -> None:
    refused(run("audit", jobs, "--out", tmp_path / "card.pdf"), "card.pdf", ".html or .json")
    (tmp_path / "bad.json").write_text("{}")
    refused(run("audit", jobs, "--report", tmp_path / "bad.json"), "bad.json", "no import report")
    refused(run("audit", jobs, "--report", tmp_path / "none.json"), "none.json", "cannot be read")
    refused(run("audit", jobs, "--cluster", "4y2"), "4y2")


def test_a_raw_log_says_what_became_of_its_rows_wherever_it_is_read(
    run: Run, log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    note = (
        f"note: {log}: 1 of 6 rows became no job (never ran: run time is not positive 1); "
        f"1 convention assumed; gpuyard workload import {log} --out FILE shows all\n"
    )
    for command in (["describe", log, "--json"], ["audit", log, "--json"]):
        code, out, err = run(*command)
        assert (code, err) == (0, note)
        account = json.loads(out)["import"]
        assert (account["format"], account["rows_read"], account["rejected"][0]["rows"]) == ("swf", 6, 1)
    assert {"rejected-rows", "assumptions"} <= {finding["id"] for finding in json.loads(out)["findings"]}
    for command in (["shape", log, "--gpus", "2-"], ["convert", log]):
        code, _, err = run(*command, "--out", tmp_path / f"{command[0]}.parquet")
        assert (code, err) == (0, note)
    assert cli.main(["simulate", str(log), "--cluster", "4x2", "--json", "--out", str(tmp_path / "r")]) == 0
    out, err = capfd.readouterr()
    assert err.startswith(note)
    assert json.loads(out)["import"]["rejected"][0]["rows"] == 1
    assert json.loads((tmp_path / "r" / "results.json").read_text())["setting"]["imported"]["rows_read"] == 6


def test_what_was_imported_brings_its_report_without_a_note(run: Run, jobs: Path) -> None:
    account = document(run("describe", jobs, "--json"))["import"]
    assert (account["format"], account["rows_read"]) == ("swf", 6)


def test_a_report_of_another_file_is_not_believed(run: Run, jobs: Path, tmp_path: Path) -> None:
    csv = tmp_path / "jobs.csv"
    ok(run("convert", jobs, "--out", csv))
    ok(run("convert", "demo", "--out", jobs))
    for path in (csv, jobs):
        code, out, err = run("audit", path, "--json")
        beside = tmp_path / "jobs.import.json"
        assert (code, err) == (
            0,
            f"note: {beside} is not the report of the import that wrote {path}; not used\n",
        )
        card = json.loads(out)
        assert card["import"] is None
        assert "rejected-rows" in {check["id"] for check in card["skipped"]}
        assert document(run("describe", path, "--json"))["import"] is None
    code, out, err = run("audit", csv, "--report", beside, "--json")
    assert json.loads(out)["import"]["rows_read"] == 6
    assert "used as you named it" in err


def test_targets_are_looked_at_before_anything_is_read(run: Run, log: Path, tmp_path: Path) -> None:
    out, lost = tmp_path / "a.parquet", tmp_path / "none"
    missing = tmp_path / "none.swf"
    refused(run("import", missing, "--out", lost / "a.csv"), str(lost / "a.csv"), "no directory")
    refused(run("import", missing, "--out", out, "--report", lost / "r.json"), "r.json", "no directory")
    refused(run("import", missing, "--out", out, "--report", tmp_path / "r.txt"), "--report", ".json")
    refused(run("import", missing, "--out", out, "--cluster-out", lost / "c.toml"), "c.toml", "no directory")
    refused(run("import", missing, "--out", out, "--cluster-out", tmp_path / "c"), "--cluster-out", ".toml")
    refused(run("audit", missing, "--out", lost / "c.html"), "c.html", "no directory")
    assert list(tmp_path.iterdir()) == [log]


def test_the_help_of_import_names_every_format_and_where_options_are(run: Run) -> None:
    from gpuyard.workload import workload_formats

    assert list(FORMATS) == sorted(workload_formats())
    code, out, _ = run("import", "--help")
    words = out.replace("│", " ").replace(",", " ").split()
    assert code == 0
    assert [name for name in FORMATS if name not in words and f"{name}." not in words] == []
    assert "docs/formats/index.md" in out


def test_options_of_formats_are_told_as_they_are_written(run: Run, tmp_path: Path) -> None:
    out, pods = tmp_path / "a.parquet", tmp_path / "pods.csv"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1,1,1000\n")
    refused(run("import", pods, "--out", out), "import it with --option times=order, one pod")
    refused(run("describe", pods), "--option times=order", "gpuyard workload import takes such options")
    plain = tmp_path / "plain.csv"
    assert "--option times=order" in ok(run("survey", pods, "--json"))
    refused(run("import", pods, "--out", out, "--option", "times=x"), "--option times=x")
    refused(run("import", pods, "--out", out, "--format", "opnb"), "unknown format 'opnb'")
    plain.write_text("submit_s,duration_s,gpus\n0,1,1\n")
    refused(run("import", plain, "--out", out, "--option", "a=1"), "native has no option a")
    zero = tmp_path / "zero.csv"
    zero.write_text("arrival_time,runtime,gpus,priority\n20,30,0,0.5\n")
    remedy = "say which with --option zero_gpus=... (cpu, one or reject), or give --lenient to assume that"
    refused(run("import", zero, "--out", out), remedy)
    refused(run("audit", zero), remedy, "gpuyard workload import takes such options")
    ok(run("shape", "demo", "--compress", "2", "--out", tmp_path / "b.parquet"))
    refused(run("merge", tmp_path / "b.parquet", "demo", "--out", out), "--clock zero")


# describe


def test_describe_shows_distributions_and_writes_a_page(run: Run, jobs: Path, tmp_path: Path) -> None:
    printed = ok(run("describe", jobs, "--cluster", "4x2", "--out", tmp_path / "page.html"))
    for words in ("submits by hour", "submits by weekday", "Gini coefficient", "share of GPU time", "█"):
        assert words in printed
    assert 'data-chart="Gang-sizes"' in (tmp_path / "page.html").read_text()
    spread = document(run("describe", jobs, "--json"))["distributions"]
    assert sum(spread["arrivals"]["by_hour"]) == 5
    refused(run("describe", jobs, "--out", tmp_path / "page.png"), ".html")


def test_the_demo_can_be_looked_at(run: Run) -> None:
    assert "demo" in ok(run("describe", "demo"))
    assert "poor-estimates" in document(run("audit", "demo", "--cluster", "demo", "--json"))["passed"]


# shape


def test_shape_takes_steps_and_says_what_came_of_them(run: Run, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "b.parquet"
    printed = ok(
        run("shape", jobs, "--status", "completed", "--load", "0.5", "--cluster", "4x2", "--out", out)
    )
    assert "4 of 5 jobs" in printed
    assert "load 0.500 on 4x2 (8 GPUs)" in printed
    shaped = document(run("shape", jobs, "--user", "u1", "--user", "u2", "--out", out, "--json"))
    assert (shaped["jobs"], shaped["metadata"]["history"][-1]["name"]) == (4, "keep")


def test_shape_can_shrink_the_cluster_instead_of_time(run: Run, jobs: Path, tmp_path: Path) -> None:
    # 200 + 100 + 120 + 640 + 10 GPU s in 40 s are 26.75 GPUs: on 400x2 0.033, on 15 nodes of 2 about 0.9.
    out, small = tmp_path / "b.parquet", tmp_path / "small.toml"
    printed = document(
        run(
            "shape",
            jobs,
            "--load",
            "0.9",
            "--cluster",
            "400x2",
            "--cluster-out",
            small,
            "--out",
            out,
            "--json",
        )
    )
    assert printed["load"] == pytest.approx(26.75 / 30)
    assert "count = 15" in small.read_text()
    assert read_workload(out).frame.equals(read_workload(jobs).frame)


def test_shape_joins_estimates_from_a_table(run: Run, jobs: Path, tmp_path: Path) -> None:
    pl.DataFrame({"source_id": ["1", "5"], "estimate_s": [7.0, 8.0]}).write_csv(tmp_path / "e.csv")
    ok(run("shape", jobs, "--estimates", tmp_path / "e.csv", "--out", tmp_path / "b.parquet"))
    frame = read_workload(tmp_path / "b.parquet").frame
    assert dict(zip(frame["source_id"], frame["estimate_s"], strict=True)) == {
        "1": 7.0,
        "2": None,
        "3": None,
        "5": 8.0,
        "6": None,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "99d"], ["outside"]),
        (["--from", "soon"], ["soon", "36h"]),
        (["--gpus", "many"], ["--gpus many", "1-8"]),
        (["--gpus", "99-"], ["leaves none"]),
        (["--status", "done"], ["unknown status 'done'"]),
        (["--thin", "2"], ["share to keep"]),
        (["--load", "0.9"], ["--cluster"]),
        (["--load", "-1", "--cluster", "4x2"], ["load"]),
        (["--compress", "0"], ["factor"]),
        (["--cluster-out", "c.toml"], ["--cluster-out", "--load"]),
        (["--level-days", "7"], ["--level-days needs --load"]),
        (
            ["--level-days", "7", "--load", "0.9", "--cluster", "4x2", "--cluster-out", "c.toml"],
            ["--level-days", "--cluster-out", "use one"],
        ),
        (["--relabel", "q1"], ["--relabel q1: expected OLD=NEW"]),
        (["--relabel", "q7=x"], ["group 'q7'"]),
        (["--split", "train", "--shares", "1,2"], ["shares"]),
        (["--split", "train", "--shares", "a,b,c"], ["--shares"]),
        (["--split", "training"], ["train"]),
        (["--jobs", "0"], ["--jobs"]),
        (["--first-job", "3", "--jobs", "9"], ["does not lie within"]),
        (["--resample-days", "3"], ["whole days"]),
        (["--max-duration", "-3"], ["max_s"]),
        (["--estimates", "none.csv"], ["none.csv"]),
        (["--seed", "-1"], ["--seed"]),
    ],
)
def test_steps_that_make_no_sense_are_refused(
    run: Run, jobs: Path, tmp_path: Path, options: list[str], words: list[str]
) -> None:
    refused(run("shape", jobs, "--out", tmp_path / "b.parquet", *options), *words)
    assert not (tmp_path / "b.parquet").exists()


SHAPED = (
    "--from 1 --to 2 --drop-duplicates --status failed --group g --user u --gpus 8 --duration -60 "
    "--split test --shares 0.5,0.25,0.25 --first-job 3 --jobs 4 --thin 0.5 --resample-days 6 --keep-weekdays "
    "--max-duration 7 --min-duration 1 --widen 0.5 --widen-to 8 --relabel a=b=c --relabel *=d --compress 2 "
    "--load 0.9 --level-days 7 --estimates exact --seed 5"
)


def shape_settings(*options: str) -> ShapeConfig:
    arguments = ["workload", "shape", "demo", "--out", "x.parquet", *options]
    _, bound, *_ = cli.app.parse_args(arguments, print_error=False, exit_on_error=False)
    settings: ShapeConfig = bound.arguments.get("steps", ShapeConfig())
    return settings


def test_every_option_of_shape_reaches_the_settings() -> None:
    changed, default = shape_settings(*SHAPED.split()).model_dump(), ShapeConfig().model_dump()
    assert [name for name in default if changed[name] == default[name]] == []
    assert dict(changed["relabel_groups"]) == {"a": "b=c", "*": "d"}
    assert (changed["gpus"], changed["duration_s"]) == ((8.0, 8.0), (None, 60.0))
    assert shape_settings() == ShapeConfig()
    assert shape_settings("--status", "failed", "--status", "timeout").statuses == ("failed", "timeout")


def test_ranges_are_read_as_people_write_them() -> None:
    assert shape_settings("--gpus", "1-8").gpus == (1.0, 8.0)
    assert shape_settings("--gpus", "1-").gpus == (1.0, None)


# merge, convert


def test_merge_and_convert(run: Run, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.parquet"
    printed = document(run("merge", jobs, jobs, "--out", out, "--json"))
    assert printed["jobs"] == 10
    assert "duplicated-ids" in {f["id"] for f in document(run("audit", out, "--json"))["findings"]}
    refused(run("merge", jobs, "--out", out), "at least two")
    assert document(run("convert", out, "--out", tmp_path / "both.csv", "--json"))["jobs"] == 10
    assert len(read_workload(tmp_path / "both.csv")) == 10


def test_names_from_a_log_are_only_text_on_pages(run: Run, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    path = tmp_path / "evil.csv"
    rows = [f"{k},{k + 1},1,{evil},{evil},{evil}{k}" for k in range(30)]
    path.write_text("\n".join(["submit_s,duration_s,gpus,user,group,source_id", *rows]))
    ok(run("describe", path, "--cluster", "1x1", "--out", tmp_path / "page.html"))
    ok(run("audit", path, "--cluster", "1x1", "--out", tmp_path / "card.html"))
    for name in ("page.html", "card.html"):
        assert WrittenPage((tmp_path / name).read_text()).scripts == OWN_SCRIPTS
