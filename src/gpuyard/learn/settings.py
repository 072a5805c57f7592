"""The settings of a run from where they may come: a preset, a file, a model to start from, options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuyard.errors import InputError, setting
from gpuyard.files import read_toml, toml_value
from gpuyard.learn.algorithm import find_algorithm
from gpuyard.learn.config import TrainConfig, merged, read_config
from gpuyard.learn.presets import preset_tables
from gpuyard.network.config import RULE_KINDS
from gpuyard.network.model_file import find_model, left_behind, read_model
from gpuyard.runs.directory import START

AROUND = ("warmup_jobs", "cooldown_jobs")
SOURCES = {
    "workload": ("generator", *AROUND),
    "generator": ("workload", *AROUND),
    "preset": ("workload", "generator", "cluster", *AROUND),
}
"""Where jobs come from, and what else cannot stand next to it, or was found for other jobs."""
JOBS = {("environment", name) for name in SOURCES}
MOST_SHOWN = 60


def assemble(
    algorithm: str,
    options: Mapping[str, Any],
    *,
    preset: str | None = None,
    file: Path | None = None,
    init_from: str | None = None,
) -> TrainConfig:
    """Settings, the later sources taking precedence: model, preset, file, options.

    Raises:
        InputError: for an unknown name, a key that does not exist, a value out of range.
    """
    reads = find_algorithm(algorithm).reads
    if preset and reads is not None:
        raise InputError(f"preset {preset} is not for {algorithm}, which reads only {', '.join(reads)}")
    tables: dict[str, Any] = _of_model(init_from, algorithm) if init_from else {}
    if preset:
        tables = _over(tables, preset_tables(preset, algorithm))
        if init_from:
            tables.pop("rule", None)  # the model takes the place of what the preset starts from
    if file is not None:
        stated = read_toml(file)
        if stated.get("algorithm", algorithm) != algorithm:
            raise InputError(f"{file}: is for {stated['algorithm']}, but the command says {algorithm}")
        read_config(
            {**stated, "algorithm": algorithm}, str(file)
        )  # so that mistakes are told by the file's name
        if "init_from" in stated and (file.parent / START).is_file():
            stated["init_from"] = str(file.parent / START)  # the settings of a run, and what it started from
        tables = _over(tables, stated)
    tables = _over(tables, options)
    if init_from:
        tables["init_from"] = init_from
    if left_behind(tables.get("environment", {}).get("workload")):
        raise InputError(
            f"{init_from}: was trained on jobs that do not come with it; say which with "
            f"{setting('environment.workload', 'JOBS')}, or make them as its card says (docs/models.md)"
        )
    return read_config({**tables, "algorithm": algorithm}, "")


def _over(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with changes, without what those make void: other jobs, a rule that nothing starts from."""
    result = merged(tables, changes)
    given = changes.get("environment", {})
    for name, void in SOURCES.items():
        if name in given:
            kept = {
                key: value for key, value in result["environment"].items() if key in given or key not in void
            }
            result["environment"] = kept
    residual = changes.get("network", {}).get("residual", "rule")
    if (
        residual != "rule"
        and "rule" not in changes
        and result.get("network", {}).get("kind") not in RULE_KINDS
    ):
        result.pop("rule", None)
    return result


def replaced_in_words(
    preset: str, algorithm: str, options: Mapping[str, Any], file: Path | None = None
) -> str:
    """Which of a preset's settings are not those of the run; empty if all are."""
    own, given = preset_tables(preset, algorithm), merged(read_toml(file) if file else {}, options)
    changes = []
    for table, values in given.items():
        before = own.get(table)
        if not isinstance(values, Mapping) or not isinstance(before, Mapping):
            continue
        if table == "environment" and {"workload", "generator", "preset"} & set(values):
            source = next(name for name in ("workload", "generator", "preset") if name in values)
            changes.append(f"{source} {_short(values[source])} instead of its jobs")
        changes += [
            f"{table}.{key} {_short(value)} instead of {_short(before[key])}"
            for key, value in values.items()
            if key in before and before[key] != value and (table, key) not in JOBS
        ]
    return f"preset {preset} with {'; '.join(changes)}; all else is the preset's" if changes else ""


def _short(value: Any) -> str:
    text = toml_value(value)
    return text.strip('"') if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _of_model(source: str, algorithm: str) -> dict[str, Any]:
    """The environment that a model was made in, and a network that can start from it."""
    model = read_model(find_model(source))
    environment = dict(model.training.get("environment", {}))
    if model.network.kind == "rule" and not find_algorithm(algorithm).moves_rules:
        return {"environment": environment, "network": {"residual": "rule"}}
    return {"environment": environment, "network": model.network.model_dump(mode="json")}
