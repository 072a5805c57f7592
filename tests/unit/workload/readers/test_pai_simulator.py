"""The table of the PAI trace's simulator."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.pai_simulator import PaiSimulatorFormat
from gpuyard.workload.readers.requests import CPUS_ROUNDED, SHARES_ROUNDED
from support.damage import damaged, import_or_refuse
from support.paths import DATA
from support.reading import by_id, rejected, repaired

SAMPLE = DATA / "pai-simulator" / "pai_job.csv"
HEADER = "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user"


def write(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "pai_job_no_estimate_100K.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_both_forms_of_the_table_are_recognised_by_their_header():
    assert PaiSimulatorFormat.role_of(SAMPLE.read_bytes(), "x") == "jobs"
    assert PaiSimulatorFormat.role_of(HEADER.encode() + b"\n", "x") == "jobs"
    assert PaiSimulatorFormat.role_of(b"job_id,duration,num_gpu\n", "pai_job_no_estimate_100K.csv") is None


def test_requests_count_gpus_and_a_part_of_one_is_a_share():
    jobs = by_id(import_trace([SAMPLE]))
    assert (jobs["0"]["gpus"], jobs["0"]["gpu_milli"], jobs["0"]["cpus"]) == (1, 500, 6)
    assert (jobs["3"]["gpus"], jobs["3"]["gpu_milli"]) == (2, 1000)


def test_requests_in_percent_are_read_so_when_the_user_says_it(tmp_path):
    path = write(tmp_path, "0,1,0,600,50,T4,10,u", "1,1,0,600,200,T4,10,u")
    with pytest.raises(InputError, match=r"GPUs or percent of one; say which with `option\.unit=gpus`"):
        import_trace([path])
    frame = import_trace([path], unit="percent").workload.frame
    assert frame.select("gpus", "gpu_milli", "cpus").rows() == [(1, 500, 6), (2, 1000, 6)]
    lenient = import_trace([path], strict=False)
    assert lenient.workload.frame["gpus"].to_list() == [50, 200]
    assert any("assumed that it counts GPUs" in text for text in lenient.report.assumed)


def test_requests_of_jobs_with_several_instances_are_ambiguous_until_the_user_says_whose_they_are(tmp_path):
    path = write(tmp_path, "0,4,0,6,0.5,T4,10,u")
    with pytest.raises(InputError, match=r"say which with `option\.request=job`"):
        import_trace([path])
    of_job = import_trace([path], request="job")
    assert of_job.workload.frame.select("gpus", "gpu_milli", "cpus").row(0) == (1, 500, 6)
    each = import_trace([path], request="instance")
    assert each.workload.frame.select("gpus", "gpu_milli", "cpus").row(0) == (4, 1000, 24)
    assert repaired(each) == {SHARES_ROUNDED: 1}


def test_a_duration_that_is_not_positive_becomes_one_second_as_in_the_simulator():
    trace = import_trace([SAMPLE])
    assert by_id(trace)["3"]["duration_s"] == 1.0
    assert repaired(trace) == {"duration is not positive: 1 s, as the simulator takes it": 1, CPUS_ROUNDED: 1}


def test_the_estimate_is_that_of_the_most_specific_group_of_like_jobs():
    jobs = by_id(import_trace([SAMPLE]))
    assert [jobs[name]["estimate_s"] for name in "012"] == [85.0, 4000.0, None]


def test_cpu_jobs_may_use_any_type_and_gpu_jobs_the_one_they_ran_on():
    jobs = by_id(import_trace([SAMPLE]))
    assert (jobs["2"]["gpus"], jobs["2"]["gpu_types"], jobs["1"]["gpu_types"]) == (0, None, ["V100"])
    assert by_id(import_trace([SAMPLE], gpu_type="ignore"))["1"]["gpu_types"] is None


def test_users_and_groups_of_recurring_jobs_are_kept():
    jobs = by_id(import_trace([SAMPLE]))
    assert (jobs["1"]["user"], jobs["1"]["group"], jobs["2"]["group"]) == ("u2", "g2", "")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,1,,6,1,T4,10,u", "no submit_time"),
        ("1,1,0,6,1,T4,,u", "no duration"),
        ("1,1,0,6,-1,T4,10,u", "num_gpu or num_cpu is negative"),
        ("1,0,0,6,1,T4,10,u", "num_inst is no whole number above 0"),
        ("1,1,0,0,0,CPU,10,u", "asks for neither GPUs nor CPUs"),
        ("1,1,0,6,one,T4,10,u", "num_gpu is not a number"),
    ],
)
def test_rows_that_make_no_sense_are_rejected_with_the_reason(tmp_path, row, reason):
    assert rejected(import_trace([write(tmp_path, "0,1,0,6,1,T4,10,u", row)])) == {reason: 1}


@given(data=damaged(SAMPLE.read_bytes()), strict=st.booleans())
def test_damaged_tables_are_refused_or_accounted_for(tmp_path_factory, data, strict):
    path = tmp_path_factory.mktemp("pai") / "jobs.csv"
    path.write_bytes(data)
    import_or_refuse([path], "pai-simulator", strict=strict)


@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("pai") / "jobs.csv"
    path.write_bytes(data)
    assert import_or_refuse([path], "pai-simulator") is None
