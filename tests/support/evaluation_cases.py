"""Small workloads, models and comparisons that tests of evaluations share."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpuyard.config import SimulationConfig
from gpuyard.env import SchedulingVectorEnv
from gpuyard.evaluate import Comparison, PolicyEntry, Setting, window_source
from gpuyard.evaluate.comparison import WholeReplay
from gpuyard.evaluate.tables import CLASS_SCHEMA, window_frame, window_row
from gpuyard.metrics.guards import WAITS, wait_row
from gpuyard.network.config import NetworkConfig
from gpuyard.network.model_file import ModelFile, write_model
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import expected_tensors
from gpuyard.simulation.run import simulate
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize

CLUSTER = "4x4"
MIX = ((1, 5), (2, 3), (4, 2))


def with_few_heuristics(patch: pytest.MonkeyPatch) -> None:
    """Evaluations try some of the family, for tests that do not go by which of them is best."""
    every, slower = window_source.fixed_heuristics, window_source.slower_heuristics
    patch.setattr(window_source, "fixed_heuristics", lambda *settings: every(*settings)[::12])
    patch.setattr(window_source, "slower_heuristics", lambda *settings: slower(*settings)[:2])


def some_jobs(count: int = 600, **settings: Any) -> Workload:
    """More work than the cluster can do at once."""
    given = {"jobs": count, "cluster_gpus": 16, "load": 1.5, "gang_mix": MIX, "users": 5, "seed": 4}
    return synthesize(SynthConfig(**{**given, **settings}))


def recorded_log(policy: str = "fifo+easy", *, nodes: bool = True) -> Workload:
    """Jobs with what a policy did to them as what was recorded."""
    result = simulate(some_jobs(), CLUSTER, policy, SimulationConfig(estimates="exact"))
    table = result.schedule.frame()
    names = table["nodes"].list.eval(pl.format("n{}", pl.element())).list.join("|")
    columns = {"recorded_start_s": table["start_s"]} | ({"recorded_nodes": names} if nodes else {})
    return make_workload(result.workload.frame.with_columns(**columns), name="log")


def like_its_base(kind: str = "select-job", network: str = "job-scorer", **settings: Any) -> ModelFile:
    """A network that has learnt nothing: it acts as its base policy does."""
    settings = {"window": 600, **settings}
    if "generator" not in settings:
        settings = {"workload": some_jobs(), "cluster": CLUSTER, **settings}
    model = SchedulingVectorEnv(kind, 1, threads=1, **settings).model
    config = NetworkConfig(kind=network, width=8, residual="base")
    rng = np.random.default_rng(0)
    shapes = expected_tensors(config, NetworkSizes.of(model))
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for name, values in tensors.items():
        if name.startswith(("policy", "noop.")):
            values.fill(0)
    return ModelFile.of(model, config, tensors, {})


def written(directory: Path, model: ModelFile, name: str = "learned") -> str:
    """The path of a model file."""
    path = directory / f"{name}.safetensors"
    write_model(path, model)
    return str(path)


def comparison_of(
    values: dict[str, list[float]],
    *,
    classes: list[dict[str, Any]] | None = None,
    whole: WholeReplay | None = None,
    **setting: Any,
) -> Comparison:
    """A comparison with made-up slowdowns; the first policy is the reference, the others were given."""
    count = len(next(iter(values.values())))
    fields = {
        "workload": "made-up",
        "jobs": 1000,
        "fingerprint": "",
        "cluster": {},
        "information": {"estimates": "requested"},
        "part": "test",
        "kind": "windows",
        "windows": tuple(range(0, 100 * count, 100)),
        "jobs_per_window": 100,
        "block": 1,
        "disjoint": float(count),
        "metric": "mean_bounded_slowdown",
        "lower_is_better": True,
        "margins": (50, 20),
    } | setting
    names = list(values)
    entries = tuple(
        PolicyEntry(name, name, "heuristic", None, "consolidate", "given" if i else "reference")
        for i, name in enumerate(names)
    )
    rows = [
        window_row(name, window, {fields["metric"]: value, "mean_jct_s": 100 * value})
        for name in names
        for window, value in zip(fields["windows"], values[name], strict=True)
    ]
    found = pl.DataFrame(classes or [], schema=CLASS_SCHEMA)
    return Comparison(
        Setting(**fields), entries, names[0], "given", None, window_frame(rows), found, whole=whole
    )


def whole_of(rows: dict[str, dict[str, float]], classes: list[dict[str, Any]] | None = None) -> WholeReplay:
    """A replay of the whole part with made-up metrics by policy."""
    metrics = window_frame([window_row(name, 0, values) for name, values in rows.items()]).drop("window")
    schema = {name: dtype for name, dtype in CLASS_SCHEMA.items() if name != "window"}
    by_class = pl.DataFrame(classes or [], schema=schema)
    waits = [
        wait_row(values, by_class.filter(pl.col("policy") == name)).with_columns(policy=pl.lit(name))
        for name, values in rows.items()
        if "p99_wait_s" in values
    ]
    empty = pl.DataFrame(schema={**WAITS, "policy": pl.String()})
    return WholeReplay(metrics, by_class, window_frame([]), pl.concat([empty, *waits]))
