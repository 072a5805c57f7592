"""Tar archives that hold one table, as some traces are published."""

import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from gpuyard.errors import InputError
from gpuyard.workload.chunks import HEAD_BYTES, open_bytes

_MAGIC_AT, _MAGIC = 257, b"ustar"


def is_tar(head: bytes) -> bool:
    """Whether (decompressed) content starts as a tar archive does."""
    return head[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC


def head_inside(head: bytes) -> bytes:
    """How the first file in the archive starts; the head itself if it is of no archive."""
    if not is_tar(head):
        return head
    try:
        with tarfile.open(fileobj=io.BytesIO(head), mode="r:") as archive:
            member = archive.next()
            while member is not None and not member.isreg():
                member = archive.next()
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError):
        return b""
    if member is None or member.issparse():
        return b""
    return head[member.offset_data : member.offset_data + member.size]


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The file itself or, if it is an archive, a temporary copy of the one file in it.

    Raises:
        InputError: if the archive is damaged or does not hold exactly one file.
    """
    with open_bytes(path) as content:
        head = content.read(HEAD_BYTES)
    if not is_tar(head):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="gpuyard-") as directory:
        yield _extract(path, Path(directory))


def _extract(path: Path, directory: Path) -> Path:
    target: Path | None = None
    with open_bytes(path) as content:
        try:
            with tarfile.open(fileobj=content, mode="r|") as archive:
                for member in archive:
                    if not member.isreg() or member.issparse():
                        continue
                    if target is not None:
                        raise InputError(
                            f"{path}: holds {target.name!r} and {member.name!r}; unpack it and give the files"
                        )
                    target = directory / (PurePosixPath(member.name).name or "table")
                    _copy(archive.extractfile(member), target)
            while content.read(HEAD_BYTES):
                pass  # gzip checks its content only when it has come to the end
        except (tarfile.TarError, ValueError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{path}: is a damaged or cut-off tar archive ({error}); fetch it again"
            ) from None
    if target is None:
        raise InputError(f"{path}: is a tar archive without a file in it; fetch it again")
    return target


def _copy(content: IO[bytes] | None, target: Path) -> None:
    if content is not None:
        with target.open("wb") as copy:
            shutil.copyfileobj(content, copy)
