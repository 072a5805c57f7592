"""The reduced CSV of Philly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.philly_csv import PhillyCsvFormat
from support.damage import damaged, import_or_refuse
from support.paths import DATA

SAMPLES = DATA / "philly-csv"
TABLE, VC_NODES = SAMPLES / "philly.csv", SAMPLES / "philly_vc.csv"


def test_the_table_is_recognised_by_exactly_its_header():
    assert PhillyCsvFormat.role_of(TABLE.read_bytes(), "x") == "jobs"
    assert PhillyCsvFormat.role_of(b"duration,timestamp,cluster,gpu_time,num_gpus\r\n", "x") == "jobs"
    assert PhillyCsvFormat.role_of(b"timestamp,duration,num_gpus,gpu_time\n", "philly.csv") is None
    assert PhillyCsvFormat.role_of(b"timestamp,duration,num_gpus,gpu_time,cluster,x\n", "philly.csv") is None


def test_rows_are_sorted_by_submit_time_and_the_virtual_cluster_is_the_group():
    trace = import_trace([TABLE])
    assert trace.workload.metadata.epoch_s == 1507529583.0  # 2017-10-09 06:13:03 UTC
    jobs = trace.workload.frame.select("submit_s", "duration_s", "gpus", "group", "status").rows()
    assert jobs == [
        (0.0, 2951.0, 4, "6214e9", "unknown"),
        (2.0, 12.5, 1, "ffffff", "unknown"),
        (2932.0, 66.0, 1, "11cb48", "unknown"),
    ]


def test_what_the_file_does_not_say_is_reported():
    assumed = " ".join(import_trace([TABLE]).report.assumed)
    assert "taken as UTC" in assumed
    assert "sum over a job's attempts" in assumed


def test_a_run_time_of_zero_is_rejected_and_the_blank_last_line_is_no_row():
    report = import_trace([TABLE]).report
    assert (report.rows_read, report.rejected[0].first) == (4, ("philly.csv:4",))


def test_nodes_of_virtual_clusters_make_the_cluster():
    trace = import_trace([TABLE, VC_NODES])
    assert [(group.owner, group.count) for group in trace.cluster.nodes] == [("6214e9", 2), ("11cb48", 1)]
    assert any("1 groups with 1 jobs own no nodes" in text for text in trace.report.assumed)


@pytest.mark.parametrize("gpus", ["0", "-1", "1.5", "", "many"])
def test_a_job_without_a_whole_number_of_gpus_is_rejected(tmp_path, gpus):
    path = tmp_path / "philly.csv"
    path.write_text(TABLE.read_text() + f"2017-10-09 06:13:05,12.5,{gpus},12.5,ffffff\n")
    reasons = [found.reason for found in import_trace([path]).report.rejected]
    assert "num_gpus is not a whole number from 1 to 2147483647" in reasons


def test_a_table_with_only_a_header_is_refused(tmp_path):
    path = tmp_path / "philly.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n")
    with pytest.raises(InputError, match="no job is left of 0 rows"):
        import_trace([path])


@given(st.data())
def test_damaged_files_are_refused_or_accounted_for(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("philly-csv") / "philly.csv"
    path.write_bytes(data.draw(damaged(TABLE.read_bytes())))
    import_or_refuse([path], "philly-csv")
    import_or_refuse([path, VC_NODES], "philly-csv")


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_accounted_for(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("philly-csv") / "philly.csv"
    for start in (b"", TABLE.read_bytes()):
        path.write_bytes(start + content)
        import_or_refuse([path], "philly-csv")
