"""What a report is made from: comparisons, directories of results and of training runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuyard.errors import InputError
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.results.files import DOCUMENT, holds_results
from gpuyard.evaluate.storage import read_comparison
from gpuyard.report.model import Report
from gpuyard.report.pages.evaluation import evaluation_report, merge
from gpuyard.report.training import training_runs
from gpuyard.runs.directory import CONFIG, PROGRESS, Run

EXPECTED = "give a directory that gpuyard evaluate or gpuyard simulate --out has written"


def read_sources(
    sources: Sequence[str | Path | Comparison],
    runs: Sequence[Path] = (),
    *,
    metric: str | None = None,
    current: str | None = None,
    schedules: bool = True,
) -> tuple[Report, list[Run]]:
    """Everything that a report shows.

    Args:
        sources: Comparisons and directories, as in ``write_report``.
        runs: More directories of training runs.
        metric: What decides; None: what the evaluation was made with.
        current: What runs today, which the others are compared with; None: as the evaluation says.
        schedules: Read schedules too, of which charts of jobs and of time are made.

    Raises:
        InputError: if there is nothing to compare, what there is cannot be compared with each other, or an
            evaluation does not know the metric.
    """
    comparisons: list[Comparison] = []
    names: list[str] = []
    training = list(runs)
    for source in sources:
        if not isinstance(source, str | Path):
            comparisons.append(source)
            names.append(f"comparison {len(comparisons)}")
            continue
        path = Path(source)
        _check_directory(path)
        if holds_results(path):
            comparisons.append(read_comparison(path, schedules=schedules))
            names.append(str(source))
        if (path / PROGRESS).is_file() or not holds_results(path):
            training.append(path)
    if not comparisons:
        raise _no_results(training)
    read = [name for name in names if not name.startswith("comparison ")]
    merged = merge(comparisons, names)
    merged = merged if metric is None else merged.by_metric(metric)
    report = evaluation_report(merged if current is None else merged.with_current(current), read)
    return report, training_runs(training, report.training)


def _no_results(training: Sequence[Path]) -> InputError:
    if not training:
        return InputError(f"a report needs results: {EXPECTED}")
    return InputError(
        f"{training[0]}: is a training run without results; run gpuyard evaluate {training[0]} first and "
        f"{EXPECTED}. gpuyard runs plot shows curves alone"
    )


def _check_directory(path: Path) -> None:
    """Refuse what holds neither results nor a training run."""
    if path.is_file():
        raise InputError(f"{path}: is a file; {EXPECTED}")
    if not path.is_dir():
        raise InputError(f"{path}: there is no such directory; {EXPECTED}")
    if not holds_results(path) and not any((path / name).is_file() for name in (PROGRESS, CONFIG)):
        raise InputError(f"{path}: holds no results (no {DOCUMENT}); {EXPECTED}")


def as_paths(directories: Sequence[Any]) -> list[Path]:
    """Directories as given, each once.

    Raises:
        InputError: for one that is given twice.
    """
    paths = [Path(one) for one in directories]
    places = [path.resolve() for path in paths]
    for path, place in zip(paths, places, strict=True):
        if places.count(place) > 1:
            raise InputError(f"{path}: is given twice; name each directory once")
    return paths
