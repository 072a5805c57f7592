"""Figures of Alibaba's public traces, and that no reader takes another trace's file for its own."""

import hashlib
from pathlib import Path

import polars as pl
import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.workload import import_trace, workload_formats
from gpuyard.workload.chunks import read_head
from support.paths import DATA

MINE = ("pai", "pai-simulator", "openb", "spot-gpu-2026", "google-2011", "google-2019")


@pytest.fixture(scope="module")
def openb(shared_traces) -> Path:
    return shared_traces / "alibaba-openb-2023"


def test_openb_rows_are_pods_that_ran_and_pending_ones(openb):
    report = import_trace([openb / "openb_pod_list_default.csv.gz"]).report
    assert (report.rows_read, report.jobs) == (8152, 7255)
    assert [(found.reason, found.rows) for found in report.rejected] == [("Pending: never scheduled", 897)]


def test_openb_statuses_are_the_phases(openb):
    frame = import_trace([openb / "openb_pod_list_default.csv.gz"]).workload.frame
    counts = dict(frame["status"].cast(pl.String).value_counts().iter_rows())
    assert counts == {"unknown": 5193, "failed": 1870, "completed": 192}


def test_openb_run_times_are_the_lifetimes_of_scheduled_pods_less_their_waits(openb):
    path = openb / "openb_pod_list_default.csv.gz"
    raw = pl.read_csv(path).filter(pl.col("num_gpu") > 0)
    lifetime = raw["deletion_time"] - raw["creation_time"]
    assert (lifetime.median(), lifetime.quantile(0.9)) == (545, 6260)
    # Without the Pending pods, short-lived as they never ran, lifetimes are longer: p50 723, p90 7,462 s.
    # A run starts at scheduled_time, 2 s later in the median.
    run = import_trace([path]).workload.frame.filter(pl.col("gpus") > 0)["duration_s"]
    assert (run.median(), run.quantile(0.9), run.max()) == (655, 7389, 12537496)


def test_openb_pods_in_order_ask_for_98_percent_of_the_gpus(openb):
    files = [openb / "openb_pod_list_default.csv.gz", openb / "openb_node_list_gpu_node.csv"]
    trace = import_trace(files, times="order")
    frame = trace.workload.frame
    assert dict(frame["gpus"].value_counts().iter_rows()) == {1: 6989, 0: 1088, 8: 44, 2: 16, 4: 15}
    assert frame.filter(pl.col("gpu_milli") < 1000).height == 3078
    assert dict(frame["group"].value_counts().iter_rows()) == {
        "LS": 4647, "BE": 3398, "Burstable": 100, "Guaranteed": 7,
    }  # fmt: skip
    asked = frame.select((pl.col("gpus") * pl.col("gpu_milli")).sum() / 1000).item()
    assert asked == pytest.approx(6086.8, abs=0.05)
    assert asked / trace.cluster.total_gpus == pytest.approx(0.98, abs=0.005)


def test_openb_node_lists_have_the_counted_nodes(openb):
    pods = openb / "openb_pod_list_default.csv.gz"
    all_nodes = import_trace([pods, openb / "openb_node_list_all_node.csv"]).cluster
    gpu_nodes = import_trace([pods, openb / "openb_node_list_gpu_node.csv"]).cluster
    assert (all_nodes.node_count, all_nodes.total_gpus) == (1523, 6212)
    assert (gpu_nodes.node_count, gpu_nodes.total_gpus) == (1213, 6212)
    assert sum(group.count * group.cpus for group in gpu_nodes.nodes) == 107018
    assert kinds(gpu_nodes) == kinds(parse_cluster("openb"))


def kinds(cluster) -> dict[tuple, int]:
    """How many nodes there are of each kind."""
    counts: dict[tuple, int] = {}
    for group in cluster.nodes:
        kind = (group.type, group.gpus, group.cpus, group.memory_mib)
        counts[kind] = counts.get(kind, 0) + group.count
    return counts


def test_openb_constrained_pods_name_their_types_once(openb):
    trace = import_trace([openb / "openb_pod_list_gpuspec33.csv.gz"], times="order")
    types = trace.workload.frame["gpu_types"]
    assert len(types) - types.null_count() == 2388
    assert types.list.len().max() == types.list.n_unique().max()
    assert {found.reason: found.rows for found in trace.report.repaired}[
        "gpu_spec repeats a type or holds an empty one"
    ] == 25


@pytest.mark.parametrize(("variant", "rows"), [("gpushare40", 8152), ("multigpu30", 8508)])
def test_openb_variants_are_read_whole_in_order(openb, variant, rows):
    assert import_trace([openb / f"openb_pod_list_{variant}.csv.gz"], times="order").report.jobs == rows


def test_pai_machines_are_read_from_the_published_archive(shared_traces):
    archive = shared_traces / "alibaba-pai-2020" / "pai_machine_spec.tar.gz"
    assert hashlib.sha256(archive.read_bytes()).hexdigest().startswith("cc0d38a4")
    tables = [DATA / "pai" / "pai_job_table.csv", DATA / "pai" / "pai_task_table.csv"]
    cluster = import_trace([*tables, archive]).cluster
    assert (cluster.node_count, cluster.total_gpus) == (1897, 6742)
    gpus: dict[str, int] = {}
    for group in cluster.nodes:
        gpus[group.type] = gpus.get(group.type, 0) + group.count * group.gpus
    assert gpus == {"MISC": 2240, "P100": 1596, "V100M32": 1080, "T4": 994, "V100": 832, "cpu": 0}
    assert kinds(cluster) == kinds(parse_cluster("pai"))


def test_files_of_other_traces_are_not_claimed(shared_traces):
    own = {"openb": "alibaba-openb-2023", "pai": "alibaba-pai-2020"}
    formats = workload_formats()
    for path in sorted(shared_traces.glob("*/*")):
        head = read_head(path)
        for name in MINE:
            if own.get(name) != path.parent.name:
                assert formats[name].role_of(head, path.name) is None, (name, path.name)


def test_what_lies_beside_the_tables_is_not_taken_for_one(shared_traces):
    folder = shared_traces / "alibaba-pai-2020"
    roles = {
        path.name: workload_formats()["pai"].role_of(read_head(path), path.name) for path in folder.iterdir()
    }
    assert {name: role for name, role in roles.items() if role} == {
        "pai_machine_spec.tar.gz": "machines",
        "pai_job_table.header": "jobs",
        "pai_task_table.header": "tasks",
        "pai_group_tag_table.header": "tags",
        "pai_machine_spec.header": "machines",
    }
