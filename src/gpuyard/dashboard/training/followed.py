"""A run that is being read while it is written: what there is to say of it so far, in bounded memory."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gpuyard.errors import InputError
from gpuyard.files import read_toml
from gpuyard.runs.curves import Curve, by_importance
from gpuyard.runs.directory import CHECKPOINT, CONFIG, PROGRESS, Run, State
from gpuyard.runs.progress import Progress, ProgressTail, Record, is_being_written
from gpuyard.runs.story import RunStory

CHUNK_BYTES = 8 * 2**20
"""Read at a time; a line of a progress log has a few kB."""
READ_WITHIN_S = 0.3
"""A log that takes longer is read on at the next look."""
STALE_AFTER_S = 300.0
"""A run under way that has written nothing for so long is marked."""


class FollowedRun:
    """A run, read on at every look.

    Args:
        directory: Of the run.
        curves: Keep the curves of updates and all validations; without them a log is read much faster, and
            enough is known for a row.
    """

    def __init__(self, directory: Path, *, curves: bool = True) -> None:
        self.directory = directory
        self._log = directory / PROGRESS
        self._tail = ProgressTail(self._log, CHUNK_BYTES, brief=not curves)
        self._config_mark: object = None
        self.config: Mapping[str, Any] = {}
        self.state: State = "killed"
        """What became of it, as far as it has been read."""
        self._was_stale = False
        self._begin_again()

    def _begin_again(self) -> None:
        self._kept: list[Record] = []
        self._last_update: Record | None = None
        self.story = RunStory(None, self._limit_s())

    def _limit_s(self) -> float | None:
        training = self.config.get("training")
        minutes = training.get("minutes") if isinstance(training, dict) else None
        return 60.0 * minutes if isinstance(minutes, int | float) else None

    def look(self, within_s: float = READ_WITHIN_S) -> bool:
        """Read what is new, as far as time allows; whether anything is.

        Raises:
            InputError: if the run is gone or damaged.
        """
        if not self.directory.is_dir():
            raise InputError(f"{self.directory}: is not there any more")
        self._read_config()
        until, changed = time.monotonic() + within_s, False
        while self._read_chunk():
            changed = True
            if time.monotonic() > until:
                break
        before = self.state, self._was_stale
        self.state = self._find_state()
        self._was_stale = self.is_stale
        return changed or (self.state, self._was_stale) != before

    def _read_config(self) -> None:
        """Settings change when a run is resumed with more time."""
        try:
            found = (self.directory / CONFIG).stat()
        except OSError:
            return
        mark = (found.st_mtime_ns, found.st_size, found.st_ino)
        if mark != self._config_mark:
            self.config, self._config_mark = read_toml(self.directory / CONFIG), mark
            self.story.limit_s = self._limit_s()

    def _read_chunk(self) -> bool:
        before = self._tail.at
        records, anew = self._tail.read()
        if anew:
            self._begin_again()
        for record in records:
            self.story.add(record)
            if record["event"] == "update":
                self._last_update = record
            else:
                self._kept.append(record)
        return anew or self._tail.at != before

    @property
    def written_s(self) -> float:
        """When its log was last written to, Unix time; 0 without a log."""
        try:
            return self._log.stat().st_mtime
        except OSError:
            return 0.0

    @property
    def share_read(self) -> float:
        """How much of its log has been read."""
        try:
            size = self._log.stat().st_size
        except OSError:
            return 1.0
        return min(self._tail.at / size, 1.0) if size and size - self._tail.at > CHUNK_BYTES else 1.0

    def _find_state(self) -> State:
        last = next((one for one in reversed(self._kept) if one["event"] in ("stop", "resume")), None)
        if last is not None and last["event"] == "stop":
            return cast(State, last["reason"])
        return "running" if is_being_written(self._log) else "killed"

    @property
    def is_stale(self) -> bool:
        """Whether it is under way and has been silent for long."""
        return self.state == "running" and time.time() - self.written_s > STALE_AFTER_S

    @property
    def is_resumable(self) -> bool:
        """Whether it can be resumed."""
        return self.state in ("interrupted", "killed") and (self.directory / CHECKPOINT).is_file()

    @property
    def run(self) -> Run:
        """The run without its updates but the last."""
        records = [*self._kept, *([self._last_update] if self._last_update else [])]
        return Run(self.directory, self.config, Progress(self._log, tuple(records)), self.state)

    @property
    def curves(self) -> dict[str, Curve]:
        """The curves of updates by name, those that matter most first."""
        found = self.story.curves
        return {name: found[name] for name in by_importance(found) if found[name].values}

    @property
    def seconds_left(self) -> float | None:
        """Until it ends; None if it is over, or nobody can know."""
        if self.state != "running":
            return None
        self.story.idle_s = max(0.0, time.time() - self.written_s)
        return self.story.seconds_left
