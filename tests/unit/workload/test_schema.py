"""The job table: what make_workload accepts, changes and refuses."""

import math
import random
from typing import Any

import polars as pl
import pytest

from gpuyard.errors import InputError
from gpuyard.workload import SCHEMA, Where, Workload, WorkloadMetadata, make_workload, validation
from gpuyard.workload.schema import COLUMNS, MAX_TIME_S, SPARSE


def table(**columns):
    """A frame with the required columns; numbers of mixed types become floats."""
    rows = max((len(values) for values in columns.values()), default=1)
    required = {"submit_s": [0.0] * rows, "duration_s": [60.0] * rows, "gpus": [1] * rows}
    return pl.DataFrame(required | columns, strict=False)


def refusal(**columns):
    with pytest.raises(InputError) as caught:
        make_workload(table(**columns), where="jobs")
    return str(caught.value)


def test_missing_optional_columns_get_their_defaults_in_schema_order():
    jobs = make_workload(table())
    assert jobs.frame.columns == [name for name in SCHEMA.names() if name not in SPARSE]
    assert all(jobs.frame.schema[name] == SCHEMA[name] for name in jobs.frame.columns)
    row = jobs.frame.row(0, named=True)
    assert {name: row[name] for name in ("gpu_milli", "cpus", "memory_mib", "priority")} == {
        "gpu_milli": 1000,
        "cpus": 0,
        "memory_mib": 0,
        "priority": 1.0,
    }
    assert (row["user"], row["group"], row["status"], row["source_id"], row["row"]) == (
        "",
        "",
        "unknown",
        "",
        0,
    )
    assert row["estimate_s"] is row["gpu_types"] is row["deadline_s"] is None


def test_nulls_take_the_default_where_there_is_one():
    jobs = make_workload(table(gpu_milli=[None, 250], user=[None, "ann"], status=["failed", None]))
    assert jobs.frame["gpu_milli"].to_list() == [1000, 250]
    assert jobs.frame["user"].to_list() == ["", "ann"]
    assert jobs.frame["status"].to_list() == ["failed", "unknown"]


def test_sorting_is_stable_and_rows_keep_their_place_in_the_trace():
    jobs = make_workload(table(submit_s=[5.0, 1.0, 5.0, 1.0], user=["a", "b", "c", "d"]))
    assert jobs.frame["user"].to_list() == ["b", "d", "a", "c"]
    assert jobs.frame["row"].to_list() == [1, 3, 0, 2]


def test_the_first_submit_becomes_zero_and_the_epoch_remembers_it():
    jobs = make_workload(table(submit_s=[107.5, 100.0], deadline_s=[None, 160.0]), origin_s=1000.0)
    assert jobs.frame["submit_s"].to_list() == [0.0, 7.5]
    assert jobs.frame["deadline_s"].to_list() == [60.0, None]
    assert (jobs.metadata.origin_s, jobs.metadata.epoch_s) == (1000.0, 100.0)


def test_shifting_large_clocks_leaves_no_rounding_dust():
    jobs = make_workload(table(submit_s=[1_600_000_000.1, 1_600_000_000.3]))
    assert jobs.frame["submit_s"].to_list() == [0.0, 0.2]


def test_times_are_rounded_half_to_even_to_microseconds_and_lengths_stay_positive():
    jobs = make_workload(table(submit_s=[0.0, 2.5e-6, 3.5e-6], duration_s=[1e-9, 2.5e-6, 1.0]))
    assert jobs.frame["submit_s"].to_list() == [0.0, 2e-6, 4e-6]
    assert jobs.frame["duration_s"].to_list() == [1e-6, 2e-6, 1.0]


def test_making_a_workload_twice_changes_nothing():
    once = make_workload(table(submit_s=[9.1, 3.3, 4.7], deadline_s=[1.5, None, 99.9]))
    twice = make_workload(once.frame)
    assert twice.frame.equals(once.frame)
    assert twice.metadata.epoch_s == 0.0


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("submit_s", -1.0),
        ("submit_s", math.nan),
        ("submit_s", MAX_TIME_S * 1.001),
        ("duration_s", 0.0),
        ("duration_s", -5.0),
        ("duration_s", math.inf),
        ("duration_s", None),
        ("gpus", -1),
        ("gpus", 2.5),
        ("gpus", 2**31),
        ("gpus", math.nan),
        ("gpu_milli", 0),
        ("gpu_milli", 1001),
        ("cpus", -1),
        ("cpus", 2**31),
        ("memory_mib", -1),
        ("memory_mib", 2**41),
        ("estimate_s", 0.0),
        ("estimate_s", math.inf),
        ("priority", math.nan),
        ("status", "exploded"),
        ("deadline_s", math.inf),
        ("gpu_types", []),
        ("gpu_types", ["v100", ""]),
        ("gpu_types", ["a|b"]),
        ("row", -1),
    ],
)
def test_a_bad_value_is_refused_with_its_row_column_and_value(column, value):
    good = {"gpu_types": ["v100"], "status": "failed"}.get(column, 1)
    good = float(good) if isinstance(value, float) else good
    message = refusal(**{column: [good, value]})
    assert message.startswith(f"jobs, row 2 (the first is 1), column {column}: is ")
    assert "expected" in message
    assert "\n" not in message


@pytest.mark.parametrize("column", ["submit_s", "gpus", "memory_mib", "priority"])
def test_text_in_a_number_column_is_refused(column):
    assert f"column {column}: is 'eight'" in refusal(**{column: ["8", "eight"]})


@pytest.mark.parametrize(("column", "values"), [("gpus", [True]), ("user", [1.5]), ("gpu_types", [[1]])])
def test_a_column_of_a_type_that_cannot_be_meant_is_refused(column, values):
    assert f"column {column}: holds values of type" in refusal(**{column: values})


def test_numbers_written_as_text_or_as_whole_floats_are_accepted():
    jobs = make_workload(table(gpus=["4", " 8.0"], cpus=[16.0, None], duration_s=["1e3", "60"]))
    assert jobs.frame["gpus"].to_list() == [4, 8]
    assert jobs.frame["cpus"].to_list() == [16, 0]
    assert jobs.frame["duration_s"].to_list() == [1000.0, 60.0]


def test_the_message_counts_other_rows_with_the_same_problem():
    assert "(2 other rows with the same problem)" in refusal(gpus=[1, -1, -2, -3])


def test_a_part_of_a_gpu_is_for_jobs_of_one_gpu():
    assert "gpus = 2" in refusal(gpus=[1, 2], gpu_milli=[500, 500])
    assert "gpus = 0" in refusal(gpus=[1, 0], gpu_milli=[500, 500])
    assert len(make_workload(table(gpus=[1, 0], gpu_milli=[500, 1000]))) == 2


def test_an_unknown_column_is_refused_and_the_likely_one_named():
    assert "did you mean 'duration_s'" in refusal(duration=[1.0])
    assert "known: submit_s" in refusal(colour=["red"])


def test_a_missing_required_column_is_named_with_its_meaning():
    with pytest.raises(InputError, match="missing column gpus"):
        make_workload(table().drop("gpus"))


def test_a_misspelt_status_is_corrected():
    assert "did you mean 'cancelled'" in refusal(status=["CANCELED"])


def test_original_rows_are_given_for_all_jobs_or_none():
    assert "fill it in for every row" in refusal(row=[4, None])
    assert make_workload(table(row=[None, None])).frame["row"].to_list() == [0, 1]


def test_no_jobs_are_no_workload():
    with pytest.raises(InputError, match="has no jobs"):
        make_workload(table().clear())


def test_a_deadline_absurdly_far_before_the_first_submit_is_refused():
    assert "deadline_s" in refusal(submit_s=[MAX_TIME_S], deadline_s=[-MAX_TIME_S])


def test_errors_use_the_place_that_the_reader_gives():
    where = Where("log.txt", lambda position: f"record {position + 10}")
    with pytest.raises(InputError, match=r"^log\.txt, record 10, column gpus"):
        make_workload(table(gpus=[-1]), where=where)


def test_a_workload_refuses_a_frame_of_another_schema():
    with pytest.raises(ValueError, match="make_workload"):
        Workload(table(), WorkloadMetadata())


def test_repr_is_one_short_line():
    jobs = make_workload(table(submit_s=[0.0, 86400.0], gpus=[1, 16]), name="lab")
    assert repr(jobs) == "Workload('lab': 2 jobs, up to 16 GPUs, 1 days)"


def test_every_column_says_what_it_means_and_expects():
    assert all(column.meaning and column.expected for column in COLUMNS)


def test_a_sparse_column_is_in_the_frame_only_if_a_job_says_something_in_it():
    given = {"recorded_start_s": [None, None], "nodes": [None, None], "qos": ["", None]}
    silent = make_workload(table(**given, recorded_nodes=["", None], partition=["", "gpu"]))
    assert [name for name in SPARSE if silent.has(name)] == ["partition"]
    assert silent.frame["partition"].to_list() == ["", "gpu"]
    assert silent.column("recorded_start_s").to_list() == [None, None]
    assert silent.column("qos").to_list() == ["", ""]
    assert silent.column("nodes").dtype == SCHEMA["nodes"]


def test_recorded_starts_move_with_the_clock_and_may_lie_before_the_submit():
    jobs = make_workload(table(submit_s=[200.0, 100.0], recorded_start_s=[190.0, None], nodes=[2, 1]))
    assert jobs.frame["recorded_start_s"].to_list() == [None, 90.0]
    assert jobs.frame["nodes"].to_list() == [1, 2]


@pytest.mark.parametrize(
    ("column", "value"), [("nodes", 0), ("recorded_start_s", math.inf), ("recorded_start_s", 2.0**33)]
)
def test_a_sparse_column_is_checked_like_any_other(column, value):
    assert column in refusal(**{column: [value]})


NASTY: dict[str, list[Any]] = {
    "submit_s": [5.0, 0.0, -1.0, None, math.nan, math.inf, 2.0**32, 2.0**32 + 1],
    "duration_s": [1.0, 0.0, -0.0, None, math.nan, 2.0**32],
    "gpus": [1, 0, -1, None, 2**31 - 1],
    "gpu_milli": [1000, 1, 0, 1001, None, 500],
    "estimate_s": [None, 3.0, 0.0, math.nan, -math.inf],
    "gpu_types": [None, ["a100"], [], [""]],
    "priority": [1.0, None, math.nan, math.inf, 1e308, -1e308],
    "user": ["ada", "", None],
    "deadline_s": [None, -(2.0**32), -(2.0**33), math.nan],
    "recorded_nodes": [None, "", "n1|n2"],
    "nodes": [None, 1, 0],
    "row": [0, None, -1, 7],
}


def test_a_look_at_a_column_finds_what_the_whole_check_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(frame: pl.DataFrame) -> Any:
        try:
            return validation.checked_frame(frame, Where("jobs")).to_dict(as_series=False)
        except InputError as error:
            return str(error)

    rng, refused = random.Random(1), 0
    for _ in range(600):
        odd = rng.sample(list(NASTY), rng.randint(0, 2))
        names = {"submit_s", "duration_s", "gpus", *odd, *rng.sample(list(NASTY), 4)}
        columns = {
            name: [rng.choice(NASTY[name]) if name in odd else NASTY[name][0] for _ in range(3)]
            for name in NASTY
            if name in names
        }
        frame = pl.DataFrame(columns, schema={name: SCHEMA[name] for name in columns}, strict=False)
        found = checked(frame)
        with monkeypatch.context() as patch:
            patch.setattr(validation, "_is_native", lambda *_: False)
            assert found == checked(frame), columns
        refused += isinstance(found, str)
    assert 100 < refused < 500
