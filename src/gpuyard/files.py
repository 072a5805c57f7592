"""Writing a file so that it is either complete or as it was before."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuyard.errors import InputError


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is synced to disk and takes the name ``path``.

    If the body raises, the temporary file is removed and ``path`` is untouched. A symbolic link is followed.

    Raises:
        InputError: if the directory does not exist or ``path`` is a directory.
    """
    target = Path(path).resolve()
    if target.is_dir():
        raise InputError(f"{path}: is a directory; give the name of a file to write")
    if not target.parent.is_dir():
        raise InputError(f"{path}: there is no directory {target.parent}; create it first")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
