"""Several tests as one: a learned policy and a reference of each time, over the windows of all of them.

A trace's last stretch may be too short to tell much. What was trained for an earlier time and tested right
after it is as much of a test, of the way of training rather than of one model; together they span more time
(in forecasting: a rolling origin).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import polars as pl

from experiments.published import Row
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, PolicyEntry

LEARNED, REFERENCE = "learned", "reference"
Part = tuple[Comparison, Row]
"""A test and the learned policy that stands for it."""


def together(parts: Sequence[Part]) -> Comparison:
    """A comparison over the windows of all tests, with two policies: what was learned, and the references.

    Args:
        parts: In order of time. Seeds that stand for one learned policy count by their mean.

    Raises:
        InputError: if tests differ in what cannot differ, or one has no reference.
    """
    first = parts[0][0].setting
    for comparison, _ in parts:
        setting = comparison.setting
        for name in ("metric", "kind", "cluster", "information", "noise_draws", "jobs_per_window"):
            mine, theirs = getattr(first, name), getattr(setting, name)
            if mine != theirs:
                raise InputError(
                    f"tests that are put together have the same {name}, not {mine!r} and {theirs!r}"
                )
        if comparison.reference is None:
            raise InputError("tests that are put together each have a reference; evaluate --current ...")
    windows, classes = [], []
    count = 0
    for comparison, learned in parts:
        numbers = {window: count + i for i, window in enumerate(comparison.setting.windows)}
        count += len(numbers)
        for role, names in ((LEARNED, learned.policies), (REFERENCE, (str(comparison.reference),))):
            windows.append(_rows(comparison.windows, names, role, numbers, ["window"]))
            classes.append(_rows(comparison.classes, names, role, numbers, ["window", "by", "class"]))
    labels = {
        LEARNED: _joined(learned.label for _, learned in parts),
        REFERENCE: _joined(one.policy(str(one.reference)).label for one, _ in parts),
    }
    placement = parts[0][0].policy(str(parts[0][0].reference)).placement
    return Comparison(
        setting=replace(
            first,
            windows=tuple(range(count)),
            block=max(one.setting.block for one, _ in parts),
            disjoint=sum(one.setting.disjoint for one, _ in parts),
            left_out=max(one.setting.left_out for one, _ in parts),
        ),
        policies=(
            PolicyEntry(LEARNED, labels[LEARNED], "learned", None, placement),
            PolicyEntry(REFERENCE, labels[REFERENCE], "heuristic", None, placement, "reference"),
        ),
        reference=REFERENCE,
        chosen_on=parts[0][0].chosen_on,
        hindsight=None,
        windows=pl.concat(windows),
        classes=pl.concat(classes),
    )


def _rows(
    frame: pl.DataFrame, names: Sequence[str], role: str, numbers: dict[int, int], keys: Sequence[str]
) -> pl.DataFrame:
    """The rows of some policies as those of one, means over them, with windows numbered anew."""
    own = frame.filter(pl.col("policy").is_in(names)).with_columns(
        pl.lit(role).alias("policy"), pl.col("window").replace_strict(numbers, return_dtype=pl.Int64)
    )
    jobs = [pl.col("jobs").first()] if "jobs" in frame.columns else []
    values = [pl.col(pl.Float64).mean()]
    merged = own.group_by("policy", *keys, maintain_order=True).agg(*jobs, *values)
    return merged.select(frame.columns)


def _joined(labels: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(labels))
