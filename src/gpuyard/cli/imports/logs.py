"""``gpuyard workload import``: reading a log, with an account of every row."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gpuyard.cli.inputs import (
    check_jobs_output,
    check_output,
    open_console,
    parse_settings,
    print_json,
    write_text,
)
from gpuyard.cli.parameters import Flag, Json, OutFile
from gpuyard.terminal.console import errors

if TYPE_CHECKING:
    from gpuyard.workload.formats import ImportedTrace
    from gpuyard.workload.importing import ImportReport

FORMATS = (
    *("acme", "gavel", "google-2011", "google-2019", "helios", "job-csv", "lsf", "native", "openb", "pai"),
    *("pai-simulator", "pbs", "philly", "philly-csv", "plain-csv", "rl-trace", "sge", "slurm-jobcomp"),
    *("slurm-json", "slurm-sacct", "spot-gpu-2026", "swf"),
)
"""Formats by name; a list of its own, because help must not load the readers."""
NOTES_SHOWN = 6
LARGE_BYTES = 50_000_000
"""Away from a terminal, reading more than this is announced."""


def import_files(
    files: Annotated[
        list[Path],
        Parameter(negative=(), help="The files of a trace that belong together; - is standard input."),
    ],
    /,
    *,
    out: OutFile,
    format: Annotated[
        str | None, Parameter(help=f"One of {', '.join(FORMATS)}. (default: recognised by its content)")
    ] = None,
    lenient: Annotated[bool, Flag, Parameter(help="Assume something where files are ambiguous.")] = False,
    strict: Annotated[
        bool, Flag, Parameter(help="Write nothing and end with exit code 1 if there is a warning.")
    ] = False,
    option: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="NAME=VALUE, an option of the format, such as timezone=Europe/Berlin for slurm-sacct; "
            "repeat it for more. The page of each format lists its options (docs/formats/index.md).",
        ),
    ] = None,
    cluster_out: Annotated[
        Path | None,
        Parameter(help="Also write the cluster, as TOML: the log's own, else the nodes that jobs ran on."),
    ] = None,
    report: Annotated[
        Path | None, Parameter(help="The report. (default: next to --out, .import.json)")
    ] = None,
    json: Json = False,
) -> int:
    """Read a trace or accounting log and say what became of every row.

    gpuyard workload list says what each format is.
    Warnings say what makes results doubtful: many rows rejected, no GPUs, starts before submits, slices of
    GPUs that count as GPUs.

    Example: gpuyard workload import sacct.txt --out jobs.parquet
    """
    from gpuyard.workload.intake.import_reports import report_beside

    report = report or report_beside(out)
    check_jobs_output(out)
    check_output("--report", report, (".json",))
    check_output("--cluster-out", cluster_out, (".toml",))
    trace = _imported(files, format, lenient, parse_settings("--option", option or []))
    cluster, notes = _cluster(trace, files[0]) if cluster_out is not None else ("", ())
    refused = strict and bool(trace.report.warnings)
    account = trace.report if refused else _written(trace, out, report, cluster_out, cluster)
    written = [] if refused else [str(path) for path in (out, report, cluster_out) if path is not None]
    if json:
        shown = {"files": written, "report": account.model_dump(mode="json")}
        print_json(shown | ({"cluster_notes": notes} if notes else {}))
        return int(refused)
    from gpuyard.terminal.workload import import_table

    ended = "Nothing is written (--strict)." if refused else f"Written: {', '.join(written)}"
    console = open_console()
    more = [f"{len(notes) - NOTES_SHOWN} more notes are in the file."] if len(notes) > NOTES_SHOWN else []
    said = [f"Cluster: {note}" for note in (*notes[:NOTES_SHOWN], *more)]
    console.print(import_table(trace.report), "", *said, ended, sep="\n")
    return int(refused)


def _cluster(trace: "ImportedTrace", file: Path) -> tuple[str, tuple[str, ...]]:
    """The cluster as TOML, and how sure it is if it had to be derived from where jobs ran."""
    if trace.cluster is not None:
        return trace.cluster.to_toml(), ()
    from gpuyard.workload.intake.seen_cluster import seen_cluster

    seen = seen_cluster(trace.workload, file)
    return seen.to_toml(), seen.notes


def _written(
    trace: "ImportedTrace", out: Path, report: Path, cluster_out: Path | None, cluster: str
) -> "ImportReport":
    """Write everything; the report as it was written."""
    from gpuyard.workload import write_workload
    from gpuyard.workload.intake.import_reports import write_report

    write_workload(trace.workload, out)
    account = write_report(trace.report, report, out)
    if cluster_out is not None:
        write_text(cluster_out, cluster)
    return account


def _imported(
    files: list[Path], format: str | None, lenient: bool, options: dict[str, Any]
) -> "ImportedTrace":
    from gpuyard.workload.formats import import_trace

    with _reading(files):
        return import_trace(files, format, strict=not lenient, **options)


@contextmanager
def _reading(files: list[Path]) -> Iterator[None]:
    """Something that moves on a terminal while files are read; elsewhere a line if they are large."""
    size = sum(path.stat().st_size for path in files if path.is_file())
    said = f"reading {', '.join(path.name for path in files[:3])} ({size / 1e6:,.1f} MB)"
    console = errors()
    if console.is_terminal:
        with console.status(said):
            yield
        return
    if size > LARGE_BYTES:
        console.print(said)
    yield
