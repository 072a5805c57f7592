"""Printed lines read back by the import of slurm.conf: what is simulated is what is printed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.cluster.hostlists import compressed_nodes, expanded_nodes
from gpuyard.cluster.imports.findings import Finding
from gpuyard.cluster.imports.recognise import import_cluster
from gpuyard.cluster.model import Cluster, Partition
from gpuyard.policies.policy_file import TunedPolicy, tuned_policy
from gpuyard.policies.slurm_lines.classes import node_labels

FILE = "slurm-lines.conf"
_NODES = Path("nodes-of-the-cluster.conf")
_QOS = re.compile(r"^#\s+sacctmgr -i add qos (\S+) set (.+)$", re.MULTILINE)
_SHARE = re.compile(
    r"^#\s+sacctmgr -i modify (user|account) where name=(\S+) set fairshare=(\d+)$", re.MULTILINE
)
_COLUMNS = {"priority": "Priority", "grptres": "GrpTRES"}
"""What commands set: the column of ``sacctmgr show qos``."""


@dataclass(frozen=True)
class ReadLines:
    """What printed lines say.

    Attributes:
        cluster: The nodes that they are for, with the lines' partitions and QOSes.
        policy: The policy that they describe.
        findings: What became of every key.
    """

    cluster: Cluster
    policy: TunedPolicy
    findings: tuple[Finding, ...]


def read_lines(text: str, cluster: Cluster) -> ReadLines:
    """Read printed lines, commands included.

    Args:
        text: As ``SlurmLines.text`` gives it.
        cluster: What it is for: lines say nothing of nodes.

    Raises:
        InputError: for lines that cannot be read, which would be an error of the export.
    """
    files = {Path(FILE): f"{text}\n{_node_lines(cluster)}\n"}
    if table := _qos_table(_QOS.findall(text)):
        files[Path("qos")] = table
    found = import_cluster(files)
    assert found.policy is not None  # there is a slurm.conf
    policy = tuned_policy(found.policy, {**found.settings, **_shares(text)}, FILE)
    partitions = [_for_nodes(one, cluster) for one in found.cluster.partitions]
    fields: dict[str, Any] = {"partitions": partitions} if partitions else {}
    fields |= {"qos": [one.model_dump() for one in found.cluster.qos]} if found.cluster.qos else {}
    kept = cluster.model_dump()
    own = tuple(one for one in found.findings if not one.key.startswith("NodeName"))
    return ReadLines(Cluster.model_validate(kept | fields), policy, own)


def _node_lines(cluster: Cluster) -> str:
    labels, lines, first = node_labels(cluster), [], 0
    for group in cluster.nodes:
        names = compressed_nodes(labels[first : first + group.count])
        gres = f" Gres=gpu:{group.gpus}" if group.gpus else ""
        lines.append(f"NodeName={names} CPUs={group.cpus or 1}{gres}")
        first += group.count
    return "\n".join(lines)


def _for_nodes(partition: Partition, cluster: Cluster) -> dict[str, Any]:
    """A partition whose nodes are called as the cluster's file calls them."""
    fields = partition.model_dump()
    if partition.nodes != "all" and not any(cluster.node_names):
        number = {name: place for place, name in enumerate(node_labels(cluster))}
        names = expanded_nodes(partition.nodes) or []
        fields["nodes"] = ",".join(str(number[name]) for name in names)
    return fields


def _qos_table(commands: Iterable[tuple[str, str]]) -> str:
    """Commands that add QOSes, as ``sacctmgr -P show qos`` would list them afterwards; empty: none."""
    rows = []
    for name, settings in commands:
        stated: Mapping[str, str] = {
            key.lower(): value for key, _, value in (part.partition("=") for part in settings.split())
        }
        rows.append("|".join([name, *(stated.get(key, "") for key in _COLUMNS)]))
    return "\n".join(["|".join(("Name", *_COLUMNS.values())), *rows]) if rows else ""


def _shares(text: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for kind, name, share in _SHARE.findall(text):
        setting = "user_shares" if kind == "user" else "group_shares"
        found.setdefault(setting, {})[name] = float(share)
    return found
