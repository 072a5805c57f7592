"""What somebody asks: jobs, a cluster with changes, policies. Names lead to nothing outside of the roots."""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuyard.cluster.model import KNOWN_GPU_TYPES, Cluster, GpuType, parse_cluster, preset_clusters
from gpuyard.config import Estimates, SimulationConfig, refusal
from gpuyard.dashboard.library import Library
from gpuyard.errors import InputError
from gpuyard.evaluate.storage import read_outline
from gpuyard.policies.base import SHIPPED
from gpuyard.policies.grammar import parse_policy
from gpuyard.registry import suggest
from gpuyard.report.facts import read_cluster
from gpuyard.workload.generators import preset_workloads

ENDINGS = (".parquet", ".csv", ".csv.gz", ".swf", ".swf.gz")
"""Files that may be logs of jobs; of parquet files only those with the columns that jobs need."""
BUILT_IN, RESULTS = "built-in:", "results:"
LARGEST_LOG = 1_000_000_000
"""Bytes: what is larger is for the command line."""
MOST_POLICIES = 8
MOST_ADDED = 100_000
_MODEL = re.compile(r"model:[a-z0-9-]+")
_NEEDED = ("submit_s", "duration_s", "gpus")


class PoolChange(BaseModel):
    """Another number of nodes of a pool, or other GPUs in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pool: Annotated[int, Field(ge=0, le=10_000)]
    nodes: Annotated[int, Field(ge=-MOST_ADDED, le=MOST_ADDED)] = 0
    type: Annotated[str, Field(max_length=200)] = ""
    speed: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Of the other GPUs: run times are divided by it."""

    @property
    def words(self) -> str:
        """``+4 nodes, h100@1.5``."""
        nodes = f"{self.nodes:+d} nodes" if self.nodes else ""
        speed = f"@{self.speed:g}" if self.speed != 1 else ""
        return ", ".join(filter(None, (nodes, f"{self.type}{speed}" if self.type else "")))


class Question(BaseModel):
    """What is asked.

    Attributes:
        log: ``built-in:NAME``, or the id of a file below the roots.
        cluster: ``results:ID`` (the one of those results), a preset's name, or a shorthand.
        changes: Of its pools.
        policies: Names by the grammar, or shipped models.
        estimates: What policies know of run times.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    log: Annotated[str, Field(min_length=1, max_length=2000)]
    cluster: Annotated[str, Field(min_length=1, max_length=2000)]
    changes: Annotated[tuple[PoolChange, ...], Field(max_length=100)] = ()
    policies: Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_POLICIES)]
    estimates: Estimates = "auto"

    @classmethod
    def parse(cls, document: Any) -> "Question":
        """From JSON.

        Raises:
            InputError: saying what is wrong with it.
        """
        try:
            asked = cls.model_validate(document)
        except ValidationError as error:
            raise refusal(error, "this question") from None
        for policy in asked.policies:
            check_policy(policy)
        changed = tuple(change for change in asked.changes if change.nodes or change.type)
        return asked.model_copy(update={"changes": changed, "policies": tuple(dict.fromkeys(asked.policies))})

    @property
    def unchanged(self) -> "Question":
        """The same on the cluster as it is."""
        return self.model_copy(update={"changes": ()})

    def config(self) -> SimulationConfig:
        """Settings of the simulation."""
        return SimulationConfig(estimates=self.estimates, oversize="drop")

    def name(self, cluster: Cluster) -> str:
        """A name for the results: the same question has the same one."""
        told = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        stem = Path(self.log.removeprefix(BUILT_IN)).name.split(".")[0]
        words = re.sub(r"[^A-Za-z0-9]+", "-", f"{stem} {cluster.name}").strip("-").lower()
        return f"{words[:60]}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


def check_policy(name: str) -> None:
    """Refuse what is no name of a rule or of a shipped model: names of files lead anywhere.

    Raises:
        InputError: if it is neither.
    """
    if not (name.startswith(SHIPPED) and _MODEL.fullmatch(name)):
        parse_policy(name)


def logs(library: Library) -> list[tuple[str, str]]:
    """Ids and names of everything that can be replayed: built-in workloads, and files below the roots."""
    built_in = [(f"{BUILT_IN}{name}", f"{name} (built in)") for name in preset_workloads()]
    files = [
        (id, id.partition("/")[2].removeprefix("./"))
        for id, path in library.files(ENDINGS)
        if _may_be_log(path)
    ]
    return [*files, *built_in]


def _may_be_log(path: Path) -> bool:
    if path.suffix != ".parquet":
        return True
    try:
        columns = pl.read_parquet_schema(path)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return all(name in columns for name in _NEEDED)


def find_log(library: Library, id: str) -> Path | None:
    """The file of a log; None if it is built in.

    Raises:
        InputError: if there is none below the roots, or it is very large.
    """
    if id.startswith(BUILT_IN):
        known = preset_workloads()
        name = id.removeprefix(BUILT_IN)
        if name not in known:
            raise InputError(f"there is no built-in workload {name!r}{suggest(name, known)}")
        return None
    folder, _, name = id.rpartition("/")
    path = library.file(folder, name)
    if not name.endswith(ENDINGS):
        raise InputError(f"{path}: is no log of jobs; expected a name that ends in {', '.join(ENDINGS)}")
    if (size := path.stat().st_size) > LARGEST_LOG:
        raise InputError(f"{path}: has {size / 1e9:.1f} GB; replay it with gpuyard simulate")
    return path


def base_cluster(library: Library, text: str) -> Cluster:
    """The cluster of a name, without changes.

    Raises:
        InputError: if there is none of that name; files are not read.
    """
    if text.startswith(RESULTS):
        directory = library.directory(text.removeprefix(RESULTS))
        setting = read_outline(directory).setting
        if not setting.cluster:
            raise InputError(f"{directory}: each of its draws has its own cluster; choose another")
        return read_cluster(setting.cluster, str(directory))
    is_known = text in preset_clusters() or text[:1].isdigit()
    if not is_known or "/" in text or text.endswith(".toml"):
        raise InputError(f"cluster {text!r}: expected such as 64x8, or {', '.join(preset_clusters())}")
    return parse_cluster(text)


def changed_cluster(cluster: Cluster, changes: tuple[PoolChange, ...]) -> Cluster:
    """The cluster with other pools, named after what changed.

    Raises:
        InputError: if there is no such pool, it has too few nodes, or nothing is left.
    """
    pools = [group.model_dump(exclude_none=True) for group in cluster.nodes]
    types: dict[str, GpuType] = {}
    said = []
    for change in changes:
        if change.pool >= len(pools):
            raise InputError(f"pool {change.pool + 1}: {cluster.name} has {len(pools)}")
        pool = pools[change.pool]
        if pool["count"] + change.nodes < 0:
            raise InputError(
                f"pool {change.pool + 1} has {pool['count']} nodes, fewer than are to be removed"
            )
        if change.nodes:
            pool["count"] += change.nodes
            pool.pop("names", None)
        if change.type:
            pool["type"] = change.type
            types[change.type] = _type(cluster, change)
        said.append(change.words + (f" in pool {change.pool + 1}" if len(pools) > 1 else ""))
    left = [pool for pool in pools if pool["count"]]
    if not left:
        raise InputError("no node is left; remove fewer")
    document = cluster.model_dump(mode="json", exclude_none=True)
    name = f"{cluster.name} {', '.join(said)}"[:200] if said else cluster.name
    try:
        known = [one.model_dump(exclude_none=True) for one in cluster.gpu_types if one.name not in types]
        added = [one.model_dump(exclude_none=True) for one in types.values()]
        return Cluster.model_validate({**document, "name": name, "nodes": left, "gpu_types": known + added})
    except ValidationError as error:
        raise refusal(error, f"cluster {name}") from None


def _type(cluster: Cluster, change: PoolChange) -> GpuType:
    """The other GPUs of a pool; a type has one speed wherever it is.

    Raises:
        InputError: if the cluster has such GPUs of another speed, or no type may be called so.
    """
    own = {one.name: one for one in cluster.gpu_types}
    if change.type in own:
        if change.speed not in (1.0, own[change.type].speed):
            raise InputError(f"{change.type} has speed {own[change.type].speed:g} here; a type has one speed")
        return own[change.type]
    try:
        known = KNOWN_GPU_TYPES.get(change.type) or GpuType(name=change.type)
    except ValidationError as error:
        raise refusal(error, "GPU type") from None
    return known.model_copy(update={"speed": change.speed})
