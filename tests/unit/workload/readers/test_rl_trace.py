"""Reading RLTune's traces: two widths, absent values, types, order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.workload import import_trace
from gpuyard.workload.readers.rl_trace import RlTrace
from support.damage import damaged, import_or_refuse
from support.paths import DATA

SAMPLE = DATA / "rl-trace" / "trace.csv"
ROW = ["j", "10", "0", "25", "8", "-1", "-1", "-1", "-1", "-1", "1", "2", "1", "-1", "0", "-1", "-1"]


@pytest.fixture
def imported(tmp_path):
    def run(*rows, **options):
        path = tmp_path / "trace.csv"
        path.write_text("".join(",".join(row) + "\n" for row in rows))
        return import_trace([path], "rl-trace", **options)

    return run


def only(trace):
    assert len(trace.workload) == 1, trace.report
    return trace.workload.frame.row(0, named=True)


def changed(**values):
    places = {"submit": 1, "run": 3, "gpus": 4, "cpus": 7, "requested": 8, "memory": 9, "status": 10}
    row = [*ROW, "3", "2"]
    for name, value in values.items():
        row[places[name]] = value
    return row


def test_both_widths_put_cluster_and_type_at_the_end(imported):
    for row in ([*ROW, "3", "2"], [*ROW, "77", "3", "2"]):
        job = only(imported(row))
        assert (job["group"], job["gpu_types"]) == ("3", ["P100"])


def test_rows_need_not_be_sorted():
    jobs = import_trace([SAMPLE]).workload.frame
    assert jobs["source_id"].to_list() == ["bert-1", "deepspeech2-0_1", "lm-3"]
    assert jobs["submit_s"].to_list() == [0, 101, 200]


def test_minus_one_is_absent(imported):
    job = only(imported([*ROW[:11], "-1", *ROW[12:], "-1", "-1"]))
    assert (job["user"], job["group"], job["gpu_types"], job["cpus"], job["estimate_s"]) == (
        "",
        "",
        None,
        0,
        None,
    )


@pytest.mark.parametrize(
    ("number", "name"), [("0", "T4"), ("1", "MISC"), ("2", "P100"), ("3", "V100"), ("4", "V100M32")]
)
def test_types_have_the_names_of_the_pai_preset(imported, number, name):
    assert only(imported([*ROW, "-1", number]))["gpu_types"] == [name]


def test_types_may_be_left_out_and_unknown_ones_are_reported(imported):
    assert only(imported([*ROW, "-1", "0"], gpu_types="ignore"))["gpu_types"] is None
    trace = imported([*ROW, "-1", "9"])
    assert only(trace)["gpu_types"] is None
    assert trace.report.repaired[0].reason == "a GPU type that is not 0 to 4: taken as any"


def test_requests_and_statuses_are_read(imported):
    job = only(imported(changed(requested="600", cpus="4", status="5")))
    assert (job["estimate_s"], job["cpus"], job["status"]) == (600, 4, "cancelled")
    assert only(imported(changed(status="2")))["status"] == "unknown"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"run": "0"}, "never ran: run time is not positive"),
        ({"run": "-1"}, "never ran: run time is not positive"),
        ({"run": "nan"}, "a field that should be a number is not"),
        ({"run": "1e300"}, "runs for more than 136 years"),
        ({"submit": "x"}, "a field that should be a number is not"),
        ({"submit": "-5"}, "submitted before the trace's start"),
        ({"gpus": "-1"}, "no number of GPUs"),
        ({"gpus": "1.5"}, "a number of GPUs or CPUs is not whole or too large"),
        ({"cpus": "1e12"}, "a number of GPUs or CPUs is not whole or too large"),
    ],
)
def test_rows_that_are_no_jobs_are_rejected(imported, values, reason):
    trace = imported(changed(), changed(**values))
    assert [(found.reason, found.first) for found in trace.report.rejected] == [(reason, ("trace.csv:2",))]


def test_rows_of_another_width_are_rejected(imported):
    trace = imported(changed(), ROW, [*changed(), "1", "2"])
    assert trace.report.rejected[0].rows == 2


@pytest.mark.parametrize(
    "head", [b"a,b,c\n", b",".join([b"x"] * 19) + b"\n", b",".join([b"1"] * 18), b",".join([b"1"] * 21)]
)
def test_other_tables_are_not_taken_for_such_a_trace(head):
    assert RlTrace.role_of(head, "trace.csv") is None


@given(data=st.data())
def test_damaged_traces_are_refused_or_accounted_for(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("rl") / "damaged.csv"
    path.write_bytes(data.draw(damaged(SAMPLE.read_bytes())))
    import_or_refuse([path], "rl-trace")


@given(
    content=st.binary(min_size=1, max_size=300)
    | st.text(",-10.e9\n", min_size=1, max_size=300).map(str.encode)
)
def test_arbitrary_bytes_are_refused_or_accounted_for(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("rl") / "random.csv"
    path.write_bytes(content)
    import_or_refuse([path], "rl-trace")
