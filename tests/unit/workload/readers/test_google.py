"""Google's traces of 2011 and 2019: jobs made of events."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import chunks, import_trace
from gpuyard.workload.readers import google_events
from gpuyard.workload.readers.google_2011 import Google2011Format
from gpuyard.workload.readers.google_2019 import Google2019Format
from support.damage import damaged
from support.paths import DATA
from support.reading import by_id, read_or_refuse, rejected

PART = "part-00000-of-00001"
FILES_2011 = {
    "jobs": DATA / "google-2011" / f"{PART}-task_events.csv",
    "job-events": DATA / "google-2011" / f"{PART}-job_events.csv",
    "machines": DATA / "google-2011" / f"{PART}-machine_events.csv",
}
FILES_2019 = {
    "jobs": DATA / "google-2019" / "instance_events.json",
    "collections": DATA / "google-2019" / "collection_events.json",
    "machines": DATA / "google-2019" / "machine_events.json",
}
TASKS = FILES_2011["jobs"]
INSTANCES = FILES_2019["jobs"]


def task_events(tmp_path: Path, *events: tuple[float, int, int, int], name: str = "part.csv") -> Path:
    """Events (seconds, job, task, type) as a part of task_events."""
    path = tmp_path / name
    rows = (f"{int(s * 1e6)},,{job},{task},1,{kind},u,1,2,0.25,0.125,0,0" for s, job, task, kind in events)
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(("role", "path"), FILES_2011.items())
def test_parts_of_2011_are_recognised_by_their_rows(role, path):
    assert Google2011Format.role_of(path.read_bytes(), "x") == role
    assert Google2019Format.role_of(path.read_bytes(), "x") is None


@pytest.mark.parametrize(("role", "path"), FILES_2019.items())
def test_tables_of_2019_are_recognised_by_their_keys(role, path):
    assert Google2019Format.role_of(path.read_bytes(), "x") == role
    assert Google2011Format.role_of(path.read_bytes(), "x") is None


def test_a_job_runs_from_the_first_schedule_to_the_last_finish_across_an_eviction():
    trace = import_trace([TASKS])
    job = by_id(trace)["201"]
    assert (job["submit_s"], job["duration_s"], job["status"]) == (0.0, 99.5, "completed")
    assert trace.workload.metadata.epoch_s == 600.0
    assert any("1 evictions in 1 jobs" in text for text in trace.report.assumed)


def test_a_job_asks_for_the_cpus_of_all_its_tasks_as_parts_of_the_stated_machine():
    job = by_id(import_trace([TASKS], machine_cpus=32, machine_memory_gib=100))["201"]
    assert (job["gpus"], job["cpus"], job["memory_mib"]) == (0, 4, 6144)


def test_a_request_that_is_told_later_counts():
    assert by_id(import_trace([TASKS]))["202"]["memory_mib"] == 65536


def test_jobs_outside_the_window_are_rejected_with_their_reasons():
    assert rejected(import_trace(list(FILES_2011.values()))) == {
        "was there before the trace's start (time 0)": 1,
        "never ran: no task of it was scheduled within the trace": 1,
        "still running at the trace's end: a task of it does not stop": 1,
        "no event of a task of it": 1,
    }


def test_priority_user_and_class_are_kept_and_a_killed_job_is_cancelled():
    job = by_id(import_trace([TASKS]))["202"]
    assert (job["priority"], job["user"], job["group"], job["status"]) == (
        0.0,
        "usrC=",
        "class-1",
        "cancelled",
    )


def test_a_kill_while_a_task_waits_again_does_not_lengthen_the_run(tmp_path):
    path = task_events(
        tmp_path, (600, 1, 0, 0), (610, 1, 0, 1), (650, 1, 0, 2), (650, 1, 0, 0), (900, 1, 0, 5)
    )
    assert import_trace([path]).workload.frame["duration_s"].to_list() == [40.0]


def test_gpus_are_invented_only_when_asked_for_and_labelled():
    plain, made = import_trace([TASKS]), import_trace([TASKS], gpus_per_cpu=0.25)
    assert set(plain.workload.frame["gpus"]) == {0}
    assert by_id(made)["201"]["gpus"] == 2  # two tasks of 4 CPUs, a GPU each
    assert by_id(made)["202"]["gpus"] == 8
    metadata = made.workload.metadata
    assert metadata.name == "google-2011-synthetic-gpu"
    assert "synthetic-gpu" in metadata.source
    assert metadata.history[0].settings["gpus_per_cpu"] == 0.25
    assert any(text.startswith("synthetic-gpu") for text in made.report.assumed)


def test_machines_count_once_with_their_last_size_and_those_of_unknown_size_are_left_out():
    trace = import_trace(list(FILES_2011.values()), gpus_per_cpu=0.125)
    nodes = [(g.count, g.gpus, g.type, g.cpus, g.memory_mib) for g in trace.cluster.nodes]
    assert nodes == [
        (1, 8, "synthetic-gpu", 64, 262144),
        (1, 4, "synthetic-gpu", 32, 130940),
        (1, 4, "synthetic-gpu", 32, 65352),
    ]
    assert any("1 machines of unknown size" in text for text in trace.report.assumed)


def test_parts_in_any_order_and_compressed_give_the_same_jobs(tmp_path):
    rows = TASKS.read_bytes().splitlines(keepends=True)
    rows.sort(key=lambda row: int(row.split(b",")[0]))
    whole = tmp_path / "whole.csv"
    whole.write_bytes(b"".join(rows))
    parts = [tmp_path / f"part-{number:05d}-of-00003.csv.gz" for number in range(3)]
    for number, path in enumerate(parts):
        path.write_bytes(gzip.compress(b"".join(rows[number * 7 : number * 7 + 7])))
    assert import_trace(parts[::-1]).workload.frame.equals(import_trace([whole]).workload.frame)


def test_pieces_of_a_file_are_folded_into_the_same_jobs(tmp_path, monkeypatch):
    events = []
    for job in range(40):
        for task in range(job % 4 + 1):
            start = 600 + 10 * job + task
            events += [(start, job, task, 0), (start + 1, job, task, 1), (start + 20, job, task, 2)]
            events += [(start + 20, job, task, 0), (start + 30, job, task, 1), (start + 70, job, task, 4)]
    path = task_events(tmp_path, *sorted(events))
    at_once = import_trace([path])
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 300)
    monkeypatch.setattr(google_events, "_TASKS_AT_ONCE", 10)
    in_pieces = import_trace([path])
    assert at_once.workload.frame.equals(in_pieces.workload.frame)
    assert at_once.workload.frame["duration_s"].min() == 69.0
    assert at_once.report == in_pieces.report


def durations_one_by_one(events: list[tuple[int, int, int, int]]) -> dict[str, float]:
    """Run times of jobs, found by following each task from event to event."""
    submitted = {job for _, job, _, kind in events if kind == 0}
    first: dict[tuple[int, int], int] = {}
    stopped: dict[tuple[int, int], int | None] = {}
    for time, job, task, kind in events:
        if kind == 1:
            first.setdefault((job, task), time)
            stopped[job, task] = None
        elif kind in (2, 3, 4, 5, 6) and (job, task) in stopped and stopped[job, task] is None:
            stopped[job, task] = time
    found = {}
    for job in submitted:
        starts = [time for (owner, _), time in first.items() if owner == job]
        ends = [time for (owner, _), time in stopped.items() if owner == job]
        if starts and None not in ends:
            found[str(job)] = float(max(ends) - min(starts))
    return found


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from([0, 1, 1, 2, 3, 4, 5, 6, 7, 8])),
        min_size=1,
        max_size=60,
    ),
    piece_bytes=st.sampled_from([100, 300, 32 * 1024 * 1024]),
)
@example(steps=[(3, 0, 0), (3, 1, 1), (3, 1, 2), (3, 0, 2)], piece_bytes=100)
@example(steps=[(3, 0, 0), (3, 1, 1), (3, 1, 2), (3, 0, 2)], piece_bytes=32 * 1024 * 1024)
def test_folding_agrees_with_following_each_task(tmp_path_factory, steps, piece_bytes):
    events = [(600 + number, *step) for number, step in enumerate(steps)]
    path = task_events(tmp_path_factory.mktemp("google"), *events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", piece_bytes)
        patch.setattr(google_events, "_TASKS_AT_ONCE", 3)
        trace = read_or_refuse("google-2011", {"jobs": [path]})
    found = {} if trace is None else {name: job["duration_s"] for name, job in by_id(trace).items()}
    assert found == durations_one_by_one(events)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("soon,,1,0,1,0,u,1,2,0.5,0.1,0,0", "time is no whole number of microseconds"),
        ("9999999999999999,,1,0,1,0,u,1,2,0.5,0.1,0,0", "time is beyond 4294967296 s"),
        ("600000000,,x,0,1,0,u,1,2,0.5,0.1,0,0", "the job's id is no whole number"),
        ("600000000,,1,,1,0,u,1,2,0.5,0.1,0,0", "the task's index is no whole number"),
        ("600000000,,1,0,1,9,u,1,2,0.5,0.1,0,0", "type of event is unknown"),
        ("600000000,,1,0,1,0,u,1,2,half,0.1,0,0", "cpu is not a number"),
        ("600000000,,1,0,1,0,u,1,2,-1,0.1,0,0", "a request is negative"),
    ],
)
def test_events_that_make_no_sense_are_rejected_with_the_reason(tmp_path, row, reason):
    path = task_events(tmp_path, (600, 7, 0, 0), (601, 7, 0, 1), (602, 7, 0, 4))
    path.write_text(path.read_text() + row + "\n")
    assert rejected(import_trace([path])) == {reason: 1}


def test_events_of_2019_have_their_own_numbers():
    trace = import_trace(list(FILES_2019.values()))
    job = by_id(trace)["380000000201"]
    assert (job["duration_s"], job["status"], job["user"], job["priority"]) == (
        60.0,
        "completed",
        "usrB=",
        103.0,
    )
    assert (job["cpus"], job["memory_mib"]) == (4, 4096)


def test_alloc_sets_are_no_jobs():
    assert rejected(import_trace([INSTANCES])) == {
        "an alloc set: it holds resources for jobs and is none itself": 1,
        "was there before the trace's start (time 0)": 1,
    }


def test_machines_of_2019_make_the_cluster():
    cluster = import_trace(list(FILES_2019.values())).cluster
    assert [(g.count, g.cpus, g.memory_mib) for g in cluster.nodes] == [(1, 64, 131072), (1, 32, 131072)]


@pytest.mark.parametrize("separator", [".", "_"])
def test_csv_exports_of_2019_give_the_same_jobs(tmp_path, separator):
    rows = [json.loads(line) for line in INSTANCES.read_text().splitlines()]
    for row in rows:
        for key, value in row.pop("resource_request").items():
            row[f"resource_request{separator}{key}"] = value
    path = tmp_path / "instance_events.csv"
    pl.DataFrame(rows, infer_schema_length=None).write_csv(path)
    assert import_trace([path]).workload.frame.equals(import_trace([INSTANCES]).workload.frame)


def test_event_types_may_be_names_and_numbers_need_no_quotes(tmp_path):
    names = ["SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL"]
    rows = [json.loads(line) for line in INSTANCES.read_text().splitlines()]
    for row in rows:
        row.update(
            type=names[int(row["type"])], time=int(row["time"]), collection_id=int(row["collection_id"])
        )
        row["collection_type"] = ("JOB", "ALLOC_SET")[int(row["collection_type"])]
    path = tmp_path / "instance_events.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert import_trace([path]).workload.frame.equals(import_trace([INSTANCES]).workload.frame)


def test_a_line_that_is_no_json_object_is_rejected_and_the_others_are_read(tmp_path):
    path = tmp_path / "instance_events.json"
    path.write_text(INSTANCES.read_text() + '{"time": \n[1]\n{"time":{"a":1}}\n')
    trace = import_trace([path])
    assert rejected(trace)["is no JSON object with these keys"] == 3
    assert trace.workload.frame.equals(import_trace([INSTANCES]).workload.frame)


def test_a_machine_event_that_cannot_be_read_is_refused_and_named(tmp_path):
    path = tmp_path / "machine_events.csv"
    path.write_text("0,5,0,p,0.5,0.5\n0,6,0,p,half,0.5\n")
    with pytest.raises(InputError, match=r"cpu is not a number \(first at machine_events.csv:2\)"):
        import_trace([TASKS, path])


def test_a_machine_size_that_cannot_be_is_refused():
    with pytest.raises(InputError, match=r"`option\.machine_cpus=0`: expected 1 or more"):
        import_trace([TASKS], machine_cpus=0)


@given(data=st.data(), gpus_per_cpu=st.sampled_from([None, 0.25, 1000.0]))
@pytest.mark.parametrize(("name", "paths"), [("google-2011", FILES_2011), ("google-2019", FILES_2019)])
def test_damaged_files_are_refused_or_accounted_for(tmp_path_factory, name, paths, data, gpus_per_cpu):
    folder = tmp_path_factory.mktemp("google")
    files = {}
    hurt = data.draw(st.sets(st.sampled_from(sorted(paths)), min_size=1))
    for role, path in paths.items():
        files[role] = [folder / path.name]
        content = path.read_bytes()
        files[role][0].write_bytes(data.draw(damaged(content)) if role in hurt else content)
    read_or_refuse(name, files, gpus_per_cpu=gpus_per_cpu)


@given(data=st.binary(max_size=300))
@pytest.mark.parametrize("name", ["google-2011", "google-2019"])
def test_random_bytes_are_refused(tmp_path_factory, name, data):
    path = tmp_path_factory.mktemp("google") / "events"
    path.write_bytes(data)
    assert read_or_refuse(name, {"jobs": [path]}) is None
