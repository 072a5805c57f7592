"""Experiments: recipes, what is run again and what is not."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from experiments import running
from experiments.recipe import Command, read_recipe
from experiments.running import Experiment, run_experiment
from gpuyard.cli import main
from gpuyard.errors import InputError
from support.paths import ROOT

RECIPE = """
title = "Two seeds and a test"
letter = "a"
about = "Nothing is really run."

[[step]]
name = "jobs"
run = ["workload", "synth", "--jobs", "100", "--out", "{here}/jobs.parquet"]

[[step]]
name = "other"
run = ["workload", "synth", "--jobs", "50", "--out", "{here}/other.parquet"]

[[step]]
name = "ppo"
run = ["train", "ppo", "--workload", "{here}/jobs.parquet", "--seed", "{seed}", "--out", "{here}/ppo-{seed}"]
each = { seed = [0, 1] }

[[step]]
name = "test"
run = ["evaluate", "{here}/ppo-*", "--on", "{here}/jobs.parquet", "--out", "{here}/test"]

[[table]]
evaluation = "test"
title = "The test"
"""


class Commands:
    """Stands in for gpuyard: notes what is run, and makes what is asked for."""

    def __init__(self, here: Path) -> None:
        self.run: list[list[str]] = []
        self.fails: Callable[[Sequence[str]], bool] = lambda arguments: False
        self._here = here

    def __call__(self, arguments: Sequence[str], log: Path) -> str | None:
        self.run.append([text.replace(str(self._here), "HERE") for text in arguments])
        log.write_text("what was said\n")
        if self.fails(arguments):
            return "what was said"
        if "--out" in arguments:
            out = Path(arguments[list(arguments).index("--out") + 1])
            if out.suffix:
                out.write_text("jobs")
            else:
                out.mkdir()  # fails unless what an earlier attempt left is gone
        return None

    def names(self) -> list[str]:
        """What was run, by what was written, in any order; all is forgotten then."""
        found = sorted(arguments[-1].removeprefix("HERE/") for arguments in self.run)
        self.run.clear()
        return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    commands = Commands(tmp_path / "results" / "two")
    monkeypatch.setattr(running, "run_gpuyard", commands)
    return commands


def run(file: Path, until: str | None = None) -> Experiment:
    experiment = Experiment.of(file, file.parent / "results")
    run_experiment(experiment, None, lambda line: None, until)
    return experiment


def replaced(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_everything_is_run_once(file: Path, commands: Commands) -> None:
    experiment = run(file)
    assert experiment.is_complete
    assert commands.run[-1][:3] == ["evaluate", "HERE/ppo-0", "HERE/ppo-1"]
    assert commands.names() == ["jobs.parquet", "other.parquet", "ppo-0", "ppo-1", "test"]
    assert run(file).is_complete
    assert commands.names() == []


def test_a_failed_command_says_where_its_log_is_and_is_the_first_to_run_again(
    file: Path, commands: Commands
) -> None:
    commands.fails = lambda arguments: arguments[-1].endswith("ppo-1")
    with pytest.raises(
        InputError, match=r"two, ppo-1: failed \(what was said\); all of it is in .*ppo-1\.log"
    ):
        run(file)
    commands.names()
    commands.fails = lambda arguments: False
    assert run(file).is_complete
    assert commands.names() == ["ppo-1", "test"]


def test_steps_up_to_the_named_one_are_run(file: Path, commands: Commands) -> None:
    assert not run(file, until="ppo").is_complete
    assert commands.names() == ["jobs.parquet", "other.parquet", "ppo-0", "ppo-1"]
    with pytest.raises(InputError, match="has no step nonsense; it has jobs, other, ppo, test"):
        run(file, until="nonsense")


def test_an_unknown_step_is_refused_before_anything_is_run(
    file: Path, commands: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = file.with_name("other.toml")
    other.write_text(file.read_text().replace('name = "ppo"', 'name = "nets"'))
    arguments = ["run", str(file), str(other), "--results", str(tmp_path / "results"), "--until", "ppo"]
    assert main(["experiments", *arguments]) == 2
    assert "other has no step ppo" in capsys.readouterr().err
    assert commands.names() == []


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        ('"--jobs", "100"', '"--jobs", "101"', ["jobs.parquet", "ppo-0", "ppo-1", "test"]),
        ('"--jobs", "50"', '"--jobs", "51"', ["other.parquet"]),
        ('"evaluate",', '"evaluate", "fifo",', ["test"]),
        ("[0, 1]", "[0, 1, 2]", ["ppo-2", "test"]),
        ("[0, 1]", "[1]", ["test"]),
        ('title = "The test"', 'title = "Another"', []),
    ],
)
def test_what_a_change_concerns_is_run_again_and_nothing_else(
    file: Path, commands: Commands, old: str, new: str, again: list[str]
) -> None:
    run(file)
    commands.names()
    replaced(file, old, new)
    assert run(file).is_complete
    assert commands.names() == again


def test_a_seed_that_is_no_longer_asked_for_is_not_tested(file: Path, commands: Commands) -> None:
    run(file)
    replaced(file, "[0, 1]", "[1]")
    run(file)
    assert commands.run[-1][:2] == ["evaluate", "HERE/ppo-1"]
    assert commands.run[-1][2] == "--on"


def interrupted_training(commands: Commands, here: Path) -> None:
    """The second training is killed when it has written a checkpoint."""

    def kill(arguments: Sequence[str]) -> bool:
        if not arguments[-1].endswith("ppo-1"):
            return False
        (here / "ppo-1").mkdir()
        (here / "ppo-1" / "checkpoint.safetensors").write_bytes(b"")
        records = [
            {"event": "start", "time": 0.0, "metric": "return", "higher_is_better": True},
            {"event": "update", "step": 5, "update": 1, "elapsed_s": 90.0, "values": {}},
        ]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (here / "ppo-1" / "progress.jsonl").write_text(lines)
        return True

    commands.fails = kill


def test_training_that_was_interrupted_goes_on(file: Path, commands: Commands) -> None:
    here = file.parent / "results" / "two"
    interrupted_training(commands, here)
    with pytest.raises(InputError):
        run(file)
    commands.names()
    commands.fails = lambda arguments: False
    experiment = run(file)
    assert commands.run[0] == ["train", "--resume", "HERE/ppo-1"]
    assert experiment.is_complete
    assert experiment.minutes("ppo") == pytest.approx(1.5, abs=0.1), "what it took before counts, too"


def test_interrupted_training_of_another_recipe_does_not_go_on(file: Path, commands: Commands) -> None:
    here = file.parent / "results" / "two"
    interrupted_training(commands, here)
    with pytest.raises(InputError):
        run(file)
    commands.names()
    commands.fails = lambda arguments: False
    replaced(file, '"train", "ppo",', '"train", "ppo", "--steps", "9",')
    run(file)
    assert commands.names() == ["ppo-0", "ppo-1", "test"]
    assert not (here / "ppo-1" / "checkpoint.safetensors").exists()


def test_results_of_other_arguments_are_refused(file: Path, commands: Commands) -> None:
    run(file)
    replaced(file, '"--jobs", "100"', '"--jobs", "101"')
    changed = Experiment.of(file, file.parent / "results")
    with pytest.raises(
        InputError, match="jobs was run with other arguments than the recipe has now; run two again"
    ):
        changed.check_done("test")
    (changed.here / "done" / "jobs.json").unlink()
    with pytest.raises(InputError, match="jobs has not been run; run two first"):
        changed.check_done("test")


def test_an_experiment_is_run_by_one_process_at_a_time(file: Path, commands: Commands) -> None:
    def run_it_again(arguments: Sequence[str]) -> bool:
        with pytest.raises(InputError, match="two is being run by another process"):
            run(file)
        return False

    commands.fails = run_it_again
    assert run(file).is_complete
    assert len(commands.names()) == 5


def test_a_command_of_gpuyard_is_run_and_its_words_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    assert (
        running.run_gpuyard(["workload", "synth", "--jobs", "5", "--out", str(out)], tmp_path / "log") is None
    )
    assert out.is_file()
    assert "5 jobs" in (tmp_path / "log").read_text()
    said = running.run_gpuyard(["workload", "synth", "--jobs", "-5", "--out", str(out)], tmp_path / "log")
    assert said is not None
    assert said in (tmp_path / "log").read_text()


def test_a_damaged_record_is_named(file: Path, commands: Commands) -> None:
    experiment = run(file)
    (experiment.here / "done" / "jobs.json").write_text("{")
    with pytest.raises(InputError, match=r"jobs\.json: cannot be read; remove it"):
        run(file)


def test_traces_are_asked_for_when_they_are_needed(file: Path, commands: Commands) -> None:
    replaced(file, '"synth", "--jobs", "100"', '"import", "{traces}/log.swf"')
    with pytest.raises(
        InputError, match=r"\{traces\}/log\.swf is needed; say where traces are with --traces"
    ):
        run(file)


TOGETHER = """[[together]]
tables = [{}]
learned = [{}]
title = "All"

[[table]]"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('letter = "a"', 'letter = "A1"', "letter: expected text that matches"),
        ('letter = "a"', 'letter = "a"\nleter = "b"', "unknown key leter"),
        ('about = "Nothing is really run."', "", "about: is missing"),
        ('name = "other"', 'name = "jobs"', "two steps are called jobs"),
        ('name = "other"', 'name = "Other"', r"step\[1\]\.name: expected text that matches"),
        ('run = ["train",', 'run = ["rm",', r"step\[2\]: run begins with a verb: .*; not 'rm'"),
        (
            '"{seed}", "--out"',
            '"{sead}", "--out"',
            r"step\[2\]: \{sead\}: nothing is called \{sead\}; known: ",
        ),
        ("[0, 1]", "[]", r"step\[2\]: each\.seed has no values"),
        ("other.parquet", "jobs.parquet", r"jobs and other both write \{here\}/jobs\.parquet"),
        ('evaluation = "test"', 'evaluation = "tset"', r"table: no step writes tset \(--out \{here\}/tset\)"),
        ('name = "other"', 'name = "ppo-1"', "two commands are called ppo-1"),
        ("[[table]]", TOGETHER.format('"test", "more"', '"a", "b"'), "no table has the evaluation more"),
        ("[[table]]", TOGETHER.format('"test", "test"', '"a", "b"'), "together: test is named twice"),
        ("[[table]]", TOGETHER.format('"test"', '"a"'), "expected at least 2 entries"),
        ("letter =", "letter", "is not valid TOML"),
    ],
)
def test_a_malformed_recipe_is_refused_with_the_place(file: Path, old: str, new: str, message: str) -> None:
    replaced(file, old, new)
    with pytest.raises(InputError, match=rf"two\.toml: .*{message}"):
        read_recipe(file)


def test_options_that_no_command_has_are_refused_before_anything_is_run(
    file: Path, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced(file, '"evaluate",', '"evaluate", "--episodess", "3",')
    assert main(["experiments", "run", str(file), "--results", str(file.parent / "results")]) == 2
    assert "two: step test: Unknown option: --episodess. Did you mean --episodes?" in capsys.readouterr().err
    assert not commands.names()


def test_a_recipe_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read \(No such file"):
        read_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "experiments" / "recipes").glob("*.toml")),
    ids=lambda path: path.stem,
)
def test_every_recipe_of_the_project_is_well_formed(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.table, "an experiment shows something"
    for command in recipe.commands():
        assert command.out is not None


def test_the_grids_policy_may_take_another_placement(tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    found = {"grid_policy": "power:2+strict/tier"}
    (tmp_path / "search" / "search.json").write_text(json.dumps(found))
    command = Command("test", ("evaluate", "{grid:search}", "{grid:search/milp}", "--out", "{here}/test"))
    assert command.placed(tmp_path, None)[1:3] == ["power:2+strict/tier", "power:2+strict/milp"]
    assert command.uses(Command("search", ("train", "search", "--out", "{here}/search")))
