"""PAI: tables of jobs, tasks, tags and machines, joined."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.pai import PaiFormat
from gpuyard.workload.readers.pai_tables import COLUMNS, TABLES
from gpuyard.workload.readers.requests import CPUS_ROUNDED, SHARES_ROUNDED
from support.damage import damaged, import_or_refuse
from support.paths import DATA
from support.reading import by_id, read_or_refuse, rejected, repaired

SAMPLES = DATA / "pai"
FILES = {role: SAMPLES / f"{table}.csv" for role, table in TABLES.items()}
JOBS, TASKS, TAGS, MACHINES = FILES.values()


def job_id(number: int) -> str:
    return f"aa{number:022d}"


def write(tmp_path: Path, jobs: list[str], tasks: list[str]) -> list[Path]:
    paths = [tmp_path / "pai_job_table.csv", tmp_path / "pai_task_table.csv"]
    for path, rows in zip(paths, (jobs, tasks), strict=True):
        path.write_text("\n".join(rows) + "\n")
    return paths


def as_tar_gz(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("role", FILES)
def test_tables_are_recognised_by_their_first_row_or_by_the_published_header(role):
    assert PaiFormat.role_of(FILES[role].read_bytes(), "x") == role
    assert PaiFormat.role_of(",".join(COLUMNS[role]).encode() + b"\n", "x") == role


def test_other_tables_are_not_recognised():
    instance = b"af724763f4f5d0be,worker,0d39aa86,54dbcd2d,e387fbc1,Terminated,2081336.0,2083889.0,471dda9e\n"
    assert PaiFormat.role_of(instance, "pai_job_table.csv") is None
    assert PaiFormat.role_of(b"job_id,arrival_s,service_sec,gpu_count\n", "pai_job_table.csv") is None


def test_a_header_line_is_not_taken_for_a_row(tmp_path):
    paths = []
    for role in ("jobs", "tasks"):
        paths.append(tmp_path / f"{role}.csv")
        paths[-1].write_text(",".join(COLUMNS[role]) + "\n" + FILES[role].read_text())
    with_header, without = import_trace(paths), import_trace([JOBS, TASKS])
    assert with_header.report.rows_read == without.report.rows_read
    assert with_header.workload.frame.equals(without.workload.frame)


def test_submission_is_the_jobs_start_and_run_time_that_of_its_tasks_together():
    job = by_id(import_trace([JOBS, TASKS]))[job_id(2)]
    assert (job["submit_s"], job["duration_s"]) == (10.0, 188.0)  # tasks 1012..1200 and 1015..1199


def test_one_instance_on_a_part_of_a_gpu_shares_it():
    job = by_id(import_trace([JOBS, TASKS]))[job_id(1)]
    assert (job["gpus"], job["gpu_milli"], job["cpus"], job["memory_mib"]) == (1, 500, 6, 30000)


def test_several_instances_on_parts_of_gpus_take_one_each_and_the_report_says_so():
    trace = import_trace([JOBS, TASKS])
    job = by_id(trace)[job_id(2)]
    assert (job["gpus"], job["gpu_milli"], job["cpus"]) == (4, 1000, 33)  # 2 x 4.5 + 4 x 6 CPUs
    assert repaired(trace)[SHARES_ROUNDED] == 1


def test_a_job_takes_the_gpus_of_all_instances_of_all_tasks():
    jobs = by_id(import_trace([JOBS, TASKS]))
    assert (jobs[job_id(3)]["gpus"], jobs[job_id(7)]["gpus"]) == (16, 3)


def test_a_job_without_planned_gpus_becomes_a_cpu_job_and_its_cpus_are_rounded_up():
    trace = import_trace([JOBS, TASKS])
    job = by_id(trace)[job_id(6)]
    assert (job["gpus"], job["gpu_milli"], job["cpus"], job["memory_mib"]) == (0, 1000, 8, 3072)
    assert repaired(trace)[CPUS_ROUNDED] == 1


def test_unfinished_jobs_are_rejected_with_their_reasons():
    assert rejected(import_trace([JOBS, TASKS])) == {
        "Waiting: never started": 1,
        "Running: no end": 1,
        "never ran: no task of it started": 1,
        "tasks of a job that is not in pai_job_table": 1,
    }


def test_a_task_that_did_not_end_leaves_the_run_time_to_the_others_and_is_reported():
    trace = import_trace([JOBS, TASKS])
    assert by_id(trace)[job_id(7)]["duration_s"] == 7939.0
    assert repaired(trace)["a task of it has no end: run time is that of its other tasks"] == 1


def test_failed_jobs_are_kept_with_their_status():
    jobs = by_id(import_trace([JOBS, TASKS]))
    assert (jobs[job_id(1)]["status"], jobs[job_id(2)]["status"]) == ("completed", "failed")


def test_types_are_those_asked_for_or_assigned_or_ignored():
    def types(**options: str) -> list:
        jobs = by_id(import_trace([JOBS, TASKS, TAGS], **options))
        return [jobs[job_id(number)]["gpu_types"] for number in (1, 2, 6, 7)]

    assert types() == types(gpu_type="asked") == [["MISC"], None, None, None]
    assert types(gpu_type="assigned") == [["MISC"], ["T4"], None, ["P100", "V100"]]
    assert types(gpu_type="ignore") == [None, None, None, None]


def test_types_asked_for_need_the_table_of_tags():
    with pytest.raises(InputError, match="pai_group_tag_table; give that table too"):
        import_trace([JOBS, TASKS], gpu_type="asked")
    assert any("any type" in text for text in import_trace([JOBS, TASKS]).report.assumed)


def test_tags_give_the_group_of_recurring_jobs_and_a_strange_tag_is_rejected():
    trace = import_trace([JOBS, TASKS, TAGS])
    assert by_id(trace)[job_id(3)]["group"] == "fb00000000000001"
    assert rejected(trace)["tag of a job that is not in pai_job_table"] == 1


def test_a_job_without_tasks_is_rejected_and_a_repeated_one_too(tmp_path):
    jobs = ["aa,1a,u,Terminated,5,9", "bb,1b,u,Terminated,5,9", "aa,1a,u,Failed,6,9"]
    trace = import_trace(write(tmp_path, jobs, ["aa,w,1.0,Terminated,5,9,100.0,1.0,100.0,T4"]))
    assert rejected(trace) == {"no task of it in pai_task_table": 1, "job_name is that of an earlier row": 1}


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("aa,w,0.0,Terminated,5,9,100.0,1.0,100.0,T4", "inst_num is no whole number above 0"),
        ("aa,w,1.0,Terminated,5,9,-1,1.0,100.0,T4", "a plan is negative"),
        ("aa,w,1.0,Terminated,5,soon,1,1.0,100.0,T4", "end_time is not a number"),
        ("aa,w,1.0,Terminated", "another number of fields than 10"),
    ],
)
def test_tasks_that_make_no_sense_are_rejected_with_the_reason(tmp_path, task, reason):
    good = "aa,w,1.0,Terminated,5,9,100.0,1.0,100.0,T4"
    trace = import_trace(write(tmp_path, ["aa,1a,u,Terminated,5,9"], [good, task]))
    assert rejected(trace) == {reason: 1}
    assert trace.workload.frame["gpus"].to_list() == [1]


def test_times_of_zero_count_as_absent(tmp_path):
    tasks = ["aa,w,1.0,Terminated,0.0,9,100.0,1.0,100.0,T4", "aa,v,1.0,Terminated,6,9,100.0,1.0,100.0,T4"]
    trace = import_trace(write(tmp_path, ["aa,1a,u,Terminated,5,9"], tasks))
    assert trace.workload.frame["duration_s"].to_list() == [3.0]


def test_the_table_of_jobs_alone_is_refused_with_what_is_missing():
    with pytest.raises(InputError, match="pai_task_table; give that table too"):
        import_trace([JOBS])


def test_the_table_of_machines_makes_the_cluster():
    cluster = import_trace([JOBS, TASKS, MACHINES]).cluster
    assert [(g.count, g.gpus, g.type, g.cpus, g.memory_mib) for g in cluster.nodes] == [
        (1, 0, "cpu", 96, 524288),
        (2, 2, "T4", 96, 524288),
        (1, 8, "V100M32", 96, 393216),
    ]


def test_tables_in_archives_are_read_like_plain_ones(tmp_path):
    archives = [
        as_tar_gz(tmp_path / f"{path.stem}.tar.gz", {path.name: path.read_bytes()}) for path in FILES.values()
    ]
    packed, plain = import_trace(archives), import_trace(list(FILES.values()))
    assert packed.workload.frame.equals(plain.workload.frame)
    assert packed.cluster.nodes == plain.cluster.nodes
    assert rejected(packed) == rejected(plain)


def test_an_archive_of_two_tables_is_refused(tmp_path):
    content = JOBS.read_bytes()
    archive = as_tar_gz(tmp_path / "pai.tar.gz", {"a.csv": content, "b.csv": content})
    with pytest.raises(InputError, match="unpack it and give the files"):
        import_trace([archive, TASKS])


def test_a_cut_off_archive_is_refused(tmp_path):
    whole = as_tar_gz(tmp_path / "whole.tar.gz", {"a.csv": JOBS.read_bytes() * 200}).read_bytes()
    cut = tmp_path / "cut.tar.gz"
    for size in (40, len(whole) // 2, len(whole) - 9):
        cut.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"cut\.tar\.gz"):
            import_trace([cut, TASKS], "pai")


@given(data=st.data(), gpu_type=st.sampled_from(["assigned", "ignore", "asked"]))
def test_damaged_tables_are_refused_or_accounted_for(tmp_path_factory, data, gpu_type):
    folder = tmp_path_factory.mktemp("pai")
    files = {}
    hurt = data.draw(st.sets(st.sampled_from(sorted(FILES)), min_size=1))
    for role, path in FILES.items():
        files[role] = [folder / path.name]
        content = path.read_bytes()
        files[role][0].write_bytes(data.draw(damaged(content)) if role in hurt else content)
    read_or_refuse("pai", files, gpu_type=gpu_type)


@given(data=st.data())
def test_damaged_archives_are_refused_or_accounted_for(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("pai")
    archive = as_tar_gz(folder / "a.tar.gz", {"pai_job_table.csv": JOBS.read_bytes()})
    packed = folder / "b.tar"
    with tarfile.open(archive) as content:
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as copy:
            member = content.next()
            copy.addfile(member, content.extractfile(member))
    packed.write_bytes(data.draw(damaged(plain.getvalue())))
    read_or_refuse("pai", {"jobs": [packed], "tasks": [TASKS]})


@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("pai") / "jobs.csv"
    path.write_bytes(data)
    assert import_or_refuse([path], "pai") is None
    read_or_refuse("pai", {"jobs": [path], "tasks": [TASKS]})
    read_or_refuse("pai", {"jobs": [JOBS], "tasks": [path]})
