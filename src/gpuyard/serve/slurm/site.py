"""What changes rarely: Slurm's configuration, its partitions and its reservations, from scontrol's text.

22.05 has no JSON for these, and the text is the same in all versions.
"""

import calendar
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.cluster.hostlists import expanded_nodes
from gpuyard.cluster.imports.slurm_nodes import partition_fields
from gpuyard.cluster.imports.slurm_units import slurm_seconds
from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.slurm.commands import Commands
from gpuyard.serve.state import Partition

SECONDS_KEPT = 30.0
"""How long an answer is used."""

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_SETTING = re.compile(r"^(\w+)\s*= ?(.*?)\s*$", re.MULTILINE)
_MOMENT = re.compile(r"data as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
_CLOCKS_AGREE_S = 2.0  # the time of the answer is known to the second, and took a while to come


@dataclass(frozen=True)
class PartitionRules:
    """What a partition means for its jobs beyond ``Partition``.

    Attributes:
        whole_nodes: Whether jobs share nodes with nobody.
        default_time_s: Limit of jobs that state none; None: unlimited.
        closed: Why its jobs are left to Slurm; empty if they are not.
    """

    whole_nodes: bool = False
    default_time_s: float | None = None
    closed: str = ""


@dataclass(frozen=True)
class Site:
    """What changes rarely.

    Attributes:
        version: Of Slurm, such as 22.05.8.
        counts_memory: Whether Slurm hands out memory.
        whole_cores: Whether Slurm hands out cores with all their threads.
        whole_nodes: Whether no two jobs share a node, anywhere.
        clock_ahead_s: How far slurmctld's clock is ahead of this host's, s.
        partitions: All partitions.
        rules: What they mean for jobs, by name.
        reserved: Active reservations by node.
        notes: For people.
    """

    version: str = ""
    counts_memory: bool = True
    whole_cores: bool = True
    whole_nodes: bool = False
    clock_ahead_s: float = 0.0
    partitions: tuple[Partition, ...] = ()
    rules: Mapping[str, PartitionRules] = field(default_factory=dict)
    reserved: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_site(commands: Commands) -> Site:
    """Ask scontrol.

    Raises:
        AdapterError: if it does not answer or cannot be understood.
    """
    before = time.time()
    config = commands.text("scontrol", "show", "config")
    local_s = (before + time.time()) / 2
    partitions, rules = partitions_of(commands.text("scontrol", "-o", "-a", "show", "partition"))
    reserved, reservations = reserved_nodes(commands.text("scontrol", "-o", "show", "reservation"))
    settings = dict(_SETTING.findall(config))
    if "SLURM_VERSION" not in settings:
        raise AdapterError("scontrol show config printed no version of Slurm", "parse")
    ahead = _clock_ahead_s(config, local_s)
    select = settings.get("SelectTypeParameters", "").upper()
    return Site(
        version=settings["SLURM_VERSION"],
        counts_memory="MEMORY" in select,
        whole_cores="CR_CPU" not in select,
        whole_nodes=settings.get("SelectType", "").endswith("linear"),
        clock_ahead_s=ahead,
        partitions=partitions,
        rules=rules,
        reserved=reserved,
        notes=(*_config_notes(settings, ahead), *reservations),
    )


def _clock_ahead_s(config: str, local_s: float) -> float:
    found = _MOMENT.search(config)
    if not found:
        return 0.0
    stated = calendar.timegm(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S"))
    ahead = stated + 0.5 - local_s
    return 0.0 if abs(ahead) <= _CLOCKS_AGREE_S else float(round(ahead))


def _config_notes(settings: Mapping[str, str], ahead: float) -> list[str]:
    notes = []
    hidden = settings.get("PrivateData", "none").lower()
    if hidden not in ("none", "(null)", ""):
        notes.append(
            f"PrivateData={hidden}: a user without rights sees only part of the cluster; run the agent as an "
            "operator"
        )
    if ahead:
        notes.append(f"slurmctld's clock is {ahead:+g} s from this host's; its clock is used")
    return notes


def partitions_of(text: str) -> tuple[tuple[Partition, ...], dict[str, PartitionRules]]:
    """Partitions of ``scontrol -o show partition``.

    Raises:
        AdapterError: for one that cannot be read.
    """
    found, rules = [], {}
    for line in text.splitlines():
        pairs = {key.lower(): value for key, value in _PAIR.findall(line)}
        if "partitionname" not in pairs:
            continue
        name = pairs["partitionname"]
        nodes = expanded_nodes(pairs.get("nodes", "").replace("(null)", ""))
        try:
            fields = partition_fields(pairs)
            stated = pairs.get("defaulttime", "NONE")
            default = None if stated.upper() in ("NONE", "") else slurm_seconds(stated)
        except ValueError as error:
            raise AdapterError(f"scontrol show partition: {name}: {error}", "parse") from None
        if nodes is None:
            raise AdapterError(f"scontrol show partition: {name}: its nodes cannot be read", "parse")
        limit = fields.get("max_time_s")
        rules[name] = PartitionRules(
            whole_nodes=pairs.get("oversubscribe", "").upper().startswith("EXCLUSIVE"),
            default_time_s=limit if default is None else default,
            closed=_partition_closed(pairs),
        )
        found.append(
            Partition(
                name,
                tuple(nodes),
                default=bool(fields.get("default")),
                tier=int(fields.get("priority_tier", 1)),
                open=pairs.get("state", "UP").upper() == "UP",
                max_time_s=limit,
                max_nodes=fields.get("max_nodes"),
            )
        )
    return tuple(found), rules


def _partition_closed(pairs: Mapping[str, str]) -> str:
    state = pairs.get("state", "UP").upper()
    if state != "UP":
        return f"partition is {state.lower()}"
    if pairs.get("reqresv", "NO").upper() == "YES":
        return "partition is for reservations"
    if pairs.get("exclusiveuser", "NO").upper() == "YES":
        return "nodes are shared within a user"
    return ""


def reserved_nodes(text: str) -> tuple[dict[str, str], list[str]]:
    """Nodes in active reservations of ``scontrol -o show reservation``, and notes about those to come.

    Raises:
        AdapterError: for one whose nodes cannot be read.
    """
    reserved: dict[str, str] = {}
    notes = []
    for line in text.splitlines():
        pairs = dict(_PAIR.findall(line))
        if "ReservationName" not in pairs:
            continue
        name = pairs["ReservationName"]
        nodes = expanded_nodes(pairs.get("Nodes", "").replace("(null)", ""))
        if nodes is None:
            raise AdapterError(f"scontrol show reservation: {name}: its nodes cannot be read", "parse")
        if pairs.get("State", "ACTIVE").upper() == "ACTIVE":
            reserved.update((node, name) for node in nodes)
        elif nodes:
            begins = pairs.get("StartTime", "?")
            notes.append(f"reservation {name} of {len(nodes)} nodes begins at {begins}: Slurm keeps jobs out")
    return reserved, notes
