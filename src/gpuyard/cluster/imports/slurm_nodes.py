"""Slurm's own lists of nodes: scontrol show node, sinfo -N, and both as JSON; scontrol show partition."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from gpuyard.cluster.hostlists import expanded_nodes
from gpuyard.cluster.imports.listed import ListedNode, ListedPartition
from gpuyard.cluster.imports.slurm_units import gpus_of, limit, slurm_seconds, whole, yes
from gpuyard.errors import InputError

COMMANDS = "scontrol show node (also -o or --json), or sinfo -N -o '%N %G %c %m %T %P'"

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_HEADINGS = {"NODELIST": "name", "HOSTNAMES": "name", "GRES": "gres", "CPUS": "cpus", "MEMORY": "memory",
             "STATE": "state", "PARTITION": "partition"}  # fmt: skip


def is_node_list(text: str) -> bool:
    """Whether a text is one of Slurm's lists of nodes."""
    if text.startswith("NodeName="):
        return "CPUTot=" in text or "State=" in text
    headings = set(_headings(text.split("\n", 1)[0]))
    return "name" in headings and bool({"gres", "cpus"} & headings)


def listed_nodes(text: str, source: str) -> list[ListedNode]:
    """The nodes of scontrol show node or sinfo -N, each once.

    Raises:
        InputError: for a line with too many or too few columns.
    """
    if text.startswith("NodeName="):
        return _once(_from_pairs(block) for block in re.split(r"\n\s*(?=NodeName=)", text))
    lines = text.splitlines()
    headings = _headings(lines[0])
    rows = [(number, line) for number, line in enumerate(lines[1:], 2) if line.strip()]
    return _once(_from_columns(headings, line, f"{source}, line {number}") for number, line in rows)


def json_nodes(nodes: Iterable[Any]) -> list[ListedNode]:
    """The nodes of scontrol show nodes --json, or sinfo --json up to Slurm 22.05."""
    return _once(_from_record(node) for node in nodes if isinstance(node, dict))


def _headings(line: str) -> list[str]:
    return [_HEADINGS.get(word, "") for word in line.upper().split()]


def _once(nodes: Iterable[ListedNode]) -> list[ListedNode]:
    """Each node once, in all partitions that its lines name."""
    found: dict[str, ListedNode] = {}
    for node in nodes:
        before = found.get(node.name)
        both = node.partitions if before is None else (*before.partitions, *node.partitions)
        found[node.name] = replace(node, partitions=tuple(dict.fromkeys(both)))
    return list(found.values())


def _from_pairs(block: str) -> ListedNode:
    """``NodeName=gn1 CPUTot=16 RealMemory=64000 Gres=gpu:a100:8(S:0-1) State=IDLE Partitions=a,b ...``."""
    pairs = dict(_PAIR.findall(block))
    # CfgTRES has gres/gpu=8 where Gres is hidden.
    return ListedNode(
        pairs.get("NodeName", ""),
        gpus_of(pairs.get("Gres", "")) or gpus_of(pairs.get("CfgTRES", "")),
        _count(pairs.get("CPUTot")),
        _count(pairs.get("RealMemory")),
        pairs.get("State", ""),
        _names(pairs.get("Partitions", "")),
    )


def _from_columns(headings: list[str], line: str, where: str) -> ListedNode:
    words = line.split()
    if len(words) != len(headings):
        raise InputError(
            f"{where}: has {len(words)} columns, expected {len(headings)} as in line 1; print fields without "
            "widths: sinfo -N -o '%N %G %c %m %T %P'"
        )
    row = dict(zip(headings, words, strict=True))
    return ListedNode(
        row["name"],
        gpus_of(row.get("gres", "")),
        _count(row.get("cpus")),
        _count(row.get("memory")),
        row.get("state", ""),
        _names(row.get("partition", "")),
    )


def _from_record(node: Mapping[str, Any]) -> ListedNode:
    state, partitions = node.get("state"), node.get("partitions") or []
    words = state if isinstance(state, list) else [state, *(node.get("state_flags") or [])]
    return ListedNode(
        str(node.get("name", "")),
        gpus_of(str(node.get("gres") or "")),
        _count(node.get("cpus")),
        _count(node.get("real_memory")),
        "+".join(str(word) for word in words),
        tuple(map(str, partitions)) if isinstance(partitions, list) else _names(str(partitions)),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name and name != "(null)")


def _count(value: object) -> int:
    """A whole number, also as ``16+`` or ``{"number": 16}``; 0 if it is none."""
    if isinstance(value, dict):
        value = value.get("number")
    found = re.match(r"\d{1,12}", str(value))
    return int(found[0]) if found else 0


# --- scontrol show partition ---


def shown_partitions(text: str, source: str, nodes: Iterable[str]) -> list[ListedPartition]:
    """The partitions of scontrol show partition (also -o).

    Raises:
        InputError: for a value that cannot be read, or nodes that there are none of.
    """
    known = set(nodes)
    starts = [found.start() for found in re.finditer(r"^\s*PartitionName=", text, re.MULTILINE)]
    blocks = [text[begin:end].strip() for begin, end in pairwise([*starts, len(text)])]
    lines = [text.count("\n", 0, text.index("PartitionName=", start)) + 1 for start in starts]
    return [
        _partition(dict(_PAIR.findall(block)), f"{source}, line {line}", known)
        for block, line in zip(blocks, lines, strict=True)
    ]


def _partition(pairs: Mapping[str, str], where: str, known: set[str]) -> ListedPartition:
    name = pairs["PartitionName"]
    listed = "" if pairs.get("Nodes", "(null)") == "(null)" else pairs["Nodes"]
    nodes = expanded_nodes(listed)
    if nodes is None:
        raise InputError(f"{where}: partition {name}: cannot read the nodes {listed!r}")
    missing = next((node for node in nodes if node not in known), None)
    if missing is not None:
        raise InputError(f"{where}: partition {name} has node {missing}, which the list of nodes has not")
    try:
        fields = partition_fields({key.lower(): value for key, value in pairs.items()})
    except ValueError as error:
        raise InputError(f"{where}: partition {name}: {error}") from None
    qos = pairs.get("QoS", "N/A")
    return ListedPartition(name, tuple(nodes), fields, "" if qos == "N/A" else qos)


def partition_fields(values: Mapping[str, str]) -> dict[str, Any]:
    """Fields of ``Partition`` from keys that slurm.conf and scontrol share, in lower case.

    Raises:
        ValueError: naming the key whose value cannot be read.
    """
    old = values.get("priority", "")  # before Slurm 16.05 one number was both
    readers: dict[str, tuple[str, Any, str]] = {
        "default": ("default", yes, ""),
        "prioritytier": ("priority_tier", whole, old),
        "priorityjobfactor": ("priority_job_factor", whole, old),
        "maxtime": ("max_time_s", slurm_seconds, ""),
        "maxnodes": ("max_nodes", limit, ""),
    }
    fields: dict[str, Any] = {}
    for key, (field, read, otherwise) in readers.items():
        text = values.get(key, otherwise)
        if text:
            try:
                fields[field] = read(text)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
    return {field: value for field, value in fields.items() if value not in (None, False)}
