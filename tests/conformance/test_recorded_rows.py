"""The row ``recorded`` has the waits that the log itself has, read here straight from the file.

What is read here knows nothing of the readers: it splits lines and subtracts times. Which rows of a file
become jobs is the readers' business, so the rows are looked up by the ids of the jobs.
"""

import csv
import gzip
import io
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

import pytest

from gpuyard.cluster.model import Cluster, NodeGroup
from gpuyard.policies.base import RECORDED
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, import_trace, workload_formats
from support.paths import DATA

Waits = dict[str, list[float]]
"""Waits of every run of a job, by the log's own id."""

HUGE = Cluster(name="huge", nodes=(NodeGroup(count=4096, gpus=64, type="gpu"),))


def text_of(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", errors="replace")


def gathered(pairs: Iterable[tuple[str, float]]) -> Waits:
    waits: Waits = defaultdict(list)
    for id, wait_s in pairs:
        waits[id].append(wait_s)
    return waits


def between(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


def csv_waits(id: str, submit: str, start: str) -> Callable[[Path], Waits]:
    """Of tables with a header and times with or without an offset."""

    def read(path: Path) -> Waits:
        rows = csv.DictReader(io.StringIO(text_of(path)))
        return gathered((row[id], between(row[submit], row[start])) for row in rows if row[start])

    return read


def sacct_waits(path: Path) -> Waits:
    """Fields of the last three dates before the elapsed time: submit (eligible) start; the id is first."""
    pairs = []
    for line in text_of(path).splitlines():
        fields = line.split("|")
        times = [field for field in fields if len(field) == 19 and field[4] == "-" and field[10] == "T"]
        id = next((field for field in fields if field[:1].isdigit()), "")
        if len(times) < 2 or "." in id:
            continue
        # XDMoD's and AWS' orders have the time a job became eligible between submit and start.
        has_eligible = len(times) >= 4
        started = times[2 if has_eligible else 1]
        pairs += [(one, between(times[0], started)) for one in array_tasks(id)]
    return gathered(pairs)


def array_tasks(id: str) -> list[str]:
    """``7_[1-2,5%3]`` as 7_1, 7_2, 7_5."""
    if "[" not in id:
        return [id]
    head, _, rest = id.partition("_[")
    tasks: list[str] = []
    for part in rest.rstrip("]").partition("%")[0].split(","):
        first, _, last = part.partition("-")
        tasks += [f"{head}_{number}" for number in range(int(first), int(last or first) + 1)]
    return tasks


def slurm_json_waits(path: Path) -> Waits:
    pairs = []
    for job in json.loads(text_of(path))["jobs"]:
        array, task = job["array"], job["array"]["task_id"]
        number = task["number"] if isinstance(task, dict) else task
        id = f"{array['job_id']}_{number}" if array["job_id"] else str(job["job_id"])
        if job["het"]["job_id"]:
            offset = job["het"]["job_offset"]
            id = f"{job['het']['job_id']}+{offset['number'] if isinstance(offset, dict) else offset}"
        pairs.append((id, float(job["time"]["start"] - job["time"]["submission"])))
    return gathered(pairs)


def jobcomp_waits(path: Path) -> Waits:
    pairs = []
    for line in text_of(path).splitlines():
        values = dict(part.partition("=")[::2] for part in line.split(" ") if "=" in part)
        array = f"{values['ArrayJobId']}_{values['ArrayTaskId']}" if "ArrayJobId" in values else None
        if values["StartTime"] != "Unknown":
            pairs.append((array or values["JobId"], between(values["SubmitTime"], values["StartTime"])))
    return gathered(pairs)


def lsf_waits(path: Path) -> Waits:
    """eventType version eventTime jobId userId options numProcessors submitTime beginTime termTime start."""
    pairs = []
    for line in text_of(path).splitlines():
        fields = line.split(" ", 11)
        if fields[0] == '"JOB_FINISH"' and fields[10] != "0":
            pairs.append((fields[3], float(fields[10]) - float(fields[7])))
    return gathered(pairs)


def swf_waits(path: Path) -> Waits:
    rows = [line.split() for line in text_of(path).splitlines() if line.strip() and line[0] != ";"]
    return gathered((row[0], float(row[2])) for row in rows)


def rl_waits(path: Path) -> Waits:
    return gathered((row[0], float(row[2])) for row in csv.reader(io.StringIO(text_of(path))))


def philly_waits(path: Path) -> Waits:
    """To the first attempt that has a start and an end behind it."""
    pairs = []
    for record in json.loads(text_of(path)):
        whole = [
            attempt["start_time"]
            for attempt in record["attempts"]
            if "None" not in (attempt["start_time"] or "None", attempt["end_time"] or "None")
            and attempt["end_time"] >= attempt["start_time"]
        ]
        if whole:
            pairs.append(
                (record.get("jobid", record.get("id")), between(record["submitted_time"], min(whole)))
            )
    return gathered(pairs)


def pai_waits(path: Path) -> Waits:
    """From the start of a job, its submission, to the first start of its tasks."""
    starts: dict[str, float] = {}
    for row in csv.reader(io.StringIO(text_of(path.with_name("pai_task_table.csv")))):
        if row[4]:
            starts[row[0]] = min(starts.get(row[0], math.inf), float(row[4]))
    jobs = csv.reader(io.StringIO(text_of(path)))
    return gathered((row[0], starts[row[0]] - float(row[4])) for row in jobs if row[0] in starts)


def openb_waits(path: Path) -> Waits:
    rows = csv.DictReader(io.StringIO(text_of(path)))
    timed = (row for row in rows if row["scheduled_time"])
    return gathered(
        (row["name"], float(row["scheduled_time"]) - float(row["creation_time"])) for row in timed
    )


def google_waits(events: Iterable[tuple[str, int, str]], submit: str, schedule: str) -> Waits:
    """From the first submit to the first schedule of (job, µs, type)."""
    first: dict[tuple[str, str], int] = {}
    for job, time_us, kind in events:
        if 0 < time_us < 2**62:
            first[job, kind] = min(first.get((job, kind), time_us), time_us)
    jobs = {job for job, kind in first if kind == schedule and (job, submit) in first}
    return gathered((job, (first[job, schedule] - first[job, submit]) / 1e6) for job in jobs)


def google_2011_waits(path: Path) -> Waits:
    rows = csv.reader(io.StringIO(text_of(path)))
    return google_waits(((row[2], int(row[0]), row[5]) for row in rows), "0", "1")


def google_2019_waits(path: Path) -> Waits:
    records = [json.loads(line) for line in text_of(path).splitlines()]
    events = ((one["collection_id"], int(one["time"]), one["type"]) for one in records)
    return google_waits(events, "0", "3")


def pbs_waits(path: Path) -> Waits:
    pairs = []
    for line in text_of(path).splitlines():
        _, kind, id, message = line.split(";", 3)
        values = dict(part.partition("=")[::2] for part in message.split(" ") if "=" in part)
        if kind in "ER" and "start" in values:
            pairs.append((id.partition(".")[0], float(values["start"]) - float(values["ctime"])))
    return gathered(pairs)


def sge_waits(path: Path) -> Waits:
    pairs = []
    for line in text_of(path).splitlines():
        fields = line.split(":")
        if line.startswith("#") or fields[9] == "0":
            continue
        unit = 1000 if len(fields[8]) > 10 else 1
        task = fields[35]
        id = f"{fields[5]}.{task}" if task not in ("0", "undefined") else fields[5]
        pairs.append((id, (float(fields[9]) - float(fields[8])) / unit))
    return gathered(pairs)


TABLE = csv_waits("job_id", "submit_time", "start_time")
READERS: dict[str, tuple[str, Callable[[Path], Waits]]] = {
    "acme": ("trace_*.csv", TABLE),
    "google-2011": ("*task_events.csv", google_2011_waits),
    "google-2019": ("instance_events.json", google_2019_waits),
    "helios": ("cluster_log.csv", TABLE),
    "lsf": ("lsb.acct", lsf_waits),
    "openb": ("pods.csv", openb_waits),
    "pai": ("pai_job_table.csv", pai_waits),
    "pbs": ("*", pbs_waits),
    "philly": ("cluster_job_log", philly_waits),
    "rl-trace": ("trace.csv", rl_waits),
    "sge": ("accounting", sge_waits),
    "slurm-json": ("sacct.json", slurm_json_waits),
    "slurm-jobcomp": ("jobcomp.log", jobcomp_waits),
    "slurm-sacct": ("*.*", sacct_waits),
    "swf": ("small.swf", swf_waits),
}
WITHOUT_STARTS = {
    "gavel", "job-csv", "native", "pai-simulator", "philly-csv", "plain-csv", "spot-gpu-2026",
}  # fmt: skip


def samples() -> list[object]:
    return [
        pytest.param(name, path, id=f"{name}-{path.parent.name}")
        for name, (glob, _) in READERS.items()
        for path in sorted((DATA / name).rglob(glob))
    ]


def own_mean_wait(workload: Workload, waits: Waits) -> float:
    """Over the jobs of a workload, each once; several runs of one id are taken in the order of the file."""
    taken: dict[str, int] = defaultdict(int)
    found = []
    for id in workload.frame.sort("row")["source_id"]:
        key = id if id in waits else id.partition("[")[0]
        found.append(waits[key][min(taken[id], len(waits[key]) - 1)])
        taken[id] += 1
    return math.fsum(found) / len(found)


def test_every_format_has_starts_or_is_known_to_have_none() -> None:
    others = {name for name in workload_formats() if name not in READERS}
    assert others == WITHOUT_STARTS


@pytest.mark.parametrize("name", sorted(WITHOUT_STARTS))
def test_a_format_without_starts_leaves_them_out(name: str) -> None:
    files = [path for path in (DATA / name).glob("*") if path.is_file()]
    assert not import_trace(files).workload.has("recorded_start_s")


@pytest.mark.parametrize(("name", "path"), samples())
def test_the_mean_wait_is_that_of_the_log(name: str, path: Path) -> None:
    files = [other for other in path.parent.iterdir() if other.is_file()]
    workload = import_trace(files).workload
    assert workload.column("recorded_start_s").null_count() == 0
    result = simulate(workload, HUGE, RECORDED)
    assert result.metrics()["mean_wait_s"] == pytest.approx(own_mean_wait(workload, READERS[name][1](path)))
    assert result.notes == ()


LABELS = {
    "slurm-sacct/xdmod/accounting.log": {
        "502": {"recorded_nodes": "n01|n02", "nodes": 2, "partition": "gpu", "qos": "normal", "name": "fit"},
        "501": {"recorded_nodes": "n01", "nodes": None, "account": "vision"},
    },
    "slurm-jobcomp/jobcomp.log": {
        "302_7": {"recorded_nodes": "n01", "partition": "gpu", "account": "speech", "nodes": None},
        "301": {"name": "train", "qos": "normal"},
    },
    "lsf/lsb.acct": {
        "11": {"recorded_nodes": "n1|n2", "nodes": 2, "partition": "gpu", "account": "proj", "name": "name"},
        "17": {"recorded_nodes": "n3", "nodes": None},
    },
    "philly/cluster_job_log": {
        "application_1506638472019_1": {"recorded_nodes": "m1"},
        "application_1506638472019_3": {"recorded_nodes": "m3|m2", "nodes": None},
    },
    "openb/pods.csv": {"pod-2": {"qos": "BE"}},
    "swf/small.swf": {"3": {"partition": "p3"}, "1": {"partition": ""}},
}


@pytest.mark.parametrize("name", LABELS)
def test_nodes_and_labels_are_those_of_the_log(name: str) -> None:
    workload = import_trace([DATA / name]).workload
    ids = workload.frame["source_id"].to_list()
    for id, expected in LABELS[name].items():
        row = ids.index(id)
        assert {column: workload.column(column)[row] for column in expected} == expected, id


REAL = {
    "slurm-sacct/xdmod_phillips.log.gz": sacct_waits,
    "slurm-sacct/xdmod_unit_accounting-logs.log": sacct_waits,
    "slurm-sacct/aws_sacct-output-v1.txt.gz": sacct_waits,
    "lsf/aws_lsb.acct.16.gz": lsf_waits,
    "lsf/xdmod_unit_accounting-logs.log": lsf_waits,
    "philly/philly_attempts_subset_3034.json.gz": philly_waits,
    "alibaba-openb-2023/openb_pod_list_default.csv.gz": openb_waits,
    "swf/RICC-2010-2.swf.gz": swf_waits,
    "swf/hpc2n_alea_excerpt.swf.gz": swf_waits,
    "rltune/synthetic_trace.csv.gz": rl_waits,
}


def test_a_public_log_that_states_no_waits_has_no_starts(shared_traces: Path) -> None:
    path = shared_traces / "swf" / "NASA-iPSC-1993-3.1-cln.swf.gz"
    assert {wait_s for waits in swf_waits(path).values() for wait_s in waits} == {-1.0}
    assert not import_trace([path]).workload.has("recorded_start_s")


@pytest.mark.parametrize("name", REAL)
def test_the_mean_wait_of_a_public_log_is_its_own(shared_traces: Path, name: str) -> None:
    path = shared_traces / name
    workload = import_trace([path]).workload
    known = workload.frame.filter(workload.frame["recorded_start_s"].is_not_null())
    waits = REAL[name](path)
    result = simulate(workload, HUGE, RECORDED)
    expected = own_mean_wait(Workload(known, workload.metadata), waits)
    assert result.metrics()["mean_wait_s"] == pytest.approx(expected)
    assert len(result.schedule) == known.height
