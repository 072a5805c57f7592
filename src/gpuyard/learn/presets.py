"""Ready-made training runs by name (``gpuyard train ppo --preset bursty``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.registry import lookup, register, registered


@dataclass(frozen=True)
class TrainPreset:
    """Settings of a run by name.

    Attributes:
        summary: One line for people.
        common: Tables for every algorithm.
        own: Tables of single algorithms, by the algorithm's name; each replaces the common one whole.
    """

    summary: str
    common: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]]


def train_presets() -> Mapping[str, TrainPreset]:
    """All presets by name."""
    return registered("train-preset")


def preset_tables(name: str, algorithm: str) -> dict[str, Any]:
    """The tables of a preset for an algorithm.

    Raises:
        InputError: for an unknown preset.
    """
    preset: TrainPreset = lookup("train-preset", name)
    return {**preset.common, **preset.own.get(algorithm, {})}


_PPO = {
    "discount": 0.999,
    "gae_lambda": 0.97,
    "entropy": {"schedule": "linear", "start": 0.01, "end": 0.001},
}

register("train-preset", "bursty")(
    TrainPreset(
        "400 jobs in six bursts on 8 GPUs, one event a step: beats sjf within minutes",
        {
            "environment": {"preset": "bursty-8gpu", "envs": 64},
            "network": {"kind": "job-scorer", "width": 32, "residual": "rule", "strength": 7.0},
            # The largest job that fits, ties to the shortest: the best heuristic here.
            "rule": {"score": {"gpus": 24.0, "estimate": -6.0}},
            "training": {"steps": 800_000, "minutes": 4.5},
            "learning_rate": {"schedule": "linear", "start": 1e-3, "end": 1e-5},
            "validation": {
                "windows": 64,
                "heuristics": ["fifo+greedy", "sjf+greedy", "largest+greedy", "random+greedy"],
            },
        },
        {
            "ppo": {"ppo": {**_PPO, "value_updates_first": 2}},
            "evolve": {"network": {"kind": "rule"}, "evolve": {"generations": 60}},
        },
    )
)

register("train-preset", "demo")(
    TrainPreset(
        "draws like the demo's workload, twice as dense, from Smith's order and a gate: about a minute",
        {
            "environment": {
                "generator": {"preset": "demo", "jobs": 256, "load": 2.5},
                "estimates": "exact",
                "base_policy": "wspt+easy",
                "window": 32,
                "tokens": "classes",
                "lookahead": "off",
                "warmup_jobs": 0,
                "cooldown_jobs": 0,
                "envs": 64,
            },
            "network": {"kind": "job-scorer", "width": 32, "residual": "rule", "strength": 4.0},
            # Smith's index for bounded slowdown, and long jobs leave room for short ones. The columns are
            # logarithms in units of ln(1 + 30 days) and ln(1 + 30 days x 64 GPUs).
            "rule": {
                "score": {"area": -18.93, "estimate": -14.77},
                "gate": {"free_after": 4.0, "estimate": -5.9},
                "bias": 2.56,
            },
            "training": {"steps": 500_000, "minutes": 1.0, "checkpoint_every_s": 20.0},
            "learning_rate": {"schedule": "linear", "start": 2e-3, "end": 1e-4},
            "validation": {
                "windows": 48,
                "metric": "mean_bounded_slowdown",
                "average": "mean",
                "heuristics": [
                    "fifo+easy",
                    "sjf+easy",
                    "saf+strict",
                    "wspt+easy",
                    "wspt+easy+express:600:0.1",
                ],
            },
        },
        {
            "ppo": {
                "ppo": {
                    **_PPO,
                    "discount": 1.0,
                    "rollout_steps": 64,
                    "value_updates_first": 1,
                }
            }
        },
    )
)

register("train-preset", "hosts")(
    TrainPreset(
        "which of 28 to 36 hosts a job of cores and memory takes, hosts drawn anew every episode",
        {
            "environment": {
                "id": "gpuyard/SelectHost-v0",
                "preset": "host-farm",
                "envs": 64,
                "node_features": ["present", "cpu_use", "memory_use", "cpus", "memory", "base_choice"],
            },
            "network": {"kind": "host-attention", "width": 32, "residual": "base", "strength": 3.0},
            "training": {"steps": 1_000_000, "minutes": 5.0},
            "learning_rate": {"schedule": "linear", "start": 1e-3, "end": 1e-5},
            "validation": {"windows": 32, "metric": "mean_wait_s", "average": "mean"},
        },
        {
            "ppo": {"ppo": _PPO},
            "evolve": {
                "network": {"kind": "host-attention", "width": 8, "residual": "base", "strength": 1.0},
                "validation": {"windows": 96, "metric": "return"},
                "evolve": {"generations": 100, "population": 24, "episodes": 24},
            },
        },
    )
)
