"""Tables of pandas, in and out, and what a notebook shows."""

import polars as pl
import pytest

from gpuyard.errors import InputError
from gpuyard.simulation.run import simulate
from gpuyard.workload import make_workload

pd = pytest.importorskip("pandas")

FRAME = pd.DataFrame(
    {
        "submit_s": [5.0, 0.0],
        "duration_s": [10, 20],
        "gpus": [1, 8],
        "user": ["<b>", None],
        "estimate_s": [30, None],
    }
)


def test_a_frame_of_pandas_is_a_table_of_jobs() -> None:
    jobs = make_workload(FRAME)
    same = {"submit_s": [5.0, 0.0], "duration_s": [10, 20], "gpus": [1, 8]}
    missing = {"user": ["<b>", None], "estimate_s": [30, None]}
    assert jobs.frame.equals(make_workload(pl.DataFrame(same | missing)).frame)


def test_a_column_that_pandas_holds_as_anything_is_refused_by_name() -> None:
    with pytest.raises(InputError):
        make_workload(pd.DataFrame({"submit_s": [0.0, "x"], "duration_s": [1, 1], "gpus": [1, 1]}))


def test_jobs_and_results_become_frames_of_pandas() -> None:
    jobs = make_workload(FRAME)
    assert make_workload(jobs.to_pandas()).frame.equals(jobs.frame)
    table = simulate(jobs, "1x8", "fifo").to_pandas()
    assert table["start_s"].tolist() == [0.0, 20.0]


def test_simulating_a_frame_says_how_to_make_a_workload_of_it() -> None:
    with pytest.raises(InputError, match=r"make_workload\(frame\) makes one of it"):
        simulate(FRAME, "1x8", "fifo")


def test_notebooks_show_jobs_and_results_as_tables() -> None:
    jobs = make_workload(FRAME, name="a<b")
    assert "a&lt;b" in jobs._repr_html_()
    assert "<table" in jobs._repr_html_()
    result = simulate(jobs, "1x8", "fifo")
    assert "mean wait" in result._repr_html_()
    assert "7.5 s" in result._repr_html_()
    assert len(repr(result)) < 150
    assert "fifo+strict" in repr(result)
