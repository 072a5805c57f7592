"""What commands share: parameters, reading a workload, printing. Imports are made when they are needed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gpuyard.errors import InputError
from gpuyard.shape_options import parse_pairs

if TYPE_CHECKING:
    from rich.console import Console

    from gpuyard.cluster import Cluster
    from gpuyard.workload import Workload

Flag = Parameter(negative=(), show_default=False)
Json = Annotated[
    bool, Flag, Parameter(help="Print one JSON document on standard output and nothing else there.")
]
ClusterText = Annotated[
    str | None,
    Parameter(help="A shorthand such as 64x8 (nodes x GPUs), a preset's name, or a TOML file."),
]
WorkloadText = Annotated[
    str, Parameter(help="A file of jobs in any known format, or a built-in workload such as demo.")
]
OutFile = Annotated[Path, Parameter(help="The file to write: .csv, .csv.gz or .parquet.")]


def open_workload(source: str) -> Workload:
    """The jobs of a file, or built-in ones."""
    return open_trace(source, None)[0]


def open_trace(source: str, cluster: str | None) -> tuple[Workload, Cluster | None]:
    """The jobs of a file or built-in ones, and the cluster: the named one, else that of built-in jobs.

    Raises:
        InputError: for a name that is neither a file nor a built-in workload, with the closest ones.
    """
    machines = open_cluster(cluster)
    if is_preset(source):
        from gpuyard.workload.generators import preset_workload

        trace = preset_workload(source)
        return trace.workload, machines or trace.cluster
    from gpuyard.workload import read_workload

    return read_workload(source), machines


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
        from gpuyard.registry import suggest

        known = suggest(source, preset_workloads())
        raise InputError(f"{source}: no such file, and no built-in workload of that name{known}")
    return False


def open_cluster(text: str | None) -> Cluster | None:
    """The cluster, if one was named."""
    from gpuyard.cluster import parse_cluster

    return None if text is None else parse_cluster(text)


def first_lines(things: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Names and the first lines of what the things say of themselves."""
    return [
        (name, (thing.__doc__ or "").strip().split("\n", 1)[0].replace("``", "")) for name, thing in things
    ]


def parse_settings(option: str, texts: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE pairs. Values as they are; those that start like a JSON list or object are read as one."""
    settings: dict[str, Any] = dict(parse_pairs(option, list(texts)))
    for name, value in settings.items():
        if value[:1] in ("[", "{"):
            try:
                settings[name] = json.loads(value)
            except ValueError:
                raise InputError(f"{option} {name}={value}: is not valid JSON") from None
    return settings


def check_suffix_among(path: Path | None, suffixes: tuple[str, ...]) -> None:
    """Refuse a name for --out that does not say which kind of file it is."""
    if path is not None and path.suffix not in suffixes:
        raise InputError(f"--out {path}: give a name that ends in {' or '.join(suffixes)}")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    from gpuyard.files import atomic_write

    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def open_console(**options: Any) -> Console:
    """The console for results."""
    from gpuyard.terminal import output

    return output(**options)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    from gpuyard.quantities import json_text

    print(json_text(document))
