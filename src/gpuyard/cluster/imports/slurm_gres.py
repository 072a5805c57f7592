"""Types and numbers of GPUs from gres.conf."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.cluster.hostlists import expanded_nodes
from gpuyard.cluster.imports.findings import Findings
from gpuyard.cluster.imports.slurm_syntax import Statement
from gpuyard.cluster.imports.slurm_units import whole

_USED = ("nodename", "name", "type", "file", "count", "multiplefiles")
_NO_EFFECT = ("autodetect", "cores", "cpus", "links", "flags", "ignore", "countonly")
Gpus = tuple[tuple[str, int], ...]


class Gres:
    """GPUs of nodes as gres.conf has them.

    slurm.conf says how many GPUs a node has; gres.conf may add their types. Only of a node that slurm.conf
    gives none does gres.conf say both.

    Args:
        statements: Of gres.conf.
        findings: Told what became of every key.
    """

    def __init__(self, statements: Sequence[Statement], findings: Findings) -> None:
        self._findings = findings
        self._of_node: dict[str, Counter[str]] = {}
        self._of_all: Counter[str] = Counter()
        self._where: dict[str, Statement] = {}
        self._usual: dict[str, str] = {}
        for statement in statements:
            self._add(statement)

    def _add(self, statement: Statement) -> None:
        values = statement.values
        for key, _ in statement.pairs:
            low = key.lower()
            status = "used" if low in _USED else "no-effect" if low in _NO_EFFECT else "unknown"
            self._findings.add(statement.where, f"gres.conf {key}", status)  # type: ignore[arg-type]
        if values.get("name", "").upper() == "DEFAULT":
            self._usual |= values
            return
        values = {**self._usual, **values}
        if values.get("name", "").lower() != "gpu":
            return
        count, kind = _count(values, statement), values.get("type", "gpu")
        if "nodename" not in values:
            self._of_all[kind] += count
            return
        names = expanded_nodes(values["nodename"])
        if names is None:
            raise statement.refuse(f"NodeName: cannot read the range {values['nodename']!r}")
        for name in names:
            self._where.setdefault(name, statement)
            self._of_node.setdefault(name, Counter())[kind] += count

    def of(self, node: str) -> Gpus:
        """GPUs of a node of which slurm.conf states none."""
        return tuple(self._of_node.get(node, {}).items())

    def typed(self, node: str, stated: Gpus) -> Gpus:
        """GPUs that slurm.conf states, with their type if only gres.conf has that."""
        if [kind for kind, _ in stated] != ["gpu"]:
            return stated
        found = self._of_node.get(node) or self._of_all
        kinds = [kind for kind in found if kind != "gpu"]
        if len(kinds) == 1 or (kinds and sum(found.values()) != stated[0][1]):
            return ((max(kinds, key=lambda kind: found[kind]), stated[0][1]),)
        return tuple(found.items()) if kinds else stated

    def finish(self, nodes: Mapping[str, Any]) -> None:
        """Note lines for nodes that there are none of: gres.conf is often shared by several clusters."""
        for name, statement in self._where.items():
            if name not in nodes:
                remark = f"node {name} is not in slurm.conf"
                self._findings.add(statement.where, "gres.conf NodeName", "no-effect", remark)


def _count(values: Mapping[str, str], statement: Statement) -> int:
    """As stated, or as many as there are files."""
    try:
        if "count" in values:
            return whole(values["count"])
    except ValueError as error:
        raise statement.refuse(f"Count: {error}") from None
    if "file" not in values:
        return 1 if "multiplefiles" in values else 0
    files = expanded_nodes(values["file"])
    if files is None:
        raise statement.refuse(f"File: cannot read the range {values['file']!r}")
    return len(files)
