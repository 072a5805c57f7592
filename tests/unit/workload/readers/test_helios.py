"""Helios: Slurm logs of SenseTime's clusters, with the sizes of their virtual clusters."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.helios import GPU_NUMBERS, HeliosFormat
from support.damage import damaged, import_or_refuse
from support.paths import DATA

SAMPLES = DATA / "helios"
LOG, NUMBERS = SAMPLES / "cluster_log.csv", SAMPLES / "cluster_gpu_number.csv"
HEADER = LOG.read_text().splitlines()[0]
ROW = "1,u1,vcOne,8,64,1,COMPLETED,2020-09-01 00:00:00,2020-09-01 00:00:10,2020-09-01 00:01:10,60,10"


def write(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "cluster_log.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def by_id(trace) -> dict[str, dict]:
    return {job["source_id"]: job for job in trace.workload.frame.iter_rows(named=True)}


def rejected(trace) -> dict[str, int]:
    return {found.reason: found.rows for found in trace.report.rejected}


def test_both_files_are_recognised_by_content():
    assert HeliosFormat.role_of(LOG.read_bytes(), "x") == "jobs"
    assert HeliosFormat.role_of(NUMBERS.read_bytes(), "x") == GPU_NUMBERS
    assert HeliosFormat.role_of(b"date,total\nyesterday,3\n", "cluster_gpu_number.csv") is None
    processed = HEADER.encode() + b",jobname\n"
    assert HeliosFormat.role_of(processed, "x") == "jobs"


def test_a_row_becomes_a_job_of_all_its_gpus_and_cpus():
    job = by_id(import_trace([LOG]))["102"]
    assert (job["submit_s"], job["duration_s"], job["gpus"], job["cpus"]) == (15.0, 30.0, 16, 96)
    assert (job["user"], job["group"], job["status"], job["estimate_s"]) == (
        "uBBBB", "vcOne", "cancelled", None,
    )  # fmt: skip


def test_the_clock_is_read_as_utc_and_the_report_says_so():
    trace = import_trace([LOG])
    assert trace.workload.metadata.epoch_s == 1598918390.0  # 2020-08-31 23:59:50 UTC
    assert any("taken as UTC" in text for text in trace.report.assumed)


def test_states_are_mapped_and_a_strange_one_is_unknown_and_reported():
    trace = import_trace([LOG])
    statuses = {name: job["status"] for name, job in by_id(trace).items()}
    assert statuses == {
        "101": "completed", "102": "cancelled", "103": "completed", "105": "failed", "106": "timeout",
        "107": "unknown",
    }  # fmt: skip
    assert any("'SUSPENDED'" in text for text in trace.report.assumed)


def test_cpu_jobs_are_kept_by_default_and_dropped_on_request():
    assert by_id(import_trace([LOG]))["103"]["gpus"] == 0
    trace = import_trace([LOG], cpu_jobs="drop")
    assert "103" not in by_id(trace)
    assert rejected(trace)["a CPU job, which cpu_jobs = drop leaves out"] == 1


def test_jobs_that_never_ran_are_rejected_with_line_numbers():
    report = import_trace([LOG]).report
    assert {found.reason: found.first for found in report.rejected} == {
        "never ran: duration is not positive": ("cluster_log.csv:5",),
        "never ran: no start_time": ("cluster_log.csv:9",),
    }


def test_a_job_without_an_end_is_still_running(tmp_path):
    path = write(tmp_path, ROW, ROW.replace("2020-09-01 00:01:10,60", "None,"))
    assert rejected(import_trace([path])) == {"still running: no end_time": 1}


def test_an_empty_duration_is_repaired_from_the_times(tmp_path):
    trace = import_trace([write(tmp_path, ROW.replace(",60,", ",,"))])
    assert trace.workload.frame["duration_s"].to_list() == [60.0]
    assert "end_time - start_time is taken" in trace.report.repaired[0].reason


def test_a_duration_that_contradicts_the_times_is_reported(tmp_path):
    trace = import_trace([write(tmp_path, ROW, ROW.replace(",60,", ",80,"))])
    assert trace.workload.frame["duration_s"].to_list() == [60.0, 80.0]
    assert [(found.rows, found.first) for found in trace.report.repaired] == [(1, ("cluster_log.csv:3",))]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ROW.replace("2020-09-01 00:00:00", "soon"), "submit_time is not a time (YYYY-MM-DD HH:MM:SS)"),
        (ROW.replace("2020-09-01 00:00:00", ""), "no submit_time"),
        (
            ROW.replace("2020-09-01 00:00:00", "1919-09-01 00:00:00"),
            "submit_time is before 1970 or after 2105",
        ),
        (ROW.replace(",8,", ",2.5,"), "gpu_num is not a whole number from 0 to 2147483647"),
        (ROW.replace(",8,", ",-1,"), "gpu_num is not a whole number from 0 to 2147483647"),
        (ROW.replace(",8,", ",nan,"), "gpu_num is not a whole number from 0 to 2147483647"),
        (ROW.replace(",64,", ",-4,"), "cpu_num is not a number from 0 to 2147483647"),
        (ROW.replace(",60,", ",-60,"), "never ran: duration is not positive"),
        (ROW.replace(",60,", ",1e12,"), "duration is more than 4294967296 s"),
        (ROW + ",1", "another number of fields than 12"),
    ],
)
def test_rows_that_cannot_be_jobs_are_rejected_with_a_reason(tmp_path, row, reason):
    assert rejected(import_trace([write(tmp_path, ROW, row)])) == {reason: 1}


def test_a_missing_number_of_cpus_is_repaired(tmp_path):
    trace = import_trace([write(tmp_path, ROW.replace(",64,", ",,"))])
    assert trace.workload.frame["cpus"].to_list() == [0]
    assert trace.report.repaired[0].reason == "no cpu_num: 0 is taken"


def test_virtual_clusters_own_nodes_of_eight_as_on_the_first_of_september():
    cluster = import_trace([LOG, NUMBERS]).cluster
    groups = [(group.owner, group.count, group.gpus) for group in cluster.nodes]
    assert groups == [("vcOne", 3, 8), ("vcTwo", 2, 8)]


def test_a_virtual_cluster_that_owns_nothing_that_day_is_reported_and_its_jobs_are_kept():
    trace = import_trace([NUMBERS, LOG])
    assert by_id(trace)["106"]["group"] == "vcGone"
    assert any("1 groups with 1 jobs own no nodes" in text for text in trace.report.assumed)


def test_another_day_can_be_chosen_and_a_rest_of_eight_is_a_smaller_node():
    trace = import_trace([LOG, NUMBERS], date="2020-09-02")
    groups = [(group.owner, group.count, group.gpus) for group in trace.cluster.nodes]
    assert groups == [("vcOne", 3, 8), ("vcTwo", 1, 8), ("vcTwo", 1, 4), ("vcGone", 1, 8)]
    assert not any("own no nodes" in text for text in trace.report.assumed)


def test_nodes_can_be_shared():
    trace = import_trace([LOG, NUMBERS], vcs="share")
    assert (trace.cluster.owners, trace.cluster.total_gpus) == ((), 40)
    assert not any("own no nodes" in text for text in trace.report.assumed)


def test_the_last_day_stands_in_for_the_first_of_september(tmp_path):
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("date,vcOne,total\n2020-06-02,8,8\n2020-06-03,16,16\n")
    assert import_trace([LOG, numbers]).cluster.total_gpus == 16


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("date,vcOne,total\n2020-06-02,8,8\n", {"date": "2020-06-03"}, "lists no day 2020-06-03"),
        ("date,vcOne,total\n2020-06-02,x,8\n", {}, "line 2, column vcOne: is 'x'"),
        ("date,vcOne,total\n2020-06-02,8\n", {}, "line 2: has 2 fields, expected 3"),
        ("date,vcOne,total\n2020-06-02,0,0\n", {}, "states no node"),
        ("date,vcOne,vcOne,total\n2020-06-02,8,8,16\n", {}, "each of them once"),
    ],
)
def test_a_bad_table_of_gpu_numbers_is_refused(tmp_path, table, options, message):
    numbers = tmp_path / "numbers.csv"
    numbers.write_text(table)
    with pytest.raises(InputError, match=message):
        import_trace([LOG, numbers], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"date": "yesterday"}, r"format helios: `option\.date=yesterday`: "),
        ({"cpu_jobs": "no"}, r"format helios: `option\.cpu_jobs=no`: expected 'keep' or 'drop'"),
        ({"x": 1}, "format helios has no option x; its options: cpu_jobs"),
    ],
)
def test_a_bad_option_is_named(options, message):
    with pytest.raises(InputError, match=message):
        import_trace([LOG], **options)


def test_a_missing_or_repeated_column_is_named(tmp_path):
    with pytest.raises(InputError, match="line 1: column vc is missing"):
        import_trace([write(tmp_path, ROW, header=HEADER.replace("vc", "group"))], "helios")
    with pytest.raises(InputError, match="'queue' appears twice"):
        import_trace([write(tmp_path, ROW + ",1", header=HEADER + ",queue")], "helios")


def test_two_logs_are_refused(tmp_path):
    with pytest.raises(InputError, match="import one trace at a time"):
        import_trace([LOG, write(tmp_path, ROW)])


def test_a_log_of_which_no_job_is_left_is_refused_with_the_reasons(tmp_path):
    with pytest.raises(InputError, match=r"no job is left of 1 rows\. 1 rows: never ran: duration"):
        import_trace([write(tmp_path, ROW.replace(",60,", ",0,"))])


def test_the_import_is_in_the_history():
    (step,) = import_trace([LOG, NUMBERS], date="2020-09-02").workload.metadata.history
    assert step.settings == {
        "format": "helios", "files": ["cluster_log.csv", "cluster_gpu_number.csv"], "cpu_jobs": "keep",
        "date": "2020-09-02", "vcs": "own",
    }  # fmt: skip


def test_pieces_of_a_file_make_the_same_jobs_as_the_whole(tmp_path, monkeypatch):
    rows = [ROW.replace("1,u1", f"{i},u{i % 7}").replace(",60,", f",{60 + i},") for i in range(2, 500)]
    path = write(tmp_path, *rows)
    whole = import_trace([path])
    monkeypatch.setattr("gpuyard.workload.chunks.CHUNK_BYTES", 1000)
    pieces = import_trace([path])
    assert pieces.workload.frame.equals(whole.workload.frame)
    assert pieces.report == whole.report


@given(st.data())
def test_damaged_files_are_refused_or_accounted_for(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("helios")
    log, numbers = folder / "cluster_log.csv", folder / "cluster_gpu_number.csv"
    log.write_bytes(data.draw(damaged(LOG.read_bytes())))
    numbers.write_bytes(data.draw(st.just(NUMBERS.read_bytes()) | damaged(NUMBERS.read_bytes())))
    import_or_refuse([log], "helios")
    import_or_refuse([log, numbers], "helios")


@given(st.binary(max_size=300))
def test_random_bytes_behind_a_good_header_are_refused_or_accounted_for(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("helios") / "log.csv"
    path.write_bytes(HEADER.encode() + b"\n" + ROW.encode() + b"\n" + content)
    import_or_refuse([path], "helios")
    path.write_bytes(content)
    import_or_refuse([path], "helios")


@given(st.permutations(LOG.read_text().splitlines()[1:]))
def test_the_order_of_lines_does_not_matter(tmp_path_factory, rows):
    path = write(tmp_path_factory.mktemp("helios"), *rows)
    columns = ["submit_s", "duration_s", "gpus", "user", "group", "status", "source_id"]
    shuffled, straight = (import_trace([file]).workload.frame.select(columns) for file in (path, LOG))
    assert shuffled.sort("source_id").equals(straight.sort(pl.col("source_id")))
