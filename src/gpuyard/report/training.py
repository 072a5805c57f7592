"""Training curves of runs, as charts of a report."""

from collections.abc import Sequence
from pathlib import Path

from gpuyard.errors import InputError
from gpuyard.report.figures import Chart, axis, rounded
from gpuyard.runs.curves import Curve, by_importance, curve_label, update_curves
from gpuyard.runs.directory import Run, open_run
from gpuyard.runs.summary import run_names

MOST_POINTS = 300
MOST_CURVES = 6
MOST_RUNS = 8
SHOWN_FIRST = ("episode/return", "episode/mean_bounded_slowdown")


def training_runs(given: Sequence[Path], sources: Sequence[Path]) -> list[Run]:
    """The runs that were given, and those that learned policies come from, as far as they are still there.

    Raises:
        InputError: if one that was given cannot be read.
    """
    found = {path.resolve(): open_run(path) for path in given}
    for source in sources:
        home = source if source.is_dir() else source.parent
        if home.resolve() in found or not (home / "progress.jsonl").is_file():
            continue
        try:
            found[home.resolve()] = open_run(home)
        except InputError:
            continue  # it has changed since it was evaluated; the comparison does not need it
    return list(found.values())[:MOST_RUNS]


def training_charts(runs: Sequence[Run]) -> list[Chart]:
    """Validation scores, then the curves that matter most, those of all runs laid over each other."""
    names = run_names(runs)
    charts = [_validation_chart(runs, names)]
    curves = [update_curves(run.progress.records) for run in runs]
    order = by_importance({name for one in curves for name in one})
    first = [name for name in SHOWN_FIRST if name in order]
    for name in [*first, *(one for one in order if one not in first)][:MOST_CURVES]:
        lines = {run: of[name] for run, of in zip(names, curves, strict=True) if name in of}
        charts.append(_chart(f"curve-{name}", f"Training: {curve_label(name)}", curve_label(name), lines))
    return [chart for chart in charts if chart is not None]


def _validation_chart(runs: Sequence[Run], names: Sequence[str]) -> Chart | None:
    lines = {}
    for name, run in zip(names, runs, strict=True):
        curve = Curve()
        for one in run.validations:
            curve.append(one.step, one.elapsed_s or 0.0, one.score)
        if curve.values:
            lines[name] = curve
    chart = _chart("validation", "Validation score while training", "score", lines)
    if chart is not None:
        levels = {}
        for run in runs:
            if (best := run.best_heuristic()) is not None:
                levels[best[0]] = best[1]
        known = {name: rounded([value])[0] for name, value in levels.items()}
        chart["levels"] = [
            {"name": name, "value": value} for name, value in known.items() if value is not None
        ]
        chart["note"] = "On held-out windows; thin dotted line: the best heuristic on the same windows."
    return chart


def _chart(id: str, title: str, label: str, lines: dict[str, Curve]) -> Chart | None:
    if not lines:
        return None
    series = []
    for number, (name, curve) in enumerate(lines.items(), 1):
        every = max(len(curve.values) // MOST_POINTS, 1)
        last = [] if (len(curve.values) - 1) % every == 0 else [len(curve.values) - 1]
        kept = [*range(0, len(curve.values), every), *last]
        series.append(
            {
                "name": name,
                "colour": number,
                "x": rounded((curve.steps[k] for k in kept), 7),
                "y": rounded(curve.values[k] for k in kept),
            }
        )
    return {
        "id": id.replace("/", "-").replace("_", "-"),
        "kind": "lines",
        "title": title,
        "note": "",
        "x": axis("samples", "1"),
        "y": axis(label, "1"),
        "series": series,
    }
