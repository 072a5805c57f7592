"""What verbs share: spelling of settings, reading a workload, printing.

All of it is loaded for ``gpuyard --help``: what is heavy is imported when it is needed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuyard.errors import InputError, setting, settings_in, spelt
from gpuyard.files import atomic_write, check_target, parse_json
from gpuyard.registry import suggest
from gpuyard.terminal.console import is_quiet, output
from gpuyard.units import json_text

if TYPE_CHECKING:
    from rich.console import Console

    from gpuyard.cluster.model import Cluster
    from gpuyard.workload import Workload
    from gpuyard.workload.formats import ImportedTrace
    from gpuyard.workload.importing import ImportReport

FLAGS = {
    "tiresias_levels_gpu_s": "tiresias-levels",
    "power_cap_w": "power-cap",
    **{
        f"{name}_s": name.replace("_", "-")
        for name in (
            *("usage_half_life", "max_age", "priority_calc", "bf_interval", "bf_window", "bf_resolution"),
            *("reschedule", "min_run", "checkpoint", "restore", "starvation"),
            *("node_mtbf", "node_mttr", "checkpoint_every", "sleep_after", "wake", "duration"),
        )
    },
    "window_start": "start",
    "start": "from",
    "end": "to",
    "statuses": "status",
    "job_count": "jobs",
    "clamp_max_s": "max-duration",
    "clamp_min_s": "min-duration",
    "relabel_groups": "relabel",
    "cluster_gpus": "cluster",
    "jobs_source": "on",
    **{f"training.{name}": name for name in ("seed", "steps", "minutes", "processes", "device")},
    **{f"environment.{name}": name for name in ("workload", "cluster")},
}
"""Settings whose flag is not simply their name; most leave out the unit, which the help states."""

OFF = {"strict": "lenient"}
"""Switches whose flag for off is not --no-NAME."""


def flag(name: str, value: object = None) -> str:
    """A setting as it is written on the command line.

    Settings of tables keep the table's name (``--ppo.clip 0.1``); options of formats are ``--option`` pairs.
    """
    if name.startswith("option."):
        return f"--option {name.removeprefix('option.')}={'...' if value is None else value}"
    spelling = FLAGS.get(name) or (name if "." in name else name.replace("_", "-"))
    if value == "False" and "." not in name:
        return f"--{OFF.get(name, f'no-{spelling}')}"
    return f"--{spelling}" if value is None or value == "True" else f"--{spelling} {value}"


@dataclass
class Help:
    """What help shows.

    Attributes:
        shows_all: Whether it has settings that few need, too (``--help-all``).
    """

    shows_all: bool = False


HELP = Help()


class OpenedTrace(NamedTuple):
    """Jobs, what they run on, and the account of the import that they come from, if there is one."""

    workload: Workload
    cluster: Cluster | None
    report: ImportReport | None


def open_workload(source: str) -> Workload:
    """The jobs of a file, or built-in ones; a note says what the file holds and the jobs do not."""
    return open_trace(source, None).workload


def open_trace(source: str, cluster: str | None) -> OpenedTrace:
    """The jobs of a file or built-in ones, and the cluster: the named one, else that of built-in jobs.

    What reading a log rejected, repaired or assumed is told on standard error.

    Raises:
        InputError: for a name that is neither a file nor a built-in workload, with the closest ones.
    """
    machines = open_cluster(cluster)
    if is_preset(source):
        from gpuyard.workload.generators import preset_workload

        trace = preset_workload(source)
        return OpenedTrace(trace.workload, machines or trace.cluster, None)
    imported = _imported(source)
    if imported.report.format == "native":
        return OpenedTrace(imported.workload, machines, _report_of(Path(source)))
    if summary := imported.report.summary():
        print_note(f"{source}: {summary}; gpuyard workload import {source} --out FILE shows all")
    return OpenedTrace(imported.workload, machines, imported.report)


def _imported(source: str) -> ImportedTrace:
    """A file of jobs; an error that names options of the import says which command has them."""
    from gpuyard.workload.formats import import_trace

    try:
        return import_trace([source])
    except InputError as error:
        if any(name == "strict" or name.startswith("option.") for name in settings_in(str(error))):
            raise InputError(f"{error}; gpuyard workload import takes such options") from None
        raise


def _report_of(workload: Path) -> ImportReport | None:
    """The report of the import that wrote this very file, if it lies beside it."""
    from gpuyard.workload.intake.import_reports import is_about, read_report, report_beside

    try:
        report = read_report(report_beside(workload))
    except InputError:
        return None
    return report if is_about(report, workload) else None


def is_preset(source: str) -> bool:
    """Whether this names a built-in workload; those go before files of the same name.

    Raises:
        InputError: for what looks like a name and is neither that nor a file.
    """
    from gpuyard.workload.generators import preset_workloads

    if source in preset_workloads():
        return True
    path = Path(source)
    if path.name == source and not path.suffix and not path.exists():
        known = suggest(source, preset_workloads())
        raise InputError(f"{source}: no such file, and no built-in workload of that name{known}")
    return False


def open_cluster(text: str | None) -> Cluster | None:
    """The cluster, if one was named."""
    from gpuyard.cluster.model import parse_cluster

    return None if text is None else parse_cluster(text)


def need_cluster(text: str | None, workload: str) -> None:
    """Before a long file is read: only built-in workloads bring a cluster.

    Raises:
        InputError: if there is none.
    """
    if text is None and not is_preset(workload):
        from gpuyard.cluster.model import GRAMMAR

        raise InputError(
            f"{setting('cluster')} is missing: which cluster shall run {workload}? Expected {GRAMMAR}"
        )


def first_lines(things: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Names and the first lines of what the things say of themselves."""
    return [
        (name, (thing.__doc__ or "").strip().split("\n", 1)[0].replace("``", "")) for name, thing in things
    ]


def parse_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping.

    Raises:
        InputError: for a text without ``=``.
    """
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text!r}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def parse_settings(option: str, texts: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE pairs. Values as they are; those that start like a JSON list or object are read as one."""
    settings: dict[str, Any] = dict(parse_pairs(option, texts))
    for name, value in settings.items():
        if value[:1] in ("[", "{"):
            try:
                settings[name] = parse_json(value)
            except ValueError:
                raise InputError(f"{option} {name}={value}: is not valid JSON") from None
    return settings


def check_output(option: str, path: Path | None, suffixes: tuple[str, ...]) -> None:
    """Before long work: refuse a file that cannot be written, or whose name does not say what it is."""
    if path is None:
        return
    if path.suffix not in suffixes:
        raise InputError(f"{option} {path}: give a name that ends in {' or '.join(suffixes)}")
    check_target(path)
    _note_replaced(option, path)


def check_jobs_output(path: Path) -> None:
    """The same of ``--out FILE``, a file of jobs."""
    from gpuyard.workload.job_table import check_suffix

    check_suffix(path)
    _note_replaced("--out", path)


def _note_replaced(option: str, path: Path) -> None:
    if path.is_file():
        print_note(f"{option} {path}: the file that is there is replaced")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def one_line(text: str) -> str:
    """Text that may come from a file, fit for a line of a terminal."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).strip()


def print_note(text: str) -> None:
    """Something to know about a result, on standard error; left out with --quiet."""
    if not is_quiet():
        print(f"note: {one_line(spelt(text, flag))}", file=sys.stderr)


def note_searches_without_result(policies: Iterable[str]) -> None:
    """Say which of these policies are searches that recommend nothing but what runs today."""
    from gpuyard.simulation.find import found_nothing

    for policy in policies:
        if today := found_nothing(Path(policy)):
            print_note(f"the search in {policy} recommends nothing: it stands for what runs today, {today}")


def open_console(**options: Any) -> Console:
    """The console for results."""
    return output(**options)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    print(json_text(document))
