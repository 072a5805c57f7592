"""What cutting and changing workloads makes of what really happened, and of nodes asked for."""

import polars as pl
import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.workload import Workload, make_workload, read_workload, write_workload
from gpuyard.workload.schema import SPARSE
from gpuyard.workload.shaping.amend import (
    clamp_durations,
    exact_estimates,
    noisy_estimates,
    relabel_groups,
    widen_gangs,
)
from gpuyard.workload.shaping.merge import merge
from gpuyard.workload.shaping.rescale import compress_time, level_load, resample_days, to_load
from gpuyard.workload.shaping.slices import between, drop_duplicates, keep, split_by_time, thin, window

DAY_S = 86400.0
RECORDED = ("recorded_start_s", "recorded_nodes")


def log_of(days: int = 6, name: str = "lab") -> Workload:
    """Four jobs a day; each started 7 s after its submit on a node of its own."""
    count = 4 * days
    submit_s = [index * DAY_S / 4 for index in range(count)]
    columns = {
        "submit_s": submit_s,
        "duration_s": [100.0] * count,
        "gpus": [4] * count,
        "user": ["ann", "bob"] * (count // 2),
        "group": ["gpu"] * count,
        "recorded_start_s": [moment + 7 for moment in submit_s],
        "recorded_nodes": [f"n{index}|m" for index in range(count)],
        "nodes": [2] * count,
        "partition": ["p"] * count,
        "qos": ["q"] * count,
        "account": ["a"] * count,
        "name": ["fit"] * count,
        "after": ["earlier"] * count,
    }
    return make_workload(pl.DataFrame(columns), name=name, epoch_s=1.6e9 - 1.6e9 % DAY_S)


KEEPING = {
    "between": lambda jobs: between(jobs, DAY_S, 3 * DAY_S),
    "window": lambda jobs: window(jobs, 3, 5),
    "keep": lambda jobs: keep(jobs, users=("bob",)),
    "split": lambda jobs: split_by_time(jobs).test,
    "drop-duplicates": drop_duplicates,
    "relabel": lambda jobs: relabel_groups(jobs, {"gpu": "other"}),
    "exact": exact_estimates,
    "noisy": noisy_estimates,
    "clamp nothing": lambda jobs: clamp_durations(jobs, max_s=1000),
    "thin nothing": lambda jobs: thin(jobs, 1.0),
    "merge": lambda jobs: merge([jobs, log_of(3)]),
}
LOSING = {
    "thin": lambda jobs: thin(jobs, 0.5),
    "clamp": lambda jobs: clamp_durations(jobs, max_s=50),
    "widen": lambda jobs: widen_gangs(jobs, 1.0, 16),
    "compress": lambda jobs: compress_time(jobs, 2.0),
    "load": lambda jobs: to_load(jobs, parse_cluster("2x4"), 0.5),
    "level": lambda jobs: level_load(jobs, parse_cluster("2x4"), 0.5, 1.0),
    "resample": lambda jobs: resample_days(jobs, 3),
    "merge from zero": lambda jobs: merge([jobs, log_of(3)], clock="zero"),
}


@pytest.mark.parametrize("step", KEEPING)
def test_what_happened_stays_where_it_is_still_true(step):
    shaped = KEEPING[step](log_of())
    assert all(shaped.has(name) for name in SPARSE)
    waits = shaped.frame["recorded_start_s"] - shaped.frame["submit_s"]
    assert waits.unique().to_list() == [7.0]


@pytest.mark.parametrize("step", LOSING)
def test_what_happened_is_left_out_where_it_could_not_have_happened_so(step):
    shaped = LOSING[step](log_of())
    lost = (*RECORDED, "after") if step == "resample" else RECORDED  # ids of a day that is drawn twice
    assert [name for name in SPARSE if not shaped.has(name)] == list(lost)
    assert shaped.frame["partition"].unique().to_list() == ["p"]


def test_wider_gangs_ask_for_as_many_gpus_on_a_node_as_before():
    frame = widen_gangs(log_of(), 1.0, 16).frame
    assert (frame["gpus"] / frame["nodes"]).unique().to_list() == [2.0]
    assert frame["gpus"].unique().sort().to_list() == [8, 16]


def test_logs_kept_apart_keep_their_nodes_apart():
    merged = merge([log_of(1, "east"), log_of(1, "west")], keep_apart=True).frame
    assert set(merged["recorded_nodes"].head(2)) == {"east/n0|east/m", "west/n0|west/m"}
    assert set(merged["account"]) == {"east/a", "west/a"}


def test_logs_with_and_without_starts_can_be_merged():
    without = make_workload(
        pl.DataFrame({"submit_s": [0.0], "duration_s": [1.0], "gpus": [1]}), epoch_s=1.6e9
    )
    merged = merge([log_of(1), without])
    assert merged.frame["recorded_start_s"].null_count() == 1
    assert sorted(merged.frame["partition"].to_list()) == ["", "p", "p", "p", "p"]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_files_keep_what_happened(tmp_path, suffix):
    jobs = log_of(2)
    write_workload(jobs, tmp_path / f"jobs.{suffix}")
    assert read_workload(tmp_path / f"jobs.{suffix}").frame.equals(jobs.frame)
