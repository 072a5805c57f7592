"""Whether the best model of a run is recommended: the whole validation part replayed in one go."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpuyard.config import GuardConfig
from gpuyard.errors import InputError
from gpuyard.learn.config import ValidationSection
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.rules.guard import Guard
from gpuyard.network.model_file import read_model
from gpuyard.network.policy import LearnedPolicy
from gpuyard.observation.episodes import WindowedJobs
from gpuyard.policies.grammar import PolicySpec
from gpuyard.runs.directory import BEST
from gpuyard.simulation.find import current_policy, find_policy
from gpuyard.simulation.windows import Margins, WindowCutter


def recommendation(
    environments: Environments, section: ValidationSection, directory: Path
) -> dict[str, Any] | None:
    """What a progress log says of the best model: which limits on waits it breaks.

    Args:
        environments: That it was trained in.
        section: Limits, and what runs today.
        directory: Of the run.

    Returns:
        ``kind`` is ``recommended``, ``not-recommended`` or ``unknown``, which has a reason (``why``); None
        where limits do not hold: a generator draws the jobs, or steps are others than the simulator's.
    """
    if not environments.is_guarded or not (directory / BEST).is_file():
        return None
    model = environments.model("validation")
    assert isinstance(model.source, WindowedJobs)
    workload, cluster = model.source.workload, model.source.cluster
    name = current_policy(workload, section.current)
    if section.current == "auto" and name != "recorded":
        name = environments.today(section.current)
    said = {"part": "validation", "current": name}
    try:
        simulation, placement = model.config.simulated, model.policy.placement
        cutter = WindowCutter(workload, cluster, simulation, placement)
        whole = cutter.cut("validation", count=1, jobs=None, margins=Margins(environments.around[0]))
        current = find_policy(name)
        if isinstance(current, PolicySpec):
            current = replace(current, placement=placement)
        limits = GuardConfig(**{field: getattr(section, field) for field in GuardConfig.model_fields})
        policy = LearnedPolicy(str(directory), read_model(directory / BEST))
        broken = Guard(whole, cluster, simulation, current, limits).broken(policy)
    except InputError as error:  # what runs in episodes need not run in one go, such as history with shares
        return {**said, "kind": "unknown", "why": str(error), "broken": []}
    kind = "not-recommended" if broken else "recommended"
    return {**said, "kind": kind, "broken": [asdict(one) for one in broken]}
