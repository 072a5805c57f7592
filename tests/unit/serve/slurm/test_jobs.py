"""Jobs: arrays, holds, shares on nodes, and why some are left to Slurm."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.slurm.jobs import FIELDS, MOST_TASKS, JobList, Memory, read_jobs
from gpuyard.serve.slurm.site import PartitionRules, Site
from gpuyard.serve.state import Job, Node, Partition, Share

DATA = Path(__file__).parents[3] / "live" / "recorded"
NODES = tuple(Node(f"gn{n}", 4, "a100", 32, 256_000) for n in range(1, 5))
NAMES = tuple(node.name for node in NODES)
SITE = Site(
    version="22.05.8",
    partitions=(Partition("batch", NAMES, default=True),),
    rules={"batch": PartitionRules(default_time_s=600.0)},
)
NOW = 1_795_012_300.0


def listed(*records: dict[str, Any], site: Site = SITE) -> JobList:
    return read_jobs(records, NODES, site, {}, NOW)


def waiting(**fields: Any) -> dict[str, Any]:
    return {
        "job_id": 7, "job_state": "PENDING", "partition": "batch", "priority": 64, "submit_time": 1000,
        "tres_per_node": "gres:gpu:1", "tres_req_str": "cpu=1,mem=1G,node=1", "cpus": 1, "requeue": True,
        "memory_per_node": 1024, "time_limit": 5, **fields,
    }  # fmt: skip


def one(**fields: Any) -> Job:
    return listed(waiting(**fields)).jobs[0]


def test_a_plain_job_is_the_agents() -> None:
    job = one()
    assert (job.id, job.phase, job.gpus, job.nodes, job.memory_mib, job.limit_s) == (
        "7",
        "waiting",
        1,
        1,
        1024,
        300,
    )
    assert (job.held, job.left, job.mark, job.priority) == ("", "", "", 64)
    assert one(time_limit=None).limit_s == 600


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"dependency": "afterok:5(unfulfilled)"}, "dependency"),
        ({"eligible_time": int(NOW) + 3600}, "begin time"),
        ({"licenses": "matlab:1"}, "licences"),
        ({"resv_name": "m1"}, "reservation"),
        ({"partition": "batch,other"}, "several partitions"),
        ({"partition": "hidden"}, "partition is not known"),
        ({"het_job_id": 7}, "heterogeneous"),
        ({"features": "nvlink"}, "features"),
        ({"excluded_nodes": "gn1"}, "excluded nodes"),
        ({"required_nodes": "gn1"}, "nodes named"),
        ({"required_nodes": "gn1", "admin_comment": "gpuyard:1-1"}, "nodes named"),
        ({"contiguous": True}, "special placement"),
        ({"flags": ["SPREAD_JOB"]}, "special placement"),
        ({"minimum_tmp_disk_per_node": 10}, "local disk"),
        ({"required_switches": 1}, "switches"),
        ({"state_reason": "PartitionDown"}, "partition is down"),
        ({"state_reason": "QOSMaxGRESPerUser"}, "limit of Slurm"),
        ({"state_reason": "AssocGrpGRES"}, "limit of Slurm"),
        ({"priority": 0, "state_reason": "JobHeldUser"}, "held by its user"),
        ({"priority": 0, "state_reason": "JobHeldAdmin"}, "held by an administrator"),
        ({"job_state": ["PENDING", "REQUEUE_HOLD"]}, "requeue hold"),
        ({"tres_per_node": ""}, "no GPUs"),
        ({"array_job_id": 7, "array_task_string": "1-5%2"}, "limit of running tasks"),
        ({"array_job_id": 7, "array_task_string": "1-5,7,9..."}, "tasks cannot be read"),
    ],
)
def test_jobs_that_are_left_to_slurm_say_why(fields: dict[str, Any], why: str) -> None:
    found = listed(waiting(**fields)).jobs
    assert len(found) == 1
    assert why in found[0].left


def test_jobs_of_closed_partitions_are_left() -> None:
    site = Site(partitions=SITE.partitions, rules={"batch": PartitionRules(closed="partition is down")})
    assert listed(waiting(), site=site).jobs[0].left == "partition is down"


def test_whose_hold_it_is() -> None:
    assert one(priority=0, admin_comment="gpuyard:held").held == "agent"
    assert one(priority=0, admin_comment="a; gpuyard:held").held == "agent"
    assert one(priority=0).held == "other"
    assert one(priority=64, admin_comment="gpuyard:held").held == ""  # released by somebody
    # The agent set a priority, then the owner held the job: that hold is the owner's.
    assert one(priority=0, admin_comment="gpuyard:4-1").held == "other"
    # The agent died between prescribing nodes and releasing the job.
    died = one(priority=0, admin_comment="gpuyard:4-1@gn2", required_nodes="gn2")
    assert (died.held, died.left, died.mark) == ("agent", "", "4-1")


def test_an_array_is_one_job_for_each_task() -> None:
    found = listed(
        waiting(array_job_id=7, array_task_string="1,3-5", priority=0, admin_comment="gpuyard:held")
    )
    assert [job.id for job in found.jobs] == ["7_1", "7_3", "7_4", "7_5"]
    assert {job.held for job in found.jobs} == {"agent"}
    assert {found.known[job.id].address for job in found.jobs} == {"7_[1,3-5]"}
    task = listed(waiting(job_id=9, array_job_id=7, array_task_id=0))
    assert [job.id for job in task.jobs] == ["7_0"]


def test_arrays_without_end_are_cut_and_nothing_can_be_done_to_the_rest() -> None:
    found = listed(
        waiting(array_job_id=7, array_task_string="0-4999", priority=0, admin_comment="gpuyard:held")
    )
    assert len(found.jobs) == MOST_TASKS + 1
    assert found.jobs[-1].left == "more than 1,000 tasks of one array"
    assert found.jobs[-1].held == ""
    assert found.jobs[-1].id not in found.known
    assert found.notes


def test_shares_are_exact_on_each_node_in_the_old_shape() -> None:
    record = waiting(
        job_state="RUNNING", nodes="gn[1-2]", start_time=2000, cpus=3,
        gres_detail=["gpu:4(IDX:0-3)", "gpu:1(IDX:2)"],
        job_resources={"nodes": "gn[1-2]", "allocated_nodes": [
            {"nodename": "gn2", "memory_allocated": 100, "sockets": {"0": {"cores": {"0": "allocated"}}}},
            {"nodename": "gn1", "memory_allocated": 200,
             "sockets": {"0": {"cores": {"0": "allocated", "1": "allocated"}}}},
        ]},
    )  # fmt: skip
    job = listed(record).jobs[0]
    assert job.shares == (Share("gn1", 4, 2, 200), Share("gn2", 1, 1, 100))
    assert (job.gpus, job.nodes, job.cpus, job.memory_mib, job.begin_s) == (5, 2, 3, 300, 2000)


def test_shares_that_are_not_listed_are_derived_and_that_is_said() -> None:
    found = listed(waiting(job_state="RUNNING", nodes="gn[1-2]", start_time=2000, cpus=3))
    assert found.jobs[0].shares == (Share("gn1", 1, 2), Share("gn2", 1, 1))
    assert "derived" in found.notes[0]


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        ("RUNNING", "running"), ("SUSPENDED", "running"), ("COMPLETING", "ending"),
        ("CONFIGURING", "starting"), (["RUNNING", "CONFIGURING"], "starting"),
        (["COMPLETED", "COMPLETING"], "ending"), (["RUNNING"], "running"),
    ],
)  # fmt: skip
def test_jobs_hold_their_nodes_until_slurm_has_them_back(states: Any, phase: str) -> None:
    assert listed(waiting(job_state=states, nodes="gn1", start_time=5)).jobs[0].phase == phase


def test_a_job_on_a_node_that_is_not_listed_is_said() -> None:
    found = listed(waiting(job_state="RUNNING", nodes="gn9", start_time=5, gres_detail=["gpu:2(IDX:0-1)"]))
    assert found.jobs[0].shares == ()
    assert "gn9" in found.notes[0]


def test_jobs_that_ended_say_when_and_why() -> None:
    found = listed(waiting(job_state="TIMEOUT", nodes="gn1", start_time=100, end_time=160))
    assert found.jobs == []
    assert [(one.id, one.end_s, one.run_s, one.timeout) for one in found.ended] == [("7", 160, 60, True)]
    cancelled = listed(waiting(job_state="CANCELLED", start_time=160, end_time=160)).ended
    assert cancelled[0].run_s is None


@pytest.mark.parametrize("record", [{}, {"job_id": 4}, {"job_state": "PENDING"}])
def test_a_record_without_number_or_state_is_an_error(record: dict[str, Any]) -> None:
    with pytest.raises(AdapterError):
        listed(record)


def test_the_shape_of_26_05_over_rest_is_read() -> None:
    records = json.loads((DATA / "26.05" / "rest-jobs.json").read_text())["jobs"]
    site = Site(partitions=(Partition("gpu", NAMES),), rules={"gpu": PartitionRules()})
    found = read_jobs(records, NODES, site, {}, NOW)
    assert [job.id for job in found.jobs] == ["5", "6", "7", "8", "9", "10"]
    assert {(job.gpus, job.nodes, job.held, job.left) for job in found.jobs} == {
        (1, 1, "other", "held by its user")
    }
    assert [one.id for one in found.ended] == ["1", "2", "3"]


class Watched(dict[str, Any]):
    """Remembers which of its values were asked for."""

    asked: ClassVar[set[str]] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def test_all_that_jobs_are_read_from_is_compared_with_the_answer_before() -> None:
    records = []
    for path in (
        "22.05/squeue.json",
        "22.05/squeue-shapes.json",
        "24.11/squeue.json",
        "26.05/rest-jobs.json",
    ):
        records += [Watched(job) for job in json.loads((DATA / path).read_text())["jobs"]]
    partitions = (Partition("gpu", NAMES), Partition("batch", NAMES))
    read_jobs(records, NODES, Site(partitions=partitions), {}, NOW)
    # The start of a running job stays, and its end and the tasks of an array are read each time.
    assert Watched.asked - set(FIELDS) == {"start_time", "end_time", "array_task_string"}


def test_a_record_that_changed_is_read_again_and_others_are_not() -> None:
    memory = Memory()
    records = [waiting(job_id=1), waiting(job_id=2)]
    first = read_jobs(records, NODES, SITE, {}, NOW, memory).jobs
    records[1] = waiting(job_id=2, tres_per_node="gres:gpu:3")
    second = read_jobs(records, NODES, SITE, {}, NOW, memory).jobs
    assert second[0] is first[0]
    assert second[1].gpus == 3
    other = Site(partitions=SITE.partitions, rules={"batch": PartitionRules(closed="partition is down")})
    assert {job.left for job in read_jobs(records, NODES, other, {}, NOW, memory).jobs} == {
        "partition is down"
    }


def test_the_delay_of_a_requeue_by_the_agent_is_no_begin_time() -> None:
    later = int(NOW) + 100
    found = listed(waiting(eligible_time=later, restart_cnt=1, priority=0, admin_comment="gpuyard:held"))
    assert (found.jobs[0].left, found.jobs[0].held) == ("", "agent")
    assert found.known["7"].delayed
    assert one(eligible_time=later, restart_cnt=1).left == "begin time in the future"  # Slurm's own requeue


def test_a_begin_time_passes_although_the_record_stays() -> None:
    memory, records = Memory(), [waiting(eligible_time=int(NOW) + 10)]
    assert read_jobs(records, NODES, SITE, {}, NOW, memory).jobs[0].left
    assert read_jobs(records, NODES, SITE, {}, NOW + 11, memory).jobs[0].left == ""
