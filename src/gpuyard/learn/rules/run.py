"""A search as a run: its directory, its diary, the model it leaves. Needs no torch."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.files import atomic_write, check_directory
from gpuyard.learn.config import (
    described,
    load_toml,
    merged,
    toml_text,
    with_none_in_words,
    without_words_for_none,
)
from gpuyard.learn.rules.config import SearchConfig
from gpuyard.learn.rules.rule import RuleModel
from gpuyard.learn.search import SearchProgress, SearchResult, search
from gpuyard.network.model_file import ModelFile, write_model
from gpuyard.observation.config import EnvConfig, read_settings
from gpuyard.registry import suggest
from gpuyard.runs.directory import BEST, CONFIG, LAST, PROGRESS
from gpuyard.runs.progress import ProgressWriter
from gpuyard.workload import Workload, read_workload

SUMMARY = "search.json"
_SIMULATION = ("estimates", "simulation")


@dataclass(frozen=True)
class SearchRun:
    """What a search is to do.

    Attributes:
        source: The workload as it was named.
        cluster_text: The cluster as it was named; None: the workload's own.
        workload: The jobs.
        cluster: What they run on.
        simulation: Settings of the simulation.
        search: How to search.
    """

    source: str
    cluster_text: str | None
    workload: Workload
    cluster: Cluster
    simulation: SimulationConfig
    search: SearchConfig

    def document(self) -> dict[str, Any]:
        """As a file has it."""
        environment: dict[str, Any] = {"workload": self.source, "cluster": self.cluster_text}
        environment["simulation"] = self.simulation.model_dump(mode="json", exclude_defaults=True) or None
        stated = {name: value for name, value in environment.items() if value is not None}
        search_table = with_none_in_words(self.search.model_dump(mode="json"))
        return {"algorithm": "search", "environment": stated, "search": search_table}


def prepare_search(tables: Mapping[str, Any], file: Path | None) -> SearchRun:
    """Read settings and jobs.

    Raises:
        InputError: for what is missing, unknown or out of range.
    """
    document = merged(load_toml(file) if file else {}, tables)
    document.pop("algorithm", None)
    known = dict.fromkeys(("environment", "search", "training"))
    for name in document:
        if name not in known:
            raise InputError(f"unknown table {name} of a search{suggest(name, known)}")
    environment, own = dict(document.get("environment", {})), dict(document.get("search", {}))
    training = dict(document.get("training", {}))
    if "seed" in training:
        own["seed"] = training.pop("seed")
    if "minutes" in training:
        own["seconds"] = 60 * float(training.pop("minutes"))
    if training:
        raise InputError(f"training.{next(iter(training))} has no meaning for a search")
    try:
        settings = SearchConfig.model_validate(without_words_for_none(own))
    except ValidationError as error:
        raise InputError(described(error, SearchConfig, ("search",))) from None
    source, cluster_text = environment.pop("workload", None), environment.pop("cluster", None)
    for name in environment:
        if name not in _SIMULATION:
            names = dict.fromkeys(("workload", "cluster", *_SIMULATION))
            raise InputError(f"environment.{name} has no meaning for a search{suggest(name, names)}")
    if source is None:
        raise InputError("which jobs? give --workload FILE and --cluster, such as --cluster 64x8")
    simulation = EnvConfig.model_validate(read_settings(environment)).simulated
    workload, cluster = _jobs(source, cluster_text)
    return SearchRun(source, cluster_text, workload, cluster, simulation, settings)


def _jobs(source: str, cluster: str | None) -> tuple[Workload, Cluster]:
    from gpuyard.workload.generators import preset_workload, preset_workloads

    machines = None if cluster is None else parse_cluster(cluster)
    if source in preset_workloads():
        trace = preset_workload(source)
        workload, machines = trace.workload, machines or trace.cluster
    else:
        workload = read_workload(source)
    if machines is None:
        raise InputError(f"which cluster shall run {source}? Give --cluster, such as 64x8")
    return workload, machines


def run_search(
    run: SearchRun, directory: Path, progress: Callable[[SearchProgress], None] | None = None
) -> SearchResult:
    """Search, and leave a run's directory behind whose model is the rule that was found.

    Raises:
        InputError: if the directory holds something, or the jobs do not do.
    """
    check_directory(directory)
    if directory.exists() and any(directory.iterdir()):
        raise InputError(f"{directory}: is not empty; choose another --out")
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / CONFIG, toml_text(run.document()))
    began = time.monotonic()
    with ProgressWriter(directory / PROGRESS) as diary:
        start = {"event": "start", "algorithm": "search", "name": directory.resolve().name}
        judged = {"metric": run.search.metric, "higher_is_better": True}
        diary.write({**start, **judged, "total_steps": max(1, run.search.generations), "time": time.time()})

        def note(said: SearchProgress) -> None:
            if said.generation is not None:
                diary.write(_record(said, time.monotonic() - began))
            if progress:
                progress(said)

        try:
            result = search(run.workload, run.cluster, run.search, run.simulation, progress=note)
        except InputError:  # nothing came of it: leave nothing
            for name in (CONFIG, PROGRESS):
                (directory / name).unlink()
            directory.rmdir()
            raise
        except KeyboardInterrupt:
            diary.write({"event": "stop", "reason": "interrupted", "step": 0})
            raise
        for name in (BEST, LAST):
            write_model(directory / name, _model(run, result, result.best_rule))
        _write(directory / SUMMARY, json.dumps(result.summary(), indent=2) + "\n")
        diary.write(_validation(run, result, time.monotonic() - began))
        stop = {"event": "stop", "reason": "finished", "step": run.search.generations}
        diary.write({**stop, "elapsed_s": time.monotonic() - began})
    return result


def _record(said: SearchProgress, elapsed_s: float) -> dict[str, Any]:
    generation = said.generation
    assert generation is not None
    values = {"loss/best": generation.loss, "loss/median": generation.median_loss, "sigma": generation.sigma}
    if generation.train_loss is not None:
        values["loss/train"] = generation.train_loss
    if generation.validation_loss is not None:
        values["loss/validation"] = generation.validation_loss
    step = generation.number
    return {"event": "update", "step": step, "update": step, "elapsed_s": elapsed_s, "values": values}


def _validation(run: SearchRun, result: SearchResult, elapsed_s: float) -> dict[str, Any]:
    chosen = result.judged[result.chosen]
    values = {"policy/score": -chosen.validation_loss}
    values |= {f"policy/{metric}": value for metric, value in chosen.validation.items()}
    for one in result.judged.values():
        if one.name != "rule":
            values[f"{one.name}/score"] = -one.validation_loss
            values |= {f"{one.name}/{metric}": value for metric, value in one.validation.items()}
    return {
        "event": "validation",
        "step": run.search.generations,
        "elapsed_s": elapsed_s,
        "score": -chosen.validation_loss,
        "better": True,
        "values": values,
    }


def _model(run: SearchRun, result: SearchResult, rule: RuleModel) -> ModelFile:
    """The rule as a model that acts, and that networks can start from."""
    settings = rule.environment.model_dump(mode="json", exclude_defaults=True)
    environment = {"id": "gpuyard/SelectJob-v0", "workload": run.source, **settings}
    if run.cluster_text is not None:
        environment["cluster"] = run.cluster_text
    training = {
        "algorithm": "search",
        "environment": environment,
        "chosen": result.chosen,
        "reference": result.reference,
        "grid_policy": result.grid_policy,
        "validation": {one.name: one.validation for one in result.judged.values()},
    }
    return ModelFile(
        "select-job", rule.environment, run.cluster, rule.network, rule.sizes, rule.tensors, training
    )


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
