"""Calibrate: search on the first half of a log, report on the second."""

import time
from collections.abc import Sequence
from typing import Literal

import numpy as np

from gpuyard.calibrate.candidates import YARDSTICK, Candidate, named_candidates
from gpuyard.calibrate.closeness import (
    LEAST_GRAIN_S,
    Floats,
    closeness,
    grain_of,
    means_by_step,
    step_of,
)
from gpuyard.calibrate.config import CalibrationConfig
from gpuyard.calibrate.halves import Halves, Replayed, halved, replay, replay_from_record
from gpuyard.calibrate.result import Calibration, Curves
from gpuyard.calibrate.search import Progress, Search, Trial
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.information import informed
from gpuyard.units import duration
from gpuyard.workload import Workload
from gpuyard.workload.shaping.derive import has_dates

Start = Literal["recorded", "replay"]
UNLIKE = 3.0
"""Halves whose mean waits differ by more than this factor hardly tell of one another."""


def calibrate(
    workload: Workload,
    cluster: Cluster,
    config: SimulationConfig | None = None,
    limits: CalibrationConfig | None = None,
    *,
    policies: Sequence[str] = (),
    source: str = "",
    progress: Progress | None = None,
) -> Calibration:
    """Find the policy, settings and number of nodes that best reproduce the recorded waits of a log.

    Args:
        workload: The log.
        cluster: What it ran on.
        config: Settings of the simulation; the defaults if None.
        limits: How long and for what to search; the defaults if None.
        policies: Policies or policy files that are known to run there: the best of them is measured, and
            nothing else is searched for.
        source: What the log is called; its name if empty.
        progress: Told the stage, how many trials of it are done, how many there are, and a remark.

    Raises:
        InputError: if the log does not say when jobs started, has too few, or cannot have happened on the
            cluster; if jobs can never run on it; for a policy that is unknown.
    """
    began, limits = time.monotonic(), limits or CalibrationConfig()
    config = informed(config or SimulationConfig(), workload)
    halves = halved(workload, cluster, config, cluster.total_gpus * max(1.0, *limits.node_factors))
    config = config.model_copy(update={"oversize": "error"})
    grain_s = grain_of(halves.recorded_s)
    search = Search(halves, config, limits, grain_s, progress)
    candidates = named_candidates(halves.first, cluster, policies)
    best = _found(search, candidates, cluster)
    given = [one for one in candidates if one.is_given or one.label == YARDSTICK]
    start, (own, *others) = _second_half(halves, config, best, given, cluster)
    rows = own.rows
    submit_s, recorded_s = halves.jobs.frame["submit_s"].to_numpy()[rows], halves.recorded_s[rows]
    waits = {one.label: run.wait_s for one, run in zip(given, others, strict=True)}
    return Calibration(
        log=source or workload.metadata.name,
        given=cluster,
        cluster=best.cluster,
        candidate=best.candidate,
        config=config,
        limits=limits,
        misfit=best.misfit,
        closeness=closeness(submit_s, recorded_s, own.wait_s, grain_s),
        others={name: closeness(submit_s, recorded_s, wait_s, grain_s) for name, wait_s in waits.items()},
        start=start,
        curves=_curves(submit_s, recorded_s, own.wait_s, waits[YARDSTICK]),
        epoch_s=workload.metadata.epoch_s if has_dates(workload) else None,
        jobs=len(halves.jobs),
        left_out=halves.left_out,
        notes=(*halves.notes, *_unlike(halves)),
        trials=tuple(search.trials),
        skipped=search.skipped,
        elapsed_s=time.monotonic() - began,
    )


def _found(search: Search, candidates: Sequence[Candidate], cluster: Cluster) -> Trial:
    """The trial that fits the first half best: policies, then sizes of the cluster, then settings.

    Who states what runs is believed: on logs of a real Slurm, searched settings fitted the later half worse
    than the site's own (docs/results/calibration.md).
    """
    if stated := [one for one in candidates if one.is_given]:
        search.try_policies(stated, cluster)
        return search.best()
    search.try_policies(candidates, cluster)
    search.try_sizes(cluster)
    if (fitting := search.best().cluster) is not cluster:
        search.try_policies(candidates, fitting)  # another may be the best there
    search.fit_settings()
    return search.best()


def _unlike(halves: Halves) -> tuple[str, ...]:
    """That one half waits far longer than the other, if so: then the first tells little of the second."""
    first, second = (float(part.mean()) for part in np.split(halves.recorded_s, [halves.split]))
    if max(first, second) <= UNLIKE * max(min(first, second), LEAST_GRAIN_S):
        return ()
    return (
        f"The halves of the log differ: mean waits are {duration(first)} in the first, which is searched on, "
        f"and {duration(second)} in the second.",
    )


def _second_half(
    halves: Halves, config: SimulationConfig, best: Trial, others: Sequence[Candidate], cluster: Cluster
) -> tuple[Start, list[Replayed]]:
    """Waits of the second half under the best policy and under others, all begun in the same way."""
    runs = [(best.cluster, best.candidate), *((cluster, one) for one in others)]
    try:
        return "recorded", [replay_from_record(halves, place, one.policy, config) for place, one in runs]
    except InputError:
        # Not every policy and log goes with a given beginning: then the whole log is replayed.
        whole = [replay(halves.jobs, place, one.policy, config) for place, one in runs]
        return "replay", [run.between(halves.split, len(halves.jobs)) for run in whole]


def _curves(submit_s: Floats, recorded_s: Floats, own_s: Floats, other_s: Floats) -> Curves:
    step_s = step_of(submit_s)
    begin_s, recorded = means_by_step(submit_s, recorded_s, step_s)
    own, other = (means_by_step(submit_s, wait_s, step_s)[1] for wait_s in (own_s, other_s))
    times = np.asarray(begin_s, dtype=np.float64)
    return Curves(step_s, *(tuple(values.tolist()) for values in (times, recorded, own, other)))
