"""A tiny experiment, run to its end: what tests of pages, models and cards look at."""

import json
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from experiments import running
from experiments.recipe import Together
from experiments.running import DONE, Experiment, run_experiment
from gpuyard.cli import main
from gpuyard.evaluate import Comparison, PolicyEntry

RECIPE = """
title = "A rule | evolved <here>"
letter = "b"
about = "Some jobs of the demo."
conclusion = "Nothing to speak of."
did_not_work = "All of it."

[[step]]
name = "jobs"
run = ["workload", "synth", "--preset", "demo", "--set", "jobs=400", "--out", "{here}/jobs.parquet"]

[[step]]
name = "evolve"
run = ["train", "evolve", "--workload", "{here}/jobs.parquet", "--cluster", "4x8", "--processes", "1",
  "--environment.jobs_per_episode", "16", "--environment.window", "8", "--environment.envs", "4",
  "--validation.windows", "2", "--validation.heuristics", "[\\"sjf+easy\\"]", "--evolve.generations", "3",
  "--evolve.population", "4", "--rule.score", "{\\"estimate\\": -1.0}",
  "--evolve.episodes", "2", "--evolve.check_every", "1", "--seed", "{seed}",
  "--out", "{here}/evolve-{seed}"]
each = { seed = [3] }

[[step]]
name = "test"
run = ["evaluate", "{here}/evolve-*", "--on", "{here}/jobs.parquet", "--cluster", "4x8", "--windows", "6",
  "--jobs-per-window", "24", "--all-heuristics", "--choosing-windows", "3", "--out", "{here}/test"]

[[step]]
name = "episodes"
run = ["evaluate", "{here}/evolve-3", "--episodes", "5", "--current", "fifo+easy", "--out", "{here}/episodes"]

[[step]]
name = "draws"
run = ["evaluate", "{here}/evolve-3", "--on", "demo", "--cluster", "4x8", "--draws", "--windows", "3",
  "--jobs-per-window", "24", "--current", "sjf+easy", "--out", "{here}/draws"]

[[table]]
evaluation = "test"
title = "Windows"

[[table]]
evaluation = "draws"
title = "Draws"
"""
MODEL = """
[[model]]
name = "{name}"
run = "evolve-3"
evaluation = "{evaluation}"
why = "There is no other."
limits = "Anything."
"""
MODELS = {"by-windows": "test", "by-episodes": "episodes", "by-draws": "draws"}


def run_in_this_process(arguments: Sequence[str], log: Path) -> str | None:
    """To start Python for every command would take most of the time of these tests."""
    with log.open("w") as output, redirect_stdout(output), redirect_stderr(output):
        code = main(arguments)
    return log.read_text() if code else None


def finished_experiment(folder: Path) -> Experiment:
    """The experiment, run in a folder."""
    models = "".join(MODEL.format(name=name, evaluation=folder) for name, folder in MODELS.items())
    (folder / "tiny.toml").write_text(RECIPE + models)
    experiment = Experiment.of(folder / "tiny.toml", folder / "results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "run_gpuyard", run_in_this_process)
        run_experiment(experiment, None, lambda line: None)
    return experiment


def with_seeds(comparison: Comparison, shifts: tuple[float, ...]) -> Comparison:
    """The same with learned policies ``ppo-0`` and on, each a multiple of the reference."""
    metric, reference = comparison.setting.metric, comparison.reference
    rows = comparison.windows.filter(pl.col("policy") == reference)
    frames, entries = [rows], [comparison.policy(reference or "")]
    for number, shift in enumerate(shifts):
        entries.append(
            PolicyEntry(f"runs/ppo-{number}", f"ppo-{number}", "learned", f"runs/ppo-{number}", "-")
        )
        noise = pl.Series(np.random.default_rng(number).normal(0.0, 0.001, rows.height))
        own = rows.with_columns(pl.lit(f"runs/ppo-{number}").alias("policy"), pl.col(metric) * shift + noise)
        frames.append(own)
    return replace(
        comparison,
        policies=tuple(entries),
        windows=pl.concat(frames),
        rival=None,
        hindsight=None,
        whole=None,
    )


def copy_of(experiment: Experiment, here: Path, **changes: Any) -> Experiment:
    """The same with its results elsewhere and another recipe, as if that had been run."""
    shutil.copytree(experiment.here, here)
    recipe = experiment.recipe.model_copy(update=changes)
    copy = Experiment(here.name, recipe, here)
    for command in recipe.commands():
        (here / DONE / f"{command.key}.json").write_text(json.dumps({**copy.form(command), "seconds": 60.0}))
    return copy


def with_two_times(experiment: Experiment, here: Path, **changes: Any) -> Experiment:
    """A copy that shows its test twice, and both together under a headline."""
    recipe = experiment.recipe
    test = next(step for step in recipe.step if step.name == "test")
    again = test.model_copy(update={"name": "again", "run": (*test.run[:-1], "{here}/again")})
    table = recipe.table[0].model_copy(
        update={"evaluation": "again", "title": "Again", "learned": "evolve-3"}
    )
    both = Together(
        tables=("test", "again"),
        learned=("evolve-3", "evolve-3"),
        title="Both",
        headline="Two times",
        front="Two times",
    )
    asked = {"step": (*recipe.step, again), "table": (*recipe.table, table), "together": (both,)}
    copy = copy_of(experiment, here, **asked, **changes)
    shutil.copytree(here / "test", here / "again")
    return copy
