"""``gpuyard train``: train a policy, search a rule, resume a run."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gpuyard.cli.inputs import Flag, Json, one_line, open_console, print_json
from gpuyard.cli.parameters import Whole
from gpuyard.errors import InputError
from gpuyard.runs.directory import FOLDER

if TYPE_CHECKING:
    from gpuyard.learn.config import TrainConfig

RUNS = Path(FOLDER)


def train(
    algorithm: Annotated[str | None, Parameter(help="ppo, d3qn, sac, clone, evolve or search.")] = None,
    /,
    *settings: Annotated[
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
    workload: Annotated[
        str | None, Parameter(help="Jobs to train on: a file, or a built-in workload.")
    ] = None,
    cluster: Annotated[str | None, Parameter(help="What they run on, such as 64x8.")] = None,
    seed: Annotated[Whole | None, Parameter(help="Of weights, episodes and draws.")] = None,
    steps: Annotated[Whole | None, Parameter(help="Decisions to learn from.")] = None,
    minutes: Annotated[float | None, Parameter(help="Stop after this time.")] = None,
    processes: Annotated[Whole | None, Parameter(help="(default: one a processor)")] = None,
    device: Annotated[str | None, Parameter(help="cpu or cuda.")] = None,
    check: Annotated[
        bool, Flag, Parameter(help="Do not train: overfit one window, and report on gradients and masks.")
    ] = False,
    json: Json = False,
) -> int:
    """Train a policy, or search for a rule.

    Settings come from a preset, a TOML file and options, the later ones taking precedence. The directory of
    the run holds its settings, its progress log, checkpoints and models; Ctrl-C leaves it ready for --resume.

    Example: gpuyard train ppo --preset bursty --minutes 4
    """
    given = {"seed": seed, "steps": steps, "minutes": minutes, "processes": processes, "device": device}
    training = {name: value for name, value in given.items() if value is not None}
    if resume is not None:
        others = (algorithm, settings, preset, config, out, init_from, workload, cluster, check)
        if any(others) or set(training) - {"minutes"}:
            raise InputError("--resume resumes a run as it was set up; only --minutes can be given with it")
        from gpuyard.runs.directory import find_directory

        return _run(find_directory(resume), None, minutes, json)
    if algorithm is None:
        raise InputError("which algorithm? gpuyard train ppo, d3qn, sac, clone, evolve or search")
    tables = parse_options(settings)
    environment = {name: value for name, value in (("workload", workload), ("cluster", cluster)) if value}
    for table, values in (("training", training), ("environment", environment)):
        if values:
            tables[table] = {**tables.get(table, {}), **values}
    if algorithm == "search":
        from gpuyard.cli.search import search_command

        if preset or init_from or check:
            raise InputError("--preset, --init-from and --check are not for a search")
        return search_command(tables, config, out or next_directory("search"), json)
    from gpuyard.learn.settings import assemble, replaced_in_words

    resolved = assemble(algorithm, tables, preset=preset, file=config, init_from=init_from)
    if check:
        return _check(resolved, json)
    replaced = replaced_in_words(preset, algorithm, tables, config) if preset else ""
    return _run(out or next_directory(algorithm), resolved, None, json, [replaced] if replaced else [])


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
            raise InputError(
                f"cannot read {token!r}; settings are written --TABLE.KEY VALUE, such as --ppo.clip 0.1"
            )
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
    from gpuyard.learn.process.exit_codes import FAILED
    from gpuyard.learn.process.launch import TrainingFailedError
    from gpuyard.learn.run import resume_run, start_run
    from gpuyard.runs.directory import open_run
    from gpuyard.terminal.console import errors
    from gpuyard.terminal.live import watch_training
    from gpuyard.terminal.runs import outcome_in_words

    watch = partial(watch_training, console=errors())
    try:
        if config is not None:
            code = start_run(directory, config, watch, notes)
        else:
            code = resume_run(directory, watch, minutes)
    except TrainingFailedError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return FAILED
    run = open_run(directory)
    if json:
        from gpuyard.cli.runs import run_document

        print_json(run_document(run))
        return code

    open_console().print(outcome_in_words(run), soft_wrap=True)  # commands are there to be copied
    return code


def _check(config: TrainConfig, json: bool) -> int:
    from gpuyard.learn.process.check import CHECK_S, check_training, report

    print(f"Training on one window again and again: takes about {CHECK_S:.0f} s.", file=sys.stderr)
    result = check_training(config)
    if json:
        print_json(result.document())
    else:
        open_console().print(report(result), soft_wrap=True)
    return 0 if result.passed else 1
