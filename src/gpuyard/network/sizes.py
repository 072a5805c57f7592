"""Shapes of what goes into a network and comes out of it."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from gpuyard.errors import InputError
from gpuyard.observation.spec import EnvModel

MISSING = -1
"""The number of a column that the observation does not have."""


@dataclass(frozen=True)
class NetworkSizes:
    """Of an environment's observations and actions.

    Attributes:
        kind: Of the environment, such as ``select-job``.
        rows: Of ``jobs``.
        job_columns: Of ``jobs``.
        tokens: Rows of ``nodes``.
        node_columns: Of ``nodes``.
        global_columns: Of ``globals``.
        pools: Of the cluster.
        actions: Entries of the mask.
        job_present: Column of ``jobs`` that tells whether a row is a job.
        job_base_choice: Column of ``jobs`` that marks the base policy's next start.
        node_present: Column of ``nodes`` that tells whether a row is a node.
        node_base_choice: Column of ``nodes`` that marks where the base policy's next start goes.
        base_pool: First of the columns of ``globals`` that mark its pools.
        base_waits: Column of ``globals`` that tells whether the base policy starts nothing.
        running: Column of ``globals`` that is 0 if and only if nothing runs.
    """

    kind: str
    rows: int
    job_columns: int
    tokens: int
    node_columns: int
    global_columns: int
    pools: int
    actions: int
    job_present: int = MISSING
    job_base_choice: int = MISSING
    node_present: int = MISSING
    node_base_choice: int = MISSING
    base_pool: int = MISSING
    base_waits: int = MISSING
    running: int = MISSING

    @classmethod
    def of(cls, model: EnvModel) -> Self:
        """The sizes of an environment."""
        jobs, nodes, overall = (model.parts[name] for name in ("jobs", "nodes", "globals"))
        return cls(
            kind=model.kind,
            rows=jobs.rows,
            job_columns=len(jobs.names),
            tokens=nodes.rows,
            node_columns=len(nodes.names),
            global_columns=len(overall.names),
            pools=model.pools,
            actions=model.actions,
            job_present=_place(jobs.names, "present"),
            job_base_choice=_place(jobs.names, "base_choice"),
            node_present=_place(nodes.names, "present"),
            node_base_choice=_place(nodes.names, "base_choice"),
            base_pool=_place(overall.names, "base_pool"),
            base_waits=_place(overall.names, "base_waits"),
            running=_place(overall.names, "running"),
        )

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """As ``to_json`` wrote it.

        Raises:
            InputError: if fields are missing or unknown.
        """
        try:
            return cls(**document)
        except TypeError as error:
            raise InputError(f"sizes of a network: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """As a JSON document."""
        return asdict(self)

    @property
    def ranks_hosts(self) -> bool:
        """Whether an action is a priority for every host rather than one of several choices."""
        return self.kind == "rank-hosts"

    @property
    def choices_per_row(self) -> int:
        """Actions that a row of ``jobs`` stands for."""
        return self.pools if self.kind == "select-job-and-pool" else 1


def _place(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else MISSING
