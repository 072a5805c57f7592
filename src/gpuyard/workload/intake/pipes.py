"""Standard input and pipes as files, because readers go back to the start of what they read."""

import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO

from gpuyard.errors import InputError

STANDARD_INPUT = "-"
"""How standard input is named among files; a file of that name is ``./-``."""


@contextmanager
def regular_files(paths: Sequence[str | Path]) -> Iterator[list[Path]]:
    """The same files, those that cannot be read twice as copies that last as long as the context.

    An error that names a copy names what was given instead.

    Raises:
        InputError: if standard input is a terminal or cannot be read.
    """
    streams = [_stream_name(path) for path in paths]
    if not any(streams):
        yield [Path(path) for path in paths]
        return
    with tempfile.TemporaryDirectory(prefix="gpuyard-") as folder:
        files = [
            Path(path) if name is None else _copy(path, Path(folder) / str(index) / name)
            for index, (path, name) in enumerate(zip(paths, streams, strict=True))
        ]
        try:
            yield files
        except InputError as error:
            message = str(error)
            for file, name in zip(files, streams, strict=True):
                message = message if name is None else message.replace(str(file), name)
            raise InputError(message) from None


def _stream_name(path: str | Path) -> str | None:
    """A name for what can be read only once; None for a file, and for what is not there."""
    if str(path) == STANDARD_INPUT:
        return "stdin"
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    return "pipe" if Path(path).parent.name == "fd" else Path(path).name


def _copy(path: str | Path, target: Path) -> Path:
    target.parent.mkdir()
    try:
        with _opened(path) as source, target.open("wb") as file:
            if source.isatty():
                raise InputError(
                    f"{path}: standard input is a terminal; send something through a pipe, as in "
                    "sacct ... | gpuyard workload import - --out jobs.parquet"
                )
            shutil.copyfileobj(source, file, 1024 * 1024)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    return target


def _opened(path: str | Path) -> AbstractContextManager[IO[bytes]]:
    if str(path) == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    return Path(path).open("rb")
