"""What lies below the directories that were given: training runs, results, journals of live agents.

Everything is found by an id: the number of its root, then its path below that root. No id and no link leads
out of the roots.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from gpuyard.errors import InputError
from gpuyard.evaluate.results.files import DOCUMENT, OLD_EVALUATION, holds_results
from gpuyard.runs.directory import CONFIG, PROGRESS
from gpuyard.serve.settings import ServeSettings

Kind = Literal["run", "results", "journal"]
MOST_DEEP = 6
"""Folders below a root that are looked through."""
MOST_FOLDERS = 20_000
"""Folders that are looked at, at most; beyond, the list says that it is not complete."""
NEVER_ENTERED = frozenset({"node_modules", "__pycache__", "schedules", "executions"})


class NotHereError(InputError):
    """An id that leads to nothing in the roots, or to what has been removed."""


@dataclass(frozen=True)
class Entry:
    """Something that was found.

    Attributes:
        kind: What it is. A directory may be two things: a run whose evaluation lies in it.
        id: Its name in addresses of the dashboard.
        path: Its directory.
        changed_s: When it was last written to, Unix time.
    """

    kind: Kind
    id: str
    path: Path
    changed_s: float


class Library:
    """What the dashboard may show, and nothing else.

    Args:
        roots: Directories that were given.

    Raises:
        InputError: if one is none, or lies in another one.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(_real_directory(root) for root in roots)
        for root in self.roots:
            if sum(root.is_relative_to(other) for other in self.roots) > 1:
                raise InputError(f"{root}: is given twice, or lies in another directory that is given")

    def entries(self) -> tuple[list[Entry], list[str]]:
        """Everything that is there now, the latest change first, and what could not be looked at."""
        found: list[Entry] = []
        notes: list[str] = []
        folders = 0
        for number, root in enumerate(self.roots):
            for folder, names in self._folders(root, notes):
                folders += 1
                if folders > MOST_FOLDERS:
                    notes.append(f"only the first {MOST_FOLDERS:,} folders were looked at; name fewer")
                    break
                found += self._in_folder(number, folder, names)
        found.sort(key=lambda entry: (-entry.changed_s, entry.id, entry.kind))
        return found, notes

    def files(self, endings: Sequence[str]) -> list[tuple[str, Path]]:
        """Files whose names end so, outside of results, by id: that of their directory and their name."""
        found: list[tuple[str, Path]] = []
        for number, root in enumerate(self.roots):
            for count, (folder, names) in enumerate(self._folders(root, [])):
                if count >= MOST_FOLDERS:
                    break
                inner = folder.relative_to(root).as_posix()
                kept = () if holds_results(folder) else sorted(names)
                found += [
                    (f"{number}/{inner}/{name}", folder / name)
                    for name in kept
                    if name.endswith(tuple(endings))
                ]
        return found

    def _folders(self, root: Path, notes: list[str]) -> Iterator[tuple[Path, frozenset[str]]]:
        """Folders with the names of files in them, links left out."""
        todo = [(root, 0)]
        while todo:
            folder, depth = todo.pop()
            try:
                with os.scandir(folder) as listed:
                    entries = sorted(listed, key=lambda one: one.name, reverse=True)
                    inner = [one for one in entries if one.is_dir(follow_symlinks=False)]
                    files = frozenset(one.name for one in entries if one.is_file(follow_symlinks=False))
            except FileNotFoundError:
                continue  # removed while we looked
            except OSError as error:
                notes.append(f"{folder}: cannot be read ({error.strerror})")
                continue
            yield folder, files
            if depth < MOST_DEEP:
                todo += [(Path(one.path), depth + 1) for one in inner if _is_entered(one.name)]

    def _in_folder(self, number: int, folder: Path, names: frozenset[str]) -> Iterator[Entry]:
        kinds: dict[Kind, list[str]] = {}
        if PROGRESS in names or CONFIG in names:
            kinds["run"] = [PROGRESS, CONFIG]
        if holds_results(folder):
            kinds["results"] = [DOCUMENT, OLD_EVALUATION]
        journal = ServeSettings(state_dir=folder).journal.name
        if journal in names:
            kinds["journal"] = [journal, f"{journal}-wal"]
        inner = folder.relative_to(self.roots[number]).as_posix()
        for kind, files in kinds.items():
            changed = [_changed_s(folder / name) for name in files if name in names]
            yield Entry(kind, f"{number}/{inner}", folder, max(changed, default=0.0))

    def directory(self, id: str) -> Path:
        """The directory of an id.

        Raises:
            NotHereError: if there is none, or something in it is a link that leads out of the roots.
        """
        number, _, inner = id.partition("/")
        parts = PurePosixPath(inner).parts
        if not number.isdecimal() or int(number) >= len(self.roots) or "\0" in id:
            raise NotHereError(f"{id!r}: there is no such thing in the directories that were given")
        if ".." in parts or inner.startswith("/"):
            raise NotHereError(f"{id!r}: leads out of the directories that were given")
        root = self.roots[int(number)]
        path = root.joinpath(*parts)
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            raise NotHereError(f"{path}: is not there any more") from None
        if not real.is_relative_to(root) or not real.is_dir():
            raise NotHereError(f"{id!r}: leads out of the directories that were given")
        self._check_links(real)
        return real

    def file(self, id: str, name: str) -> Path:
        """A file of a directory.

        Raises:
            NotHereError: if there is none, or it is not in that directory.
        """
        directory = self.directory(id)
        if PurePosixPath(name).name != name or name in ("", ".", ".."):
            raise NotHereError(f"{name!r}: is no name of a file")
        path = directory / name
        if not path.is_file():
            raise NotHereError(f"{path}: is not there any more")
        return path

    def _check_links(self, directory: Path) -> None:
        """Refuse a directory in which a link, at any depth that is read, leads out of the roots."""
        for folder in (directory, *(directory / name for name in ("schedules", "executions"))):
            try:
                with os.scandir(folder) as listed:
                    links = [Path(one.path) for one in listed if one.is_symlink()]
            except OSError:
                continue  # whoever reads it will say so
            for link in (*links, *([folder] if folder.is_symlink() else [])):
                if not self._holds(link):
                    raise NotHereError(f"{link}: is a link that leads out of the directories that were given")

    def _holds(self, link: Path) -> bool:
        try:
            target = link.resolve()
        except (OSError, RuntimeError):
            return False
        return any(target.is_relative_to(root) for root in self.roots)


def _is_entered(name: str) -> bool:
    return not name.startswith(".") and name not in NEVER_ENTERED


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _real_directory(path: Path) -> Path:
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise InputError(f"{path}: there is no such directory; give one with runs or results") from None
    if not real.is_dir():
        raise InputError(f"{path}: is a file; give the directory that it lies in")
    return real
