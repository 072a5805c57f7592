"""Imports of clusters on a terminal: what became of the keys of a scheduler's configuration."""

from collections.abc import Iterable, Sequence
from os.path import commonpath
from pathlib import Path

from rich.table import Table

from gpuyard.cluster.imports.findings import Finding
from gpuyard.terminal.tables import plain_table

MOST_PLACES = 3
_WORDS = {"used": "used", "no-effect": "no effect", "not-modelled": "not modelled", "unknown": "unknown"}


def finding_table(findings: Sequence[Finding]) -> Table:
    """Keys that are not modelled or not known, each once, with where they stand and what happens instead.

    Keys that are used or have no effect are there if there is something to say of them.
    """
    table = plain_table("key", "where", "", "here")
    root = _common_folder(findings)
    places: dict[tuple[str, str, str], dict[str, None]] = {}
    for one in findings:
        if one.status in ("not-modelled", "unknown") or one.remark:
            rows = places.setdefault((one.key, one.status, one.remark), {})
            rows[one.where.removeprefix(root)] = None
    for (key, status, remark), where in places.items():
        table.add_row(key, _some(list(where)), _WORDS[status], remark)
    for column in table.columns:
        column.overflow = "fold"  # a key that is cut off cannot be looked up
    return table


def _common_folder(findings: Iterable[Finding]) -> str:
    """The folder that all files lie in, with a slash; empty: none."""
    folders = {str(Path(one.where).parent) for one in findings}
    common = commonpath(folders) if len({folder[:1] == "/" for folder in folders}) == 1 else ""
    return f"{common}/" if common not in ("", ".") else ""


def finding_words(findings: Iterable[Finding]) -> str:
    """How many keys were used, and which have no effect on who runs when and where."""
    all_of_them = list(findings)
    used = {one.key.lower() for one in all_of_them if one.status == "used"}
    rest: dict[str, str] = {}
    for one in all_of_them:
        if one.status == "no-effect" and not one.remark:
            rest.setdefault(one.key, one.where.rpartition(":")[2])
    idle = ", ".join(f"{key} (line {line})" for key, line in rest.items())
    return f"Used: {len(used)} keys. Without effect on who runs when and where: {idle or 'none'}."


def _some(places: list[str]) -> str:
    more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    return ", ".join(places[:MOST_PLACES]) + more
