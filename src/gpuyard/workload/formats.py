"""Recognising a file's format and reading it.

A format is one file in this package with a class registered as ``workload-format``:

    @register("workload-format", "slurm-sacct")
    class SlurmSacct:
        '''Output of sacct --parsable2.'''
        @staticmethod
        def recognises(head: bytes) -> bool: ...
        @staticmethod
        def read(path: Path) -> Workload: ...

Nothing else needs to be touched: the package's modules are all loaded before a file is read.
"""

import gzip
import importlib
import pkgutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from gpuyard.errors import InputError
from gpuyard.registry import lookup, registered
from gpuyard.workload.schema import Workload

HEAD_BYTES = 64 * 1024
_GZIP_MAGIC = b"\x1f\x8b"


class WorkloadFormat(Protocol):
    """What a registered format offers. Its docstring's first line describes it to users."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that starts so (decompressed, at most ``HEAD_BYTES``) is of this format."""

    @staticmethod
    def read(path: Path) -> Workload:
        """Read the whole file; raise InputError for what is wrong with it."""


def workload_formats() -> Mapping[str, WorkloadFormat]:
    """All formats by name."""
    package = Path(__file__).parent
    for module in pkgutil.iter_modules([str(package)]):
        importlib.import_module(f"gpuyard.workload.{module.name}")
    return registered("workload-format")


def read_workload(path: str | Path, format: str | None = None) -> Workload:
    """Read a workload from a file.

    Args:
        path: The file, possibly gzip-compressed.
        format: Name of a registered format; None recognises it from the file's content.

    Raises:
        InputError: if the file cannot be read, is of no known format, or holds something invalid.
    """
    path = Path(path)
    formats = workload_formats()
    head = read_bytes(path, HEAD_BYTES)
    if not head:
        raise InputError(f"{path}: is empty; a workload needs a header and at least one job")
    if format is not None:
        chosen: WorkloadFormat = lookup("workload-format", format)
        return chosen.read(path)
    matches = [name for name, candidate in formats.items() if candidate.recognises(head)]
    if len(matches) > 1:
        raise InputError(f"{path}: could be {' or '.join(matches)}; say which with format=...")
    if not matches:
        raise InputError(f"{path}: {_unrecognised(head)}. Known formats: {', '.join(formats)}")
    return formats[matches[0]].read(path)


def _unrecognised(head: bytes) -> str:
    if b"\0" in head:
        return "is of no known format: a binary file, and not parquet"
    first = head.split(b"\n", 1)[0].decode("utf-8", errors="replace").strip()
    return (
        f"is of no known format. Its first line is {first[:80]!r}; the native CSV has a header "
        "with the columns submit_s, duration_s, gpus, separated by commas"
    )


def read_bytes(path: Path, size: int = -1) -> bytes:
    """The file's content, decompressed if it is gzip; at most ``size`` bytes of it if that is not negative.

    Raises:
        InputError: if the file is missing, a directory, unreadable, or a damaged gzip file.
    """
    try:
        with path.open("rb") as file:
            if file.read(2) != _GZIP_MAGIC:
                file.seek(0)
                return file.read(size)
        with gzip.open(path) as compressed:
            return compressed.read(size)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory; give a file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: is a damaged or cut-off gzip file ({error}); fetch it again") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
