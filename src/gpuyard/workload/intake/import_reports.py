"""Import reports as files beside the workloads that they are about."""

import hashlib
from pathlib import Path

from pydantic import ValidationError

from gpuyard.errors import InputError
from gpuyard.files import atomic_write
from gpuyard.workload.importing import ImportReport


def report_beside(path: Path) -> Path:
    """Where the import report of a workload file lies."""
    name = path.name
    for suffix in (".csv.gz", ".csv", ".parquet"):
        name = name.removesuffix(suffix)
    return path.with_name(f"{name}.import.json")


def write_report(report: ImportReport, path: Path, workload: Path) -> ImportReport:
    """Write the report of an import.

    Args:
        report: The account.
        path: Where to.
        workload: The file that the import wrote, which is there already.

    Returns:
        The report as written, with the file's SHA-256.
    """
    bound = report.model_copy(update={"workload_sha256": file_sha256(workload)})
    with atomic_write(path) as temporary:
        temporary.write_text(bound.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return bound


def read_report(path: Path) -> ImportReport:
    """Read the report of an import.

    Raises:
        InputError: if it cannot be read or is none.
    """
    try:
        return ImportReport.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    except ValidationError as error:
        raise InputError(f"{path}: is no import report ({error.errors()[0]['msg']}); import again") from None


def is_about(report: ImportReport, workload: Path) -> bool:
    """Whether a report is of the import that wrote this very file."""
    return report.workload_sha256 is not None and report.workload_sha256 == file_sha256(workload)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
