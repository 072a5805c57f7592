"""What environments there are and what one of them is like, as documents for programs and people."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.env.registration import KINDS
from gpuyard.env.single import SchedulingEnv
from gpuyard.env.spaces import action_space
from gpuyard.errors import InputError, setting
from gpuyard.observation.config import EnvConfig
from gpuyard.observation.episodes import DrawnJobs
from gpuyard.observation.presets import env_presets
from gpuyard.observation.spec import Columns, EnvModel
from gpuyard.registry import suggest
from gpuyard.workload import Workload


class KindText(NamedTuple):
    """An environment in words.

    Attributes:
        space: Of its actions.
        action: What they do.
        purpose: What it is for.
    """

    space: str
    action: str
    purpose: str


KIND_TEXTS = {
    "select-job": KindText(
        "Discrete(K + 1)",
        "k starts the job of row k of the window where the placement rule puts it; K waits",
        "which job to start next",
    ),
    "select-job-and-pool": KindText(
        "Discrete(K x P + 1)",
        "k x P + p starts the job of row k in pool p; K x P waits",
        "which job to start next, and on which type of GPU",
    ),
    "select-host": KindText(
        "Discrete(H)", "h puts the current job on node h", "where to put the next job, one node a job"
    ),
    "rank-hosts": KindText(
        "Box(-1, 1, H)",
        "a priority for each node; the current job goes to the best that can hold it",
        "the same for algorithms with continuous actions",
    ),
    "accept-or-skip": KindText(
        "Discrete(2)",
        "1 starts what the base policy would start; 0 holds it back until the next event",
        "correcting a policy that is in place",
    ),
}

LOOKED_AT = ("step_mode", "rewards", "per_job", "invalid", "tokens", "lookahead", "flatten")
"""Settings that are always shown; others if they are not the defaults."""


def env_id_of(kind: str) -> str:
    """The id at Gymnasium."""
    return next(env_id for env_id, other in KINDS.items() if other == kind)


def list_document() -> dict[str, Any]:
    """All environments and presets."""
    return {
        "environments": [
            {"id": env_id, "kind": kind, **KIND_TEXTS[kind]._asdict()} for env_id, kind in KINDS.items()
        ],
        "presets": [
            {
                "name": name,
                "ids": [env_id_of(kind) for kind in preset.kinds],
                "summary": preset.summary,
                "settings": dict(preset.settings),
            }
            for name, preset in env_presets().items()
        ],
    }


def named_environment(
    name: str,
    settings: Mapping[str, Any],
    *,
    preset: str | None = None,
    workload: Workload | str | Path | None = None,
    cluster: Cluster | str | None = None,
) -> tuple[SchedulingEnv, str | None]:
    """The environment of an id or a preset, and the preset's name.

    Args:
        name: An id such as ``gpuyard/SelectJob-v0``, what follows the slash in it, or a preset.
        settings: Arguments of the environment.
        preset: With an id: settings by name.
        workload: Jobs, instead of the usual ones.
        cluster: What they run on.

    Raises:
        InputError: for an unknown name, with the closest known ones.
    """
    ids = {**KINDS, **{env_id.partition("/")[2]: kind for env_id, kind in KINDS.items()}}
    presets = env_presets()
    if name in presets:
        if preset is not None:
            raise InputError(
                f"{name} is a preset itself; give an id such as gpuyard/SelectJob-v0 with {setting('preset')}"
            )
        kind, preset = presets[name].kinds[0], name
    elif name in ids:
        kind = ids[name]
    else:
        raise InputError(f"unknown environment or preset {name!r}{suggest(name, {**ids, **presets})}")
    env = SchedulingEnv(kind, workload=workload, cluster=cluster, preset=preset, **settings)
    return env, preset


def describe_document(model: EnvModel, preset: str | None = None) -> dict[str, Any]:
    """Everything that one needs to know to write an agent for an environment."""
    config, text = model.config, KIND_TEXTS[model.kind]
    return {
        "id": env_id_of(model.kind),
        "kind": model.kind,
        "preset": preset,
        "purpose": text.purpose,
        "action": {"space": str(action_space(model)), "count": model.actions, "meaning": text.action},
        "observation": {
            "version": _core.OBSERVATION_VERSION,
            "flatten": config.flatten,
            "parts": {name: _part(part) for name, part in model.parts.items()},
            "on_request": on_request(model),
            "mask": {
                "shape": [model.actions],
                "type": "int8",
                "meaning": "1 where the action can be executed",
            },
        },
        "base_policy": model.policy.name,
        "episodes": source_document(model),
        "settings": settings_document(model),
    }


def on_request(model: EnvModel) -> dict[str, list[dict[str, Any]]]:
    """Columns that an environment does not show unless its settings name them, by the part they belong to."""
    asked = {"jobs": _core.ASKED_JOB_COLUMNS, "globals": _core.ASKED_GLOBAL_COLUMNS}
    return {
        part: [
            {"name": name, "low": low, "high": high}
            for name, low, high in columns
            if name not in model.parts[part].names
        ]
        for part, columns in asked.items()
    }


def settings_document(model: EnvModel) -> dict[str, Any]:
    """All settings, with those filled in that have no fixed default."""
    settings = model.config.model_dump(mode="json")
    settings["base_policy"] = model.policy.name
    settings["window"] = model.config.window_of(model.kind)
    return settings


def source_document(model: EnvModel) -> dict[str, Any]:
    """Where episodes come from."""
    source = model.source
    if isinstance(source, DrawnJobs):
        return {
            "source": "generator",
            "generator": source.generator.step,
            "generator_settings": source.generator.model_dump(mode="json", exclude={"seed"}),
            "jobs": source.generator.jobs,
            "seeds": None if source.seeds is None else list(source.seeds),
            "cluster": None if source.cluster is None else cluster_document(source.cluster),
        }
    return {
        "source": "workload",
        "workload": source.workload.metadata.name,
        "rows": [model.episode_rows[0], model.episode_rows[-1] + source.jobs],
        "jobs": source.jobs,
        "cluster": cluster_document(source.cluster),
    }


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """A cluster in a few numbers."""
    return {"name": cluster.name, "nodes": cluster.node_count, "gpus": cluster.total_gpus}


def _part(part: Columns) -> dict[str, Any]:
    """Shape and columns; columns of one name beside each other are told together."""
    entries = zip(part.names, part.low.tolist(), part.high.tolist(), strict=True)
    columns = [
        {"name": name, "low": low, "high": high, "count": len(list(same))}
        for (name, low, high), same in groupby(entries)
    ]
    return {"shape": list(part.shape), "type": "float32", "columns": columns}


def shown_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings worth a person's time: those that matter most, and those that are not the defaults."""
    defaults = EnvConfig().model_dump(mode="json")
    chosen = {name: value for name, value in settings.items() if name in LOOKED_AT or value != defaults[name]}
    told_elsewhere = ("base_policy", "job_features", "node_features", "global_features")
    return {name: value for name, value in chosen.items() if name not in told_elsewhere}
