"""What a scheduler knows of run times: the choice of ``estimates = auto``, and its reason in words."""

from typing import TYPE_CHECKING

from gpuyard.config import SimulationConfig

if TYPE_CHECKING:
    from gpuyard.workload import Workload

LEAST_REQUESTED = 0.5
"""Share of jobs with a request from which on requests are what a scheduler knows."""
_MEANING = {
    "exact": "exact: policies know true run times, which no scheduler does; figures are an upper bound",
    "requested": "requested: policies know the run times that users asked for",
    "history": "history: policies know predictions from finished jobs",
}


def informed(config: SimulationConfig, workload: "Workload") -> SimulationConfig:
    """Settings in which ``estimates`` is no longer ``auto``.

    Args:
        config: Settings.
        workload: The jobs, which have requested run times or not.
    """
    if config.estimates != "auto":
        return config
    chosen = "requested" if requested_share(workload) >= LEAST_REQUESTED else "history"
    return config.model_copy(update={"estimates": chosen})


def requested_share(workload: "Workload") -> float:
    """Share of the jobs whose users asked for a run time."""
    return 1.0 - workload.frame["estimate_s"].null_count() / max(len(workload), 1)


def why_chosen(asked: SimulationConfig, workload: "Workload") -> str:
    """One line: what policies know and why; empty if it was asked for and needs no warning."""
    if asked.estimates == "exact":
        return f"Estimates are {_MEANING['exact']}."
    if asked.estimates != "auto":
        return ""
    share = requested_share(workload)
    if share >= LEAST_REQUESTED:
        return f"Estimates are {_MEANING['requested']}: {share:.0%} of the jobs have one."
    none = "no job has a requested run time" if share == 0.0 else f"only {share:.0%} have a requested one"
    return f"Estimates are {_MEANING['history']}, because {none}."
