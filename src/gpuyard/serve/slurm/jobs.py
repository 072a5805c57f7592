"""Jobs as squeue lists them: what waits, what holds nodes, and what is left to Slurm."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.comments import Comment
from gpuyard.serve.slurm.allocations import gpu_types_of, is_exclusive, shares_of
from gpuyard.serve.slurm.requests import Asked, Place, UnclearError, asked
from gpuyard.serve.slurm.site import PartitionRules, Site
from gpuyard.serve.slurm.values import Record, moment, number, text, whole, words
from gpuyard.serve.state import Ended, Holder, Job, Node, Phase
from gpuyard.workload.readers.slurm_arrays import task_ids

MOST_TASKS = 1_000
"""Tasks of one array's record that become jobs; the others are left until these have started."""

STATES = "PD,R,CG,CF,S,ST,RS,SI,SO,RQ,RH,SE"
"""What squeue is asked for: jobs that wait or hold nodes. 22.05 prints all jobs with --json all the same."""

_WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_RUNNING = {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}
_REASONS = {
    "Dependency": "dependency",
    "DependencyNeverSatisfied": "dependency that is never met",
    "BeginTime": "begin time in the future",
    "Licenses": "licences",
    "Reservation": "reservation",
    "ReservationDeleted": "reservation",
    "PartitionDown": "partition is down",
    "PartitionInactive": "partition is inactive",
    "PartitionNodeLimit": "beyond its partition's limits",
    "PartitionTimeLimit": "beyond its partition's limits",
    "BadConstraints": "cannot run anywhere",
    "JobArrayTaskLimit": "array with a limit of running tasks",
    "BurstBufferResources": "burst buffer",
    "BurstBufferStageIn": "burst buffer",
}
_UNSUPPORTED_TEXTS = {
    "dependency": "dependency",
    "licenses": "licences",
    "resv_name": "reservation",
    "features": "features",
    "prefer": "features",
    "excluded_nodes": "excluded nodes",
    "burst_buffer": "burst buffer",
    "het_job_id_set": "heterogeneous",
    "tres_bind": "binding of GPUs",
    "network": "network",
}
_UNSUPPORTED_NUMBERS = {
    "het_job_id": "heterogeneous",
    "required_switches": "switches",
    "minimum_tmp_disk_per_node": "local disk",
    "tasks_per_tres": "tasks per GPU",
    "sockets_per_node": "sockets named",
    "cores_per_socket": "cores named",
    "threads_per_core": "threads named",
    "segment_size": "segments",
}
FIELDS = (
    *("job_id", "job_state", "state_reason", "partition", "priority", "admin_comment", "required_nodes"),
    *("array_job_id", "array_task_id", "submit_time", "eligible_time", "user_name", "user_id", "account"),
    *(
        "qos",
        "time_limit",
        "restart_cnt",
        "requeue",
        "batch_flag",
        "deadline",
        "flags",
        "contiguous",
        "reboot",
    ),
    *("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_req_str", "tres_alloc_str"),
    *("max_nodes", "node_count", "cpus", "minimum_cpus_per_node", "tasks", "tasks_per_node", "cpus_per_tres"),
    *("memory_per_node", "memory_per_cpu", "memory_per_tres", "shared", "nodes", "gres_detail"),
    *("job_resources", *_UNSUPPORTED_TEXTS, *_UNSUPPORTED_NUMBERS),
)
"""All that a job is read from, but for the start of running ones, which does not change."""

_UNSUPPORTED_FLAGS = {
    "GRES_ENFORCE_BIND",
    "SPREAD_JOB",
    "CRON_JOB",
    "RESET_LIC_JOB",
    "GRES_ONE_TASK_PER_SHARING",
}


@dataclass(frozen=True)
class Known:
    """What writing to a job needs to know of it.

    Attributes:
        address: How scontrol is told of its record: several tasks of an array may share one.
        members: Ids of the jobs of that record.
        comment: Its AdminComment.
        required: Nodes that it requires.
        held: Who holds it.
        delayed: Whether a requeue keeps it from starting for two minutes.
    """

    address: str
    members: tuple[str, ...]
    comment: str = ""
    required: str = ""
    held: Holder = ""
    delayed: bool = False


@dataclass
class JobList:
    """Jobs of one answer.

    Attributes:
        jobs: Those that wait or hold nodes.
        known: What writing to them needs, by id.
        ended: Those that ended, as far as they are listed.
        notes: For people.
    """

    jobs: list[Job] = field(default_factory=list)
    known: dict[str, Known] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Memory:
    """Jobs of the answer before: most records say the same again, and reading them is most of the work.

    Attributes:
        context: What else jobs were read by.
        jobs: Values of a record's fields, and what they meant, by number.
    """

    context: object = None
    jobs: dict[int, tuple[list[Any], Job, str]] = field(default_factory=dict)


def read_jobs(
    records: Sequence[Record],
    nodes: Sequence[Node],
    site: Site,
    threads: Mapping[str, int],
    now_s: float,
    memory: Memory | None = None,
) -> JobList:
    """Jobs of ``squeue --json`` or of slurmrestd.

    Args:
        records: Of the answer.
        nodes: Of the cluster.
        site: What changes rarely.
        threads: Hardware threads of a core by node.
        now_s: slurmctld's clock.
        memory: Of the answer before; it is changed.

    Raises:
        AdapterError: for a record without a number or a state.
    """
    found = JobList()
    reader = _Reader(nodes, site, threads, now_s, Memory() if memory is None else memory)
    for record in records:
        states = _states(record)
        phase = _phase(states, record)
        if phase is None:
            found.ended.extend(_ended(record, states))
            continue
        job, note = reader.job(record, phase, states)
        if note:
            found.notes.append(f"job {job.id}: {note}")
        if phase == "waiting":
            _add_waiting(found, record, job, _delayed_by_requeue(record, now_s))
        else:
            comment, required = text(record, "admin_comment"), text(record, "required_nodes")
            found.known[job.id] = Known(job.id, (job.id,), comment, required)
            found.jobs.append(job)
    reader.remember()
    return found


class _Reader:
    """Reads records, each once as long as it stays the same."""

    def __init__(
        self,
        nodes: Sequence[Node],
        site: Site,
        threads: Mapping[str, int],
        now_s: float,
        memory: Memory,
    ) -> None:
        self._site, self._threads, self._now_s, self._memory = site, threads, now_s, memory
        self._nodes = {node.name: node for node in nodes}
        cores = threads if site.whole_cores else {}
        self._places = {
            partition.name: Place.of(
                [self._nodes[name] for name in partition.nodes if name in self._nodes], cores
            )
            for partition in site.partitions
        }
        self._context = (site, self._places, dict(threads))
        self._before = memory.jobs if memory.context == self._context else {}
        self._seen: dict[int, tuple[list[Any], Job, str]] = {}

    def job(self, record: Record, phase: Phase, states: set[str]) -> tuple[Job, str]:
        """The job of a record, and a note for people."""
        number_of_it, values = whole(record, "job_id"), list(map(record.get, FIELDS))
        before = self._before.get(number_of_it)
        if before is not None and before[0] == values:
            self._seen[number_of_it] = before
            return before[1], before[2]
        if phase == "waiting":
            job, note = _waiting(record, states, self._places, self._site, self._now_s), ""
        else:
            job, note = _running(record, phase, self._threads, self._nodes)
        if (moment(record, "eligible_time") or 0) <= self._now_s:  # otherwise time alone changes it
            self._seen[number_of_it] = (values, job, note)
        return job, note

    def remember(self) -> None:
        """Keep what was read for the next answer."""
        self._memory.context, self._memory.jobs = self._context, self._seen


def _states(record: Record) -> set[str]:
    states = set(words(record, "job_state"))
    if not states or not whole(record, "job_id"):
        raise AdapterError("a job without a number or a state", "parse")
    return states


def _phase(states: set[str], record: Record) -> Phase | None:
    if "COMPLETING" in states:
        return "ending" if text(record, "nodes") else None
    if "CONFIGURING" in states:
        return "starting"
    if states & _RUNNING:
        return "running"
    return "waiting" if states & _WAITING else None


def job_id(record: Record) -> str:
    """``7``, or ``7_4`` for a task of an array that has a record of its own."""
    array, task = whole(record, "array_job_id"), number(record, "array_task_id")
    return f"{array}_{int(task)}" if array and task is not None else str(whole(record, "job_id"))


def _ended(record: Record, states: set[str]) -> Iterator[Ended]:
    end = moment(record, "end_time")
    if end is not None:
        begin = moment(record, "start_time")
        run = None if begin is None or not text(record, "nodes") else max(0.0, end - begin)
        yield Ended(job_id(record), end, run, timeout="TIMEOUT" in states)


# --- jobs that hold nodes ---


def _running(
    record: Record, phase: Phase, threads: Mapping[str, int], nodes: Mapping[str, Node]
) -> tuple[Job, str]:
    shares, note = shares_of(record, threads)
    strange = [share.node for share in shares if share.node not in nodes]
    if strange:
        note = f"runs on {strange[0]}, which is not among the nodes"
    shares = tuple(share for share in shares if share.node in nodes)
    job = replace(
        _base(record, job_id(record), phase, None),
        gpus=sum(share.gpus for share in shares),
        nodes=len(shares),
        cpus=sum(share.cpus for share in shares),
        memory_mib=sum(share.memory_mib for share in shares),
        gpu_types=gpu_types_of(record),
        exclusive=is_exclusive(record),
        begin_s=moment(record, "start_time"),
        shares=shares,
    )
    return job, note


def _base(record: Record, name: str, phase: Phase, default_limit_s: float | None) -> Job:
    limit = number(record, "time_limit")
    submit = moment(record, "submit_time")
    return Job(
        id=name,
        phase=phase,
        submit_s=0.0 if submit is None else submit,
        user=text(record, "user_name") or str(whole(record, "user_id")),
        group=text(record, "account"),
        partition=text(record, "partition"),
        qos=text(record, "qos") or None,
        limit_s=default_limit_s if limit is None else float(limit) * 60,
        priority=float(number(record, "priority") or 0),
        mark=Comment.read(text(record, "admin_comment")).decision,
        requeues=whole(record, "restart_cnt"),
        can_requeue=bool(record.get("requeue")) and bool(record.get("batch_flag", True)),
        deadline_s=moment(record, "deadline"),
    )


# --- jobs that wait ---


def _waiting(record: Record, states: set[str], places: Mapping[str, Place], site: Site, now_s: float) -> Job:
    partition = text(record, "partition")
    rules = site.rules.get(partition, PartitionRules())
    held = _holder(record)
    left = _left(record, states, held, now_s) or rules.closed
    request = Asked()
    try:
        if partition in places:
            request = asked(record, places[partition], counts_memory=site.counts_memory)
        else:
            left = left or ("several partitions" if "," in partition else "its partition is not known")
    except UnclearError as why:
        left = left or str(why)
    return replace(
        _base(record, job_id(record), "waiting", rules.default_time_s),
        gpus=request.gpus,
        nodes=request.nodes,
        cpus=request.cpus,
        memory_mib=request.memory_mib,
        gpu_types=request.gpu_types,
        exclusive=request.exclusive or rules.whole_nodes or site.whole_nodes,
        held=held,
        left=left,
    )


def _holder(record: Record) -> Holder:
    """Who holds a job: Slurm writes a hold as priority 0."""
    if number(record, "priority") != 0:
        return ""
    comment = Comment.read(text(record, "admin_comment"))
    # Nodes are prescribed before the release: after a crash in between, the hold is still the agent's.
    ours = comment.is_held or comment.pins(text(record, "required_nodes"))
    return "agent" if ours else "other"


def _left(record: Record, states: set[str], held: Holder, now_s: float) -> str:
    """Why a waiting job is none of the agent's business; empty if it is."""
    reason = text(record, "state_reason")
    if held == "other":
        return "held by its user" if reason == "JobHeldUser" else "held by an administrator"
    odd = next((state for state in sorted(states) if state != "PENDING"), None)
    if odd:
        return odd.lower().replace("_", " ")
    for name, why in _UNSUPPORTED_TEXTS.items():
        if text(record, name):
            return why
    for name, why in _UNSUPPORTED_NUMBERS.items():
        if whole(record, name):
            return why
    required = text(record, "required_nodes")
    if required and not Comment.read(text(record, "admin_comment")).pins(required):
        return "nodes named"
    if _UNSUPPORTED_FLAGS & set(words(record, "flags")) or record.get("contiguous") or record.get("reboot"):
        return "special placement"
    if (moment(record, "eligible_time") or 0) > now_s and not _delayed_by_requeue(record, now_s):
        return "begin time in the future"
    return _left_by_reason(reason)


def _delayed_by_requeue(record: Record, now_s: float) -> bool:
    """Whether the agent stopped it: the delay that Slurm then sets is not its user's wish.

    The agent takes the delay away, but Slurm may set it afterwards, when the last process has ended.
    """
    marked = bool(Comment.read(text(record, "admin_comment")).own)
    return marked and whole(record, "restart_cnt") > 0 and (moment(record, "eligible_time") or 0) > now_s


def _left_by_reason(reason: str) -> str:
    if reason in _REASONS:
        return _REASONS[reason]
    if reason.startswith(("Assoc", "QOS")):
        return f"limit of Slurm ({reason})"
    return ""


def _add_waiting(found: JobList, record: Record, job: Job, delayed: bool) -> None:
    """One job, or one for each task of an array's record."""
    array, listed = whole(record, "array_job_id"), text(record, "array_task_string")
    comment, required = text(record, "admin_comment"), text(record, "required_nodes")
    single = not array or not listed or number(record, "array_task_id") is not None
    if single:
        found.jobs.append(job)
        found.known[job.id] = Known(job.id, (job.id,), comment, required, job.held, delayed)
        return
    _add_array(found, job, str(array), listed, Known("", (), comment, required, job.held))


def _add_array(found: JobList, job: Job, base: str, listed: str, known: Known) -> None:
    """A record that stands for several tasks."""
    tasks = task_ids(f"{base}_[{listed}]") or []
    # scontrol takes the list of tasks only in brackets; the bare number would mean running ones, too.
    address = f"{base}_[{listed.partition('%')[0]}]" if tasks else base
    members = tuple(tasks[:MOST_TASKS])
    found.known |= dict.fromkeys(members, replace(known, address=address, members=members))
    if not tasks or "%" in listed or job.left:
        why = "array with a limit of running tasks" if "%" in listed else "tasks cannot be read"
        found.jobs.append(replace(job, id=base, left=job.left or why))
        found.known[base] = replace(known, address=address, members=(base,))
        return
    found.jobs += [replace(job, id=task) for task in members]
    if len(tasks) > MOST_TASKS:
        # It stands for tasks that come later; nothing may be done to it, as that would be done to all.
        found.jobs.append(replace(job, id=base, held="", left=f"more than {MOST_TASKS:,} tasks of one array"))
        found.notes.append(f"array {base}: {len(tasks) - MOST_TASKS:,} tasks are left for later")
