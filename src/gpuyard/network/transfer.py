"""How what a learned policy is used for differs from what it was trained for, in words."""

import numpy as np

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.network.model_file import ModelFile

_SAME_FOR_ALL = ("estimates", "kill_at_estimate", "locality_penalty")


def other_information(model: ModelFile, config: SimulationConfig) -> list[str]:
    """What a learned policy knew in training and does not know here, or the other way round."""
    trained = model.environment.simulated
    noisy = config.estimates == trained.estimates == "noisy"
    names = [*_SAME_FOR_ALL, *(("noise_sigma",) if noisy else ())]
    return [
        f"was trained with {name} {was}, but runs with {now}"
        for name in names
        if (was := getattr(trained, name)) != (now := getattr(config, name))
    ]


def other_cluster(model: ModelFile, cluster: Cluster) -> list[str]:
    """That it was trained on other nodes, if so."""
    own = model.cluster
    if _shape(own) == _shape(cluster):
        return []
    texts = [f"{one.name} ({one.node_count:,} nodes, {one.total_gpus:,} GPUs)" for one in (own, cluster)]
    return [f"was trained on cluster {texts[0]}, but runs on {texts[1]}"]


def other_steps(model: ModelFile) -> list[str]:
    """That it does not act as schedulers do, if so."""
    mode = model.environment.step_mode
    return [f"acts in step mode {mode}"] if mode != "instant" else []


def _shape(cluster: Cluster) -> tuple[bytes, ...]:
    """Nodes as they differ for scheduling, whatever they are called."""
    columns = cluster.node_columns()
    speed = np.array([gpu_type.speed for gpu_type in cluster.gpu_types])[columns["type"]]
    return (speed.tobytes(), *(column.tobytes() for name, column in columns.items() if name != "type"))
