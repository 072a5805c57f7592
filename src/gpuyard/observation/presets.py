"""Ready-made settings of environments, among them published setups (docs/guide/environments.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.errors import InputError
from gpuyard.registry import lookup, register, registered


@dataclass(frozen=True)
class EnvPreset:
    """Settings by name.

    Attributes:
        kinds: The environments it is for, the first of which is meant if none is named.
        settings: Arguments of the environment.
        summary: One line for people.
    """

    kinds: tuple[str, ...]
    settings: Mapping[str, Any]
    summary: str


def preset_settings(name: str, kind: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a preset, those that are given taking precedence.

    Raises:
        InputError: for an unknown preset, or one for other environments.
    """
    preset: EnvPreset = lookup("env-preset", name)
    if kind is not None and kind not in preset.kinds:
        raise InputError(f"preset {name} is for {' or '.join(preset.kinds)}, not for {kind}")
    settings = dict(preset.settings)
    if "workload" in given:
        settings.pop("generator", None)
    if "generator" in given:
        settings.pop("workload", None)
    return {**settings, **given}


def env_presets() -> Mapping[str, EnvPreset]:
    """All presets by name."""
    return registered("env-preset")


COLD = {"warmup_jobs": 0, "cooldown_jobs": 0}
"""Published setups begin with an empty cluster."""

register("env-preset", "bursty-8gpu")(
    EnvPreset(
        ("select-job",),
        {
            "generator": "bursty-8gpu",
            "estimates": "exact",
            "base_policy": "fifo+greedy",
            "window": 50,
            "step_mode": "event",
            "max_steps": 2_000,
            "horizon_factor": 1.3,
            "lookahead_horizon_s": 10_000.0,
            "rewards": {
                "completed_work": 1.0,
                "backlog": 1.0,
                "idle_while_feasible": 0.05,
                "finish_early": 1.0,
            },
            "per_job": False,
            **COLD,
        },
        "400 jobs in six bursts on 8 GPUs, a new draw every episode, one event a step",
    )
)

for _jobs in (128, 256, 1024):
    register("env-preset", f"lublin-{_jobs}")(
        EnvPreset(
            ("select-job",),
            {
                "generator": {"preset": "lublin", "jobs": _jobs},
                "estimates": "exact",
                "cluster": "256x1",
                "base_policy": "fifo",
                "window": 128,
                "step_mode": "blocking",
                "jobs_per_episode": _jobs,
                "rewards": {"slowdown": 1.0},
                **COLD,
            },
            f"{_jobs} jobs on 256 processors, blocking: of Lublin and Feitelson's model, or of a workload",
        )
    )

register("env-preset", "host-farm")(
    EnvPreset(
        ("select-host", "rank-hosts"),
        {
            "generator": {"preset": "host-farm", "jobs": 600},
            "estimates": "exact",
            "base_policy": "fifo+greedy/first-available",
            "window": 1,
            "step_mode": "tick",
            "tick_s": 60.0,
            "job_features": ("cpus", "memory"),
            "node_features": ("cpu_use", "memory_use", "cpus", "memory"),
            "global_features": (),
            "lookahead": "off",
            "rewards": {"wait": 1.0},
            **COLD,
        },
        "about 100 ticks of jobs that ask for cores and memory, on 28 to 36 hosts, a new draw every episode",
    )
)
