"""Clusters and policies from slurm.conf and gres.conf."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuyard.cluster.hostlists import MOST_NODES, expanded_nodes
from gpuyard.cluster.imports import slurm_keys as keys
from gpuyard.cluster.imports.findings import Findings
from gpuyard.cluster.imports.listed import ListedNode, ListedPartition
from gpuyard.cluster.imports.slurm_gres import Gres
from gpuyard.cluster.imports.slurm_nodes import partition_fields
from gpuyard.cluster.imports.slurm_policy import slurm_policy
from gpuyard.cluster.imports.slurm_syntax import Statement
from gpuyard.cluster.imports.slurm_units import gpus_of, whole

_LISTS = ("nodename", "partitionname", "nodeset")
"""Statements of which there may be many."""
_ABSENT = re.compile(r"FUTURE", re.IGNORECASE)


@dataclass
class SlurmConf:
    """What a slurm.conf describes.

    Attributes:
        name: Of the cluster; empty: not stated.
        nodes: Its nodes.
        partitions: Its partitions.
        policy: Name of its policy.
        settings: Of its policy.
        notes: What to know.
    """

    name: str
    nodes: list[ListedNode]
    partitions: list[ListedPartition]
    policy: str
    settings: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def read_slurm_conf(
    statements: Sequence[Statement], gres: Sequence[Statement], findings: Findings
) -> SlurmConf:
    """The cluster and the policy of a slurm.conf.

    Args:
        statements: Of slurm.conf and what it includes.
        gres: Of gres.conf; empty: not given.
        findings: Told what became of every key.

    Raises:
        InputError: naming file and line.
    """
    stated = _stated(statements, findings)
    nodes = _Nodes(Gres(gres, findings), findings, with_memory=_counts_memory(stated, findings))
    for statement in _of("nodename", statements):
        nodes.add(statement)
    nodes.finish()
    sets = _node_sets(_of("nodeset", statements), nodes, findings)
    partitions = list(_partitions(_of("partitionname", statements), nodes, sets, findings))
    policy, settings = slurm_policy(stated, findings)
    name = stated["clustername"][0] if "clustername" in stated else ""
    return SlurmConf(name, list(nodes.found.values()), partitions, policy, settings, nodes.notes)


def _of(head: str, statements: Iterable[Statement]) -> list[Statement]:
    return [one for one in statements if one.head == head]


def _stated(statements: Iterable[Statement], findings: Findings) -> dict[str, tuple[str, Statement]]:
    """The last value of every key of its own line."""
    stated: dict[str, tuple[str, Statement]] = {}
    for statement in statements:
        if statement.head in _LISTS:
            continue
        # DownNodes, FrontendName and the like bring keys of their own.
        pairs = statement.pairs[:1] if statement.head in ("downnodes", "frontendname") else statement.pairs
        for key, value in pairs:
            low = key.lower()
            stated[low] = (value, statement)
            if low in keys.USED:
                findings.add(statement.where, key, "used")
            elif low in keys.NOT_MODELLED and not _is_off(value):
                findings.add(statement.where, key, "not-modelled", keys.NOT_MODELLED[low])
            elif low in keys.NOT_MODELLED or keys.has_no_effect(low):
                findings.add(statement.where, key, "no-effect")
            else:
                findings.add(statement.where, key, "unknown")
    return stated


def _is_off(value: str) -> bool:
    """Whether a plug-in or a feature is not in use."""
    return value.lower().rpartition("/")[2] in ("", "none", "off", "no", "default", "0", "infinite", "-1")


def _counts_memory(stated: Mapping[str, tuple[str, Statement]], findings: Findings) -> bool:
    """Whether Slurm counts the memory of nodes; ``CR_Core`` alone does not."""
    text, statement = stated.get("selecttypeparameters", ("", None))
    counted = "cr_" not in text.lower() or "memory" in text.lower()
    if not counted and statement is not None:
        findings.add(
            statement.where, f"SelectTypeParameters={text}", "used", "memory is not counted: nodes state none"
        )
    return counted


class _Nodes:
    """Nodes by name, as lines of slurm.conf add them."""

    def __init__(self, gres: Gres, findings: Findings, *, with_memory: bool) -> None:
        self.found: dict[str, ListedNode] = {}
        self.absent: dict[str, None] = {}
        self.features: dict[str, list[str]] = {}
        self.notes: list[str] = []
        self._gres, self._findings, self._with_memory = gres, findings, with_memory
        self._usual: dict[str, str] = {}
        self._where: dict[str, Statement] = {}

    def add(self, statement: Statement) -> None:
        """The nodes of one line; ``DEFAULT`` is for those after it."""
        self._explain(statement)
        own = statement.values
        if own["nodename"].upper() == "DEFAULT":
            self._usual |= own
            return
        values = {**self._usual, **own}
        names = _expanded(own["nodename"], "NodeName", statement)
        try:
            sizes = _cpus(values), whole(values.get("realmemory", "0") or "0")
        except ValueError as error:
            raise statement.refuse(error) from None
        for name in names:
            if name in self._where:
                first = self._where[name]
                raise statement.refuse(
                    f"node {name} was described before ({first.where}); remove one of them"
                )
            self._where[name] = statement
            if _ABSENT.search(values.get("state", "")):
                self.absent[name] = None
                continue
            gpus = (
                self._gres.typed(name, gpus_of(values["gres"])) if "gres" in values else self._gres.of(name)
            )
            memory = (
                sizes[1] if self._with_memory and sizes[1] > 1 else 0
            )  # 1 is what Slurm takes for "not stated"
            self.found[name] = ListedNode(name, gpus, sizes[0], memory, values.get("state", ""))
            for feature in re.split(r"[,\s]+", values.get("features", values.get("feature", ""))):
                self.features.setdefault(feature, []).append(name)

    def _explain(self, statement: Statement) -> None:
        for key, _ in statement.pairs:
            _explain(
                statement,
                key,
                self._findings,
                (keys.NODE_USED, keys.NODE_NOT_MODELLED, keys.NODE_NO_EFFECT),
            )

    def finish(self) -> None:
        """Say what was found."""
        if self.absent:
            first = ", ".join(list(self.absent)[:3])
            self.notes.append(f"left out, as their state is FUTURE: {len(self.absent)} nodes ({first} ...)")
        self._gres.finish(self.found)

    def named(
        self, text: str, what: str, statement: Statement, sets: Mapping[str, Sequence[str]]
    ) -> list[str]:
        """The nodes of a list of names, ranges and sets; ``ALL``: all.

        Raises:
            InputError: for a name that is none of these.
        """
        if text.upper() == "ALL":
            return list(self.found)
        names: dict[str, None] = {}
        for name in _expanded(text, what, statement):
            if name in sets:
                names |= dict.fromkeys(sets[name])
            elif name.upper() == "ALL":
                names |= dict.fromkeys(self.found)
            elif name in self.found:
                names[name] = None
            elif name not in self.absent:
                raise statement.refuse(
                    f"{what} has node {name}, which no NodeName line describes; add that line (or the file "
                    "that has it), or remove the node"
                )
        return list(names)


def _explain(
    statement: Statement,
    key: str,
    findings: Findings,
    known: tuple[Iterable[str], Mapping[str, str], Iterable[str]],
) -> None:
    """Note what becomes of a key of a line of nodes or of a partition."""
    used, not_modelled, no_effect = known
    low, name = key.lower(), f"{statement.pairs[0][0]}.{key}"
    if low in used:
        findings.add(statement.where, name, "used")
    elif low in not_modelled:
        findings.add(statement.where, name, "not-modelled", not_modelled[low])
    else:
        findings.add(statement.where, name, "no-effect" if low in no_effect else "unknown")


def _expanded(text: str, what: str, statement: Statement) -> list[str]:
    names = expanded_nodes(text)
    if names is None:
        raise statement.refuse(
            f"{what}: cannot read the range {text!r}; expected names such as gn[001-128,130], at most "
            f"{MOST_NODES:,}"
        )
    return names


def _cpus(values: Mapping[str, str]) -> int:
    """CPUs of a node: as stated, or sockets times cores times threads."""
    stated = values.get("cpus", values.get("procs", ""))
    if stated:
        return whole(stated)
    sockets = values.get("sockets") or values.get("socketsperboard") or "1"
    boards = values.get("boards") if "sockets" not in values else "1"
    parts = (boards or "1", sockets, values.get("corespersocket", "1"), values.get("threadspercore", "1"))
    product = 1
    for part in parts:
        product *= whole(part)
    return product


def _node_sets(statements: Sequence[Statement], nodes: _Nodes, findings: Findings) -> dict[str, list[str]]:
    sets: dict[str, list[str]] = {}
    for statement in statements:
        values = statement.values
        members: dict[str, None] = {}
        for key, _ in statement.pairs:
            known = key.lower() in ("nodeset", "nodes", "feature")
            findings.add(statement.where, f"NodeSet.{key}", "used" if known else "unknown")
        if "feature" in values:
            members |= dict.fromkeys(nodes.features.get(values["feature"], ()))
        if "nodes" in values:
            members |= dict.fromkeys(
                nodes.named(values["nodes"], f"NodeSet {values['nodeset']}", statement, sets)
            )
        sets[values["nodeset"]] = list(members)
    return sets


def _partitions(
    statements: Sequence[Statement], nodes: _Nodes, sets: Mapping[str, Sequence[str]], findings: Findings
) -> Iterable[ListedPartition]:
    usual: dict[str, str] = {}
    first: dict[str, Statement] = {}
    for statement in statements:
        own = statement.values
        for key, value in statement.pairs:
            if key.lower() == "state":
                is_up = value.upper() == "UP"
                remark = "" if is_up else "jobs of this partition run here nevertheless"
                findings.add(
                    statement.where, f"PartitionName.{key}", "used" if is_up else "not-modelled", remark
                )
                continue
            known = (keys.PARTITION_USED, keys.PARTITION_NOT_MODELLED, keys.PARTITION_NO_EFFECT)
            _explain(statement, key, findings, known)
        if own["partitionname"].upper() == "DEFAULT":
            usual |= own
            continue
        values, name = {**usual, **own}, own["partitionname"]
        if name in first:
            raise statement.refuse(
                f"partition {name} was described before ({first[name].where}); remove one of them"
            )
        first[name] = statement
        try:
            fields = partition_fields(values)
        except ValueError as error:
            raise statement.refuse(f"partition {name}: {error}") from None
        members = nodes.named(values.get("nodes", ""), f"partition {name}", statement, sets)
        yield ListedPartition(name, tuple(members), fields, values.get("qos", ""))
