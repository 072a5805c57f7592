"""Reading Gavel's traces: widths, run times from the table of throughputs, deadlines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from support.damage import damaged, import_or_refuse
from support.paths import DATA

SAMPLES = DATA / "gavel"
TRACE, TABLE = SAMPLES / "small.trace", SAMPLES / "simulation_throughputs.json"
TABLE_OF_ONE = """{"v100": {"('a', 1)": {"null": RATE}}}"""
STATED = SAMPLES / "durations" / "dynamic.trace"


@pytest.fixture(scope="module")
def jobs():
    rows = import_trace([TRACE, TABLE]).workload.frame.to_dicts()
    return {row["source_id"]: row for row in rows}


def line(steps="50", gpus="1", arrival="0", slo="-1", priority="1", job_type="LM (batch size 10)"):
    return "\t".join((job_type, "python main.py", "--steps", "1", steps, gpus, priority, slo, arrival)) + "\n"


@pytest.fixture
def imported(tmp_path):
    def run(*lines, table=TABLE, **options):
        path = tmp_path / "jobs.trace"
        path.write_text("".join(lines))
        return import_trace([path, table], "gavel", **options)

    return run


def test_run_time_is_steps_over_the_throughput_of_job_type_and_scale_factor(jobs):
    assert (jobs["0"]["duration_s"], jobs["0"]["gpus"]) == (600 / 8, 2)
    assert (jobs["1"]["duration_s"], jobs["1"]["gpus"]) == (197.4, 1)


def test_traces_of_7_9_and_10_columns_are_read(jobs):
    assert (jobs["3"]["submit_s"], jobs["3"]["duration_s"]) == (12.5, 10)
    assert (jobs["4"]["submit_s"], jobs["4"]["duration_s"]) == (13.5, 10)
    assert (jobs["0"]["submit_s"], jobs["1"]["priority"]) == (30, 5)


def test_the_order_of_the_two_files_does_not_matter(jobs):
    assert len(import_trace([TABLE, TRACE]).workload) == len(jobs)


def test_an_slo_is_a_deadline_in_multiples_of_the_run_time(jobs):
    assert jobs["1"]["deadline_s"] == pytest.approx(2 * 197.4)
    assert jobs["0"]["deadline_s"] is None


def test_the_gpu_type_chooses_the_throughput(imported):
    assert imported(line()).workload.frame["duration_s"].to_list() == [10]
    assert imported(line(), gpu_type="k80").workload.frame["duration_s"].to_list() == [50]


def test_a_misspelt_gpu_type_is_refused_with_what_is_close():
    with pytest.raises(InputError, match=r"simulation_throughputs\.json, key 'v10'.*did you mean 'v100'"):
        import_trace([TRACE, TABLE], gpu_type="v10")


def test_a_job_type_without_throughput_is_rejected():
    report = import_trace([TRACE, TABLE]).report
    assert [(found.reason, found.first) for found in report.rejected] == [
        ("no throughput of its job type and scale factor on a v100", ("small.trace:3",))
    ]


def test_a_throughput_of_zero_means_that_the_job_cannot_run_there(imported, tmp_path):
    table = tmp_path / "table.json"
    rates = {"('LM (batch size 10)', 1)": {"null": 0.0}, "('LM (batch size 10)', 2)": {"null": 1.0}}
    table.write_text(json.dumps({"v100": rates}))
    trace = imported(line(), line(gpus="2"), table=table)
    assert [found.reason for found in trace.report.rejected] == ["cannot run on a v100: its throughput is 0"]


def test_without_a_table_the_durations_of_the_trace_count():
    jobs = import_trace([STATED]).workload.frame
    assert jobs["duration_s"].to_list() == [1418, 3338]
    assert jobs["deadline_s"].to_list() == [None, pytest.approx(55 + 1.2 * 3338)]


def test_without_a_table_and_durations_the_missing_file_is_named():
    with pytest.raises(InputError, match=r"small\.trace, line 1: .*add simulation_throughputs\.json"):
        import_trace([TRACE])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"steps": "0"}, "the number of steps is not positive"),
        ({"steps": "many"}, "a field that should be a number is not"),
        ({"gpus": "0"}, "the scale factor is not a number of GPUs"),
        ({"gpus": "1.5"}, "the scale factor is not a number of GPUs"),
        ({"arrival": "-1"}, "arrives before the trace's start"),
        ({"arrival": "1e300"}, "arrives more than 136 years after the trace's start"),
        ({"steps": "1e300"}, "runs for more than 136 years"),
    ],
)
def test_rows_that_are_no_jobs_are_rejected(imported, values, reason):
    trace = imported(line(), line(**values))
    assert [(found.reason, found.first) for found in trace.report.rejected] == [(reason, ("jobs.trace:2",))]


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"v100": 3}',
        '{"v100": {"x": 1}}',
        "[" * 100_000,
        *(TABLE_OF_ONE.replace("RATE", rate) for rate in ("true", "NaN", "1e999", "-1" + "0" * 400)),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, content):
    table = tmp_path / "table.json"
    table.write_text(content)
    with pytest.raises(InputError, match=r"table\.json"):
        import_trace([TRACE, table], "gavel")


def test_a_table_with_half_a_character_in_a_name_is_refused(imported, tmp_path):
    table = tmp_path / "table.json"
    entries = {"('\ud800', 1)": {"null": 1.0}, "('LM (batch size 10)', 1)": {"null": 1.0}}
    table.write_text(json.dumps({"v100": entries}))
    with pytest.raises(InputError, match=r"table\.json: .*half of a UTF-16 pair.*; fetch it again"):
        imported(line(), table=table)


@given(data=st.data())
def test_damaged_traces_and_tables_are_refused_or_accounted_for(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gavel")
    paths = [folder / "damaged.trace", folder / "damaged.json"]
    for path, sample in zip(paths, (TRACE, TABLE), strict=True):
        content = sample.read_bytes()
        path.write_bytes(data.draw(st.just(content) | damaged(content)))
    import_or_refuse(paths, "gavel")


@given(data=st.data())
def test_damaged_traces_with_durations_are_refused_or_accounted_for(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("gavel") / "damaged.trace"
    path.write_bytes(data.draw(damaged(STATED.read_bytes()) | st.binary(min_size=1, max_size=300)))
    import_or_refuse([path], "gavel")
