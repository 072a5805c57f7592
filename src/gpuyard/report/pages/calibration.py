"""A calibration as a self-contained HTML page."""

from gpuyard.calibrate.candidates import YARDSTICK
from gpuyard.calibrate.closeness import BOUNDS
from gpuyard.calibrate.result import Calibration
from gpuyard.calibrate.wording import figure_rows, sentences
from gpuyard.report import layout
from gpuyard.report.figures import Chart, axis, rounded, time_axis
from gpuyard.report.frame import PageMaker
from gpuyard.units import duration, plural

MOST_TRIALS = 60


def calibration_page(found: Calibration) -> str:
    """The verdict, recorded and simulated waits over time, and what was tried."""
    page = PageMaker(
        f"Calibration on {found.log}: {found.closeness.verdict}",
        f"{found.candidate.label} on {plural(found.cluster.node_count, 'node')}",
    )
    tiles = dict(figure_rows(found.closeness).values())
    page.add(layout.tiles(tiles), *map(layout.paragraph, sentences(found)))
    page.section("Waits over time", page.figures([_curve_chart(found)]))
    page.section("On the second half", _figure_table(found))
    page.section("The policy", _settings_table(found))
    page.section("What was tried on the first half", _trial_table(found))
    page.section("What the verdict asks for", _bound_table())
    return page.html()


def _curve_chart(found: Calibration) -> Chart:
    curves = found.curves
    step = "hour" if curves.step_s == 3600 else duration(curves.step_s)
    begin = list(curves.begin_s)
    lines = {
        "recorded": curves.recorded_s,
        "calibrated": curves.simulated_s,
        YARDSTICK: curves.yardstick_s,
    }
    return {
        "kind": "lines",
        "tells": "maximum",
        "title": f"Mean wait of jobs by {step} of submit",
        "note": "The second half of the log, which the policy was not fitted to. Click names to show them.",
        "x": time_axis(found.epoch_s, begin[0], begin[-1] + curves.step_s),
        "y": axis("mean wait", "s", low=0.0),
        "hidden": [YARDSTICK],
        "series": [
            {"name": name, "colour": colour, "x": begin, "y": rounded(values)}
            for colour, (name, values) in enumerate(lines.items(), 1)
        ],
    }


def _figure_table(found: Calibration) -> str:
    others = [figure_rows(one) for one in found.others.values()]
    rows = [
        (title, value, *(other.get(name, ("", "-"))[1] for other in others))
        for name, (title, value) in figure_rows(found.closeness).items()
    ]
    heads = ("figure", "calibrated", *found.others)
    return layout.text_table("Figures of the second half", heads, rows, numbers=range(1, len(heads)))


def _settings_table(found: Calibration) -> str:
    rows = [("policy", found.rules), ("nodes", f"{found.cluster.node_count:,}")]
    rows += [(name, str(value)) for name, value in found.settings.items()]
    return layout.text_table("The calibrated policy", ("setting", "value"), rows)


def _trial_table(found: Calibration) -> str:
    trials = sorted(found.trials, key=lambda one: one.misfit)[:MOST_TRIALS]
    rows = [
        (one.candidate.label, f"{one.cluster.node_count:,}", f"{one.misfit:.4f}", str(one.stage))
        for one in trials
    ]
    rows += [(name, "", "", f"not tried: {why}") for name, why in found.skipped.items()]
    return layout.text_table("Trials", ("policy", "nodes", "misfit", "stage"), rows, numbers=(1, 2))


def _bound_table() -> str:
    rows = [
        (name, f"{100 * one.share_near:.0f} %", f"{one.factor:g}", f"{one.correlation:g}")
        for name, one in BOUNDS.items()
    ]
    heads = ("verdict", "jobs near, at least", "factor of mean waits, at most", "correlation, at least")
    return layout.text_table("Bounds", heads, rows, numbers=(1, 2, 3))
