"""What was compared, in words: the information, the cluster, names of policies."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

import gpuyard
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig, refusal
from gpuyard.errors import InputError
from gpuyard.units import plural

_KNOWN = {
    "exact": "policies know true run times",
    "requested": "policies know the run times that were asked for",
    "noisy": "policies know run times with noise",
    "history": "policies know predictions from finished jobs",
    "none": "policies know nothing of run times",
}


def information_text(settings: Mapping[str, Any]) -> str:
    """What policies knew: ``estimates exact (policies know true run times)``."""
    estimates = str(settings.get("estimates", "exact"))
    return f"estimates {estimates} ({_KNOWN.get(estimates, 'see the settings')})"


def read_cluster(document: Mapping[str, Any], where: str) -> Cluster:
    """A cluster as results hold it.

    Raises:
        InputError: if it is none.
    """
    try:
        return Cluster.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{refusal(error, f'{where}: has no valid cluster')}; make it again") from None


def cluster_text(cluster: Cluster) -> str:
    """``8x8: 8 nodes, 64 GPUs``."""
    return f"{cluster.name}: {plural(cluster.node_count, 'node')}, {plural(cluster.total_gpus, 'GPU')}"


def settings_text(settings: Mapping[str, Any]) -> str:
    """The settings that are not what they are by default."""
    usual = SimulationConfig().model_dump(mode="json")
    other = {key: value for key, value in settings.items() if key not in usual or usual[key] != value}
    return ", ".join(f"{key} = {value}" for key, value in other.items()) or "as they are by default"


def setting_facts(
    workload: str,
    jobs: int,
    cluster: Cluster | None,
    settings: Mapping[str, Any],
    directories: Sequence[str],
) -> dict[str, str]:
    """What the last section of a report lists."""
    facts = {"workload": workload, "jobs": f"{jobs:,}"}
    if cluster is not None:
        facts["cluster"] = cluster_text(cluster)
    facts["information"] = information_text(settings)
    facts["other settings"] = settings_text(settings)
    if directories:
        facts["read from"] = ", ".join(directories)
    facts["gpuyard"] = gpuyard.__version__
    return facts
