"""gpuyard workload synth, fit, survey, and built-in workloads by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuyard import cli
from gpuyard.cluster.model import parse_cluster
from gpuyard.errors import InputError
from gpuyard.simulation.run import simulate
from gpuyard.workload import import_trace, read_workload
from gpuyard.workload.generators import preset_workload, preset_workloads, read_fitted, workload_like
from gpuyard.workload.readers.swf import SwfFormat
from gpuyard.workload.survey import survey
from support.command_line import Run, runner

NATIVE = "submit_s,duration_s,gpus\n0,10,1\n86400,30,4\n"
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,1000,1024,1,1000,,LS,Succeeded,0,100,10
p1,1000,1024,1,500,,LS,Pending,5,,
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\n"
GAVEL = "ResNet-18 (batch size 16)\tpython3 main.py\tcifar\t--num_steps\t0\t1000\t1\t0.0\t1.0\t0\n"
THROUGHPUTS = json.dumps({"v100": {"('ResNet-18 (batch size 16)', 1)": {"null": 10.0}}})


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "160")
    return runner(capfd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with workloads, their companions and other things."""
    home = tmp_path / "traces"
    for name, text in {
        "jobs.csv": NATIVE,
        "notes.txt": "bought in 2020\n",
        "empty.csv": "",
        ".hidden.csv": NATIVE,
        "alibaba/pods.csv": PODS,
        "alibaba/nodes.csv": NODES,
        "gavel/a.trace": GAVEL,
        "gavel/throughputs.json": THROUGHPUTS,
        "bad/broken.csv": "submit_s,duration_s,gpus\n0,x|y,1\n",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / "bad" / "picture.bin").write_bytes(b"\0\1\2")
    return home


def ok(result: tuple[int, str, str]) -> str:
    code, out, err = result
    assert (code, without_replaced(err)) == (0, ""), err
    return out


def without_replaced(err: str) -> str:
    """What was said but that a file of an earlier command of the test is written over."""
    return "".join(line for line in err.splitlines(keepends=True) if "that is there is replaced" not in line)


def refused(result: tuple[int, str, str], *words: str) -> None:
    code, out, err = result
    assert code == cli.BAD_INPUT, err
    assert not out or json.loads(out)["exit_code"] == cli.BAD_INPUT, "with --json"
    for word in words:
        assert word in err


# synth and fit


def test_a_preset_is_written_with_its_cluster(run: Run, tmp_path: Path) -> None:
    out, toml = tmp_path / "a.parquet", tmp_path / "c.toml"
    options = ["--jobs", "300", "--seed", "2", "--set", "load=1.1", "--cluster-out", toml]
    printed = ok(run("workload", "synth", "--preset", "diurnal", *options, "--out", out))
    assert "300 jobs at load 1.1 for 64 GPUs, seed 2" in printed
    wanted = preset_workload("diurnal", jobs=300, seed=2, load=1.1)
    assert read_workload(out).frame.equals(wanted.workload.frame)
    assert parse_cluster(str(toml)).total_gpus == 64


def test_settings_of_a_preset_are_lists_mixes_and_shapes(run: Run, tmp_path: Path) -> None:
    out, toml = tmp_path / "a.parquet", tmp_path / "c.toml"
    farm = ["--preset", "host-farm", "--set", "hosts=[3,3]", "--jobs", "50", "--cluster-out", toml]
    ok(run("workload", "synth", *farm, "--out", out))
    assert len(parse_cluster(str(toml)).nodes) == 3
    mix = ["--preset", "diurnal", "--set", "gang_mix=2:1", "--set", "arrivals=bursty:centres=4"]
    printed = json.loads(ok(run("workload", "synth", *mix, "--jobs", "50", "--out", out, "--json")))
    assert printed["settings"]["arrivals"]["centres"] == 4
    assert set(read_workload(out).frame["gpus"]) == {2}


def test_a_workload_is_drawn_like_a_trace_or_what_was_fitted_to_it(run: Run, tmp_path: Path) -> None:
    fitted, first, second = tmp_path / "f.json", tmp_path / "1.parquet", tmp_path / "2.parquet"
    printed = json.loads(ok(run("workload", "fit", "bursty-8gpu", "--out", fitted, "--json")))
    assert printed["jobs"] == 400
    assert "400 jobs" in ok(run("workload", "fit", "bursty-8gpu", "--out", fitted))
    options = ["--jobs", "100", "--seed", "3", "--rate", "2"]
    ok(run("workload", "synth", "--like", fitted, *options, "--out", first))
    ok(run("workload", "synth", "--like", "bursty-8gpu", *options, "--out", second))
    wanted = workload_like(read_fitted(fitted), jobs=100, seed=3, rate=2.0).frame
    assert read_workload(first).frame.equals(wanted)
    assert read_workload(second).frame.equals(wanted)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preset", "demo", "--like", "demo"], ["--preset and --like contradict"]),
        (["--set", "load=1"], ["--set needs --preset"]),
        (["--rate", "2"], ["--rate needs --like"]),
        (["--preset", "demo", "--rate", "2"], ["--rate needs --like"]),
        (["--like", "demo", "--set", "load=1"], ["--set needs --preset"]),
        (["--cluster-out", "c.toml"], ["--cluster-out needs --preset"]),
        (["--preset", "demo", "--cluster", "4x4"], ["--cluster does not go with --preset"]),
        (["--preset", "demo", "--load", "1"], ["--load does not go with --preset", "--set load="]),
        (["--like", "demo", "--duration-median-s", "9"], ["--duration-median-s does not go with --like"]),
        (["--preset", "demo", "--jobs", "5", "--set", "jobs=6"], ["--set jobs and --jobs"]),
        (["--preset", "poisson", "--set", "cluster_gpus=8", "--cluster-out", "c.toml"], ["another size"]),
        (["--preset", "diurnl"], ["did you mean 'diurnal'"]),
        (["--preset", "demo", "--jobs", "0"], ["jobs"]),
        (["--preset", "demo", "--set", "lod=1"], ["unknown key lod; did you mean 'load'?"]),
        (["--preset", "demo", "--set", "load"], ["--set 'load'"]),
        (
            ["--preset", "demo", "--set", "gang_mix=1-2"],
            ["preset demo: gang_mix: expected value:weight pairs"],
        ),
        (["--preset", "host-farm", "--set", "hosts=[1"], ["not valid JSON"]),
        (["--like", "demo", "--rate", "-1"], ["--rate -1"]),
        (["--like", "none.csv"], ["none.csv", "no such file"]),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    run: Run, tmp_path: Path, options: list[str], words: list[str]
) -> None:
    refused(run("workload", "synth", *options, "--out", tmp_path / "a.csv"), *words)
    assert list(tmp_path.iterdir()) == []


def test_fits_that_cannot_be_are_refused(run: Run, tmp_path: Path) -> None:
    refused(run("workload", "fit", "demo", "--out", tmp_path / "f.txt"), "f.txt", ".json")
    (tmp_path / "f.json").write_text('{"name": "x"}')
    refused(
        run("workload", "synth", "--like", tmp_path / "f.json", "--out", tmp_path / "a.csv"), "fitted trace"
    )


# built-in workloads by name


def test_built_in_workloads_run_on_the_cluster_they_are_meant_for(run: Run) -> None:
    printed = json.loads(ok(run("simulate", "bursty-8gpu", "--estimates", "none", "--json")))
    assert (printed["jobs"], printed["cluster"]) == (400, "1x8")
    other = json.loads(
        ok(run("simulate", "bursty-8gpu", "--estimates", "none", "--cluster", "2x8", "--json"))
    )
    assert other["cluster"] == "2x8"
    assert json.loads(ok(run("workload", "describe", "surges", "--json")))["cluster"] == "8x8"
    assert json.loads(ok(run("workload", "audit", "all-at-once", "--json")))["cluster"] is not None


def test_names_of_neither_files_nor_workloads_are_answered_with_close_ones(run: Run) -> None:
    refused(run("simulate", "diurnl"), "did you mean 'diurnal'")
    refused(run("workload", "describe", "heavytail"), "no such file", "did you mean 'heavy-tail'")
    refused(run("workload", "audit", "zzz"), *preset_workloads())


def test_metrics_take_a_price_of_energy() -> None:
    result = simulate(preset_workload("bursty-8gpu").workload, "1x8:a100", "fifo")
    assert result.metrics()["energy_cost"] is None
    priced = result.metrics(price_per_kwh=0.25)
    assert priced["energy_kwh"]
    assert priced["energy_cost"] == pytest.approx(0.25 * priced["energy_kwh"])


# survey


def test_a_survey_reads_what_lies_in_a_folder(run: Run, folder: Path) -> None:
    files = json.loads(ok(run("workload", "survey", folder, "--json")))["files"]
    found: dict[str, Any] = {entry["file"]: entry for entry in files}
    assert ".hidden.csv" not in found
    jobs = found["jobs.csv"]
    assert (jobs["format"], jobs["lenient"], jobs["companions"]) == ("native", False, [])
    figures = jobs["figures"]
    assert (figures["rows_read"], figures["jobs"], figures["span_s"]) == (2, 2, 86400)
    assert figures["gpus"] == {"p50": 2.5, "p90": 3.7, "max": 4}
    assert figures["gpu_hours"] == pytest.approx(130 / 3600)
    pods = found["alibaba/pods.csv"]
    assert (pods["figures"]["jobs"], pods["figures"]["rejected"], pods["companions"]) == (1, 1, [])
    assert found["gavel/a.trace"]["companions"] == ["throughputs.json"]
    assert found["gavel/a.trace"]["figures"]["duration_s"]["p50"] == 100


def test_a_survey_says_why_a_file_has_no_figures(folder: Path) -> None:
    reasons = {entry.file: (entry.format, entry.reason) for entry in survey([folder])}
    assert reasons["alibaba/nodes.csv"] == (None, "nodes of format openb, no jobs")
    assert reasons["empty.csv"] == (None, "empty")
    assert reasons["notes.txt"] == (None, "no known format: starts with 'bought in 2020'")
    assert reasons["bad/picture.bin"] == (None, "no known format: binary")
    format, reason = reasons["bad/broken.csv"]
    assert format == "native"
    assert reason is not None
    assert reason.startswith("line 2, column duration_s")


def test_a_survey_says_what_it_read_leniently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = SwfFormat.read

    def in_doubt(files: Any, log: Any, options: Any) -> Any:
        log.ambiguous("the unit", "it is seconds", "say which")
        return read(files, log, options)

    monkeypatch.setattr(SwfFormat, "read", staticmethod(in_doubt))
    (tmp_path / "a.swf").write_text("1 0 0 100 2 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1\n")
    (entry,) = survey([tmp_path])
    assert entry.lenient
    assert entry.figures is not None


def test_a_reader_that_fails_costs_one_row_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(SwfFormat, "read", staticmethod(fail))
    (folder / "a.swf").write_text("1 0 0 100 2 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1\n")
    found = {entry.file: entry for entry in survey([folder])}
    assert found["a.swf"].reason == "the reader failed: ZeroDivisionError: oh"
    assert found["jobs.csv"].figures is not None


def test_a_survey_is_a_table_for_people_and_for_documents(run: Run, folder: Path) -> None:
    printed = ok(run("workload", "survey", folder))
    assert "jobs.csv" in printed
    assert "not a workload" in printed
    below = printed.split("\nrefused\n")[1]
    assert below.startswith("bad/broken.csv (native): line 2, column duration_s")
    assert "bad/broken.csv" not in printed.split("\nrefused\n")[0]
    marked = ok(run("workload", "survey", folder, "--markdown")).splitlines()
    assert "| jobs.csv | native | 2 | 2 | 0 | 1.0 | 2.5/3.7/4 | 20/28/30 | 0 |  |" in marked
    assert any(line.startswith("| bad/broken.csv | native | -") and r"x\|y" in line for line in marked)
    assert "* alibaba/nodes.csv: nodes of format openb, no jobs" in marked
    two = ok(run("workload", "survey", folder / "jobs.csv", folder / "gavel", "--markdown"))
    assert f"| {folder / 'jobs.csv'} | native" in two


def test_surveys_that_cannot_be_are_refused(run: Run, tmp_path: Path) -> None:
    refused(run("workload", "survey", tmp_path / "none"), "none", "no such file or folder")
    refused(run("workload", "survey", tmp_path), "no files")
    refused(run("workload", "survey", tmp_path, "--json", "--markdown"), "contradict")


# files of a trace without its jobs


def test_a_file_without_jobs_is_named_with_what_is_missing(folder: Path) -> None:
    nodes, pods = folder / "alibaba" / "nodes.csv", folder / "alibaba" / "pods.csv"
    with pytest.raises(InputError, match=r"nodes of format openb, but no jobs.*pod list"):
        import_trace([nodes])
    with pytest.raises(InputError, match="nodes of format openb, but no jobs"):
        import_trace([nodes], "openb")
    with pytest.raises(InputError, match=r"notes\.txt: is of no known format\. Its first line is 'bought"):
        import_trace([pods, folder / "notes.txt"])


def test_a_task_table_alone_asks_for_the_job_table(tmp_path: Path) -> None:
    table = tmp_path / "pai_task_table.csv"
    columns = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
    table.write_text(columns + "\n")
    with pytest.raises(InputError, match=r"tasks of format pai, but no jobs.*pai_job_table"):
        import_trace([table])
