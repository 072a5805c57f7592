"""Training runs: a run is one directory, and its files are all there is to know about it."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from gpuyard.errors import InputError
from gpuyard.files import read_toml
from gpuyard.registry import suggest
from gpuyard.runs.progress import Progress, Record, is_being_written, printable, read_progress

if TYPE_CHECKING:
    from gpuyard.metrics.guards import BrokenLimit

FOLDER = "runs"
"""Where runs are kept unless another folder is given."""
CONFIG = "config.toml"
PROGRESS = "progress.jsonl"
CHECKPOINT = "checkpoint.safetensors"
START = "start.safetensors"
"""A copy of the model that training started from, if there was one."""
BEST, LAST = "best.safetensors", "last.safetensors"
MODELS = (BEST, LAST)
"""Models of a run, the preferred one first."""
DIAGNOSIS = "diagnosis.json"
SUMMARY = "search.json"
"""What a search found."""

MOST_LISTED = 12
"""Names of runs in a message, at most."""
POLICY = "policy"
"""What a validation calls the policy that is being trained."""
SCORE = "score"
"""What a validation calls the number that the best model is chosen by."""

State = Literal["running", "finished", "early", "interrupted", "nan", "killed"]
STATE_TEXTS: Mapping[str, str] = {
    "running": "is under way",
    "finished": "finished",
    "early": "stopped early: validation no longer improved",
    "interrupted": "was interrupted",
    "nan": "stopped because a number was not finite (diagnosis.json says which)",
    "killed": "was killed, or the machine went down",
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
        scores: The score of each heuristic, where that is known.
        broken: Limits on waits that the policy breaks on the windows, the worst first.
    """

    step: int
    elapsed_s: float | None
    score: float | None
    better: bool
    metrics: Mapping[str, Mapping[str, float | None]]
    scores: Mapping[str, float]
    broken: "tuple[BrokenLimit, ...]" = ()

    @classmethod
    def of(cls, record: Record) -> "Validation":
        """From a line of ``progress.jsonl``."""
        metrics: dict[str, dict[str, float | None]] = {POLICY: {}}
        for key, value in record["values"].items():
            name, _, metric = key.rpartition("/")
            metrics.setdefault(name or POLICY, {})[metric] = value
        scores = {
            name: score
            for name, values in metrics.items()
            if name != POLICY and (score := values.get(SCORE)) is not None
        }
        better = bool(record.get("better"))
        reached = (record["step"], record.get("elapsed_s"), record.get("score"), better)
        return cls(*reached, metrics, scores, _broken(record))


@dataclass(frozen=True)
class Recommendation:
    """Whether the best model of a run is recommended for a check on held-out jobs.

    Attributes:
        kind: ``recommended``, ``not-recommended``, or ``unknown``: it could not be replayed.
        current: What runs today, from which limits on waits are counted.
        broken: Limits that it breaks in the whole validation part, the worst first.
        why: Why nothing is known; else empty.
    """

    kind: str
    current: str
    broken: "tuple[BrokenLimit, ...]"
    why: str = ""

    @classmethod
    def of(cls, record: Record) -> "Recommendation":
        """From a line of ``progress.jsonl``."""
        kind, current, why = (printable(record.get(name)) for name in ("kind", "current", "why"))
        return cls(kind, current, _broken(record), why)


def _broken(record: Record) -> "tuple[BrokenLimit, ...]":
    if not record.get("broken"):
        return ()
    from gpuyard.metrics.guards import BrokenLimit  # which loads polars

    return tuple(BrokenLimit(**one) for one in record["broken"])


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

    def _repr_html_(self) -> str:
        """For notebooks: what it is, and what it reached."""
        from gpuyard.runs.summary import COMPARISON, comparison_rows, verdict
        from gpuyard.units import html_table

        return html_table(verdict(self), [COMPARISON, *comparison_rows([self], [self.name])])

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
        """Whether it can be resumed."""
        return self.state in ("interrupted", "killed") and self.file(CHECKPOINT) is not None

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

    @property
    def recommendation(self) -> Recommendation | None:
        """What was found of its best model when it ended; None if it did not end, or nothing can be said."""
        last = next(
            (one for one in reversed(self.progress.records) if one["event"] in ("recommendation", "resume")),
            None,
        )
        return Recommendation.of(last) if last is not None and last["event"] == "recommendation" else None

    @property
    def is_unmoved(self) -> bool:
        """Whether every validation, of at least two, has the score of what training started from."""
        scores = [one.score for one in self.validations if one.score is not None]
        if len(scores) < 2 or self.validations[0].step > 0:
            return False
        return all(math.isclose(score, scores[0], rel_tol=1e-9) for score in scores)

    @property
    def metric(self) -> str:
        """The metric behind its score; empty if it was stopped before it could state it."""
        return self.progress.said("metric")

    @property
    def unit(self) -> str:
        """What a step of it is: a sample, an episode or a generation."""
        return self.progress.said("unit") or "sample"

    @property
    def higher_is_better(self) -> bool:
        """Which way its score is better."""
        return self.progress.start.get("higher_is_better") is not False

    def best_heuristic(self) -> tuple[str, float] | None:
        """The best heuristic of the best validation, with its score."""
        return None if self.best is None else best_score(self.best.scores, self.higher_is_better)


def best_score(scores: Mapping[str, float], higher: bool) -> tuple[str, float] | None:
    """The best of these scores, with its name."""
    choose = max if higher else min
    return choose(scores.items(), key=lambda entry: entry[1]) if scores else None


def open_run(directory: str | Path) -> Run:
    """Read a run. A bare name is looked for in ``runs`` too.

    Raises:
        InputError: if there is no such directory, it holds no run, a file of it is malformed, or it was
            made by version 0.1.0, whose progress logs do not state the metric.
    """
    path = find_directory(directory)
    config = _read_config(path / CONFIG)
    log = path / PROGRESS
    if not log.is_file():
        if not config:
            raise InputError(
                f"{directory}: is not a run, there is no {PROGRESS} in it; give the directory that "
                "gpuyard train wrote to (gpuyard runs list shows those there are)"
            )
        return Run(path, config, Progress(log, ()), "killed")
    # Asked before reading: a run that ends in between has then written how, and is not taken for killed.
    running = is_being_written(log)
    progress = read_progress(log)
    _check_start(progress, path)
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
    if not path.exists():
        return {}
    try:
        return read_toml(path)
    except InputError as error:
        raise InputError(f"{error}; correct it, or remove the run") from None


def _check_start(progress: Progress, directory: Path) -> None:
    """Raise an InputError for a log that does not state its metric and which way its score is better."""
    start = progress.start
    if not progress.records or (
        isinstance(start.get("metric"), str) and isinstance(start.get("higher_is_better"), bool)
    ):
        return
    raise InputError(
        f"{progress.path}: the start record does not state metric and higher_is_better: a run of gpuyard "
        f"0.1.0; read it with that version, or train it again: gpuyard train "
        f"{progress.said('algorithm') or 'ALGORITHM'} --config {directory / CONFIG}. Its models can still be "
        "used as policies"
    )


def _state(progress: Progress, running: bool) -> State:
    last = next((one for one in reversed(progress.records) if one["event"] in ("stop", "resume")), None)
    if last is not None and last["event"] == "stop":
        return cast(State, last["reason"])
    return "running" if running else "killed"


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


def process_log(rank: int) -> str:
    """The file that holds what one of the run's processes wrote on standard error."""
    return f"process-{rank}.log"
