"""Learning curves of an experiment's runs, as panels of a picture."""

import math
import re
from pathlib import Path

from experiments.pictures import CurveGroup, Panel
from experiments.running import Experiment
from gpuyard.network.model_file import HERE
from gpuyard.runs.curves import short_policy
from gpuyard.runs.directory import PROGRESS, Run, open_run

FEWEST_POINTS = 3
"""With fewer validations there is no curve to speak of."""
MOST_GROUPS = 10
"""In one panel; more could not be told apart."""


def curve_panels(experiment: Experiment) -> list[Panel]:
    """A panel an algorithm; none for runs that were hardly validated."""
    by_algorithm: dict[str, list[Run]] = {}
    for command in experiment.recipe.commands():
        if command.verb != "train" or command.out is None or experiment.record(command) is None:
            continue
        directory = Path(command.out.replace(HERE, str(experiment.here)))
        if (directory / PROGRESS).is_file():
            run = open_run(directory)
            if len(_points(run)) >= FEWEST_POINTS:
                by_algorithm.setdefault(run.algorithm, []).append(run)
    return [panel for algorithm, runs in by_algorithm.items() for panel in _panels(algorithm, runs)]


def _points(run: Run) -> tuple[tuple[float, float], ...]:
    return tuple(
        (float(one.step), one.score)
        for one in run.validations
        if one.score is not None and math.isfinite(one.score)
    )


def _panels(algorithm: str, runs: list[Run]) -> list[Panel]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(re.sub(r"-\d+$", "", run.directory.name), []).append(run)
    names = list(groups)
    panels = []
    for first in range(0, len(names), MOST_GROUPS):
        chosen = names[first : first + MOST_GROUPS]
        levels = {
            short_policy(best[0]): best[1]
            for name in chosen
            for run in groups[name]
            if (best := run.best_heuristic()) is not None
        }
        curves = tuple(CurveGroup(name, tuple(map(_points, groups[name]))) for name in chosen)
        title = f"{algorithm}: score on validation windows (more is better), dashed: the best heuristic there"
        panels.append(Panel(title, curves, tuple(sorted(levels.items()))))
    return panels
