"""Clusters: nodes and GPU types, from a shorthand, a preset's name or a TOML file.

See docs/formats/cluster.md.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpuyard.cluster.hostlists import expanded_nodes
from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.files import read_toml, toml_text
from gpuyard.registry import registered, suggest

UNLIMITED = 2**40
"""CPUs or MiB of a node that states none (docs/contract/simulator.md, section 5)."""

MAX_NODES = 1_000_000
MAX_GPUS = 100_000_000

GRAMMAR = "COUNTxGPUS[:TYPE[@SPEED]], several joined by commas, such as 64x8 or 16x2:p100@0.5,20x8:v100"
_SHORTHAND_PART = re.compile(r"(\d{1,9})x(\d{1,9})(?::([^\s|,:@]+)(?:@(\S+))?)?")

Name = Annotated[str, Field(min_length=1, max_length=200)]
TypeName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\s|,:@]+$")]
Watts = Annotated[float, Field(ge=0, le=1e6)]
Mebibytes = Annotated[int, Field(ge=1, le=UNLIMITED)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GpuType(_Frozen):
    """A model of GPU."""

    name: TypeName
    speed: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Run times are divided by this. It is 1 unless stated: no name changes run times by itself."""
    memory_mib: Mebibytes | None = None
    idle_w: Watts | None = None
    """Power when idle, watts. In the built-in table a rough figure."""
    peak_w: Watts | None = None
    """Power when busy, watts. In the built-in table the public TDP."""


# Memory in GiB, idle and peak watts of one GPU. Peak is the vendor's public TDP (SXM where there is one);
# idle is a rough figure for a GPU without a job. A K80 board carries two of the GPUs listed here.
_KNOWN = {
    "k40m": (12, 20, 235),
    "k80": (12, 25, 150),
    "m60": (8, 15, 150),
    "p4": (8, 10, 75),
    "p40": (24, 20, 250),
    "p100": (16, 30, 300),
    "v100": (16, 40, 300),
    "v100-32gb": (32, 40, 300),
    "t4": (16, 10, 70),
    "rtx2080ti": (11, 15, 250),
    "rtx3090": (24, 20, 350),
    "rtx4090": (24, 20, 450),
    "a10": (24, 15, 150),
    "a30": (24, 25, 165),
    "a40": (48, 25, 300),
    "a100": (40, 50, 400),
    "a100-80gb": (80, 55, 400),
    "a800": (80, 55, 400),
    "l4": (24, 15, 72),
    "l40s": (48, 30, 350),
    "h100": (80, 70, 700),
    "h800": (80, 70, 700),
    "h20": (96, 60, 400),
    "h200": (141, 75, 700),
    "b200": (180, 100, 1000),
    "mi250x": (128, 90, 560),
    "mi300x": (192, 140, 750),
}
KNOWN_GPU_TYPES = {"gpu": GpuType(name="gpu"), "cpu": GpuType(name="cpu")} | {
    name: GpuType(name=name, memory_mib=gib * 1024, idle_w=idle_w, peak_w=peak_w)
    for name, (gib, idle_w, peak_w) in _KNOWN.items()
}
"""Types that need no statement, all of speed 1: ``gpu`` (any), ``cpu`` (none) and well-known models."""


class NodeGroup(_Frozen):
    """A number of like nodes."""

    names: str | None = None
    """Names of the nodes, such as ``gn[001-128,130]``: as many as ``count``, which may be left out then."""
    count: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    gpus: Annotated[int, Field(ge=0, le=1_000_000)]
    """GPUs of one node; 0 for a node with CPUs only."""
    type: TypeName
    """Name of the GPU type; ``cpu`` if left out of a node without GPUs, else ``gpu``."""
    cpus: Annotated[int, Field(ge=1, le=UNLIMITED)] | None = None
    """CPU cores of one node; None = unlimited."""
    memory_mib: Mebibytes | None = None
    """Memory of one node, MiB; None = unlimited."""
    rack: Name | None = None
    owner: Name | None = None
    """The group whose jobs alone may use these nodes; None = everybody whose group owns none."""
    idle_w: Watts = 0.0
    """Power of one node without its GPUs, watts."""
    sleep_w: Watts = 0.0
    """Power of one node asleep, with its GPUs, watts."""

    @model_validator(mode="before")
    @classmethod
    def _default_type(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("type") is None:
            return {**values, "type": "cpu" if values.get("gpus") == 0 else "gpu"}
        return values

    @model_validator(mode="before")
    @classmethod
    def _count_names(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or not isinstance(values.get("names"), str):
            return values
        names = expanded_nodes(values["names"])
        if not names:
            raise ValueError(f"cannot read the names {values['names']!r}; expected such as gn[001-128,130]")
        if values.get("count", len(names)) != len(names):
            raise ValueError(f"count = {values['count']}, but names stands for {len(names)} nodes")
        return {**values, "count": len(names)}

    @model_validator(mode="after")
    def _check_usable(self) -> Self:
        if self.gpus == 0 and self.cpus is None:
            raise ValueError("a node with gpus = 0 must state its cpus")
        return self


class Partition(_Frozen):
    """Nodes that jobs ask for by one name. Partitions may overlap (docs/contract/slurm.md, section 1)."""

    name: Name
    nodes: Annotated[str, Field(min_length=1)] = "all"
    """Names such as ``gn[001-064,070]``, numbers of nodes such as ``0-63,69``, or ``all``."""
    default: bool = False
    """Jobs that name no partition use this one."""
    priority_tier: Annotated[int, Field(ge=0, le=65535)] = 1
    """Jobs of a higher tier come first, whatever the policy."""
    priority_job_factor: Annotated[int, Field(ge=0, le=65535)] = 1
    """For the partition's part of ``multifactor``, relative to the largest of all partitions."""
    max_time_s: Annotated[float, Field(gt=0)] | None = None
    """Longest run time that a job may request."""
    max_nodes: Annotated[int, Field(ge=1)] | None = None
    """Most nodes of one job."""
    max_gpus_per_job: Annotated[int, Field(ge=0)] | None = None
    max_gpus_per_user: Annotated[int, Field(ge=0)] | None = None
    """Most GPUs of all running jobs of one user."""
    max_jobs_per_user: Annotated[int, Field(ge=1)] | None = None
    """Most running jobs of one user."""


class Qos(_Frozen):
    """A quality of service that jobs name (docs/contract/slurm.md, section 2)."""

    name: Name
    priority: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """For the QOS's part of ``multifactor``, relative to the largest of all."""
    max_time_s: Annotated[float, Field(gt=0)] | None = None
    """Longest run time that a job may request."""
    max_gpus_per_job: Annotated[int, Field(ge=0)] | None = None
    max_gpus_per_user: Annotated[int, Field(ge=0)] | None = None
    """Most GPUs of all running jobs of one user."""
    max_jobs_per_user: Annotated[int, Field(ge=1)] | None = None
    """Most running jobs of one user."""
    max_gpus_per_group: Annotated[int, Field(ge=0)] | None = None
    """Most GPUs of all running jobs of one group."""
    max_gpus: Annotated[int, Field(ge=0)] | None = None
    """Most GPUs of all running jobs of this QOS."""


class Cluster(_Frozen):
    """Nodes, numbered from 0 in the order of their groups, and the GPU types they use.

    A type that a node names and ``gpu_types`` leaves out is taken from ``KNOWN_GPU_TYPES``.
    """

    name: Name = "cluster"
    gpu_types: tuple[GpuType, ...] = ()
    nodes: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    partitions: tuple[Partition, ...] = ()
    """Without any, all jobs may use all nodes."""
    qos: tuple[Qos, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _add_known_types(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        types, nodes = values.get("gpu_types", ()), values.get("nodes", ())
        if not isinstance(types, (list, tuple)) or not isinstance(nodes, (list, tuple)):
            return values
        stated = [_field(entry, "name") for entry in types]
        used = dict.fromkeys(str(_node_type(entry)) for entry in nodes)
        added = [KNOWN_GPU_TYPES[name] for name in used if name in KNOWN_GPU_TYPES and name not in stated]
        return {**values, "gpu_types": [*types, *added]}

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        names = [gpu_type.name for gpu_type in self.gpu_types]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"GPU type {twice!r} is stated twice")
        for group in self.nodes:
            if group.type not in names:
                hint = suggest(group.type, dict.fromkeys([*names, *KNOWN_GPU_TYPES]))
                raise ValueError(
                    f"GPU type {group.type!r} is not known{_ended(hint)} State it under gpu_types"
                )
        if self.node_count > MAX_NODES:
            raise ValueError(f"{self.node_count:,} nodes are more than the {MAX_NODES:,} that are supported")
        if self.total_gpus > MAX_GPUS:
            raise ValueError(f"{self.total_gpus:,} GPUs are more than the {MAX_GPUS:,} that are supported")
        self._check_partitions()
        return self

    def _check_partitions(self) -> None:
        for what, entries in (("partition", self.partitions), ("QOS", self.qos)):
            names = [entry.name for entry in entries]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"{what} {twice!r} is stated twice")
        names = [name for name in self.node_names if name]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"node {twice!r} is named twice")
        defaults = [partition.name for partition in self.partitions if partition.default]
        if len(defaults) > 1:
            raise ValueError(
                f"partitions {defaults[0]!r} and {defaults[1]!r} are both the default; expected one"
            )
        if self.partitions and self.owners:
            raise ValueError(f"partitions and nodes owned by {self.owners[0]!r}: use one or the other")
        for partition in self.partitions:
            self.partition_nodes(partition)

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(group.count * group.gpus for group in self.nodes)

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return sum(group.count for group in self.nodes)

    @property
    def owners(self) -> tuple[str, ...]:
        """Groups that own nodes, in order of first appearance; ``node_columns`` counts in these."""
        return tuple(dict.fromkeys(group.owner for group in self.nodes if group.owner is not None))

    @property
    def racks(self) -> tuple[str, ...]:
        """Names of racks, in order of first appearance; ``node_columns`` counts in these."""
        return tuple(dict.fromkeys(group.rack for group in self.nodes if group.rack is not None))

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of all nodes in order of their numbers; empty for those that have none."""
        named = (expanded_nodes(group.names) if group.names else [""] * group.count for group in self.nodes)
        return tuple(name for names in named for name in names or ())

    def partition_nodes(self, partition: Partition) -> NDArray[np.int32]:
        """Numbers of a partition's nodes, ascending.

        Raises:
            ValueError: for nodes that the cluster does not have.
        """
        if partition.nodes.strip().lower() == "all":
            return np.arange(self.node_count, dtype=np.int32)
        known = {name: number for number, name in enumerate(self.node_names) if name}
        listed = _listed_numbers(partition.nodes) if not known else expanded_nodes(partition.nodes)
        if not listed:
            raise ValueError(
                f"partition {partition.name!r}: cannot read the nodes {partition.nodes!r}; expected "
                "names such as gn[001-064], numbers such as 0-63, or all"
            )
        numbers: set[int] = set()
        for node in listed:
            number = known.get(node, -1) if isinstance(node, str) else node
            if not 0 <= number < self.node_count:
                raise ValueError(
                    f"partition {partition.name!r} has node {node}, but the cluster has none such"
                )
            numbers.add(number)
        return np.array(sorted(numbers), dtype=np.int32)

    def node_columns(self) -> dict[str, NDArray[Any]]:
        """Columns with one entry a node: ``type, gpus, cpus, memory_mib, owner, rack``.

        ``type`` is an index into ``gpu_types``; ``owner`` and ``rack`` are indices into ``owners`` and
        ``racks``, -1 for none. CPUs and memory (int64, the rest int32) that nobody stated are ``UNLIMITED``.
        """
        types = {gpu_type.name: index for index, gpu_type in enumerate(self.gpu_types)}
        owners = {name: index for index, name in enumerate(self.owners)}
        racks = {name: index for index, name in enumerate(self.racks)}
        counts = [group.count for group in self.nodes]

        def column(values: list[int], dtype: type) -> NDArray[Any]:
            return np.repeat(np.array(values, dtype=dtype), counts)

        return {
            "type": column([types[group.type] for group in self.nodes], np.int32),
            "gpus": column([group.gpus for group in self.nodes], np.int32),
            "cpus": column([group.cpus or UNLIMITED for group in self.nodes], np.int64),
            "memory_mib": column([group.memory_mib or UNLIMITED for group in self.nodes], np.int64),
            "owner": column([owners[group.owner] if group.owner else -1 for group in self.nodes], np.int32),
            "rack": column([racks[group.rack] if group.rack else -1 for group in self.nodes], np.int32),
        }

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read a cluster from a TOML file; its name defaults to the file's.

        Raises:
            InputError: naming the file and the line or key.
        """
        path = Path(path)
        values = read_toml(path)
        return cls._validated({"name": path.stem, **values}, str(path))

    @classmethod
    def _validated(cls, values: dict[str, Any], source: str) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise refusal(error, source, known=_known_keys) from None

    def to_toml(self) -> str:
        """As the text of a TOML file that ``from_toml`` reads back to an equal cluster."""
        tables = {name: getattr(self, name) for name in ("gpu_types", "nodes", "partitions", "qos")}
        return toml_text(
            {"name": self.name}
            | {name: [entry.model_dump() for entry in table] for name, table in tables.items() if table}
        )


def parse_cluster(text: str) -> Cluster:
    """A cluster from a preset's name, the path of a TOML file, or a shorthand such as ``64x8`` (``GRAMMAR``).

    A shorthand never changes run times silently: GPU types have speed 1 unless ``@SPEED`` states another.

    Raises:
        InputError: saying what was read and what was expected.
    """
    presets = preset_clusters()
    if text in presets:
        preset: Cluster = presets[text]()
        return preset
    if text.endswith(".toml") or "/" in text:
        return Cluster.from_toml(text)
    if text[:1].isdigit():
        return _parse_shorthand(text)
    raise InputError(
        f"unknown cluster {text!r}{_ended(suggest(text, presets))} "
        f"Or give a TOML file (a name that ends in .toml), or a shorthand: {GRAMMAR}"
    )


def preset_clusters() -> Mapping[str, Any]:
    """Functions that make the built-in clusters, by name; their docstrings' first lines describe them."""
    import gpuyard.cluster.presets  # noqa: F401  (registers them)

    return registered("cluster")


def _parse_shorthand(text: str) -> Cluster:
    nodes: list[dict[str, Any]] = []
    speeds: dict[str, float] = {}
    for part in text.split(","):
        match = _SHORTHAND_PART.fullmatch(part.strip())
        if match is None:
            raise InputError(f"cluster {text!r}: cannot read {part!r}; expected {GRAMMAR}")
        count, gpus, type_name, speed = match.groups()
        if int(count) == 0 or int(gpus) == 0:
            what = (
                "0 nodes"
                if int(count) == 0
                else "nodes with 0 GPUs; state CPU nodes, with their cpus, in a TOML file"
            )
            raise InputError(f"cluster {text!r}: {part!r} means {what}. Expected {GRAMMAR}")
        nodes.append({"count": int(count), "gpus": int(gpus), "type": type_name or "gpu"})
        if speed is not None and speeds.setdefault(type_name, _speed(text, speed)) != _speed(text, speed):
            raise InputError(f"cluster {text!r}: two speeds for GPU type {type_name!r}; a type has one speed")
    names = dict.fromkeys(node["type"] for node in nodes)
    known = (KNOWN_GPU_TYPES.get(name, GpuType(name=name)) for name in names)
    types = [gpu_type.model_copy(update={"speed": speeds.get(gpu_type.name, 1.0)}) for gpu_type in known]
    return Cluster._validated({"name": text, "gpu_types": types, "nodes": nodes}, f"cluster {text!r}")


def _speed(text: str, speed: str) -> float:
    try:
        value = float(speed)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1e6:
        raise InputError(
            f"cluster {text!r}: speed {speed!r} is not a number above 0 (1 = run times as logged)"
        )
    return value


def _field(entry: Any, name: str) -> Any:
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)


def _listed_numbers(text: str) -> list[int] | None:
    """Numbers of nodes such as ``0-63,69``; None if that cannot be read."""
    numbers = expanded_nodes(f"[{text.replace(' ', '')}]")
    return None if numbers is None else [int(number) for number in numbers]


def _node_type(entry: Any) -> Any:
    return _field(entry, "type") or ("cpu" if _field(entry, "gpus") == 0 else "gpu")


def _known_keys(place: tuple[int | str, ...]) -> Mapping[str, Any]:
    models: dict[Any, type[BaseModel]] = {
        "gpu_types": GpuType,
        "nodes": NodeGroup,
        "partitions": Partition,
        "qos": Qos,
    }
    return models.get(place[0], Cluster).model_fields if place else Cluster.model_fields


def _ended(hint: str) -> str:
    return hint if hint.endswith("?") else hint + "."
