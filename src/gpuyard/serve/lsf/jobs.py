"""Jobs as bjobs lists them: what waits, what holds hosts, and what is left to LSF."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.comments import Comment
from gpuyard.serve.lsf.hosts import Site, limit_seconds
from gpuyard.serve.lsf.ranks import natural_priority, ranked
from gpuyard.serve.lsf.requests import Asked, UnclearError, asked
from gpuyard.serve.lsf.values import Record, counted_hosts, granted_gpus, moment, seconds, text, whole
from gpuyard.serve.state import Ended, Holder, Job, Node, Phase, Share

FIELDS = (
    "jobid jobindex stat user queue job_name job_description proj_name submit_time start_time finish_time "
    "run_time runtimelimit nreq_slot gpu_num gpu_alloc alloc_slot ask_hosts combined_resreq "
    "effective_resreq dependency exclusive specified_start_time rsvid service_class mem"
)
"""What bjobs is asked for."""

_WAITING = ("PEND", "PSUSP", "WAIT")
_RUNNING = ("RUN", "USUSP", "SSUSP", "UNKWN", "ZOMBI", "PROV")
_ENDED = ("DONE", "EXIT", "POST_DONE", "POST_ERR")
_UNSUPPORTED = {
    "DEPENDENCY": "dependency",
    "SPECIFIED_START_TIME": "begin time",
    "RSVID": "reservation",
    "SERVICE_CLASS": "service class",
}
_KEY = re.compile(r"(?:^|[;\s])gpuyard-key:([A-Za-z0-9_.-]{1,64})(?=$|[;\s])")
_GPU_SHARED = re.compile(r"mode=shared", re.IGNORECASE)


@dataclass(frozen=True)
class Known:
    """What writing to a job needs to know of it.

    Attributes:
        job: Its id.
        queue: Its queue.
        comment: Its description.
        asked_hosts: Hosts that it is restricted to.
        held: Who holds it.
        waits: Whether it waits.
        priority: Larger goes first within its queue.
    """

    job: str
    queue: str
    comment: str = ""
    asked_hosts: str = ""
    held: Holder = ""
    waits: bool = True
    priority: int = 0

    @property
    def key(self) -> str:
        """By which LSF's scheduler plugin asks for it; empty if it has none."""
        found = _KEY.search(self.comment)
        return found[1] if found and self.waits else ""

    @property
    def pinned(self) -> bool:
        """Whether its hosts are those that the agent prescribed."""
        return _pins(Comment.read(self.comment), self.asked_hosts)


@dataclass
class JobList:
    """Jobs of one answer.

    Attributes:
        jobs: Those that wait or hold hosts.
        known: What writing to them needs, by id, in the order in which LSF lists them.
        ended: Those that ended, as far as they are listed.
        notes: For people.
    """

    jobs: list[Job] = field(default_factory=list)
    known: dict[str, Known] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_jobs(records: Sequence[Record], nodes: Sequence[Node], site: Site, now_s: float) -> JobList:
    """Jobs of ``bjobs -u all -o … -json``.

    Args:
        records: Of the answer, in LSF's order.
        nodes: Of the cluster.
        site: What changes rarely.
        now_s: Now.

    Raises:
        AdapterError: for a record without an id, or with a state or a time that cannot be read.
    """
    found = JobList()
    names = {node.name for node in nodes}
    for record in records:
        job, state = job_id(record), text(record, "STAT")
        if state in _ENDED:
            _add_ended(found, record, job, now_s)
        elif state in _WAITING:
            _add_waiting(found, record, job, state, site, now_s)
        elif state in _RUNNING:
            _add_running(found, record, job, state, names, now_s)
        else:
            raise AdapterError(f"job {job} has the state {state!r}, which is not known", "parse")
    _rank(found)
    return found


def job_id(record: Record) -> str:
    """``7``, or ``7[4]`` for an element of an array.

    Raises:
        AdapterError: if there is none.
    """
    number, index = text(record, "JOBID"), text(record, "JOBINDEX")
    found = re.fullmatch(r"(\d+)(?:\[(\d+)\])?", number)
    if not found:
        raise AdapterError(f"bjobs printed a job with the id {number!r}", "parse")
    element = found[2] or (index if index.isdecimal() and int(index) else "")
    return f"{found[1]}[{element}]" if element else found[1]


def _submitted(record: Record, job: str, now_s: float) -> float:
    stated = moment(record.get("SUBMIT_TIME", ""), now_s)
    if stated is None:
        raise AdapterError(f"job {job} was submitted at {record.get('SUBMIT_TIME')!r}: no time", "parse")
    return stated


def _base(record: Record, job: str, phase: Phase, now_s: float) -> Job:
    return Job(
        id=job,
        phase=phase,
        submit_s=_submitted(record, job, now_s),
        user=text(record, "USER"),
        group=text(record, "PROJ_NAME"),
        partition=text(record, "QUEUE"),
        limit_s=limit_seconds(record),
        exclusive=text(record, "EXCLUSIVE").upper() in ("Y", "YES"),
        mark=Comment.read(text(record, "JOB_DESCRIPTION")).decision,
        can_requeue=False,  # LSF requeues to its own place, not held for the agent
    )


# --- jobs that hold hosts


def _add_running(found: JobList, record: Record, job: str, state: str, nodes: set[str], now_s: float) -> None:
    try:
        slots = counted_hosts(text(record, "ALLOC_SLOT"))
        gpus, note = _granted(record, slots)
    except ValueError as error:
        raise AdapterError(f"job {job}: {error}", "parse") from None
    if note:
        found.notes.append(f"job {job}: {note}")
    strange = [host for host in slots if host not in nodes]
    found.notes += [f"job {job} runs on {host}, which bhosts does not list" for host in strange]
    shares = tuple(
        Share(host, gpus.get(host, 0), count) for host, count in slots.items() if host not in strange
    )
    phase: Phase = "starting" if state == "PROV" else "running"
    base = _base(record, job, phase, now_s)
    begin_s = moment(text(record, "START_TIME"), now_s)
    found.jobs.append(
        replace(
            base,
            gpus=sum(share.gpus for share in shares),
            nodes=len(shares),
            cpus=sum(share.cpus for share in shares),
            begin_s=begin_s,
            shares=shares,
        )
    )
    comment = text(record, "JOB_DESCRIPTION")
    found.known[job] = Known(job, base.partition, comment, text(record, "ASK_HOSTS"), waits=False)


def _granted(record: Record, slots: Mapping[str, int]) -> tuple[dict[str, int], str]:
    """GPUs on each host, and a note if they had to be derived."""
    listed = text(record, "GPU_ALLOC")
    if listed:
        return granted_gpus(listed), ""
    total = whole(record, "GPU_NUM") or 0
    if not total:
        return {}, ""
    each, more = divmod(total, max(1, len(slots)))
    derived = {host: each + (place < more) for place, host in enumerate(slots)}
    return derived, "" if len(slots) == 1 else "GPUs on each host derived from their sum"


def _add_ended(found: JobList, record: Record, job: str, now_s: float) -> None:
    end_s = moment(text(record, "FINISH_TIME"), now_s)
    if end_s is None:
        return
    begin_s = moment(text(record, "START_TIME"), now_s)
    stated = seconds(text(record, "RUN_TIME"))
    run_s = max(0.0, end_s - begin_s) if begin_s is not None else stated
    found.ended.append(Ended(job, end_s, run_s, begin_s))


# --- jobs that wait


def _add_waiting(found: JobList, record: Record, job: str, state: str, site: Site, now_s: float) -> None:
    base = _base(record, job, "waiting", now_s)
    comment = Comment.read(text(record, "JOB_DESCRIPTION"))
    hosts = text(record, "ASK_HOSTS")
    held = _holder(state, comment, hosts)
    free_choice = not hosts or _pins(comment, hosts)
    left = _left(record, state, held, free_choice) or site.unclear.get(base.partition, "")
    request = Asked()
    try:
        request = asked(record)
    except UnclearError as why:
        left = left or str(why)
    if base.partition not in {one.name for one in site.partitions}:
        left = left or "its queue is not known"
    found.jobs.append(
        replace(
            base,
            gpus=request.gpus,
            nodes=request.nodes,
            cpus=request.slots,
            memory_mib=request.memory_mib,
            held=held,
            left=left,
        )
    )
    found.known[job] = Known(
        job, base.partition, text(record, "JOB_DESCRIPTION"), text(record, "ASK_HOSTS"), held
    )


def _holder(state: str, comment: Comment, hosts: str) -> Holder:
    """Who holds a job: a hold at submission and a stop look alike, so the agent's word tells."""
    if state != "PSUSP":
        return ""
    # Hosts are prescribed before the release: after a crash in between, the hold is still the agent's.
    return "agent" if comment.is_held or _pins(comment, hosts) else "other"


def _left(record: Record, state: str, held: Holder, free_choice: bool) -> str:
    """Why a waiting job is none of the agent's business; empty if it is."""
    if held == "other":
        return "held by its user or an administrator"
    if state == "WAIT":
        return "member of a chunk"
    for name, why in _UNSUPPORTED.items():
        if text(record, name):
            return why
    if _GPU_SHARED.search(text(record, "COMBINED_RESREQ") + text(record, "EFFECTIVE_RESREQ")):
        return "shares GPUs"
    return "" if free_choice else "hosts named"


def _pins(comment: Comment, hosts: str) -> bool:
    """Whether hosts, between blanks or colons, are those that the agent's word prescribes."""
    pinned = set(comment.own.partition("@")[2].split(",")) - {""}
    return bool(pinned) and pinned == set(re.split(r"[:\s]+", hosts.strip()))


# --- priorities


def _rank(found: JobList) -> None:
    """Give waiting jobs the priorities that the agent wrote, as far as LSF's order still follows them."""
    queues: dict[str, list[Known]] = {}
    for known in found.known.values():
        if known.waits:
            queues.setdefault(known.queue, []).append(known)
    priorities = {known.job: natural_priority(known.job) for known in found.known.values()}
    for listed in queues.values():
        priorities |= ranked([(known.job, known.comment) for known in listed])
    found.known = {job: replace(known, priority=priorities[job]) for job, known in found.known.items()}
    found.jobs = [
        replace(job, priority=float(priorities[job.id])) if job.waits else job for job in found.jobs
    ]
