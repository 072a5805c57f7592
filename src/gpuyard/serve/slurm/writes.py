"""What is written to jobs: nodes prescribed, releases, priorities, and all of that taken back.

Every order of steps is one in which a crash between two of them leaves no job held without the agent's word
in its comment: whoever finds that word can release the job.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence

from gpuyard.cluster.hostlists import compressed_nodes
from gpuyard.serve.adapter import HELD_MARK, MARK, AdapterError
from gpuyard.serve.comments import Comment
from gpuyard.serve.slurm.commands import Commands
from gpuyard.serve.slurm.jobs import Known

_AT_ONCE = 50
_SINGLE = re.compile(r"\d+(?:_\d+)?")
_ADDRESS = re.compile(r"\d+(?:_\d+|_\[[\d,:-]+\])?")
_NAMED = re.compile(r"\bjob (\d+(?:_\d+)?)\b|(?<!\S)(\d+_\d+):")
_REQUEUE_TRIES = 5
_REQUEUE_PAUSE_S = 0.2
_Write = Callable[[str], None]


class Writer:
    """Writes to jobs with scontrol.

    Args:
        commands: Runs it.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def pin(self, job: str, known: Known, nodes: Sequence[str], decision: str) -> None:
        """Prescribe nodes, with the decision in the comment, in one step.

        Raises:
            AdapterError: if Slurm refuses.
        """
        listed = node_list(nodes)
        own = Comment.read(known.comment).with_own(f"{MARK}{decision}@{listed}")
        self._update(job, f"ReqNodeList={listed}", f"AdminComment={own}", *_now(known))

    def release(self, jobs: Sequence[str]) -> dict[str, AdapterError | None]:
        """Let Slurm start jobs; by job, what went wrong.

        Their priorities become Slurm's own again, also if they were not held. Many at once take a fifth of
        the time that each alone takes.
        """
        problems: dict[str, AdapterError | None] = dict.fromkeys(jobs)
        self._each(jobs, problems, self._release_all)
        return problems

    def unpin(self, job: str, known: Known) -> None:
        """Take back ``pin``: what the job required and its comment are as they were.

        Raises:
            AdapterError: if Slurm refuses.
        """
        self._update(job, "ReqNodeList=", f"AdminComment={known.comment}")

    def prioritise(self, known: Known, priority: int, decision: str) -> None:
        """Set a priority, with the decision in the comment.

        Raises:
            AdapterError: if Slurm refuses.
        """
        own = Comment.read(known.comment).with_own(f"{MARK}{decision}")
        self._update(known.address, f"Priority={int(priority)}", f"AdminComment={own}")

    def requeue(self, job: str, known: Known) -> None:
        """Stop a job and queue it again, held for the agent.

        Slurm lets a requeued job wait for two minutes (BeginTime); if anything fails after the first step, it
        starts by itself after that.

        Raises:
            AdapterError: if Slurm refuses.
        """
        self._commands.text("scontrol", "requeue", _checked(job))
        comment = Comment.read(known.comment)
        cleared = ("ReqNodeList=",) if comment.pins(known.required) else ()
        changes = ("StartTime=now", "Priority=0", f"AdminComment={comment.with_own(HELD_MARK)}", *cleared)
        for attempt in range(_REQUEUE_TRIES):
            try:
                self._update(job, *changes)
            except AdapterError:  # while its processes end, it takes no changes
                if attempt + 1 == _REQUEUE_TRIES:
                    raise
                time.sleep(_REQUEUE_PAUSE_S)
            else:
                return

    def give_back(self, records: Iterable[Known]) -> dict[str, AdapterError | None]:
        """Take back all that the agent did to these records; by address, what went wrong.

        The comment is cleaned last: until then others can see that the hold is the agent's. Records are
        released in their order, because without multifactor priorities that becomes the order of starts.
        """
        listed = list({known.address: known for known in records}.values())
        problems: dict[str, AdapterError | None] = {known.address: None for known in listed}
        comments = {known.address: Comment.read(known.comment) for known in listed}
        pinned = [known.address for known in listed if comments[known.address].pins(known.required)]
        delayed = [known.address for known in listed if known.delayed]
        self._each(pinned, problems, lambda jobs: self._update(jobs, "ReqNodeList="))
        self._each(delayed, problems, lambda jobs: self._update(jobs, "StartTime=now"))
        # Somebody else's hold stays.
        self._each([known.address for known in listed if known.held != "other"], problems, self._release_all)
        rests: dict[str, list[str]] = {}
        for address in problems:
            rests.setdefault(comments[address].with_own(""), []).append(address)
        for rest, addresses in rests.items():
            self._each(addresses, problems, _Cleaner(self, rest))
        return problems

    def update(self, jobs: str, *changes: str) -> None:
        """Change one job, or several between commas.

        Raises:
            AdapterError: if Slurm refuses.
        """
        self._commands.text("scontrol", "update", f"JobId={jobs}", *changes)

    def _update(self, jobs: str, *changes: str) -> None:
        for job in [jobs] if "[" in jobs else jobs.split(","):
            _checked(job)
        self.update(jobs, *changes)

    def _release_all(self, jobs: str) -> None:
        self._commands.text("scontrol", "release", jobs)

    def _each(
        self, addresses: Sequence[str], problems: dict[str, AdapterError | None], write: _Write
    ) -> None:
        """Write to many at once; to each alone if that fails, so that one does not stop the others."""
        fine = [address for address in addresses if problems[address] is None]
        single = [address for address in fine if _SINGLE.fullmatch(address)]
        alone = [address for address in fine if not _SINGLE.fullmatch(address)]
        for group in (single[place : place + _AT_ONCE] for place in range(0, len(single), _AT_ONCE)):
            try:
                write(",".join(group))
            except AdapterError as error:
                if len(group) == 1 or error.code in ("timeout", "missing"):
                    problems.update(dict.fromkeys(group, error))
                else:
                    alone.extend(_named_in(str(error), group))
        for address in alone:
            try:
                write(_checked(address))
            except AdapterError as error:
                problems[address] = error


class _Cleaner:
    """Leaves a site's own words in the comment."""

    def __init__(self, writer: Writer, rest: str) -> None:
        self._writer, self._rest = writer, rest

    def __call__(self, jobs: str) -> None:
        self._writer.update(jobs, f"AdminComment={self._rest}")


def node_list(nodes: Sequence[str]) -> str:
    """Names as Slurm takes them."""
    return compressed_nodes(nodes) or ",".join(nodes)


def _named_in(said: str, group: Sequence[str]) -> Sequence[str]:
    """The jobs that a failure is about; all if it names none.

    The others were written to, and may have started since: to write to them again would fail.
    """
    named = {first or second for first, second in _NAMED.findall(said)}
    return [job for job in group if job in named] or group


def _now(known: Known) -> tuple[str, ...]:
    return ("StartTime=now",) if known.delayed else ()


def _checked(address: str) -> str:
    """An address that is one, and no option of scontrol."""
    if not _ADDRESS.fullmatch(address):
        raise AdapterError(f"{address[:40]!r} is no job of Slurm", "missing")
    return address
