"""Clusters whose nodes are divided among virtual clusters, from the small tables that come with traces."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import polars as pl
from pydantic import ValidationError

from gpuyard.cluster.model import Cluster, GpuType, NodeGroup
from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.workload.chunks import open_bytes
from gpuyard.workload.importing import ImportLog

_MAX_BYTES = 16 * 1024 * 1024
MAX_CELL = 1_000_000
"""Most GPUs or nodes that one entry of a table may state."""


def small_table(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a small CSV file with their line numbers, fields stripped, blank lines left out.

    Raises:
        InputError: if it is not CSV, or too large to be such a table.
    """
    with open_bytes(path) as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InputError(f"{path}: is larger than {_MAX_BYTES:,} bytes; a table of machines is not")
    reader = csv.reader(io.StringIO(data.decode("utf-8-sig", errors="replace"), newline=""))
    rows = []
    try:
        for fields in reader:
            stripped = [field.strip() for field in fields]
            if any(stripped):
                rows.append((reader.line_num, stripped))
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: cannot be read as CSV ({error}); check its quotes"
        ) from None
    return rows


def whole_cell(path: Path, line: int, column: str, text: str) -> int:
    """A field of a small table as a whole number.

    Raises:
        InputError: naming the place.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and int(text) <= MAX_CELL):
        raise InputError(
            f"{path}, line {line}, column {column}: is {text[:40]!r}, expected a whole number from 0 to "
            f"{MAX_CELL}; correct it"
        )
    return int(text)


def make_cluster(
    path: Path, name: str, nodes: Iterable[NodeGroup | None], gpu_types: tuple[GpuType, ...] = ()
) -> Cluster:
    """The cluster that a file describes; groups that are None are left out.

    Raises:
        InputError: if it has no nodes, or more than are supported.
    """
    groups = tuple(group for group in nodes if group is not None)
    if not groups:
        raise InputError(f"{path}: states no node at all; leave the file out or correct it")
    try:
        return Cluster(name=name[:200] or "cluster", nodes=groups, gpu_types=gpu_types)
    except ValidationError as error:
        raise refusal(error, str(path)) from None


def node_group(path: Path, line: int, count: int, gpus: int, owner: str | None) -> NodeGroup | None:
    """Like nodes that a group owns; None if there are none.

    Raises:
        InputError: if the owner's name is empty or too long.
    """
    if count == 0 or gpus == 0:
        return None
    try:
        return NodeGroup(count=count, gpus=gpus, type="gpu", owner=owner)
    except ValidationError as error:
        raise refusal(error, f"{path}, line {line}") from None


def report_homeless(groups: pl.Series, cluster: Cluster, log: ImportLog, remedy: str) -> None:
    """Say which groups have jobs and own no nodes of a cluster in which every node has an owner."""
    owners = cluster.owners
    if not owners:
        return
    homeless = groups.fill_null("").value_counts(name="jobs").filter(~pl.col(groups.name).is_in(owners))
    if homeless.height == 0:
        return
    homeless = homeless.sort(["jobs", groups.name], descending=[True, False])
    shown = ", ".join(f"{name or '(none)'} {jobs:,}" for name, jobs in homeless.head(12).iter_rows())
    log.assume(
        f"{homeless.height} groups with {homeless['jobs'].sum():,} jobs own no nodes of the cluster, so that "
        f"these jobs cannot run on it ({shown}{', ...' if homeless.height > 12 else ''}); {remedy}"
    )
