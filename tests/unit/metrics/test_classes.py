"""Classes of jobs have one definition, and their tables the figures that a plain loop gives."""

import numpy as np
import polars as pl
import pytest

from gpuyard.errors import InputError
from gpuyard.metrics.classes import (
    KINDS,
    OTHERS,
    class_labels,
    class_table,
    classify,
    common_users,
    losers_first,
)


def jobs(count: int = 200) -> pl.DataFrame:
    draw = np.random.default_rng(3)
    submit = np.sort(draw.uniform(0, 1000, count))
    start = submit + draw.exponential(500, count)
    length = draw.exponential(4000, count)
    return pl.DataFrame(
        {
            "submit_s": submit,
            "duration_s": length,
            "start_s": start,
            "end_s": start + length,
            "gpus": draw.choice([0, 1, 4, 8, 32], count).astype(np.int32),
            "gpu_milli": np.full(count, 1000, np.int32),
            "priority": draw.choice([0.0, 1.0], count),
            "user": [f"u{n}" for n in draw.integers(0, 30, count)],
            "group": [("b", "a", "")[n] for n in draw.choice(3, count, p=[0.6, 0.3, 0.1])],
        }
    )


def test_the_table_has_the_longest_wait_of_each_class() -> None:
    frame = jobs()
    table = class_table(frame, class_labels(frame, common_users([frame])))
    for row in table.iter_rows(named=True):
        labels, code = classify(frame, row["by"])
        waits = (frame["start_s"] - frame["submit_s"]).to_numpy()[code == labels.index(row["class"])]
        assert row["jobs"] == len(waits)
        assert row["max_wait_s"] == waits.max()
        assert row["mean_wait_s"] == pytest.approx(waits.mean())
        assert row["p99_wait_s"] == pytest.approx(np.quantile(waits, 0.99))


def test_every_kind_has_its_classes_and_no_other_name_is_taken() -> None:
    frame = jobs()
    assert classify(frame, "gpus")[0] == ["0", "1", "2-4", "5-8", "17-64"]
    assert classify(frame, "group")[0] == ["b", "a", ""], "by number of jobs"
    assert classify(frame, "priority")[0] == ["0", "1"]
    assert classify(frame, "runtime")[0][:2] == ["up to a minute", "1 to 20 minutes"]
    users, code = classify(frame, "user")
    assert (len(users), users[-1], code.max()) == (21, OTHERS, 20)
    with pytest.raises(InputError, match="no breakdown by 'duration'; did you mean 'runtime'"):
        classify(frame, "duration")
    with pytest.raises(InputError, match="did you mean 'group'"):
        classify(frame, "groups")


def test_partitions_are_classes_where_jobs_have_them() -> None:
    frame = jobs()
    assert "partition" not in class_labels(frame, []).columns
    with pytest.raises(InputError, match="these jobs have no column partition"):
        classify(frame, "partition")
    told = frame.with_columns(partition=pl.Series(["gpu", "gpu", None, "long"] * 50))
    assert classify(told, "partition")[0] == ["gpu", "", "long"]
    assert tuple(class_labels(told, []).columns) == KINDS


def test_the_class_whose_wait_rises_most_under_any_policy_comes_first():
    waits = {
        "today": {"a": 600.0, "b": 600.0, "c": 1.0, "d": None, OTHERS: 60.0},
        "one": {"a": 660.0, "b": 300.0, "c": 10.0, "d": 5.0, OTHERS: 6_000.0},
        "two": {"a": 600.0, "b": 1_200.0, "c": 1.0, "d": None, OTHERS: 60.0},
    }
    names = ["a", "b", "c", "d", OTHERS]
    assert losers_first(names, waits, "today", ["today", "one", "two"]) == ["b", "c", "a", "d", OTHERS]
    assert losers_first(names, waits, "today", ["one"]) == ["c", "a", "b", "d", OTHERS]
    assert losers_first(names, waits, None, ["one"]) == names
