"""``gpuyard train`` and ``gpuyard export``: train a policy, search a rule, resume a run, write its model."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import BaseModel

from gpuyard.cli.inputs import check_output, flag, one_line, open_console, print_json
from gpuyard.cli.parameters import Flag, Json, settings
from gpuyard.cli.runs import run_document
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, spelt
from gpuyard.learn.config import EnvironmentSection, TrainConfig, TrainingSection, ValidationSection
from gpuyard.learn.process.exit_codes import FAILED
from gpuyard.network.config import NetworkConfig
from gpuyard.observation.config import EnvConfig
from gpuyard.runs.directory import FOLDER, find_directory, open_run
from gpuyard.terminal.console import errors
from gpuyard.terminal.live import watch_training
from gpuyard.terminal.runs import outcome_in_words
from gpuyard.terminal.search import search_in_words, search_summary, search_table

RUNS = Path(FOLDER)
Jobs = Annotated[
    EnvironmentSection,
    settings(EnvironmentSection, "Jobs", without=("id", "preset", "generator", "envs", "settings")),
]
Training = Annotated[TrainingSection, settings(TrainingSection, "Training")]
JOBS, TRAINING = EnvironmentSection(), TrainingSection()


def train(
    algorithm: Annotated[str | None, Parameter(help="ppo, d3qn, sac, clone, evolve or search.")] = None,
    /,
    *tables: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="--TABLE.KEY VALUE, such as --ppo.clip 0.1 or --environment.window 32.",
        ),
    ],
    preset: Annotated[str | None, Parameter(help="Settings by name: bursty, demo, hosts.")] = None,
    config: Annotated[Path | None, Parameter(help="A TOML file of settings.")] = None,
    out: Annotated[Path | None, Parameter(help="The run's directory. (default: the next in runs/)")] = None,
    resume: Annotated[
        Path | None, Parameter(help="Resume this run, exactly as if it had not stopped.")
    ] = None,
    init_from: Annotated[
        str | None, Parameter(help="A run, or a model file: weights, or a rule, to start from.")
    ] = None,
    check: Annotated[
        bool, Flag, Parameter(help="Do not train: overfit one window, and report on gradients and masks.")
    ] = False,
    dry_run: Annotated[
        bool, Flag, Parameter(help="Do not train: print all settings, sizes and how long it would take.")
    ] = False,
    json: Json = False,
    jobs: Jobs = JOBS,
    training: Training = TRAINING,
) -> int:
    """Train a policy, or search for a rule.

    Settings come from a preset, a TOML file and options, the later ones taking precedence. The directory of
    the run holds its settings, its progress log, checkpoints and models; Ctrl-C leaves it ready for --resume.

    Example: gpuyard train ppo --preset bursty --minutes 4
    """
    given = {
        "training": training.model_dump(exclude_unset=True),
        "environment": {name: value for name, value in jobs if name in ("workload", "cluster") and value},
    }
    if resume is not None:
        others = (algorithm, tables, preset, config, out, init_from, given["environment"], check, dry_run)
        if any(others) or set(given["training"]) - {"minutes"}:
            raise InputError("--resume resumes a run as it was set up; only --minutes can be given with it")
        return _run(find_directory(resume), None, training.minutes, json)
    if algorithm is None:
        raise InputError("which algorithm? gpuyard train ppo, d3qn, sac, clone, evolve or search")
    stated = parse_options(tables)
    for table, values in given.items():
        if values:
            stated[table] = {**stated.get(table, {}), **values}
    from gpuyard.learn.settings import assemble, replaced_in_words

    resolved = assemble(algorithm, stated, preset=preset, file=config, init_from=init_from)
    if check:
        return _check(resolved, json)
    if dry_run:
        return _outline(out or next_directory(algorithm), resolved, json)
    replaced = replaced_in_words(preset, algorithm, stated, config) if preset else ""
    return _run(out or next_directory(algorithm), resolved, None, json, [replaced] if replaced else [])


def settings_lines(algorithm: str) -> list[str]:
    """Settings of an algorithm, as they are written, with their defaults; empty if it is not there.

    Algorithms that train networks need torch, also for this.
    """
    from gpuyard.learn.algorithm import algorithm_names, find_algorithm

    if algorithm not in algorithm_names() or (algorithm != "search" and find_spec("torch") is None):
        return []
    fields = find_algorithm(algorithm).settings.model_fields
    told = {name: _shown(field.default) for name, field in fields.items() if not field.is_required()}
    defaults = {name: f" [default: {text}]" if text else "" for name, text in told.items()}
    return [f"  --{algorithm}.{name}{defaults.get(name, '')}" for name in fields]


def _shown(default: Any) -> str:
    """A default as it is typed; empty if there is none."""
    if default is None:
        return ""
    return json_text.dumps(default) if isinstance(default, list | tuple | dict) else str(default)


def parse_options(tokens: Sequence[str]) -> dict[str, Any]:
    """Nested tables from ``--TABLE.KEY VALUE`` and ``--TABLE.KEY=VALUE``.

    Raises:
        InputError: for what is neither.
    """
    tables: dict[str, Any] = {}
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        name, equals, value = token.partition("=")
        if not name.startswith("--") or "." not in name:
            raise InputError(_unreadable(token, name))
        if not equals:
            if not rest:
                raise InputError(f"{name} needs a value")
            value = rest.pop(0)
        *path, key = name[2:].replace("-", "_").split(".")
        place = tables
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise InputError(f"{name}: {part} has been given a value already, and is no table")
        place[key] = _value(value)
    return tables


def _unreadable(token: str, name: str) -> str:
    """How a setting is spelt that was given without its table."""
    key = name.removeprefix("--").replace("-", "_")
    if name.startswith("--"):
        tables: dict[str, type[BaseModel]] = {
            "environment": EnvConfig,
            "environment.simulation": SimulationConfig,
        }
        tables |= {"validation": ValidationSection, "network": NetworkConfig}
        for table, model in tables.items():
            if key in model.model_fields:
                return f"{name} is written --{table}.{key} VALUE in gpuyard train"
    return f"cannot read {token!r}; settings are written --TABLE.KEY VALUE, such as --ppo.clip 0.1"


def _value(text: str) -> Any:
    """A number, true, false, a JSON list or object; else the text itself."""
    try:
        return json_text.loads(text)
    except ValueError:
        return text


def next_directory(algorithm: str) -> Path:
    """The first that is free among ``runs/ALGORITHM-1``, ``runs/ALGORITHM-2`` and so on."""
    taken = {path.name for path in RUNS.glob(f"{algorithm}-*")} if RUNS.is_dir() else set()
    number = 1
    while f"{algorithm}-{number}" in taken:
        number += 1
    return RUNS / f"{algorithm}-{number}"


def _run(
    directory: Path, config: TrainConfig | None, minutes: float | None, json: bool, notes: Sequence[str] = ()
) -> int:
    from gpuyard.learn.process.launch import TrainingFailedError
    from gpuyard.learn.run import StartedRun, resume_run, start_run

    def watch(run: StartedRun) -> int:
        notes = [spelt(note, flag) for note in run.notes]
        return watch_training(replace(run, notes=notes), errors())

    try:
        if config is not None:
            code = start_run(directory, config, watch, notes)
        else:
            code = resume_run(directory, watch, minutes)
    except TrainingFailedError as error:
        print(f"error: {one_line(spelt(str(error), flag))}", file=sys.stderr)
        return FAILED
    run, console = open_run(directory), open_console()
    found = search_summary(run)
    if json:
        print_json({**run_document(run), **({"run": str(directory), **found} if found else {})})
        return code
    if found:
        console.print(search_table(found, console.width), "", sep="\n", crop=False)
    for line in search_in_words(found, directory) if found else [outcome_in_words(run)]:
        console.print(line, soft_wrap=True)  # commands are there to be copied
    return code


def _outline(directory: Path, config: TrainConfig, json: bool) -> int:
    from gpuyard.learn.outline import outline_in_words, outline_run
    from gpuyard.learn.run import check_is_free

    check_is_free(directory)
    outline = outline_run(config)
    if json:
        print_json({"run": str(directory), **outline.document()})
    else:
        open_console().print(spelt(outline_in_words(outline, str(directory)), flag), soft_wrap=True)
    return 0


def _check(config: TrainConfig, json: bool) -> int:
    from gpuyard.learn.learner import find_learner
    from gpuyard.learn.process.check import CHECK_S, check_training, report

    find_learner(config.algorithm)
    print(f"Training on one window again and again: takes about {CHECK_S:.0f} s.", file=sys.stderr)
    result = check_training(config)
    if json:
        print_json(result.document())
    else:
        open_console().print(report(result), soft_wrap=True)
    return 0 if result.passed else 1


def export(
    model: Annotated[str, Parameter(help="A run's directory, a model file, or model:NAME.")],
    /,
    *,
    out: Annotated[Path, Parameter(help="The file to write: .onnx.")],
    json: Json = False,
) -> int:
    """Write a trained model as ONNX, and compare it with the model.

    Comparing needs onnxruntime.

    Example: gpuyard export runs/ppo-1 --out model.onnx
    """
    check_output("--out", out, (".onnx",))
    for package in ("torch", "onnx"):
        if find_spec(package) is None:
            raise InputError(f"writing ONNX needs the package {package}; run pip install 'gpuyard[onnx]'")
    from gpuyard.learn.export_model import ExportFailedError, export_model

    try:
        written = export_model(model, out)
    except ExportFailedError as error:
        print(f"error: {one_line(spelt(str(error), flag))}", file=sys.stderr)
        return 1
    if json:
        print_json(written.document())
        return 0
    console = open_console()
    console.print(
        f"Written to {out}: {written.network} for {written.kind}, from {written.model}.", soft_wrap=True
    )
    if written.checked:
        console.print(
            f"onnxruntime decides as the model does on {written.states} states (logits differ by at most "
            f"{written.largest_difference:.1g}).",
            soft_wrap=True,
        )
    else:
        console.print("Not compared with the model: that needs pip install onnxruntime.", soft_wrap=True)
    return 0
