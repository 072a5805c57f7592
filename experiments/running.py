"""Running experiments: step by step, going on where the last attempt stopped."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.recipe import Command, Recipe, Step, commands_of, read_recipe
from gpuyard.errors import InputError
from gpuyard.files import atomic_write, parse_json
from gpuyard.network.model_file import HERE
from gpuyard.runs.directory import CHECKPOINT, open_run

DONE = "done"
"""Folder with a file for every command that has finished."""
BEGUN = "begun"
"""Folder with a file for every command that was begun."""
LOGS = "logs"
LOCK = ".lock"
GPUYARD = ("-c", "import sys; from gpuyard.cli import main; sys.exit(main())")
Tell = Callable[[str], None]
State = Literal["done", "changed", "missing"]


@dataclass(frozen=True)
class Experiment:
    """A recipe and its folder of results.

    Attributes:
        name: Of the file, without its ending.
        recipe: What to do.
        here: Where everything goes.
    """

    name: str
    recipe: Recipe
    here: Path

    @classmethod
    def of(cls, file: Path, results: Path) -> "Experiment":
        """The experiment of a file, with its folder below ``results``."""
        return cls(file.stem, read_recipe(file), results / file.stem)

    def form(self, command: Command) -> dict[str, Any]:
        """What a command's results depend on: its arguments and those of all commands behind it."""
        behind = {other.key: list(other.arguments) for other in self.recipe.behind(command)}
        return {"arguments": list(command.arguments), "behind": behind}

    def record(self, command: Command) -> dict[str, Any] | None:
        """What is known of a command that has finished in this very form; None: it has not."""
        record = _read(self.here / DONE / f"{command.key}.json")
        return record if record is not None and _matches(record, self.form(command)) else None

    def state(self, command: Command) -> State:
        """Whether a command has finished, and if so, whether the recipe still says the same of it."""
        if not (self.here / DONE / f"{command.key}.json").is_file():
            return "missing"
        return "changed" if self.record(command) is None else "done"

    def check_done(self, name: str) -> None:
        """Refuse to go on unless a folder of results is there and is what the recipe says.

        Raises:
            InputError: saying which command is to be run, or run again.
        """
        command = self.recipe.writer(name)
        for one in (*self.recipe.behind(command), command):
            if (state := self.state(one)) == "missing":
                raise InputError(f"{self.here / name}: {one.key} has not been run; run {self.name} first")
            if state == "changed":
                raise InputError(
                    f"{self.here / name}: {one.key} was run with other arguments than the recipe has now; "
                    f"run {self.name} again"
                )

    def minutes(self, step: str | None = None) -> float:
        """What the commands of a step, or all, have taken."""
        steps = [one for one in self.recipe.step if step in (None, one.name)]
        records = [self.record(command) for one in steps for command in commands_of(one)]
        return sum(float(record["seconds"]) for record in records if record) / 60

    @property
    def has_results(self) -> bool:
        """Whether any command has finished, with these arguments or others."""
        return any(self.state(command) != "missing" for command in self.recipe.commands())

    @property
    def is_complete(self) -> bool:
        """Whether every command has finished."""
        return all(self.record(command) is not None for command in self.recipe.commands())


def _read(path: Path) -> dict[str, Any] | None:
    """A record; None if there is none."""
    try:
        record = parse_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise InputError(f"{path}: cannot be read; remove it to run the command again") from None
    if not isinstance(record, dict) or "arguments" not in record:
        raise InputError(f"{path}: is no record of a command; remove it to run the command again")
    return record


def _matches(record: dict[str, Any], form: dict[str, Any]) -> bool:
    # Records that do not say what was behind them are taken at their word.
    behind = record.get("behind", form["behind"])
    return bool(record["arguments"] == form["arguments"] and behind == form["behind"])


def run_experiment(experiment: Experiment, traces: Path | None, tell: Tell, until: str | None = None) -> None:
    """Run what has not been run yet.

    A command whose arguments have changed runs again, and so does everything that uses its results.

    Args:
        experiment: What to do.
        traces: Folder of traces.
        tell: Told what is going on.
        until: Name of the last step to run; None: all.

    Raises:
        InputError: if a command fails; what it said is in the log named there.
    """
    check_step(experiment, until)
    with _alone(experiment):
        _run_steps(experiment, traces, tell, until)


def check_step(experiment: Experiment, name: str | None) -> None:
    """Refuse the name of a step that an experiment does not have.

    Raises:
        InputError: with those that it has.
    """
    names = [step.name for step in experiment.recipe.step]
    if name is not None and name not in names:
        raise InputError(f"{experiment.name} has no step {name}; it has {', '.join(names)}")


@contextmanager
def _alone(experiment: Experiment) -> Iterator[None]:
    """Keep others from running the same experiment: they would remove what seems half done."""
    experiment.here.mkdir(parents=True, exist_ok=True)
    with (experiment.here / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"{experiment.here}: {experiment.name} is being run by another process; wait, or stop it"
            ) from None
        yield


def _run_steps(experiment: Experiment, traces: Path | None, tell: Tell, until: str | None) -> None:
    for step in experiment.recipe.step:
        commands = commands_of(step)
        due = [command for command in commands if experiment.record(command) is None]
        if due:
            tell(f"{experiment.name}: {step.name} ({len(due)} of {len(commands)} to run)")
            _run_step(experiment, step, due, traces, tell)
        if step.name == until:
            return


def _run_step(
    experiment: Experiment, step: Step, due: Sequence[Command], traces: Path | None, tell: Tell
) -> None:
    began, done = time.monotonic(), 0
    with ThreadPoolExecutor(min(step.at_once, len(due))) as pool:
        for command in pool.map(lambda command: _run_command(experiment, command, traces), due):
            done += 1
            left_s = (time.monotonic() - began) / done * (len(due) - done)
            tell(f"  {command.key} is done" + (f", about {left_s / 60:.0f} min left" if left_s else ""))


def _run_command(experiment: Experiment, command: Command, traces: Path | None) -> Command:
    for folder in (LOGS, DONE, BEGUN):
        (experiment.here / folder).mkdir(parents=True, exist_ok=True)
    form = experiment.form(command)
    earlier_s = _time_of_earlier_attempts(experiment, command, form)
    written = [one.out for one in experiment.recipe.commands() if one.out is not None]
    placed = command.placed(experiment.here, traces, written)
    arguments = _or_resume(experiment, command, placed, form)
    _write(experiment.here / BEGUN / f"{command.key}.json", form)
    began = time.monotonic()
    if arguments is not None:
        log = experiment.here / LOGS / f"{command.key}.log"
        if (said := run_gpuyard(arguments, log)) is not None:
            raise InputError(f"{experiment.name}, {command.key}: failed ({said}); all of it is in {log}")
    seconds = earlier_s + time.monotonic() - began
    _write(experiment.here / DONE / f"{command.key}.json", {**form, "seconds": seconds})
    return command


def run_gpuyard(arguments: Sequence[str], log: Path) -> str | None:
    """Run a command of gpuyard in a process of its own.

    Returns:
        The last thing that it said if it failed, else None.
    """
    with log.open("wb") as output:
        code = subprocess.run(
            [sys.executable, *GPUYARD, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"NO_COLOR": "1", "COLUMNS": "140"},
        ).returncode
    if not code:
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {code}, and nothing was said"


def _write(path: Path, record: dict[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")


def _out_of(experiment: Experiment, command: Command) -> Path | None:
    """What a command writes, if it lies in the experiment's own folder."""
    if command.out is None:
        return None
    out = Path(command.out.replace(HERE, str(experiment.here)))
    return out if experiment.here.resolve() in out.resolve().parents else None


def _same_was_begun(experiment: Experiment, command: Command, form: dict[str, Any]) -> bool:
    """Whether what an earlier attempt left belongs to a command of this very form."""
    begun = _read(experiment.here / BEGUN / f"{command.key}.json")
    return _matches(begun, form) if begun is not None else experiment.state(command) == "missing"


def _time_of_earlier_attempts(experiment: Experiment, command: Command, form: dict[str, Any]) -> float:
    """What training took that is gone on with now."""
    out = _out_of(experiment, command)
    if command.verb != "train" or out is None or not (out / CHECKPOINT).is_file():
        return 0.0
    if not _same_was_begun(experiment, command, form):
        return 0.0
    return max((float(one.get("elapsed_s") or 0.0) for one in open_run(out).progress.records), default=0.0)


def _or_resume(
    experiment: Experiment, command: Command, arguments: list[str], form: dict[str, Any]
) -> list[str] | None:
    """The command, or to go on with the training that an earlier attempt at it began; None: that had ended.

    What else an earlier attempt left half done is removed.
    """
    out = _out_of(experiment, command)
    if out is None or not out.is_dir():
        return arguments
    if (
        command.verb == "train"
        and (out / CHECKPOINT).is_file()
        and _same_was_begun(experiment, command, form)
    ):
        return None if open_run(out).state in ("finished", "early") else ["train", "--resume", str(out)]
    shutil.rmtree(out)
    return arguments
