"""What people try first: -V, help, --quiet, --help-all, completion, examples, and errors for programs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpuyard
from gpuyard import cli
from gpuyard.registry import suggest
from gpuyard.terminal import console
from support.command_line import Run, document

RARE = ("--node-mtbf", "--user-shares", "--sleep-after", "--reschedule")


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_has_a_short_flag(run: Run, flag: str) -> None:
    assert run(flag) == (0, f"{gpuyard.__version__}\n", "")


def test_help_is_a_word_too(run: Run) -> None:
    assert run("help", "explain") == run("explain", "--help")
    assert run("help") == run("--help")


@pytest.mark.parametrize("verb", cli.MANY_SETTINGS)
def test_settings_that_few_need_are_shown_on_request(run: Run, verb: str) -> None:
    _, short, _ = run(verb, "--help")
    assert not [name for name in RARE if name in short]
    assert "--help-all also shows" in short
    _, long, _ = run(verb, "--help-all")
    assert [name for name in RARE if name in long] == list(RARE)
    code, _, _ = run("simulate", "demo", "--node-mtbf", "1e9", "--checkpoint-every", "60")
    assert code == 0, "they work all the same"


def test_quiet_leaves_out_notes_and_not_results(run: Run, tmp_path: Path) -> None:
    arguments = ["simulate", "demo", "--out", tmp_path / "out"]
    run(*arguments)
    code, loud, err = run(*arguments)
    assert (code, "the results that are there are replaced" in err) == (0, True)
    for flag in ("-q", "--quiet"):
        code, out, err = run(*arguments, flag)
        assert (code, err) == (0, "")
        assert out.splitlines()[0] == loud.splitlines()[0]
    code, _, err = run("simulate", "nowhere.csv", "--cluster", "2x8", "-q")
    assert (code, err.startswith("error: ")) == (2, True)


@pytest.mark.parametrize("flag", ["-v", "--verbose"])
def test_verbose_says_at_the_end_what_a_command_took(run: Run, flag: str) -> None:
    _, out, err = run("policies")
    assert err == ""
    code, loud, err = run("policies", flag)
    assert (code, loud) == (0, out)
    took = rf"gpuyard {gpuyard.__version__} took [\d.]+ s, [\d.]+ s of processor time and at most \d+ MiB"
    assert re.match(took, err)


def test_verbose_shows_progress_more_often(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(console.time, "monotonic", lambda: float(next(clock)))
    lines = []
    for verbose in (False, True):
        console.set_verbose(verbose)
        with console.show_progress(100, 1) as progress:
            update = progress.start_run("fifo")
            for finished in range(1, 11):
                update(finished)
        lines.append(len(capsys.readouterr().err.splitlines()))
    console.set_verbose(False)
    assert 0 < lines[0] < lines[1]


def test_a_file_that_is_replaced_is_named(run: Run, tmp_path: Path) -> None:
    arguments = ["workload", "convert", "demo", "--out", tmp_path / "jobs.parquet"]
    assert "replaced" not in run(*arguments)[2]
    assert "jobs.parquet: the file that is there is replaced" in run(*arguments)[2]


def test_errors_are_json_for_programs(run: Run) -> None:
    code, out, err = run("simulate", "demo", "--policy", "sfj", "--json")
    found = document(out)
    assert (code, found["exit_code"]) == (2, 2)
    assert "did you mean 'sjf'?" in found["error"]
    assert err == f"error: {found['error']}\n"


def test_letters_in_another_order_are_closest() -> None:
    names = dict.fromkeys(["ssf", "sjf", "srtf"])
    assert suggest("sfj", names) == "; did you mean 'sjf'?"
    assert "'srtf'" in suggest("srft", names)
    assert suggest("xxxxxx", names) == "; known: ssf, sjf, srtf"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(run: Run, shell: str) -> None:
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    assert "evaluate" in out
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=out, text=True, check=False).returncode == 0


def test_every_verb_has_an_example() -> None:
    apps = [(name, cli.app[name]) for name in cli.VERBS]
    leaves = []
    while apps:
        name, verb = apps.pop()
        below = [word for word in verb if not word.startswith("-")]
        apps += [(f"{name} {word}", verb[word]) for word in below]
        if verb.default_command is not None:
            leaves.append((name, verb.default_command.__doc__ or ""))
    assert len(leaves) > 25
    assert [name for name, text in leaves if "Example: gpuyard " not in text] == []


def test_help_of_an_algorithm_has_its_settings(run: Run) -> None:
    _, out, _ = run("train", "search", "--help")
    assert "Settings of search (docs/algorithms/search.md):" in out
    assert "--search.generations [default: 40]" in out
    assert "Settings of" not in run("train", "--help")[1]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("import", "did you mean gpuyard workload import or gpuyard cluster import?"),
        ("audit", "did you mean gpuyard workload audit?"),
        ("simulat", "simulate"),
    ],
)
def test_a_command_that_stands_below_another_is_found(run: Run, word: str, told: str) -> None:
    code, out, err = run(word, "sacct.txt")
    assert (code, out) == (2, "")
    assert told in err


@pytest.mark.parametrize("verb", ["simulate", "explain", "calibrate"])
def test_beginning_with_what_was_recorded_is_offered_by_evaluate_alone(run: Run, verb: str) -> None:
    assert "--start " in run("evaluate", "--help-all")[1]
    assert "--start " not in run(verb, "--help-all")[1]
    code, _, err = run(verb, "demo", "--start", "recorded")
    assert (code, "--start" in err) == (2, True)


def test_all_benchmarks_load_beside_one_another() -> None:
    code = "import sys; from gpuyard.cli import main; sys.exit(main(['bench', 'nonsense']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr[:36]) == (2, "error: unknown benchmark 'nonsense';"), done.stderr
    assert {"simulate", "serve", "dashboard"} <= set(re.findall(r"[\w-]+", done.stderr))
