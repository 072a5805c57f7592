"""Training runs: a run is one directory, and its files are all there is to know about it."""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from gpuyard.errors import InputError
from gpuyard.registry import suggest
from gpuyard.runs.files import CHECKPOINT, CONFIG, DIAGNOSIS, FOLDER, MODELS, PROGRESS
from gpuyard.runs.progress import Progress, ProgressWriter, Record, is_being_written, printable, read_progress

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "DIAGNOSIS",
    "FOLDER",
    "MODELS",
    "PROGRESS",
    "Progress",
    "ProgressWriter",
    "Run",
    "Validation",
    "find_directory",
    "find_runs",
    "open_run",
    "read_progress",
    "run_directories",
]

MOST_LISTED = 12
"""Names of runs in a message, at most."""
POLICY = "policy"
"""What a validation calls the policy that is being trained."""

State = Literal["running", "finished", "early", "interrupted", "nan", "stopped-without-word"]
STATE_TEXTS: Mapping[str, str] = {
    "running": "is under way",
    "finished": "finished",
    "early": "stopped early: validation no longer improved",
    "interrupted": "was interrupted",
    "nan": "stopped because a number was not finite (diagnosis.json says which)",
    "stopped-without-word": "stopped without a word: it was killed or the machine went down",
}


@dataclass(frozen=True)
class Validation:
    """One validation on held-out windows.

    Attributes:
        step: Samples seen before it.
        elapsed_s: Time of training before it.
        score: What the best model is chosen by.
        better: Whether it was the best so far.
        metrics: Values by metric, of ``policy`` and of each heuristic.
        metric: What the score is: the metric that it equals or is the negative of; empty if it is neither.
        scores: The score of each heuristic, where that is known.
    """

    step: int
    elapsed_s: float | None
    score: float | None
    better: bool
    metrics: Mapping[str, Mapping[str, float | None]]
    metric: str
    scores: Mapping[str, float]

    @classmethod
    def of(cls, record: Record) -> "Validation":
        """From a line of ``progress.jsonl``."""
        metrics: dict[str, dict[str, float | None]] = {POLICY: {}}
        for key, value in record["values"].items():
            name, _, metric = key.rpartition("/")
            metrics.setdefault(name or POLICY, {})[metric] = value
        score = record.get("score")
        metric, sign = _metric_of_score(score, metrics)
        scores = {
            name: sign * cast(float, values[metric])
            for name, values in metrics.items()
            if name != POLICY and values.get(metric) is not None
        }
        better = bool(record.get("better"))
        return cls(record["step"], record.get("elapsed_s"), score, better, metrics, metric, scores)


def _metric_of_score(score: float | None, metrics: Mapping[str, Mapping[str, Any]]) -> tuple[str, int]:
    """The metric that policies are scored by, and whether its sign is turned."""
    if any("score" in values for name, values in metrics.items() if name != POLICY):
        return "score", 1
    for metric, value in metrics[POLICY].items():
        for sign in (1, -1):
            if value is not None and score is not None and sign * value == score:
                return metric, sign
    return "", 1


@dataclass(frozen=True)
class Run:
    """A training run.

    Attributes:
        directory: Where its files are.
        config: Its resolved settings; empty if it was stopped before they were written.
        progress: What it has written.
        state: What became of it.
    """

    directory: Path
    config: Mapping[str, Any]
    progress: Progress
    state: State

    @property
    def name(self) -> str:
        """What it is called: as its settings say, else its directory's name."""
        return self.progress.said("name") or printable(self.directory.resolve().name)

    @property
    def algorithm(self) -> str:
        """What it trains with; empty if it does not say."""
        return self.progress.said("algorithm") or printable(self.config.get("algorithm"))

    @property
    def last_step(self) -> int:
        """Samples seen so far."""
        return self.progress.last_step

    @property
    def total_steps(self) -> int | None:
        """Samples that it is to see, if it says so."""
        total = self.progress.start.get("total_steps")
        return total if isinstance(total, int) and total > 0 else None

    @property
    def stopped(self) -> bool:
        """Whether it can be resumed to go on."""
        return self.state in ("interrupted", "stopped-without-word") and self.file(CHECKPOINT) is not None

    @property
    def model(self) -> Path | None:
        """Its best model, else its last one."""
        return next((path for name in MODELS if (path := self.file(name)) is not None), None)

    def file(self, name: str) -> Path | None:
        """One of its files, if it is there."""
        path = self.directory / name
        return path if path.is_file() else None

    @cached_property
    def validations(self) -> list[Validation]:
        """In the order in which they were made."""
        return [Validation.of(record) for record in self.progress.of("validation")]

    @property
    def best(self) -> Validation | None:
        """The validation whose model is kept as the best."""
        scored = [one for one in self.validations if one.score is not None]
        return next((one for one in reversed(scored) if one.better), None)

    @cached_property
    def higher_is_better(self) -> bool:
        """Which way its score is better."""
        return higher_is_better(self.validations)

    def best_heuristic(self) -> tuple[str, float] | None:
        """The best heuristic of the best validation, with its score."""
        return None if self.best is None else best_score(self.best.scores, self.higher_is_better)


def best_score(scores: Mapping[str, float], higher: bool) -> tuple[str, float] | None:
    """The best of these scores, with its name."""
    choose = max if higher else min
    return choose(scores.items(), key=lambda entry: entry[1]) if scores else None


def higher_is_better(validations: Sequence[Validation]) -> bool:
    """Which way the score is better, as it shows in what was called better, else as the metric says."""
    best: float | None = None
    for one in validations:
        if one.score is None:
            continue
        if best is not None and one.better and one.score != best:
            return one.score > best
        best = one.score if best is None or one.better else best
    first = next((one for one in validations if one.score is not None and one.metric), None)
    if first is None or first.metric == "score":
        return True
    from gpuyard.metrics.catalogue import metrics

    direction = metrics()[first.metric].direction if first.metric in metrics() else "higher"
    turned = first.score != first.metrics[POLICY][first.metric]
    return (direction == "lower") == turned


def open_run(directory: str | Path) -> Run:
    """Read a run. A bare name is looked for in ``runs`` too.

    Raises:
        InputError: if there is no such directory, it holds no run, or a file of it is malformed.
    """
    path = find_directory(directory)
    config = _read_config(path / CONFIG)
    diary = path / PROGRESS
    if not diary.is_file():
        if not config:
            raise InputError(
                f"{directory}: is not a run, there is no {PROGRESS} in it; give the directory that "
                "gpuyard train wrote to (gpuyard runs list shows those there are)"
            )
        return Run(path, config, Progress(diary, ()), "stopped-without-word")
    # Asked before reading: a run that ends in between has then written how, and is not taken for killed.
    running = is_being_written(diary)
    progress = read_progress(diary)
    return Run(path, config, progress, _state(progress, running))


def find_directory(directory: str | Path) -> Path:
    """The directory of a run, which need not hold one. A bare name is looked for in ``runs`` too.

    Raises:
        InputError: if there is none, with what is close to the name, else the runs there are.
    """
    path = Path(directory)
    if path.is_dir():
        return path
    if path.is_file():
        raise InputError(f"{directory}: is a file; give the directory of a run")
    bare, folder = path.name == str(directory), Path(FOLDER)
    if bare and (folder / path).is_dir():
        return folder / path
    there = run_directories(folder) if folder.is_dir() else []
    places = f"{directory} and {folder / path}" if bare else str(directory)
    said = _runs_like(path.name if bare else str(path), [one.name if bare else str(one) for one in there])
    raise InputError(f"{directory}: there is no such directory (looked for {places}); {said}")


def _runs_like(name: str, runs: Sequence[str]) -> str:
    """Those with a name that is close, else those there are."""
    if not runs:
        return f"there are no runs in {Path(FOLDER).resolve()}"
    if len(runs) <= MOST_LISTED:
        return suggest(name, dict.fromkeys(runs)).removeprefix("; ").replace("known:", "runs there are:")
    close = difflib.get_close_matches(name, runs, n=2)
    listed = f"gpuyard runs list {FOLDER} shows the {len(runs)} runs there are"
    return f"did you mean {' or '.join(map(repr, close))}?" if close else listed


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"{path}: is not valid TOML ({error}); correct it, or remove the run") from None


def _state(progress: Progress, running: bool) -> State:
    last = next((one for one in reversed(progress.records) if one["event"] in ("stop", "resume")), None)
    if last is not None and last["event"] == "stop":
        return cast(State, last["reason"])
    return "running" if running else "stopped-without-word"


def run_directories(folder: str | Path = FOLDER) -> list[Path]:
    """Directories in a folder that hold runs, and those in folders in it, by name.

    Raises:
        InputError: if there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: there is no such folder; gpuyard train makes it, else name the one your runs are in"
        )
    try:
        found = {path.parent for name in (PROGRESS, CONFIG) for path in folder.glob(f"*/{name}")}
        found |= {path.parent for name in (PROGRESS, CONFIG) for path in folder.glob(f"*/*/{name}")}
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror})") from None
    return sorted(found)


def find_runs(folder: str | Path = FOLDER) -> list[Run]:
    """The runs of a folder, by name.

    Raises:
        InputError: if there is no such folder, or a run in it is malformed.
    """
    return [open_run(directory) for directory in run_directories(folder)]
