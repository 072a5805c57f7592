"""Reading the Standard Workload Format: widths, unknown values, the header, rows that are no jobs."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import chunks, import_trace
from gpuyard.workload.readers.swf import SwfFormat
from support.damage import damaged, import_or_refuse
from support.paths import DATA
from support.reading import rejected, repaired

SAMPLE = DATA / "swf" / "small.swf"
ROW = "1 10 5 100 8 -1 -1 4 200 -1 1 7 1 -1 2 3 -1 -1"
PLACES = {
    "job": 0, "submit": 1, "run": 3, "procs": 4, "requested_procs": 7, "requested_s": 8, "memory": 9,
    "status": 10, "user": 11, "queue": 14, "partition": 15,
}  # fmt: skip


@pytest.fixture
def imported(tmp_path):
    def run(*lines, name="log.swf"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return import_trace([path], "swf")

    return run


def changed(**values):
    fields = ROW.split()
    for name, value in values.items():
        fields[PLACES[name]] = value
    return " ".join(fields)


def only(trace):
    assert len(trace.workload) == 1, trace.report
    return trace.workload.frame.row(0, named=True)


def assumed(trace):
    return " | ".join(trace.report.assumed)


def test_a_log_is_recognised_and_read():
    trace = import_trace([SAMPLE])
    jobs = trace.workload.frame
    assert jobs["source_id"].to_list() == ["1", "3"]
    assert jobs["gpus"].to_list() == [8, 4]
    assert jobs["duration_s"].to_list() == [100.0, 60.0]
    assert jobs["group"].to_list() == ["q0", "q3"]
    assert [(found.reason, found.first) for found in trace.report.rejected] == [
        ("never ran: run time is not positive", ("small.swf:6",))
    ]


@pytest.mark.parametrize(
    ("more", "said"), [("", ""), (" 9", "19 columns"), (" 9 queue 1:ppn=64:mem=1gb", "21 columns")]
)
@pytest.mark.parametrize("blank", [" ", "\t", "   "])
def test_18_19_and_21_columns_between_any_blanks(tmp_path, more, said, blank):
    path = tmp_path / "log.swf"
    path.write_text(f"  {ROW}{more}".replace(" ", blank) + "\r\n")
    assert SwfFormat.role_of(path.read_bytes(), path.name) == "jobs"
    trace = import_trace([path])
    job = only(trace)
    assert (job["duration_s"], job["gpus"], job["estimate_s"], job["source_id"]) == (100.0, 4, 200.0, "1")
    assert said in assumed(trace)


@pytest.mark.parametrize("line", [ROW.rsplit(" ", 1)[0], f"{ROW} 1 2", f"{ROW} 1 2 3 4", "x"])
def test_lines_of_another_width_are_rejected(imported, line):
    trace = imported(ROW, line)
    assert [(found.reason, found.first) for found in trace.report.rejected] == [
        ("not 18, 19 or 21 fields", ("log.swf:2",))
    ]


def test_minus_one_is_unknown_and_no_repair(imported):
    unknown = ("requested_s", "memory", "status", "user", "queue", "partition")
    trace = imported(changed(**dict.fromkeys(unknown, "-1")))
    job = only(trace)
    found = (job["estimate_s"], job["memory_mib"], job["status"], job["user"], job["group"])
    assert found == (None, 0, "unknown", "", "")
    assert trace.report.repaired == ()


@pytest.mark.parametrize(
    ("requested", "allocated", "gpus"), [("4", "8", 4), ("-1", "8", 8), ("0", "8", 8), ("4", "-1", 4)]
)
def test_requested_processors_go_before_allocated_ones(imported, requested, allocated, gpus):
    assert only(imported(changed(requested_procs=requested, procs=allocated)))["gpus"] == gpus


@pytest.mark.parametrize(
    ("number", "status"),
    [
        ("0", "failed"),
        ("1", "completed"),
        ("2", "completed"),
        ("3", "completed"),
        ("4", "failed"),
        ("5", "cancelled"),
        ("-1", "unknown"),
        ("77", "unknown"),
    ],
)
def test_statuses(imported, number, status):
    assert only(imported(changed(status=number)))["status"] == status


def test_user_queue_and_memory_of_all_processors(imported):
    job = only(imported(changed(memory="1025")))
    assert (job["user"], job["group"], job["memory_mib"]) == ("u7", "q2", 5)
    assert only(imported(changed(queue="-1")))["group"] == "q3"


@pytest.mark.parametrize(
    ("header", "nodes"),
    [
        (("; MaxNodes: 4", "; MaxProcs: 32"), (4, 8)),
        ((";MaxProcs:   32 (on 4 nodes)",), (32, 1)),
        (("; MaxNodes: 5", "; MaxProcs: 32"), (32, 1)),
        (("; MaxNodes: 6",), (6, 1)),
        (("; MaxNodes: -1", "; MaxProcs: 32"), (32, 1)),
    ],
)
def test_the_header_tells_the_cluster(imported, header, nodes):
    (group,) = imported(*header, ROW).cluster.nodes
    assert (group.count, group.gpus) == nodes


@pytest.mark.parametrize("header", ["; Computer: x", "; MaxProcs: -1", "; MaxProcs:", "; MaxProcs: many"])
def test_a_header_that_states_no_processors_gives_no_cluster(imported, header):
    assert imported(header, ROW).cluster is None


@pytest.mark.parametrize(
    "header",
    [
        ("; MaxProcs: 99999999",),
        ("; MaxProcs: " + "9" * 5000,),
        ("; MaxNodes: 2", "; MaxProcs: 99999998"),
        ("; MaxNodes: 99999999",),
    ],
)
def test_a_cluster_that_cannot_be_is_left_out_with_the_reason(imported, header):
    trace = imported(*header, ROW)
    assert trace.cluster is None
    assert "is left out, as no cluster can have them" in assumed(trace)


def test_the_clock_starts_at_the_unix_start_time(imported):
    trace = imported("; UnixStartTime: 1000000000", changed(submit="70"), changed(submit="50"))
    assert trace.workload.metadata.epoch_s == 1_000_000_050
    assert trace.workload.frame["submit_s"].to_list() == [0.0, 20.0]


@pytest.mark.parametrize("start", ["-5", "9" * 30, "9" * 5000])
def test_a_unix_start_time_that_cannot_be_is_not_used(imported, start):
    trace = imported(f"; UnixStartTime: {start}", ROW)
    assert trace.workload.metadata.epoch_s == 10
    assert "UnixStartTime" in assumed(trace)


def test_comments_and_blank_lines_may_be_anywhere(imported):
    trace = imported(
        "; MaxProcs: 8", ROW, "", "  ; a break", "; MaxProcs: 9", changed(job="2"), changed(run="0")
    )
    assert trace.workload.frame["source_id"].to_list() == ["1", "2"]
    assert trace.report.rows_read == 3
    assert trace.cluster.nodes[0].count == 8
    assert trace.report.rejected[0].first == ("log.swf:7",)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"run": "0"}, "never ran: run time is not positive"),
        ({"run": "-1"}, "never ran: run time is not positive"),
        ({"run": "nan"}, "run time is not a number of seconds"),
        ({"run": "1e300"}, "run time is more than 4294967296 s"),
        ({"submit": "nan"}, "submit is not a number of seconds"),
        ({"submit": "x"}, "submit is not a number of seconds"),
        ({"submit": "-5"}, "submit is negative or more than 4294967296 s"),
        ({"submit": "1e30"}, "submit is negative or more than 4294967296 s"),
        ({"requested_procs": "-1", "procs": "-1"}, "no processors"),
        ({"requested_procs": "2.5"}, "processors is not a whole number from 1 to 2147483647"),
        ({"requested_procs": "nan"}, "processors is not a whole number from 1 to 2147483647"),
        ({"requested_procs": "x"}, "processors is not a whole number from 1 to 2147483647"),
        ({"requested_procs": "1e30"}, "processors is not a whole number from 1 to 2147483647"),
        (
            {"requested_procs": "-1", "procs": "inf"},
            "processors is not a whole number from 1 to 2147483647",
        ),
    ],
)
def test_rows_that_are_no_jobs_are_rejected_with_their_lines(imported, values, reason):
    trace = imported("; a header", ROW, changed(**values), ROW, changed(**values))
    (found,) = trace.report.rejected
    assert (found.reason, found.rows, found.first) == (reason, 2, ("log.swf:3", "log.swf:5"))
    assert len(trace.workload) == 2


@pytest.mark.parametrize("value", ["x", "nan", "inf", "1e30"])
@pytest.mark.parametrize(
    ("field", "column", "unknown"), [("requested_s", "estimate_s", None), ("memory", "memory_mib", 0)]
)
def test_a_request_that_cannot_be_is_taken_as_unknown_and_reported(imported, field, column, unknown, value):
    trace = imported(ROW, changed(job="2", **{field: value}))
    assert trace.workload.frame[column][1] == unknown
    (found,) = trace.report.repaired
    assert found.reason.endswith("taken as unknown")
    assert found.first == ("log.swf:2",)


def test_lines_are_counted_across_pieces_of_the_file(imported, monkeypatch):
    lines = ["; MaxProcs: 8", *[ROW, changed(run="0"), changed(requested_s="x")] * 20]
    whole = imported(*lines)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 100)
    pieces = imported(*lines)
    assert pieces.workload.frame.equals(whole.workload.frame)
    assert pieces.report == whole.report
    assert rejected(whole) == {"never ran: run time is not positive": 20}
    assert list(repaired(whole).values()) == [20]


def test_a_log_of_which_nothing_is_left_is_refused_with_the_reason(imported):
    with pytest.raises(InputError, match=r"no job is left of 1 rows.*first at log.swf:2"):
        imported("; MaxProcs: 8", changed(run="-1"))


def test_only_one_log_at_a_time(tmp_path):
    other = tmp_path / "other.swf"
    other.write_bytes(SAMPLE.read_bytes())
    with pytest.raises(InputError, match="one SWF file at a time"):
        import_trace([SAMPLE, other])


def test_a_file_name_that_starts_with_a_dot_is_no_problem(imported):
    assert imported("; MaxProcs: 8", ROW, name=".swf").cluster.nodes[0].count == 8


@pytest.mark.parametrize(
    "head", [b"a b c\n", b"; only a header\n", ROW.replace(" ", ",").encode(), b"1 2 3\n"]
)
def test_other_files_are_not_taken_for_such_a_log(head):
    assert SwfFormat.role_of(head, "log.swf") is None


@given(data=st.data())
def test_damaged_logs_are_refused_or_accounted_for(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("swf") / "damaged.swf"
    path.write_bytes(data.draw(damaged(SAMPLE.read_bytes())))
    import_or_refuse([path], "swf")


_FIELD = st.sampled_from(("-1", "0", "1", "8", "2.5", "nan", "inf", "-inf", "1e30", "1e-9", "9" * 30, "x"))


@given(
    rows=st.lists(st.lists(_FIELD, min_size=18, max_size=21), min_size=1, max_size=6),
    header=st.sampled_from(("MaxProcs", "MaxNodes", "UnixStartTime")),
    value=_FIELD,
)
@example(rows=[["1"] * 18], header="MaxProcs", value="99999999")
def test_any_fields_are_refused_or_accounted_for(rows, header, value, tmp_path_factory):
    path = tmp_path_factory.mktemp("swf") / "fields.swf"
    lines = [f"; {header}: {value}", ROW, *(" ".join(row) for row in rows)]
    path.write_text("\n".join(lines))
    trace = import_or_refuse([path], "swf")
    assert trace is not None
    assert trace.report.rows_read == len(rows) + 1


@given(
    content=st.binary(min_size=1, max_size=300)
    | st.text("; -10.e9\n", min_size=1, max_size=300).map(str.encode)
)
def test_arbitrary_bytes_are_refused_or_accounted_for(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("swf") / "random.swf"
    path.write_bytes(content)
    import_or_refuse([path], "swf")
