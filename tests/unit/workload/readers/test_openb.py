"""openb: pods with shared GPUs, and the nodes they ran on."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.openb import OpenbFormat
from gpuyard.workload.readers.requests import CPUS_ROUNDED
from support.damage import damaged, import_or_refuse
from support.paths import DATA
from support.reading import by_id, read_or_refuse, rejected, repaired

SAMPLES = DATA / "openb"
PODS, NODES = SAMPLES / "pods.csv", SAMPLES / "nodes.csv"
HEADER = PODS.read_text().splitlines()[0]


def write(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "pods.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_both_lists_are_recognised_by_their_header_only():
    assert OpenbFormat.role_of(PODS.read_bytes(), "x") == "jobs"
    assert OpenbFormat.role_of(NODES.read_bytes(), "x") == "nodes"
    assert OpenbFormat.role_of(b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,1,1\n", "x") == "jobs"
    assert OpenbFormat.role_of(b"sn,cpu_milli\n", "openb_node_list.csv") is None


def test_run_time_starts_when_the_pod_was_scheduled_and_submission_when_it_was_created():
    job = by_id(import_trace([PODS]))["pod-1"]
    assert (job["submit_s"], job["duration_s"]) == (100.0, 298.0)


def test_a_pod_on_a_part_of_a_gpu_shares_it():
    job = by_id(import_trace([PODS]))["pod-1"]
    assert (job["gpus"], job["gpu_milli"]) == (1, 460)


def test_several_gpus_are_whole_ones():
    jobs = by_id(import_trace([PODS]))
    assert (jobs["pod-2"]["gpus"], jobs["pod-2"]["gpu_milli"], jobs["pod-2"]["gpu_types"]) == (
        8,
        1000,
        ["G2"],
    )


def test_parts_of_several_gpus_are_rounded_up_and_reported(tmp_path):
    trace = import_trace([write(tmp_path, "p,1000,1,2,500,,LS,Running,0,5,0")])
    assert trace.workload.frame.select("gpus", "gpu_milli").row(0) == (2, 1000)
    assert repaired(trace) == {"a part of each of several GPUs: rounded up to whole GPUs": 1}


def test_a_type_named_twice_counts_once_and_is_reported():
    trace = import_trace([PODS])
    assert by_id(trace)["pod-3"]["gpu_types"] == ["V100M16", "V100M32"]
    assert repaired(trace)["gpu_spec repeats a type or holds an empty one"] == 1


def test_a_pod_without_gpus_becomes_a_cpu_job():
    job = by_id(import_trace([PODS]))["pod-4"]
    assert (job["gpus"], job["gpu_milli"], job["cpus"], job["memory_mib"]) == (0, 1000, 16, 65536)


def test_parts_of_cpus_are_rounded_up_and_reported():
    trace = import_trace([PODS])
    assert by_id(trace)["pod-1"]["cpus"] == 7
    assert repaired(trace)[CPUS_ROUNDED] == 1


def test_pending_pods_and_pods_without_run_time_are_rejected_with_their_reasons():
    assert rejected(import_trace([PODS])) == {
        "Pending: never scheduled": 1,
        "run time (deletion_time - scheduled_time) is not positive": 1,
    }


def test_running_pods_are_kept_with_an_unknown_end_and_the_report_says_so():
    trace = import_trace([PODS])
    assert by_id(trace)["pod-0"]["status"] == "unknown"
    assert any("2 pods were Running" in text for text in trace.report.assumed)
    assert {by_id(trace)[name]["status"] for name in ("pod-1", "pod-2")} == {"completed", "failed"}


def test_in_order_pods_come_one_a_second_and_stay_until_the_last_has_come():
    trace = import_trace([PODS], times="order")
    assert trace.workload.frame["submit_s"].to_list() == [0, 1, 2, 3, 4, 5, 6]
    assert set(trace.workload.frame["duration_s"]) == {7.0}
    assert rejected(trace) == {}


def test_a_list_without_times_is_refused_with_the_way_to_read_it(tmp_path):
    path = write(tmp_path, "p,1500,1,1,1000", header="name,cpu_milli,memory_mib,num_gpu,gpu_milli")
    with pytest.raises(InputError, match=r"no times .* `option\.times=order`"):
        import_trace([path])
    assert len(import_trace([path], times="order").workload) == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("p,1000,1,-1,0,,LS,Running,0,5,0", "num_gpu is empty or no whole number of 0 or more"),
        ("p,1000,1,1.5,0,,LS,Running,0,5,0", "num_gpu is empty or no whole number of 0 or more"),
        ("p,1000,1,1,0,,LS,Running,0,5,0", "gpu_milli is no whole number from 1 to 1000"),
        ("p,1000,1,1,,,LS,Running,0,5,0", "gpu_milli is no whole number from 1 to 1000"),
        ("p,1000,1,0,500,,LS,Running,0,5,0", "asks for a part of a GPU with num_gpu = 0"),
        ("p,0,1,0,0,,LS,Running,0,5,0", "asks for neither GPUs nor CPUs"),
        ("p,,1,1,1000,,LS,Running,0,5,0", "cpu_milli is empty or negative"),
        ("p,x,1,1,1000,,LS,Running,0,5,0", "cpu_milli is not a number"),
        ("p,1000,1,1,1000,,LS,Running,0,,0", "no deletion_time: no end"),
        ("p,1000,1,1,1000,,LS,Running,-4,5,0", "created before the trace's start"),
        ("p,1000,1,1,1000", "another number of fields than 11"),
    ],
)
def test_rows_that_make_no_sense_are_rejected_with_the_reason(tmp_path, row, reason):
    trace = import_trace([write(tmp_path, "q,1000,1,1,1000,,LS,Running,0,5,0", row)])
    assert rejected(trace) == {reason: 1}


def test_the_node_list_makes_the_cluster():
    cluster = import_trace([PODS, NODES]).cluster
    assert [(g.count, g.gpus, g.type, g.cpus, g.memory_mib) for g in cluster.nodes] == [
        (1, 0, "cpu", 32, 262144),
        (2, 8, "G2", 96, 393216),
        (1, 2, "P100", 64, 262144),
        (1, 4, "V100M16", 32, 131072),
    ]


def test_a_node_list_with_a_bad_row_is_refused_and_the_row_named(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn,32000,1,x,G2\n")
    with pytest.raises(InputError, match=r"gpu is not a number \(first at nodes.csv:2\)"):
        import_trace([PODS, path])


@given(
    pods=damaged(PODS.read_bytes()),
    nodes=damaged(NODES.read_bytes()),
    times=st.sampled_from(["trace", "order"]),
)
def test_damaged_lists_are_refused_or_accounted_for(tmp_path_factory, pods, nodes, times):
    folder = tmp_path_factory.mktemp("openb")
    pod_path, node_path = folder / "pods.csv", folder / "nodes.csv"
    pod_path.write_bytes(pods)
    node_path.write_bytes(nodes)
    import_or_refuse([pod_path], "openb", times=times)
    read_or_refuse("openb", {"jobs": [pod_path], "nodes": [node_path]}, times=times)


@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("openb") / "pods.csv"
    path.write_bytes(data)
    assert import_or_refuse([path], "openb") is None
