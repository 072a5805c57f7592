"""What tables and pages say of runs, as texts: names, the best validation, runs compared, settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.runs.curves import compared_text, short_number, short_policy
from gpuyard.runs.directory import Run
from gpuyard.units import plural

COMPARISON = ("run", "algorithm", "state", "samples", "minutes", "best score", "best heuristic", "in words")
"""Columns of ``comparison_rows``."""

UNMOVED = "The policy is still the one that it started from: training has not changed what it does."


def run_names(runs: Sequence[Run]) -> list[str]:
    """What runs are called: their names, or their directories if two have the same name."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.directory) for run in runs]


def verdict(run: Run) -> str:
    """The best validation in a sentence; empty if there was none."""
    if run.best is None or run.best.score is None:
        return ""
    said = f"Best validation score {short_number(run.best.score)} after {plural(run.best.step, run.unit)}"
    heuristic = run.best_heuristic()
    if heuristic is None:
        return f"{said}."
    name, score = heuristic
    stands = compared_text(run.best.score, short_policy(name), score, run.higher_is_better)
    unmoved = f" {UNMOVED}" if run.is_unmoved else ""
    return f"{said}: {stands} ({short_number(score)}), the best heuristic on the same windows.{unmoved}"


def comparison_rows(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Runs beside each other, as texts."""
    rows: list[tuple[str, ...]] = []
    for name, run in zip(names, runs, strict=True):
        score, heuristic = None if run.best is None else run.best.score, run.best_heuristic()
        beside = words = "-"
        if score is not None and heuristic is not None:
            beside = f"{short_policy(heuristic[0])} {short_number(heuristic[1])}"
            words = compared_text(score, short_policy(heuristic[0]), heuristic[1], run.higher_is_better)
            words += "; as it started" if run.is_unmoved else ""
        minutes = f"{run.progress.elapsed_s / 60:.1f}"
        steps = f"{run.last_step:,}"
        rows.append(
            (name, run.algorithm or "-", run.state, steps, minutes, short_number(score), beside, words)
        )
    return rows


def settings_of(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings by dotted name, as texts."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= settings_of(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = _setting_text(value)
    return found


def _setting_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_setting_text, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
