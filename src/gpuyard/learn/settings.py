"""The settings of a run from where they may come: a preset, a file, a model to start from, options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuyard.errors import InputError
from gpuyard.learn.config import ALGORITHMS, TrainConfig, load_toml, merged, read_config
from gpuyard.learn.presets import preset_tables
from gpuyard.registry import suggest


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
    if algorithm not in ALGORITHMS:
        known = dict.fromkeys((*ALGORITHMS, "search"))
        raise InputError(f"unknown algorithm {algorithm!r}{suggest(algorithm, known)}")
    tables: dict[str, Any] = _of_model(init_from) if init_from else {}
    if preset:
        tables = merged(tables, preset_tables(preset, algorithm))
    if file is not None:
        stated = load_toml(file)
        if stated.get("algorithm", algorithm) != algorithm:
            raise InputError(f"{file}: is for {stated['algorithm']}, but the command says {algorithm}")
        read_config(
            {**stated, "algorithm": algorithm}, str(file)
        )  # so that mistakes are told by the file's name
        tables = merged(tables, stated)
    tables = merged(tables, options)
    if init_from:
        tables["init_from"] = init_from
    return read_config({**tables, "algorithm": algorithm}, "settings")


def _of_model(source: str) -> dict[str, Any]:
    """The environment that a model was made in, and a network that can start from it."""
    from gpuyard.network.model_file import find_model, read_model

    model = read_model(find_model(source))
    environment = dict(model.training.get("environment", {}))
    if model.network.kind == "rule":
        return {"environment": environment, "network": {"residual": "rule"}}
    return {"environment": environment, "network": model.network.model_dump(mode="json")}
