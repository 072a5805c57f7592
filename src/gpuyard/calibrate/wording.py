"""A calibration in words."""

from gpuyard.calibrate.candidates import YARDSTICK
from gpuyard.calibrate.closeness import Closeness
from gpuyard.calibrate.result import Calibration
from gpuyard.units import duration, number, plural

FIGURES = {
    "median_error_s": "wait error, median",
    "p90_error_s": "wait error, 90th percentile",
    "correlation": "correlation of mean waits by {step}",
    "share_within": "waits within 10 % or 60 s",
    "share_near": "waits within 10 % or {grain}",
    "mean_simulated_s": "mean wait",
    "wait_ratio": "mean wait over the recorded one",
    "least_difference": "error of mean waits of a quarter",
    "verdict": "verdict",
}


def figure_rows(one: Closeness) -> dict[str, tuple[str, str]]:
    """Titles and values of what people are shown, by name."""
    step = "hour" if one.step_s == 3600 else duration(one.step_s)
    shown = {
        name: (title.format(step=step, grain=duration(one.grain_s)), _text(name, getattr(one, name)))
        for name, title in FIGURES.items()
    }
    if one.share_near == one.share_within:
        shown.pop("share_near")
    return shown


def _text(name: str, value: float | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if name.endswith("_s"):
        return duration(value)
    if name.startswith("share") or name == "least_difference":
        return f"{100 * value:.1f} %"
    return number(value)


def sentences(found: Calibration) -> list[str]:
    """The answer, what it means, and how it was found."""
    nodes = plural(found.cluster.node_count, "node")
    scaled = f" (given: {found.given.node_count:,})" if found.is_scaled else ""
    half = plural(found.closeness.jobs, "job")
    begun = (
        "begun with what the log says ran and waited then"
        if found.start == "recorded"
        else "in a replay of the whole log from an empty cluster on"
    )
    return [
        f"Best fit to {found.log}: {found.candidate.label} on {nodes}{scaled}. Verdict: "
        f"{found.closeness.verdict}.",
        found.figures.meaning(),
        f"Searched on the first half, {plural(len(found.trials), 'trial')} in {duration(found.elapsed_s)}; "
        f"reported on the second half, {half}, {begun}.",
        *_at_the_edge(found),
        *_beside(found),
        *_left_out(found),
    ]


def _at_the_edge(found: Calibration) -> list[str]:
    """That the fewest or most nodes that were tried fit best, if so: then more than the size is wrong."""
    sizes = [trial.cluster.node_count for trial in found.trials]
    if not found.is_scaled or min(sizes) < found.cluster.node_count < max(sizes):
        return []
    if found.cluster.node_count < found.given.node_count:
        return ["No smaller cluster was tried. Jobs that ran may be missing from the log."]
    return ["No larger cluster was tried. Are all nodes given?"]


def _left_out(found: Calibration) -> list[str]:
    if not found.left_out:
        return []
    return [f"Left out, as they have no recorded start or can never run: {plural(found.left_out, 'job')}."]


def _beside(found: Calibration) -> list[str]:
    """That the yardstick is as good on the second half, if so."""
    if found.candidate.label == YARDSTICK and not found.is_scaled:
        return []
    if found.yardstick.misfit > found.closeness.misfit:
        return []
    return [f"On the second half {YARDSTICK} fits as well or better: the search found chance, not a rule."]
