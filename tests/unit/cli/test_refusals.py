"""The command line on bad input, failures, interrupts and readers that go away."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard import cli
from gpuyard.cli import doctor
from gpuyard.evaluate import replay as comparison
from support.command_line import GOOD, HEADER, Run, assert_refused, document

BAD_FILES = {
    "a wrong column": (["submit_s,duration_s,gpu", "0,1,1"], ["'gpu'", "gpus"]),
    "a missing column": (["submit_s,duration_s", "0,1"], ["missing column gpus"]),
    "a negative duration on line 7": ([*GOOD[:6], "6,-5,1"], ["line 7", "duration_s", "-5"]),
    "nan": ([HEADER, "0,nan,1"], ["line 2", "duration_s", "nan"]),
    "part of a GPU for a gang": (
        [f"{HEADER},gpu_milli", "0,1,1,500", "0,1,2,500"],
        ["line 3", "gpu_milli", "500", "gpus = 2"],
    ),
    "a job larger than the cluster": ([*GOOD, "9,1,17"], ["row 6", "17 GPUs", "2x8", "--oversize drop"]),
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
    "half a seed": (["simulate", "demo", "--seed", "6.5"], ["--seed 6.5: is not a whole number"]),
    "half a GPU": (
        ["workload", "shape", "demo", "--widen", "0.1", "--widen-to", "6.5", "--out", "x.parquet"],
        ["--widen-to 6.5: is not a whole number"],
    ),
    "windows without number": (["evaluate", "sjf", "--windows", "nan"], ["--windows", "not a whole number"]),
    "an unknown choice": (
        ["simulate", "demo", "--estimates", "exac"],
        ["exac", "did you mean 'exact'?"],
    ),
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
    "a bad mix": (["workload", "synth", "--out", "x.csv", "--gang-mix", "1-2"], ["--gang-mix 1-2"]),
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
    assert (code, document(out)["exit_code"]) == (cli.FAILED, cli.FAILED)
    assert "boom" in document(out)["error"]
    assert err == "error: unexpected RuntimeError: boom (--verbose shows where it happened)\n"
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
