"""Which of the known lists a file is, by its content, and the cluster that all files make together."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from gpuyard.cluster.imports import kubernetes_nodes as kubernetes
from gpuyard.cluster.imports import lsf_hosts as lsf
from gpuyard.cluster.imports import slurm_nodes as slurm
from gpuyard.cluster.imports.findings import Findings
from gpuyard.cluster.imports.listed import (
    ImportedCluster,
    ListedNode,
    ListedPartition,
    listed_partitions,
    make_cluster,
)
from gpuyard.cluster.imports.sacctmgr import (
    is_qos_table,
    is_share_table,
    read_qos,
    read_shares,
    with_partition_limits,
)
from gpuyard.cluster.imports.slurm_conf import SlurmConf, read_slurm_conf
from gpuyard.cluster.imports.slurm_syntax import read_statements
from gpuyard.errors import InputError
from gpuyard.files import parse_json

Kind = Literal[
    "slurm.conf", "gres.conf", "nodes", "partitions", "qos", "shares", "json", "kubernetes", "lsf", "unknown"
]
READ = (
    f"slurm.conf and gres.conf; Slurm's {slurm.COMMANDS}, scontrol show partition, sacctmgr -P show qos and "
    f"show assoc; LSF's {lsf.COMMANDS}; {kubernetes.COMMANDS}"
)
"""What is read, for people."""

_CONF = re.compile(r"^\s*(?:include\s+\S|[A-Za-z]\w*\s*=)", re.IGNORECASE | re.MULTILINE)
_GRES = re.compile(r"^\s*(?:NodeName=\S+\s+)?(?:Name|AutoDetect)\s*=", re.IGNORECASE | re.MULTILINE)
_SLURM_CONF = re.compile(
    r"^\s*(?:include\s+\S|(?:ClusterName|SlurmctldHost|ControlMachine|SchedulerType|PriorityType|PartitionName|"
    r"NodeName|NodeSet|GresTypes|SelectType)\s*=)",
    re.IGNORECASE | re.MULTILINE,
)


def import_cluster(texts: Mapping[Path, str]) -> ImportedCluster:
    """The cluster, and the policy if a slurm.conf is among the files.

    Args:
        texts: What the files hold, by path.

    Raises:
        InputError: for a file that is none of those that are read, or files that do not go together.
    """
    by_kind: dict[Kind, dict[Path, str]] = {}
    for path, text in texts.items():
        kind, bare = _kind(path, text), text.removeprefix("\ufeff")
        # Lines of configurations are counted in the file as it is.
        by_kind.setdefault(kind, {})[path] = bare if kind.endswith(".conf") else bare.strip()
    return _Files(by_kind).imported()


def _kind(path: Path, raw: str) -> Kind:
    text = raw.removeprefix("\ufeff").strip()
    if not text:
        raise InputError(f"{path}: is empty; a cluster needs at least one node")
    if text.startswith("{"):
        return "kubernetes" if kubernetes.is_node_document(_json(path, text)) else "json"
    checks: tuple[tuple[Kind, bool], ...] = (
        ("qos", is_qos_table(text)),
        ("shares", is_share_table(text)),
        ("partitions", text.startswith("PartitionName=") and "TotalNodes=" in text),
        ("nodes", slurm.is_node_list(text) and not _is_configuration(path, text)),
        ("lsf", lsf.is_host_list(text)),
        ("slurm.conf", bool(_SLURM_CONF.search(text)) and not _is_gres(path, text)),
        ("gres.conf", _is_gres(path, text)),
    )
    found = next((kind for kind, holds in checks if holds), None)
    if found is None:
        raise InputError(f"{path}, line 1: is no list of nodes that is known. Read are {READ}")
    return found


def _is_configuration(path: Path, text: str) -> bool:
    """slurm.conf may begin with a line of nodes, too; ``CPUTot`` is of scontrol alone."""
    return text.startswith("NodeName=") and "CPUTot=" not in text and path.suffix == ".conf"


def _is_gres(path: Path, text: str) -> bool:
    others = re.search(
        r"^\s*(?:ClusterName|SlurmctldHost|PartitionName|SchedulerType)\s*=", text, re.I | re.M
    )
    return bool(_GRES.search(text)) and not others and path.name != "slurm.conf"


def _json(path: Path, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: cannot be read as JSON ({error}); fetch it again") from None


class _Files:
    """Files by what they are."""

    def __init__(self, by_kind: Mapping[Kind, Mapping[Path, str]]) -> None:
        self._by_kind, self._findings = by_kind, Findings()
        self._notes: list[str] = []

    def imported(self) -> ImportedCluster:
        conf = self._slurm_conf()
        source = self._source()
        nodes = self._nodes() if conf is None else conf.nodes
        partitions = self._partitions(nodes) if conf is None else conf.partitions
        qos = [one for path, text in self._of("qos") for one in read_qos(text, str(path), self._findings)]
        limits = {one["name"]: one for one in qos}
        partitions = [
            replace(one, fields=with_partition_limits(one.fields, limits.get(one.qos))) for one in partitions
        ]
        self._note_missing(partitions, limits)
        name = (conf.name if conf is not None else "") or source.name.split(".")[0]
        cluster, notes = make_cluster(name, nodes, str(source), partitions, qos)
        policy, settings = (None, {}) if conf is None else (conf.policy, dict(conf.settings))
        for path, text in self._of("shares"):
            settings |= {key: one for key, one in read_shares(text, str(path), self._findings).items() if one}
        more = (*self._notes, *(conf.notes if conf is not None else ()))
        return ImportedCluster(cluster, (*notes, *more), tuple(self._findings), policy, settings)

    def _of(self, kind: Kind) -> Sequence[tuple[Path, str]]:
        return tuple(self._by_kind.get(kind, {}).items())

    def _source(self) -> Path:
        """The file that says most of the nodes."""
        kinds: tuple[Kind, ...] = ("slurm.conf", "nodes", "json", "kubernetes", "lsf")
        given = [path for kind in kinds for path, _ in self._of(kind)]
        if given:
            return given[0]
        (path, _), *_ = (entry for kind in self._by_kind for entry in self._of(kind))
        raise InputError(
            f"{path}: says nothing of nodes; give a list of nodes or slurm.conf too. Read are {READ}"
        )

    def _slurm_conf(self) -> SlurmConf | None:
        confs = self._of("slurm.conf")
        if not confs:
            return None
        lists = [path for kind in ("nodes", "json", "partitions") for path, _ in self._of(kind)]
        if len(confs) > 1 or lists:
            other = (*lists, *(path for path, _ in confs[1:]))[0]
            raise InputError(f"{other}: {confs[0][0]} describes the nodes already; give one of them")
        statements = read_statements(*confs[0])
        gres = [one for entry in self._of("gres.conf") for one in read_statements(*entry)]
        return read_slurm_conf(statements, gres, self._findings)

    def _nodes(self) -> list[ListedNode]:
        nodes = [one for path, text in self._of("nodes") for one in slurm.listed_nodes(text, str(path))]
        for path, text in self._of("json"):
            nodes += slurm.json_nodes(_slurm_records(_json(path, text), path))
        for path, text in self._of("kubernetes"):
            found, notes = kubernetes.kubernetes_nodes(_json(path, text), str(path))
            nodes, self._notes = nodes + found, self._notes + notes
        return nodes + lsf.listed_hosts({str(path): text for path, text in self._of("lsf")})

    def _partitions(self, nodes: Sequence[ListedNode]) -> list[ListedPartition]:
        names = [node.name for node in nodes]
        shown = [
            one
            for path, text in self._of("partitions")
            for one in slurm.shown_partitions(text, str(path), names)
        ]
        if shown:
            return shown
        listed = listed_partitions(nodes)
        if listed and not any(one.fields for one in listed):
            self._notes.append(
                "limits, priorities and the default of partitions are not listed; add the output of scontrol "
                "show partition"
            )
        return listed

    def _note_missing(self, partitions: Sequence[ListedPartition], limits: Mapping[str, Any]) -> None:
        missing = [f"{one.qos} (of {one.name})" for one in partitions if one.qos and one.qos not in limits]
        if missing:
            self._notes.append(
                f"limits of QOSes of partitions are not known: {', '.join(missing[:3])}; add the output of "
                "sacctmgr -P show qos"
            )


def _slurm_records(document: Any, path: Path) -> Sequence[Any]:
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if isinstance(nodes, list):
        return nodes
    if isinstance(document, dict) and "sinfo" in document:
        raise InputError(
            f"{path}: groups nodes (sinfo --json of Slurm 23.02 and later); run scontrol show nodes --json"
        )
    raise InputError(f"{path}: has no list of nodes. Read are {READ}")
