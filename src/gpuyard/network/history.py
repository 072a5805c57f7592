"""A network that acts on jobs whose run times are predicted from jobs that had finished before."""

import math
from typing import Any

import numpy as np
import polars as pl

from gpuyard import _core
from gpuyard.network.rollout import NativeNetwork
from gpuyard.observation.buffers import make_buffers
from gpuyard.observation.spec import EnvModel
from gpuyard.workload import Workload

RECORDED = ("start_us", "end_us", "node_offset", "node", "node_gpus")


def after_history(workload: Workload, history: Workload) -> Workload:
    """The jobs of a history, and after the last of them has ended those of a workload."""
    ends = history.frame["submit_s"] + history.frame["duration_s"]
    begin_s = math.ceil(float(ends.max())) + 1.0  # type: ignore[arg-type]
    # Rounded to what the core counts in, a whole number of seconds more leaves times as they are.
    submit_s = pl.Series("submit_s", np.rint(workload.frame["submit_s"].to_numpy() * 1e6) / 1e6 + begin_s)
    later = workload.frame.with_columns(submit_s, pl.col("deadline_s") + begin_s)
    metadata = workload.metadata.model_copy(
        update={
            "origin_s": workload.metadata.origin_s - begin_s,
            "epoch_s": workload.metadata.epoch_s - begin_s,
        }
    )
    return Workload(pl.concat([history.frame, later]), metadata)


def play(model: EnvModel, name: int, network: NativeNetwork) -> dict[str, Any]:
    """The schedule of one episode in which a network acts, on the episode's own clock."""
    core = _core.VectorEnv(model.spec, 1, 1, "off")
    buffers = make_buffers(model, 1)
    core.attach(buffers)
    core.give(0, *model.episode(name))
    core.reset(np.zeros(1, np.uint64), None)
    seen = [buffers[part][0] for part in ("jobs", "nodes", "globals", "mask")]
    while not buffers["ended"][0]:
        core.step(np.array([network.choose(*seen)], dtype=np.int64))
    record = core.record(0)
    jobs = len(record["start_us"])
    # Environments do not record these; without shared GPUs and kills at estimates all jobs have the same.
    same = {
        "status": np.zeros(jobs, np.uint8),
        "backfilled": np.zeros(jobs, np.uint8),
        "gpu_index": np.full(jobs, -1, np.int32),
    }
    return {part: record[part] for part in RECORDED} | same
