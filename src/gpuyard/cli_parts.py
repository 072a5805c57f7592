"""What commands share: parameters, reading a workload, printing. Imports are made when they are needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

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
WorkloadText = Annotated[str, Parameter(help="A file of jobs in any known format, or demo.")]


def open_workload(source: str) -> Workload:
    """The jobs of a file, or the built-in ones."""
    from gpuyard.workload import demo_workload, read_workload

    return demo_workload() if source == "demo" else read_workload(source)


def open_cluster(text: str | None) -> Cluster | None:
    """The cluster, if one was named."""
    from gpuyard.cluster import parse_cluster

    return None if text is None else parse_cluster(text)


def first_lines(things: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Names and the first lines of what the things say of themselves."""
    return [
        (name, (thing.__doc__ or "").strip().split("\n", 1)[0].replace("``", "")) for name, thing in things
    ]


def open_console(**options: Any) -> Console:
    """The console for results."""
    from gpuyard.terminal import output

    return output(**options)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    from gpuyard.quantities import json_text

    print(json_text(document))
