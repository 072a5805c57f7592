"""How many jobs run around the window of an episode, so that its cluster is as busy as it really is.

Found by the test of two starts that ``gpuyard evaluate`` makes (docs/contract/windows.md), once per process
for the same jobs, cluster and settings.
"""

import hashlib
from collections.abc import Hashable

from gpuyard.observation.config import HOST_KINDS, EnvConfig
from gpuyard.observation.episodes import WindowedJobs
from gpuyard.observation.spec import EnvModel
from gpuyard.simulation.busy import find_margins
from gpuyard.simulation.windows import WindowCutter
from gpuyard.workload import Workload

TESTED_WINDOWS = 4
"""Fewer than an evaluation tests: an environment is to be there at once."""
MOST_BEFORE = 16
"""Most jobs of warm-up, in episodes."""
_COLUMNS = ("submit_s", "duration_s", "estimate_s", "gpus", "gpu_milli", "cpus", "memory_mib", "priority")
_found: dict[Hashable, tuple[int, int]] = {}


def busy_margins(model: EnvModel) -> tuple[int, int]:
    """Jobs of warm-up and of cool-down that episodes of an environment take unless settings give others.

    None where a generator draws them, and where a published setup or the reward asks for an empty cluster.
    """
    source = model.source
    if not isinstance(source, WindowedJobs) or begins_empty(model.kind, model.config):
        return 0, 0
    if source.begin == 0 and source.end == source.jobs:  # there is nothing around it
        return 0, 0
    key = _key(model, source)
    if key not in _found:
        _found[key] = _find(model, source)
    return _found[key]


def begins_empty(kind: str, config: EnvConfig) -> bool:
    """Whether ``auto`` means an empty cluster, whatever the jobs are.

    Where hosts are chosen, in other step modes than ``instant`` and with a horizon, which are setups that
    others have published; with ``versus_baseline``, which compares whole runs.
    """
    return (
        kind in HOST_KINDS
        or config.step_mode != "instant"
        or config.horizon_factor is not None
        or bool(config.rewards.get("versus_baseline"))
    )


def _find(model: EnvModel, source: WindowedJobs) -> tuple[int, int]:
    simulation, policy = model.config.simulated, model.policy
    cutter = WindowCutter(source.workload, source.cluster, simulation, policy.placement)
    tested = find_margins(
        cutter,
        source.cluster,
        simulation,
        model.config.split,
        [policy],
        jobs=source.jobs,
        placement=policy.placement,
        windows=TESTED_WINDOWS,
        most_before=MOST_BEFORE,
    )
    return tested.margins.before, tested.margins.after


def _key(model: EnvModel, source: WindowedJobs) -> Hashable:
    config = model.config
    return (
        _checksum(source.workload),
        source.cluster.model_dump_json(),
        model.policy.name,
        config.simulated.model_dump_json(),
        config.split,
        source.jobs,
    )


def _checksum(workload: Workload) -> bytes:
    digest = hashlib.sha256()
    for name in _COLUMNS:
        digest.update(workload.frame[name].to_numpy().tobytes())
    return digest.digest()
