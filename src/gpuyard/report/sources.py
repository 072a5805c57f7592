"""What a report is made from: which kind of results each directory holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.errors import InputError
from gpuyard.report.model import Report
from gpuyard.report.pages.evaluation import EVALUATION, evaluation_report, merge, read_evaluation
from gpuyard.report.simulation import RESULTS, read_simulations
from gpuyard.report.training import training_runs
from gpuyard.runs.directory import CONFIG, PROGRESS, Run

if TYPE_CHECKING:
    from gpuyard.evaluate.comparison import Comparison

EXPECTED = "give a directory that gpuyard evaluate or gpuyard simulate --out has written"


def read_sources(
    sources: "Sequence[Path | Comparison]", runs: Sequence[Path] = (), *, metric: str | None = None
) -> tuple[Report, list[Run]]:
    """Everything that a report shows.

    Args:
        sources: Comparisons and directories, as in ``write_report``.
        runs: More directories of training runs.
        metric: What decides; None: what the evaluation was made with.

    Raises:
        InputError: if there is nothing to compare, what there is cannot be compared with each other, or an
            evaluation does not know the metric.
    """
    comparisons: list[Comparison] = []
    names: list[str] = []
    simulations: list[Path] = []
    training = list(runs)
    for source in sources:
        if not isinstance(source, str | Path):
            comparisons.append(source)
            names.append(f"comparison {len(comparisons)}")
            continue
        path = Path(source)
        kinds = _kinds(path)
        if EVALUATION in kinds:
            comparisons.append(read_evaluation(path))
            names.append(str(source))
        elif RESULTS in kinds:
            simulations.append(path)
        if PROGRESS in kinds:
            training.append(path)
    if metric is not None and simulations and not comparisons:
        raise InputError(
            f"{simulations[0]}: holds a simulation, and --metric is for evaluations; gpuyard evaluate "
            f"--metric {metric} compares by it, with intervals"
        )
    report = _report(comparisons, names, simulations, training, metric)
    return report, training_runs(training, report.training)


def _report(
    comparisons: "list[Comparison]",
    names: list[str],
    simulations: list[Path],
    training: Sequence[Path],
    metric: str | None,
) -> Report:
    if comparisons and simulations:
        raise InputError(
            f"{names[0]} holds an evaluation and {simulations[0]} a simulation: intervals and single runs "
            "cannot be compared with each other; make a report of each"
        )
    if comparisons:
        read = [name for name in names if not name.startswith("comparison ")]
        merged = merge(comparisons, names)
        return evaluation_report(merged.by_metric(metric) if metric is not None else merged, read)
    if simulations:
        return read_simulations(simulations)
    if training:
        raise InputError(
            f"{training[0]}: is a training run without results; run gpuyard evaluate {training[0]} first and "
            f"{EXPECTED}. gpuyard runs plot shows curves alone"
        )
    raise InputError(f"a report needs results: {EXPECTED}")


def _kinds(path: Path) -> set[str]:
    """Which files that tell results are in a directory."""
    if path.is_file():
        raise InputError(f"{path}: is a file; {EXPECTED}")
    if not path.is_dir():
        raise InputError(f"{path}: there is no such directory; {EXPECTED}")
    found = {name for name in (EVALUATION, RESULTS, PROGRESS) if (path / name).is_file()}
    if (path / CONFIG).is_file() and not found:
        found.add(PROGRESS)
    if not found:
        raise InputError(f"{path}: holds no results (neither {EVALUATION} nor {RESULTS}); {EXPECTED}")
    if {EVALUATION, RESULTS} <= found:
        raise InputError(
            f"{path}: holds an evaluation ({EVALUATION}) and a simulation ({RESULTS}), of which a report can "
            "show one; move the files of the other elsewhere, or write each into a directory of its own"
        )
    return found


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
