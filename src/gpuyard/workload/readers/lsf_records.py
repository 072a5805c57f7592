"""Records of LSF's lsb.acct, read field by field.

Lists in a record carry their length in front, so that every later field moves: only reading in order
finds them. LSF adds fields at the end with each version; a record is read as far as it goes.
"""

import re
from dataclasses import dataclass, field

_ONE_TOKEN = r'(?:"[^"]*(?:""[^"]*)*"|[^\s"]+)'
_TOKEN = re.compile(_ONE_TOKEN)
_RECORD = re.compile(rf"{_ONE_TOKEN}(?:\s+{_ONE_TOKEN})*")
_SLOTS = re.compile(r"(\d{1,7})\*(.+)", re.DOTALL)
_INTEGER = re.compile(r"-?\d{1,18}")
_RUSAGE_FIELDS = 19
MAX_ENTRIES = 1_000_000


class RecordError(ValueError):
    """A record is not as the format has it; the message says how."""


@dataclass
class JobFinish:
    """What is read of a JOB_FINISH record. Times are seconds since 1970, 0 = never."""

    job_id: int
    event_s: int
    submit_s: int
    start_s: int
    user: str
    queue: str
    slots: int
    hosts: tuple[str, ...]
    """Names of the hosts it ran on, each once."""
    status: int
    """Bits: 32 EXIT, 64 DONE."""
    resource_request: str
    depends: str = ""
    """The condition on other jobs, as it was given to ``bsub -w``."""
    index: int = 0
    """In a job array, from 1; 0 for a job outside of arrays."""
    name: str = ""
    project: str = ""
    application: str = ""
    memory_kb: int = 0
    """The most resident memory that was used."""
    exit_info: int = 0
    run_limit_s: int = 0
    effective_request: str = ""
    submit_values: list[str] = field(default_factory=list)
    """Values of the extensions of the submission, one of which is the GPU requirement."""
    gpu_usages: int = 0
    """Entries of the list of GPU usage."""
    complete: bool = True
    """Whether the fields behind the status could be read as far as the record goes."""


def event_type(line: str) -> str:
    """The first field without its quotes."""
    found = re.match(r'"([A-Z_]+)"', line)
    return found[1] if found else ""


def tokens(line: str) -> list[str]:
    """Fields between blanks; text keeps its quotes, which tell it from numbers.

    Raises:
        RecordError: if quotes do not match.
    """
    if line.count('"') % 2:
        raise RecordError("quotes do not match")
    found: list[str] = _TOKEN.findall(line)
    if sum(map(len, found)) + len(found) - 1 != len(line) and not _RECORD.fullmatch(line):
        raise RecordError("quotes do not match")
    return found


class _RecordEndError(RecordError):
    """A record ends, which behind the job's status only says that its version knows no more fields."""


class _Fields:
    """Takes fields in order."""

    def __init__(self, found: list[str]) -> None:
        self.found = found
        self.kinds = "".join(["s" if token[0] == '"' else "n" for token in found])
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.found) - self.position

    def _next(self, what: str) -> str:
        if self.position >= len(self.found):
            raise _RecordEndError(f"stops before {what}")
        self.position += 1
        return self.found[self.position - 1]

    def text(self, what: str) -> str:
        token = self._next(what)
        if token[0] != '"':
            raise RecordError(f"{what} is not text in quotes")
        return token[1:-1].replace('""', '"') if '""' in token[1:-1] else token[1:-1]

    def integer(self, what: str) -> int:
        token = self._next(what)
        if not _INTEGER.fullmatch(token):
            raise RecordError(f"{what} is not a whole number")
        return int(token)

    def count(self, what: str) -> int:
        """The length of a list, which must have room in the rest of the record."""
        number = self.integer(what)
        if not 0 <= number <= min(self.left, MAX_ENTRIES):
            raise RecordError(f"{what} is not the length of a list that follows")
        return number

    def texts(self, what: str) -> list[str]:
        return [self.text(what) for _ in range(self.count(f"the number of {what}"))]

    def pass_over(self, kinds: str) -> None:
        """Fields that are not read: s text in quotes, n a number."""
        end = self.position + len(kinds)
        found = self.kinds[self.position : end]
        if found != kinds[: len(found)]:
            raise RecordError("text stands where a number should, or a number where text should")
        if len(found) < len(kinds):
            raise _RecordEndError("stops before its end")
        self.position = end

    def pass_over_any(self, fields: int) -> None:
        """Fields that are not read and of which versions differ in whether they have quotes."""
        if self.left < fields:
            raise _RecordEndError("stops inside a list")
        self.position += fields

    def next_is_text(self) -> bool:
        return self.kinds.startswith("s", self.position)


def parse_job_finish(line: str) -> JobFinish:
    """Read one record.

    Raises:
        RecordError: if it breaks off or departs from the format before the job's status.
    """
    fields = _Fields(tokens(line))
    fields.pass_over("ss")
    event_s, job_id = fields.integer("eventTime"), fields.integer("jobId")
    fields.pass_over("nn")
    processors, submit_s = fields.integer("numProcessors"), fields.integer("submitTime")
    fields.pass_over("nn")
    start_s = fields.integer("startTime")
    user, queue, request = fields.text("userName"), fields.text("queue"), fields.text("resReq")
    depends = fields.text("dependCond")
    fields.pass_over("sssssss")
    fields.texts("askedHosts")
    slots, hosts = _slots(fields.texts("execHosts"))
    job = JobFinish(
        job_id=job_id,
        event_s=event_s,
        submit_s=submit_s,
        start_s=start_s,
        user=user,
        queue=queue,
        slots=slots or max(processors, 0),
        hosts=hosts,
        status=fields.integer("jStatus"),
        resource_request=request,
        depends=depends,
    )
    try:
        _read_behind_status(fields, job)
    except _RecordEndError:
        return job
    except RecordError:
        job.complete = False
    return job


def _slots(hosts: list[str]) -> tuple[int, tuple[str, ...]]:
    """Slots and the names of distinct hosts of a list such as ``16*a 16*b`` or ``a a b b``."""
    slots = 0
    names: dict[str, None] = {}
    for host in hosts:
        found = _SLOTS.fullmatch(host)
        slots += int(found[1]) if found else 1
        names[found[2] if found else host] = None
    return slots, tuple(names)


def _read_behind_status(fields: _Fields, job: JobFinish) -> None:
    """The fields among which the records of different versions end."""
    for part in (_accounting, _ending, _environment, _extensions, _allocation):
        part(fields, job)


def _accounting(fields: _Fields, job: JobFinish) -> None:
    fields.pass_over("n")
    job.name = fields.text("jobName")
    fields.pass_over("s" + "n" * _RUSAGE_FIELDS + "s")
    job.project = fields.text("projectName")
    fields.pass_over("nns")
    if fields.next_is_text():
        fields.pass_over("s")  # timeEvent, which OpenLava's records may lack
    job.index = max(fields.integer("idx"), 0)
    job.memory_kb = max(fields.integer("maxRMem"), 0)
    fields.pass_over("nss")


def _ending(fields: _Fields, job: JobFinish) -> None:
    fields.pass_over("ssns")
    job.exit_info = fields.integer("exitInfo")


def _environment(fields: _Fields, job: JobFinish) -> None:
    fields.pass_over("snss")
    job.application = fields.text("app")
    fields.pass_over("snssnsnss")


def _extensions(fields: _Fields, job: JobFinish) -> None:
    for _ in range(fields.count("submitExtNum")):
        fields.pass_over_any(1)
        job.submit_values.append(fields.text("a submission's value"))
    for _ in range(fields.count("numHostRusage")):
        fields.pass_over_any(1)
        fields.pass_over("nnnn")
        for _ in range(fields.count("hHostExtendNum")):
            fields.pass_over_any(2)
    # In records of LSF 9 and 10 the limit stands before options3, against the manual's order: a job with
    # -W 12:00 has "43200 0", one without has "-1 4194304".
    job.run_limit_s = fields.integer("runLimit")
    fields.pass_over("nn")
    job.effective_request = fields.text("effectiveResReq")


def _allocation(fields: _Fields, job: JobFinish) -> None:
    fields.pass_over("snsnnsnnsns")
    for _ in range(fields.count("num_network")):
        fields.pass_over_any(2)
    fields.pass_over("snnnnn")
    fields.texts("allocSlots")
    fields.pass_over("n")
    for _ in range(fields.count("indexRangeCnt")):
        fields.pass_over("nnn")
    fields.pass_over("n")
    for _ in range(fields.count("numGPURusages")):
        fields.pass_over_any(1)
        for _ in range(fields.count("numKVP")):
            fields.pass_over_any(2)
        job.gpu_usages += 1
