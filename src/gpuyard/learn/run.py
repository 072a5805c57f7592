"""A training run from its first file to its last: its directory and its processes."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import InputError, setting
from gpuyard.files import atomic_write, check_directory, read_toml
from gpuyard.learn.algorithm import find_algorithm
from gpuyard.learn.config import TrainConfig, merged, read_config
from gpuyard.learn.process.exit_codes import BAD_INPUT
from gpuyard.learn.process.launch import TrainingProcesses
from gpuyard.network.model_file import find_model, read_model
from gpuyard.runs.directory import CHECKPOINT, CONFIG, PROGRESS, START, open_run
from gpuyard.runs.progress import is_being_written

LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class StartedRun:
    """A run whose processes have been started.

    Attributes:
        directory: Of the run.
        config: Its settings.
        processes: What trains it.
        notes: Remarks about its settings, for people.
    """

    directory: Path
    config: TrainConfig
    processes: TrainingProcesses
    notes: Sequence[str] = ()


Watch = Callable[[StartedRun], int]
"""Follows a run until its processes have ended, shows it or not, and returns their exit code."""


def wait(run: StartedRun) -> int:
    """Wait for a run without showing it. The first Ctrl-C stops the run, the second is not waited for."""
    interrupted = False
    while True:
        try:
            code = run.processes.poll()
            if code is not None:
                return code
            time.sleep(LOOK_EVERY_S)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            run.processes.interrupt()


def start_run(directory: Path, config: TrainConfig, watch: Watch = wait, notes: Sequence[str] = ()) -> int:
    """Begin a run and see it through.

    Args:
        directory: Of the run.
        config: What to train.
        watch: Follows it, such as on a terminal.
        notes: Remarks for people, shown once it has begun.

    Raises:
        InputError: if the directory holds something, the environment cannot be made, or a process refused.
        TrainingFailedError: if a process failed.
    """
    check_is_free(directory)
    config, remarks = find_algorithm(config.algorithm).prepare(config)
    start = None if config.init_from is None else find_model(config.init_from)
    if start is not None:
        read_model(start)
    directory.mkdir(parents=True, exist_ok=True)
    if start is not None:
        with atomic_write(directory / START) as temporary:
            shutil.copyfile(start, temporary)
    _write_config(directory, config)
    return _follow(directory, config, watch, resume=False, notes=[*notes, *remarks])


def check_is_free(directory: Path) -> None:
    """Raise an InputError if a run cannot be put there."""
    check_directory(directory)
    if directory.exists() and any(directory.iterdir()):
        raise InputError(
            f"{directory}: is not empty; choose another {setting('out')}, or resume its run by "
            f"{setting('resume', directory)}"
        )


def resume_run(directory: Path, watch: Watch = wait, minutes: float | None = None) -> int:
    """Resume a run from its last checkpoint.

    Raises:
        InputError: if there is none, or the run is under way.
        TrainingFailedError: if a process failed.
    """
    file = directory / CONFIG
    if not file.is_file():
        raise InputError(f"{directory}: is not a run (there is no {CONFIG} in it)")
    if is_being_written(directory / PROGRESS):
        raise InputError(
            f"{directory}: is being trained at this moment; watch it with gpuyard runs watch. If you have "
            "just killed it, its processes are still ending: try again in a minute"
        )
    tables = read_toml(file)
    run = open_run(directory) if (directory / PROGRESS).is_file() else None
    if run is not None and run.state in ("finished", "early") and minutes is None:
        raise InputError(
            f"{directory}: is finished ({run.last_step:,} samples); train on from its best model with "
            f"{setting('init_from', directory)}, or give it more time with {setting('training.minutes')} "
            "if its steps are not used up"
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
    return _follow(directory, config, watch, resume=resume)


def _write_config(directory: Path, config: TrainConfig) -> None:
    with atomic_write(directory / CONFIG) as temporary:
        temporary.write_text(config.to_toml(), encoding="utf-8")


def _follow(
    directory: Path, config: TrainConfig, watch: Watch, *, resume: bool, notes: Sequence[str] = ()
) -> int:
    processes = TrainingProcesses(directory, config.training.processes or 1, resume=resume)
    try:
        code = watch(StartedRun(directory, config, processes, notes))
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
