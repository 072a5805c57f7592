"""Episodes as files that any program can replay, with the results of reference policies to check against."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import gpuyard
from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.env.describe import cluster_document, env_id_of, settings_document
from gpuyard.env.single import SchedulingEnv
from gpuyard.errors import InputError, setting
from gpuyard.files import atomic_write, check_directory
from gpuyard.observation.config import HOST_KINDS
from gpuyard.observation.episodes import DrawnJobs
from gpuyard.observation.spec import acting_policy
from gpuyard.units import json_text
from gpuyard.workload import Workload, write_workload
from gpuyard.workload.shaping.derive import derived

RANDOM = "random-feasible"
"""All actions that can be executed are equally likely."""
OF_JOBS = ("fifo", "sjf", "fifo+easy")
OF_HOSTS = ("fifo+greedy/first-available", "fifo+greedy/best-fit", "fifo+greedy/worst-fit")
JOBS, CLUSTER, EPISODE = "jobs", "cluster.toml", "episode.json"


@dataclass(frozen=True)
class FixedEpisode:
    """One episode that never changes.

    Attributes:
        seed: That it was asked for by.
        reset: Arguments of ``reset`` that begin it in the environment that it comes from.
        workload: Its jobs, the first submitted at 0.
        cluster: What they run on.
    """

    seed: int
    reset: Mapping[str, Any]
    workload: Workload
    cluster: Cluster


def fixed_episode(env: SchedulingEnv, seed: int) -> FixedEpisode:
    """The draw of that seed; of a workload, the window with which ``reset(seed=seed)`` begins.

    Raises:
        InputError: if the episode is not made of its own jobs alone.
    """
    source, model = env.model.source, env.model
    if model.config.around[0]:
        raise InputError("warmup_jobs: an episode after a warm-up depends on the jobs before; leave it out")
    if model.config.around[1]:
        raise InputError(
            "cooldown_jobs: an episode before a cool-down depends on the jobs after; leave it out"
        )
    if isinstance(source, DrawnJobs):
        return FixedEpisode(seed, {"seed": seed, "options": {"episode": seed}}, *source.draw(seed))
    if model.config.simulated.estimates == "history" or model.policy.predicts:
        raise InputError("predictions from history depend on the jobs before an episode; use other estimates")
    env.reset(seed=seed)
    rows = env.schedule()["row"]
    frame = source.workload.frame.filter(pl.col("row").is_in(rows))
    if frame.height != len(rows):
        raise InputError(
            f"rows of workload {source.workload.metadata.name} repeat; give each job its own row"
        )
    jobs = derived(source.workload, frame, "episode", {"seed": seed, "jobs": len(rows)})
    return FixedEpisode(seed, {"seed": seed}, jobs, source.cluster)


def replay_settings(env: SchedulingEnv, episode: FixedEpisode) -> dict[str, Any]:
    """Settings under which an environment whose workload is the exported file has this one episode."""
    alone = {"jobs_per_episode": len(episode.workload), "generator_seeds": None, "split": "all"}
    return {**settings_document(env.model), **alone}


def run_policy(env: SchedulingEnv, policy: str, seed: int = 0) -> dict[str, Any]:
    """Follow a policy, or ``RANDOM``, through an episode: return, steps and metrics."""
    env.reset(seed=seed)
    ended, info = False, dict[str, Any]()
    while not ended:
        action = env.random_action() if policy == RANDOM else env.expert_action(policy)
        _, _, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
    metrics = dict(info["episode_metrics"])
    return {
        "policy": policy,
        "return": metrics.pop("return"),
        "steps": metrics.pop("length"),
        "truncated": truncated,
        "metrics": metrics,
    }


def reference_policies(kind: str) -> tuple[str, ...]:
    """Policies whose results go with an episode."""
    return (*(OF_HOSTS if kind in HOST_KINDS else OF_JOBS), RANDOM)


def episode_document(
    env: SchedulingEnv, episode: FixedEpisode, preset: str | None, policies: Sequence[str]
) -> dict[str, Any]:
    """What ``episode.json`` holds."""
    kind, settings, metadata = env.model.kind, replay_settings(env, episode), episode.workload.metadata
    alone = SchedulingEnv(kind, workload=episode.workload, cluster=episode.cluster, **settings)
    return {
        "id": env_id_of(kind),
        "preset": preset,
        "seed": episode.seed,
        "reset": dict(episode.reset),
        "gpuyard_version": gpuyard.__version__,
        "observation_version": _core.OBSERVATION_VERSION,
        "workload": {
            "name": metadata.name,
            "jobs": len(episode.workload),
            "origin_s": metadata.origin_s,
            "epoch_s": metadata.epoch_s,
        },
        "cluster": cluster_document(episode.cluster),
        "horizon_s": horizon_s(episode, env.model.config.horizon_factor),
        "settings": settings,
        "results": [run_policy(alone, policy, episode.seed) for policy in policies],
    }


def horizon_s(episode: FixedEpisode, factor: float | None) -> float | None:
    """When the episode is truncated (docs/contract/mdp.md, "Time"); None if never."""
    if factor is None:
        return None
    frame, cluster = episode.workload.frame, episode.cluster
    gpus = frame["gpus"] * frame["gpu_milli"] / 1000.0
    work, there_is = float((gpus * frame["duration_s"]).sum()), float(cluster.total_gpus)
    if not work:
        work = float((frame["cpus"] * frame["duration_s"]).sum())
        there_is = float(sum(group.count * (group.cpus or 0) for group in cluster.nodes))
    return float(frame["submit_s"][-1]) + factor * (work / there_is if there_is else 0.0)


def export_episodes(
    directory: Path, env: SchedulingEnv, seeds: Sequence[int], preset: str | None, policies: Sequence[str]
) -> list[dict[str, Any]]:
    """Write a folder for each seed; each file appears whole or not at all, ``episode.json`` last.

    Returns:
        What the files named ``episode.json`` hold, each with its folder.

    Raises:
        InputError: before anything is run, for a policy that cannot act or a directory that cannot be made.
    """
    for policy in policies:
        if policy != RANDOM:
            acting_policy(policy)
    check_directory(directory)
    documents = []
    for seed in seeds:
        episode = fixed_episode(env, seed)
        document = episode_document(env, episode, preset, policies)
        folder = directory / f"seed-{seed}"
        _make_directory(folder)
        for suffix in (".csv", ".parquet"):
            write_workload(episode.workload, folder / f"{JOBS}{suffix}")
        _write(folder / CLUSTER, episode.cluster.to_toml())
        _write(folder / EPISODE, json_text(document) + "\n")
        documents.append({"folder": str(folder), **document})
    return documents


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{setting('out', path)}: cannot be made a directory ({error.strerror})") from None


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
