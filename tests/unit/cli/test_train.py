"""``gpuyard train`` on the command line: what is refused, what is printed, what lies there afterwards."""

import fcntl
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard import cli
from gpuyard.learn import run as training
from gpuyard.learn.process.launch import TrainingFailedError
from gpuyard.runs.directory import CONFIG, PROGRESS
from support.paths import model_path
from support.training_runs import TrainedHere

Run = Callable[..., tuple[int, str, str]]

TINY = [
    "--environment.jobs_per_episode",
    "16",
    "--environment.window",
    "8",
    "--environment.envs",
    "4",
    "--workload",
    "demo",
    "--network.width",
    "8",
    "--ppo.rollout_steps",
    "16",
    "--ppo.minibatch",
    "32",
    "--validation.windows",
    "2",
    "--processes",
    "1",
]
ONE = TINY[-2:]
"""A run of one process, which is trained in that of the test."""


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "TrainingProcesses", TrainedHere)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main(["train", *(str(argument) for argument in arguments)])
        return code, *capfd.readouterr()

    return call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["which algorithm", "ppo"]),
        (["pppo"], ["unknown algorithm", "did you mean 'ppo'"]),
        (["ppo", "--preset", "burst"], ["did you mean 'bursty'"]),
        (["ppo", "--ppo.clipp", "0.1"], ["ppo.clipp", "did you mean 'clip'"]),
        (["ppo", "--ppo.clip", "-1"], ["ppo.clip -1"]),
        (["ppo", "--ppo.clip"], ["needs a value"]),
        (["ppo", "clip"], ["--TABLE.KEY VALUE"]),
        (["ppo", "--environment.windw", "3"], ["environment.windw", "did you mean 'window'"]),
        (["ppo", "--workload", "missing.csv", "--cluster", "4x4"], ["missing.csv"]),
        (["ppo", "--config", "missing.toml"], ["missing.toml", "cannot be read"]),
        (["ppo", "--init-from", "runs/none"], ["runs/none", "no such run"]),
        (
            ["ppo", "--network.residual", "rule", *ONE],
            [
                "needs one: --init-from and a run of train search",
                "such as --rule.score.area -1.0 (the smallest area first)",
            ],
        ),
        (
            ["ppo", "--environment.envs", "7", "--processes", "2"],
            ["give --environment.envs 6 or 8, or --processes 1 or 7"],
        ),
        (["ppo", "--network.kind", "host-attention", *ONE], ["host-attention is not for select-job"]),
        (["ppo", "--device", "cuda", *ONE], ["cuda", "use cpu"]),
        (["ppo", "--resume", "runs/x"], ["--resume resumes a run as it was set up"]),
        (["--resume", "nowhere"], ["looked for nowhere and runs/nowhere", "no runs in"]),
        (["--resume", "runs/x", "--check"], ["only --minutes"]),
        (["--resume", "runs/x", "--dry-run"], ["only --minutes"]),
        (["ppo", "--workload", "nowhere.csv", "--cluster", "2x8", "--dry-run"], ["nowhere.csv"]),
        (["ppo", "--environment.split", "train"], ["split is not for training"]),
        (["ppo", "--ppo.clip", "1", "--ppo.clip.x", "2"], ["no table"]),
        (["search"], ["which jobs", "--workload"]),
        (
            ["search", "--workload", "demo", "--search.populaton", "8"],
            ["populaton", "did you mean 'population'"],
        ),
        (["search", "--workload", "demo", "--preset", "demo"], ["preset demo is not for search"]),
        (["search", "--workload", "demo", "--ppo.clip", "1"], ["table ppo in a run of search"]),
        (["search", "--workload", "demo", "--network.width", "8"], ["network has no meaning for search"]),
        (
            ["search", "--workload", "demo", "--environment.window", "8"],
            ["environment.window has no meaning for search"],
        ),
        (["search", "--workload", "demo", "--init-from", "runs/none"], ["runs/none"]),
        (["search", "--workload", "demo", "--steps", "9"], ["training.steps has no meaning for search"]),
        (["evolve", "--workload", "demo", "--rule.score.gpus", "1", "--check"], ["by gradients"]),
    ],
)
def test_wrong_usage_is_refused_with_what_to_do(run: Run, arguments: list[str], words: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (cli.BAD_INPUT, "")
    for word in words:
        assert word in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_jobs_that_did_not_come_with_a_model_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "evolve", "--init-from", model_path("philly-order")]) == 2
    assert "trained on jobs that do not come with it; say which with --workload" in capsys.readouterr().err


def test_run_leaves_its_directory_and_says_how_to_use_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    code, out, err = run("ppo", *TINY, "--preset", "bursty", "--steps", 256, "--minutes", 3)
    assert code == 0
    assert "Training is done" in out
    assert "gpuyard simulate JOBS --cluster CLUSTER --policy runs/ppo-1" in out, (
        "commands are never broken into lines"
    )
    said = err.splitlines()
    assert said[0].startswith("ppo on windows of demo in the environment bursty-8gpu")
    assert said[1].startswith("preset bursty with workload demo instead of its jobs")
    assert "training.minutes 3.0 instead of 4.5" in said[1]
    assert said[-1].startswith("finished after")
    names = {path.name for path in (tmp_path / "runs" / "ppo-1").iterdir()}
    assert {"config.toml", "progress.jsonl", "checkpoint.safetensors", "best.safetensors"} <= names
    code, out, err = run("ppo", *TINY, "--out", "runs/ppo-1")
    assert code == cli.BAD_INPUT
    assert "not empty; choose another --out, or resume its run by --resume runs/ppo-1" in err


def test_trained_policy_is_compared_like_any_other(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run("ppo", *TINY, "--steps", 128, "--json")
    capfd.readouterr()
    assert cli.main(["simulate", "demo", "--policy", "runs/ppo-1", "--policy", "sjf+easy", "--json"]) == 0
    printed: dict[str, Any] = json.loads(capfd.readouterr().out)
    named = ["fifo+easy/consolidate", "runs/ppo-1", "sjf+easy/consolidate"]
    assert [entry["policy"] for entry in printed["results"]] == named
    assert printed["results"][1]["metrics"]["completed_jobs"] == 2000


def test_failure_of_a_process_is_not_called_bad_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise TrainingFailedError("runs/ppo-1: training failed in process 1: no floor; see process-1.log")

    monkeypatch.setattr(training, "start_run", fail)
    code, out, err = run("ppo", *TINY)
    assert (code, out) == (cli.FAILED, "")
    assert err.startswith("error: runs/ppo-1: training failed in process 1")


def test_finished_run_is_not_resumed_without_more_time(run: Run) -> None:
    run("ppo", *TINY, "--steps", 128)
    code, _, err = run("--resume", "ppo-1")
    assert code == cli.BAD_INPUT
    assert "is finished" in err
    assert "with --init-from runs/ppo-1, or give it more time with --minutes if" in err
    lines = Path("runs/ppo-1/progress.jsonl").read_text()
    code, out, _ = run("--resume", "runs/ppo-1", "--minutes", 5)
    assert code == 0
    assert "Training is done" in out
    added = [
        json.loads(line)["event"]
        for line in Path("runs/ppo-1/progress.jsonl").read_text()[len(lines) :].splitlines()
    ]
    assert "validation" not in added


def test_refused_runs_leave_nothing_behind(run: Run) -> None:
    for arguments in (
        ["clone", "--clone.policy", "sjf+esy"],
        ["ppo", "--validation.heuristics", '["sjf+esy"]'],
    ):
        code, _, err = run(*arguments, *ONE, "--workload", "demo", "--out", "one")
        assert code == cli.BAD_INPUT
        assert "sjf+easy" in err
        assert not Path("one").exists()
    code, _, err = run("search", "--workload", "demo", "--out", "two", "--search.jobs_per_window", 1024)
    assert code == cli.BAD_INPUT
    assert "--search.jobs_per_window 256" in err
    assert not Path("two").exists()


def test_search_leaves_a_rule_that_acts_and_that_networks_start_from(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    small = [
        "--search.train_windows",
        "4",
        "--search.validation_windows",
        "2",
    ]
    small += ["--search.generations", "2", "--search.population", "4", "--search.windows_per_generation", "2"]
    small += [
        "--search.exponents",
        "[1.0]",
        "--search.express_t0_s",
        "[600.0]",
        "--search.express_k",
        "[0.1]",
    ]
    code, out, err = run("search", "--workload", "demo", *small)
    assert code == 0
    assert "; --search.jobs_per_window sets another size" in err
    assert "gpuyard train ppo --init-from runs/search-1" in out
    assert cli.main(["simulate", "demo", "--policy", "runs/search-1", "--json"]) == 0
    capfd.readouterr()
    tiny = [*TINY[:2], *TINY[4:6], *TINY[8:]]  # the workload and the window are those of the search
    code, out, err = run("ppo", "--init-from", "runs/search-1", *tiny, "--steps", 128)
    assert code == 0, err
    assert "Training is done" in out


@pytest.mark.parametrize("algorithm", ["ppo", "d3qn"])
def test_a_dry_run_shows_what_would_be_trained_and_writes_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    from gpuyard.learn import outline

    monkeypatch.setattr(outline.outline_run, "__defaults__", (0.1,))
    own = TINY if algorithm == "ppo" else [one for one in TINY if not one.startswith("--ppo")]
    own = own if algorithm == "ppo" else [*own[:10], *own[12:]]
    asked = [algorithm, *own, "--steps", "4000", "--dry-run"]
    code, out, err = run(*asked)
    assert code == 0, err
    assert f"Nothing is trained (--dry-run). {algorithm} would write to runs/{algorithm}-1." in out
    assert "4,000 samples from 4 environments in 1 process." in out
    assert "samples per second: about" in out
    settings = tomllib.loads(out[out.index("algorithm = ") :])
    assert (settings["training"]["steps"], settings["environment"]["window"]) == (4000, 8)
    printed = json.loads(run(*asked, "--json")[1])
    assert printed["settings"] == settings
    assert printed["parameters"] > 0
    assert printed["seconds"] == pytest.approx(4000 / printed["samples_per_s"])
    limited = json.loads(run(*asked, "--minutes", "0.0001", "--json")[1])
    assert limited["seconds"] == pytest.approx(0.006)
    assert not Path("runs").exists()


def test_a_dry_run_of_a_search_says_what_is_not_known(run: Run) -> None:
    code, out, err = run("search", "--workload", "demo", "--minutes", 2, "--dry-run")
    assert code == 0, err
    assert "How long it takes is not known beforehand. It ends after 2 min at the latest." in out
    assert not Path("runs").exists()


def test_a_run_that_was_just_killed_is_resumed_a_little_later(run: Run) -> None:
    directory = Path("runs/killed")
    directory.mkdir(parents=True)
    (directory / CONFIG).write_text('algorithm = "ppo"\n')
    with (directory / PROGRESS).open("w") as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # as the processes of a run do until they have ended
        code, out, err = run("--resume", directory)
    assert (code, out) == (cli.BAD_INPUT, "")
    assert "runs/killed: is being trained at this moment; watch it with gpuyard runs watch" in err
    assert "If you have just killed it, its processes are still ending: try again in a minute" in err


def test_check_reports_on_one_window(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuyard.learn.process import check

    monkeypatch.setattr(check.check_training, "__defaults__", (1.0,))
    code, out, err = run("ppo", *TINY, "--check", "--json")
    assert "takes about 40 s" in err
    printed = json.loads(out)
    assert printed["verdict"] in ("learns", "did not move", "broken")
    assert code == (0 if printed["verdict"] == "learns" else 1)
    assert (printed["illegal_probability"], printed["illegal_gradient"]) == (0, 0)
    assert printed["episodes"] > 0
    assert all(entry["gradient_norm"] is not None for entry in printed["gradients"])
    assert not Path("runs").exists()
