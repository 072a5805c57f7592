"""Several policies on the same jobs: running them, the result as JSON and as files.

See docs/formats/result-directory.md.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import gpuyard
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.files import atomic_write, check_directory
from gpuyard.metrics.catalogue import Price, Value, compute_metrics
from gpuyard.metrics.tariff import parse_tariff
from gpuyard.policies.support import check_supported
from gpuyard.simulation.find import ReplayingPolicy, find_policy
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.terminal.console import show_progress
from gpuyard.units import json_text
from gpuyard.workload import Workload
from gpuyard.workload.importing import ImportReport

BREAKDOWNS = ("priority", "group", "gpus")
EVALUATION = "evaluation.json"
"""What ``gpuyard evaluate --out`` writes: a directory that has it is not one of simulations."""


@dataclass(frozen=True)
class PolicyRun:
    """A policy's simulation and its metrics, and the price of energy as JSON documents show it."""

    result: SimulationResult
    metrics: dict[str, Value]
    price_per_kwh: float | str | None = None

    @property
    def policy(self) -> str:
        """Full name of the policy."""
        return self.result.policy


def run_policies(
    workload: Workload,
    cluster: Cluster,
    policies: Sequence[str],
    config: SimulationConfig,
    *,
    price_per_kwh: Price | None = None,
    history: Workload | None = None,
) -> list[PolicyRun]:
    """Simulate each policy on the same jobs, with progress. A policy named twice runs once.

    Raises:
        InputError: before anything is simulated if a policy's name, the price or a combination is wrong.
    """
    tariff = None if price_per_kwh is None else parse_tariff(price_per_kwh)
    price = None if tariff is None else tariff.document
    specs = {spec.name: spec for spec in map(find_policy, policies)}
    for spec in specs.values():
        if isinstance(spec, ReplayingPolicy):
            spec.check_supported(workload, cluster, config)
        else:
            check_supported(workload, cluster, spec, config)
    runs = []
    with show_progress(len(workload), len(specs)) as progress:
        for name, spec in specs.items():
            report = progress.start_run(name)
            result = simulate(workload, cluster, spec, config, history=history, progress=report)
            metrics = compute_metrics(workload, cluster, result.schedule, price_per_kwh=tariff, config=config)
            runs.append(PolicyRun(result, metrics, price))
    return runs


def comparison_document(
    source: str, runs: Sequence[PolicyRun], metrics: Sequence[str], report: ImportReport | None = None
) -> dict[str, Any]:
    """What ``simulate --json`` prints and ``results.json`` holds.

    Args:
        source: The workload as the user named it.
        runs: One for each policy.
        metrics: Names of the metrics to give; all if empty.
        report: The account of the import that the jobs come from, if there is one.
    """
    first = runs[0].result
    return {
        "workload": source,
        "cluster": first.cluster.name,
        "gpuyard_version": gpuyard.__version__,
        "jobs": len(first.workload),
        "import": None if report is None else report.model_dump(mode="json"),
        "settings": first.config.model_dump(mode="json"),
        "price_per_kwh": runs[0].price_per_kwh,
        "results": [
            {
                "policy": run.policy,
                "metrics": {name: run.metrics[name] for name in metrics or run.metrics},
                "dropped_jobs": len(run.result.dropped),
                "counters": dict(run.result.counters),
                "notes": list(run.result.notes),
                "schedule_hash": run.result.schedule.hash(),
            }
            for run in runs
        ],
    }


def policy_document(source: str, run: PolicyRun) -> dict[str, Any]:
    """What a policy's ``metrics.json`` holds."""
    result = run.result
    breakdowns = {by: result.breakdown(by).to_dicts() for by in BREAKDOWNS}
    return {
        "policy": run.policy,
        "workload": source,
        "cluster": result.cluster.model_dump(mode="json", exclude_none=True),
        "gpuyard_version": gpuyard.__version__,
        "jobs": len(result.workload),
        "settings": result.config.model_dump(mode="json"),
        "price_per_kwh": run.price_per_kwh,
        "dropped_jobs": len(result.dropped),
        "counters": dict(result.counters),
        "notes": list(result.notes),
        "dropped_rows": result.workload.frame["row"].gather(result.dropped).to_list(),
        "schedule_hash": result.schedule.hash(),
        "metrics": run.metrics,
        "breakdowns": breakdowns,
    }


def check_free(directory: Path) -> None:
    """Refuse a directory that results cannot be written to, or that holds an evaluation.

    Raises:
        InputError: naming it, the reason and what to do.
    """
    check_directory(directory)
    if (directory / EVALUATION).is_file():
        raise InputError(
            f"{directory}: holds an evaluation, and a report could not tell the two apart; give another "
            "directory"
        )


def make_directory(path: Path) -> None:
    """Create the directory of results, parents included.

    Raises:
        InputError: if that is not possible.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {path}: cannot be made a directory ({error.strerror})") from None


def write_results(
    directory: Path,
    source: str,
    runs: Sequence[PolicyRun],
    *,
    csv: bool,
    report: ImportReport | None = None,
) -> None:
    """Write all files of a comparison; each appears whole or not at all, ``results.json`` last."""
    for folder, run in zip(_folders(runs), runs, strict=True):
        home = directory / folder
        make_directory(home)
        _write_table(home / "schedule", run.result.table(), csv=csv)
        if run.result.schedule.runs is not None:
            _write_table(home / "runs", _run_table(run.result), csv=csv)
        else:
            for stale in ("runs.parquet", "runs.csv"):  # of an earlier run into the same directory
                (home / stale).unlink(missing_ok=True)
        _write_json(home / "metrics.json", policy_document(source, run))
    _write_json(directory / "results.json", comparison_document(source, runs, (), report))


def _run_table(result: SimulationResult) -> pl.DataFrame:
    """The runs, each with the row of the trace that its job is, as in the table of the schedule."""
    runs = result.schedule.run_frame()
    row = result.workload.frame["row"].gather(runs["job"])
    return runs.drop("job").insert_column(1, row)


def _write_table(path: Path, table: pl.DataFrame, *, csv: bool) -> None:
    with atomic_write(path.with_name(f"{path.name}.parquet")) as temporary:
        table.write_parquet(temporary)
    if csv:
        with atomic_write(path.with_name(f"{path.name}.csv")) as temporary:
            _without_lists(table).write_csv(temporary)


def _write_json(path: Path, document: dict[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json_text(document) + "\n", encoding="utf-8")


def _without_lists(table: pl.DataFrame) -> pl.DataFrame:
    lists = [name for name, dtype in table.schema.items() if isinstance(dtype, pl.List)]
    return table.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join("|"))


def _folders(runs: Sequence[PolicyRun]) -> list[str]:
    """A directory's name for each policy: what file systems may not like becomes ``_``."""
    names: list[str] = []
    for run in runs:
        plain = re.sub(r"[^A-Za-z0-9+.-]", "_", run.policy)
        alike = sum(name == plain or name.startswith(f"{plain}~") for name in names)
        names.append(f"{plain}~{alike + 1}" if alike else plain)
    return names
