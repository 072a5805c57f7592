"""``progress.jsonl``, the progress log of a training run: one JSON object per line, fit to survive a kill.

A line is written with one call to the system. The writer holds a lock on the file, which the system takes
back when the process ends in whatever way: so a reader knows whether a run is still under way.
"""

import fcntl
import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from gpuyard.errors import InputError
from gpuyard.files import parse_json

Record = dict[str, Any]

STOP_REASONS = ("finished", "early", "interrupted", "nan")
"""How a run says that it ends."""
LOCK_WITHIN_S = 1.0
"""A reader that asks whether a run is under way holds the lock for a moment; the writer tries for so long."""
_FREQUENT = re.compile(rb'\{"event": ?"(update|actions|validation)"')
"""How lines begin that most of a log is made of."""
_BEST = (b'"better":true', b'"better": true')
_NUMBERS = ("elapsed_s", "samples_per_s", "score", "time")


@dataclass(frozen=True)
class Progress:
    """What a run has written so far.

    Attributes:
        path: The file.
        records: Its lines, in order.
        torn: Whether the last line is cut off (the process was killed while it wrote); it is left out.
    """

    path: Path
    records: tuple[Record, ...]
    torn: bool = False

    def of(self, event: str) -> list[Record]:
        """The records of one event."""
        return [record for record in self.records if record["event"] == event]

    @property
    def start(self) -> Record:
        """The record of the start; empty if the run did not come so far."""
        return next(iter(self.of("start")), {})

    def said(self, key: str) -> str:
        """A text of the start, such as its name, fit for a line of a terminal; empty if it is not told."""
        return printable(self.start.get(key))

    @property
    def last_step(self) -> int:
        """Samples so far."""
        return max((record.get("step", 0) for record in self.records), default=0)

    @property
    def elapsed_s(self) -> float:
        """Time of training so far, as the run counted it."""
        return max((float(record.get("elapsed_s") or 0.0) for record in self.records), default=0.0)


def printable(value: Any) -> str:
    """A value as text without what would move a terminal's cursor; empty if there is none."""
    return "" if value is None else "".join(letter for letter in str(value) if letter.isprintable())


def read_progress(path: str | Path) -> Progress:
    """Read a run's progress log.

    A last line without its end is left out: the run was killed, or is about to write the rest.

    Raises:
        InputError: naming file and line, if it cannot be read or anything else in it is malformed.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    whole, _, rest = data.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    records = tuple(parse_record(line, path, number) for number, line in enumerate(lines, start=1))
    return Progress(path, records, torn=bool(rest))


def parse_record(line: bytes, path: Path, number: int) -> Record:
    """The record of one line.

    Raises:
        InputError: naming file and line.
    """
    where = f"{path}, line {number}"
    try:
        record = parse_json(line)
    except ValueError:
        shown = line[:40].decode("utf-8", "backslashreplace")
        raise InputError(
            f"{where}: is not JSON ({shown!r}); delete that line, or remove the run and train it again"
        ) from None
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        raise InputError(f'{where}: expected an object with an "event", such as {{"event": "update", ...}}')
    if (wrong := _first_wrong(record)) is not None:
        raise InputError(f"{where}: {wrong}; correct or delete that line")
    return record


def _first_wrong(record: Record) -> str | None:
    event, step, values = record["event"], record.get("step", 0), record.get("values", {})
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**63:
        return f"step is {step!r}, expected a whole number of samples"
    if event in ("update", "validation", "actions") and not {"step", "values"} <= set(record):
        return f"{event} needs a step and values"
    for name in _NUMBERS:
        if not _is_number(record.get(name)):
            return f"{name} is {record[name]!r}, expected a number or null"
    if not isinstance(values, dict):
        return f"values is {str(values)[:40]!r}, expected an object of names and numbers"
    if event in ("update", "validation"):
        for name, value in values.items():
            if not _is_number(value):
                return f"{name} is {str(value)[:40]!r}, expected a number or null"
    if (wrong := _wrong_limit(record.get("broken") or [])) is not None:
        return wrong
    if event == "stop" and record.get("reason") not in STOP_REASONS:
        return f"reason is {record.get('reason')!r}, expected {', '.join(STOP_REASONS)}"
    return None


def _wrong_limit(broken: Any) -> str | None:
    """What is wrong with a list of broken limits."""
    if not broken:
        return None
    from gpuyard.metrics.guards import BrokenLimit  # which loads polars

    names = {field.name for field in fields(BrokenLimit)}
    if isinstance(broken, list) and all(isinstance(one, dict) and set(one) == names for one in broken):
        return None
    return f"broken is {str(broken)[:40]!r}, expected a list of limits"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def is_being_written(path: str | Path) -> bool:
    """Whether a process has this progress log open for writing: its run is under way."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


class ProgressWriter:
    """Appends records to a progress log, each at once. One process writes, others only read."""

    def __init__(self, path: str | Path) -> None:
        """Open a progress log to append to, or begin one. A torn last line is dropped.

        Raises:
            InputError: if it cannot be written, or another process is writing it.
        """
        self.path = Path(path)
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror})") from None
        try:
            self._lock()
            self._cut(self.path.read_bytes().rfind(b"\n") + 1)
        except BaseException:
            self.close()
            raise

    @classmethod
    def resume(cls, path: str | Path, step: int) -> Self:
        """Open the progress log of a run that resumes from a checkpoint, and write that it does.

        A torn last line is dropped, and so is every record from the first on that is about later samples than
        the checkpoint's: the run is about to make them again.

        Args:
            path: The progress log; it need not exist.
            step: Samples that the checkpoint has seen.

        Raises:
            InputError: as when one is opened, or if a line of it is malformed; then nothing is dropped.
        """
        writer = cls(path)
        try:
            writer._cut_after(step)
            writer.write({"event": "resume", "step": step})
        except BaseException:
            writer.close()
            raise
        return writer

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; what is no finite number becomes null.

        Raises:
            InputError: if the disk is full or gone; what was written before stays as it is.
        """
        line = json.dumps(_plain(record), allow_nan=False, separators=(",", ":")).encode() + b"\n"
        done = 0
        try:
            while done < len(line):
                done += os.write(self._descriptor, line[done:])
        except OSError as error:
            with suppress(OSError):
                self._cut(self._end)
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}); make room, then resume the run "
                "from its last checkpoint"
            ) from None
        self._end += len(line)

    def close(self) -> None:
        """Close the file; from now on the run does not count as under way."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        until = time.monotonic() + LOCK_WITHIN_S
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise InputError(
                        f"{self.path}: another process is training this run; wait for it, stop it, or "
                        "choose another run directory"
                    ) from None
                time.sleep(0.02)
            except OSError:  # a file system without locks
                return

    def _cut_after(self, step: int) -> None:
        begin, cut = 0, self._end
        for number, line in enumerate(self.path.read_bytes()[: self._end].splitlines(keepends=True), start=1):
            if parse_record(line, self.path, number).get("step", 0) > step:
                cut = min(cut, begin)
            begin += len(line)
        self._cut(cut)

    def _cut(self, end: int) -> None:
        os.ftruncate(self._descriptor, end)
        self._end = end


class ProgressTail:
    """Reads a progress log while it is being written.

    Args:
        path: The log.
        most_bytes: Of one reading, so that a log of any size takes little memory; None: everything.
        brief: Leave out updates, actions and validations but the last of each reading, and the last
            validation that was the best so far: enough to say how a run stands.
    """

    def __init__(self, path: str | Path, most_bytes: int | None = None, *, brief: bool = False) -> None:
        self._path = Path(path)
        self._most_bytes = most_bytes
        self._brief = brief
        self.rewind()

    def rewind(self) -> None:
        """Begin again at the first line."""
        self._at = self._lines = 0
        self._last = b""

    @property
    def at(self) -> int:
        """How many bytes have been read."""
        return self._at

    def read(self) -> tuple[list[Record], bool]:
        """Records since the last call, and whether they begin anew (the run was resumed, its tail dropped).

        Raises:
            InputError: for a malformed line.
        """
        back = self._at - len(self._last)
        try:
            with self._path.open("rb") as file:
                file.seek(back)
                data = file.read(self._room())
                anew = not data.startswith(self._last)
                if anew:
                    self.rewind()
                    file.seek(0)
                    data = file.read(self._room())
        except FileNotFoundError:
            return [], False
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read ({error.strerror})") from None
        return self._take(data[len(self._last) :]), anew

    def _room(self) -> int:
        """How many bytes to read; -1: all."""
        return -1 if self._most_bytes is None else len(self._last) + self._most_bytes

    def _take(self, data: bytes) -> list[Record]:
        """Records of whole lines. After a malformed one nothing has been read, so it is told again."""
        *lines, rest = data.split(b"\n")
        if not lines and self._most_bytes is not None and len(rest) >= self._most_bytes:
            raise InputError(
                f"{self._path}, line {self._lines + 1}: has more than {self._most_bytes:,} bytes, so this is "
                "no progress log; remove the run and train it again"
            )
        kept = _of_interest(lines) if self._brief else range(len(lines))
        records = [parse_record(lines[k], self._path, self._lines + k + 1) for k in kept]
        if lines:
            self._last = lines[-1] + b"\n"
            self._at += len(data) - len(rest)
            self._lines += len(lines)
        return records


def _of_interest(lines: Sequence[bytes]) -> list[int]:
    """Places of lines without those of a frequent kind, of which only the last one counts."""
    kinds = [_frequent_kind(line) for line in lines]
    last = {kind: k for k, kind in enumerate(kinds)}
    return [k for k, kind in enumerate(kinds) if kind is None or last[kind] == k]


def _frequent_kind(line: bytes) -> bytes | None:
    """What kind of frequent event a line is, told from its text alone; None for others."""
    found = _FREQUENT.match(line)
    if found is None:
        return None
    is_best = found[1] == b"validation" and any(mark in line for mark in _BEST)
    return _BEST[0] if is_best else found[1]


def _plain(value: Any) -> Any:
    """As JSON can hold it; numbers and arrays of numpy and torch become plain ones."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
