"""A training run from its first line to its last: its directory, its processes, its view."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from gpuyard.errors import InputError
from gpuyard.files import atomic_write, check_directory
from gpuyard.learn.config import TrainConfig, load_toml, merged, read_config
from gpuyard.learn.evolve import many_weights_in_words
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.process.exit_codes import BAD_INPUT
from gpuyard.learn.process.launch import TrainingProcesses
from gpuyard.network.model_file import find_model, read_model
from gpuyard.policies.grammar import parse_policy
from gpuyard.runs.directory import Run, open_run
from gpuyard.runs.files import CHECKPOINT, CONFIG, PROGRESS, START
from gpuyard.runs.progress import is_being_written
from gpuyard.terminal.live import TrainingView, follow
from gpuyard.units import duration

HINT = "Ctrl-C stops and keeps everything; gpuyard train --resume {} goes on"


def start_run(directory: Path, config: TrainConfig, console: Console, notes: Sequence[str] = ()) -> int:
    """Begin a run and see it through.

    Args:
        directory: Of the run.
        config: What to train.
        console: Where it is shown as it goes.
        notes: To be told once it has begun.

    Raises:
        InputError: if the directory holds something, the environment cannot be made, or a process refused.
        TrainingFailedError: if a process failed.
    """
    check_directory(directory)
    if directory.exists() and any(directory.iterdir()):
        raise InputError(
            f"{directory}: is not empty; choose another --out, or go on with its run by --resume {directory}"
        )
    environments = Environments(config.environment)  # what is wrong is told before anything is written
    warm = [config.warm_start.policy] if config.warm_start else []
    imitated = [config.settings.policy] if config.algorithm == "clone" else []
    for policy in (*config.validation.heuristics, *warm, *imitated):
        parse_policy(policy)
    start = None if config.init_from is None else find_model(config.init_from)
    if start is not None:
        read_model(start)
    directory.mkdir(parents=True, exist_ok=True)
    if start is not None:
        with atomic_write(directory / START) as temporary:
            shutil.copyfile(start, temporary)
    _write_config(directory, config)
    many = many_weights(config, environments)
    return _follow(directory, config, console, resume=False, notes=[*notes, *([many] if many else [])])


def many_weights(config: TrainConfig, environments: Environments) -> str:
    """That evolution of a ``state-rule`` would move many weights; empty if it would not."""
    if config.algorithm != "evolve" or config.network.kind != "state-rule":
        return ""
    return many_weights_in_words(environments.model("train"), config.settings)


def continue_run(directory: Path, console: Console, minutes: float | None = None) -> int:
    """Go on with a run from its last checkpoint.

    Raises:
        InputError: if there is none, or the run is under way.
        TrainingFailedError: if a process failed.
    """
    file = directory / CONFIG
    if not file.is_file():
        raise InputError(f"{directory}: is not a run (there is no {CONFIG} in it)")
    if is_being_written(directory / PROGRESS):
        raise InputError(f"{directory}: is being trained at this moment; watch it with gpuyard runs watch")
    tables = load_toml(file)
    if tables.get("algorithm") == "search":
        raise InputError(
            f"{directory}: a search is not resumed; repeat it: gpuyard train search --config {file}"
        )
    run = open_run(directory) if (directory / PROGRESS).is_file() else None
    if run is not None and run.state in ("finished", "early") and minutes is None:
        raise InputError(
            f"{directory}: is finished ({run.last_step:,} samples); train on from its best model with "
            f"--init-from {directory}, or give it more time with --minutes if its steps are not used up"
        )
    if minutes is not None:
        tables = merged(tables, {"training": {"minutes": minutes}})
    config = read_config(tables, str(file))
    if minutes is not None:
        _write_config(directory, config)
    # Killed before its first checkpoint, a run has lost nothing that is worth keeping: it begins anew.
    resume = (directory / CHECKPOINT).is_file()
    if not resume:
        (directory / PROGRESS).unlink(missing_ok=True)
    return _follow(directory, config, console, resume=resume)


def _write_config(directory: Path, config: TrainConfig) -> None:
    with atomic_write(directory / CONFIG) as temporary:
        temporary.write_text(config.to_toml(), encoding="utf-8")


def _follow(
    directory: Path, config: TrainConfig, console: Console, *, resume: bool, notes: Sequence[str] = ()
) -> int:
    training = config.training
    limit_s = None if training.minutes is None else 60 * training.minutes
    processes = TrainingProcesses(directory, training.processes or 1, resume=resume)
    total = training.steps + (config.warm_start.steps if config.warm_start else 0)
    try:
        with TrainingView(
            console,
            total_steps=total,
            limit_s=limit_s,
            directory=directory,
            hint=HINT.format(directory),
            about=(setup_in_words(config), *notes),
        ) as view:
            code = follow(directory / PROGRESS, processes, view, on_interrupt=processes.interrupt)
    except BaseException:
        processes.kill()
        raise
    try:
        processes.check(code)
    except InputError:
        if code == BAD_INPUT and not resume and not (directory / CHECKPOINT).exists():
            shutil.rmtree(directory)  # nothing came of it: leave nothing
        raise
    return code


def setup_in_words(config: TrainConfig) -> str:
    """What is trained, on which jobs and machines, and when that ends."""
    environment, network, training = config.environment, config.network, config.training
    if environment.workload is not None:
        jobs = f"windows of {environment.workload}"
    elif environment.generator is not None:
        named = environment.generator
        name = named if isinstance(named, str) else named.get("preset", "of its own settings")
        jobs = f"draws of the generator {name}"
    elif environment.preset is not None:
        jobs = f"jobs of the environment {environment.preset}"
    else:
        jobs = "windows of built-in jobs"
    if environment.preset is not None and not jobs.endswith(f" {environment.preset}"):
        jobs += f" in the environment {environment.preset}"
    cluster = "their own cluster" if environment.cluster is None else f"cluster {environment.cluster}"
    start = {"none": "from nothing", "base": "from its base policy", "rule": "from a rule"}[network.residual]
    if config.init_from is not None:
        start = f"from {config.init_from}"
    elif config.rule is not None:
        start = "from a rule"
    limits = f"{training.steps:,} samples"
    limits += "" if training.minutes is None else f" or {duration(60 * training.minutes)}"
    return (
        f"{config.algorithm} on {jobs}, {cluster}; network {network.kind} of width {network.width}, {start}; "
        f"until {limits}; {training.processes} process{'' if training.processes == 1 else 'es'}"
    )


def in_words(run: Run) -> str:
    """What a run reached, and what to do with it."""
    lines = []
    reasons = {
        "finished": "Training is done",
        "early": "Training stopped early: it was good enough, or no longer improved",
        "interrupted": f"Training was interrupted; gpuyard train --resume {run.directory} goes on there",
        "nan": f"Training stopped: a number was no longer finite; {run.directory}/diagnosis.json says which. "
        "Try a smaller --learning_rate.start",
    }
    lines.append(reasons.get(run.state, "Training ended without a word") + ".")
    lines += _comparison(run)
    if run.model is not None:
        lines.append(
            "Use it wherever a policy is named: "
            f"gpuyard simulate JOBS --cluster CLUSTER --policy {run.directory}"
        )
        lines.append(f"Look at the curves: gpuyard runs plot {run.directory}")
    return "\n".join(lines)


def _comparison(run: Run) -> list[str]:
    """The best model beside what it started from and beside the best heuristic."""
    best, heuristic = run.best, run.best_heuristic()
    if best is None or best.score is None:
        return []
    start = run.validations[0].score
    if best.step == 0:
        lines = [f"Training did not improve on what it started from (score {best.score:.4g}), which is kept."]
    else:
        lines = [f"The best score on held-out windows is {best.score:.4g}; it started from {start:.4g}."]
    if heuristic is not None:
        name, score = heuristic
        verdict = "more than" if best.score > score else "as much as" if best.score == score else "less than"
        lines.append(f"That is {verdict} the best heuristic there, {name}, has: {score:.4g}.")
    return lines
