"""Starts, priorities and returns of jobs, by slurmrestd where that can, otherwise by commands."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from gpuyard.serve.adapter import MARK, Action, AdapterError, GiveBack, Outcome, Reorder, Start
from gpuyard.serve.comments import Comment
from gpuyard.serve.slurm.commands import Commands, write_code
from gpuyard.serve.slurm.jobs import Known
from gpuyard.serve.slurm.rest import RestFirst
from gpuyard.serve.slurm.writes import Writer, node_list


class Actions:
    """Does what the agent decided.

    Args:
        commands: Runs scontrol.
        rest: slurmrestd, if there is one.
    """

    def __init__(self, commands: Commands, rest: RestFirst) -> None:
        self._writer = Writer(commands)
        self._rest = rest

    def apply(self, actions: Sequence[Action], known: Mapping[str, Known]) -> list[Outcome]:
        """Try each action, in this order.

        Tasks of an array that share a record get one priority, the highest of theirs: one for each would
        make Slurm keep a record for each.

        Args:
            actions: What to do.
            known: What was last seen of jobs.
        """
        outcomes: list[Outcome] = []
        for kind, group in groupby(actions, type):
            same = list(group)
            if kind is GiveBack:
                outcomes += self._returned(same, known)
            elif kind is Reorder:
                outcomes += self._reordered([one for one in same if isinstance(one, Reorder)], known)
            else:
                outcomes += self._started([one for one in same if isinstance(one, Start)], known)
        return outcomes

    def give_back_all(self, waiting: Iterable[Known]) -> list[Outcome]:
        """Return those of these records that carry the agent's mark."""
        marked = {known.address: known for known in waiting if Comment.read(known.comment).own}
        begin = time.monotonic()
        problems = self._writer.give_back(marked.values())
        each = (time.monotonic() - begin) / max(1, len(marked))
        return [
            _outcome(GiveBack(name, "all jobs are returned"), problems[known.address], each)
            for known in marked.values()
            for name in known.members
        ]

    # --- starts ---

    def _started(self, actions: Sequence[Start], known: Mapping[str, Known]) -> list[Outcome]:
        """Prescribe the nodes of all, then release all: jobs are released many at once."""
        problems: dict[str, AdapterError | None] = {}
        seconds: dict[str, float] = {}
        for action in actions:
            begin = time.monotonic()
            try:
                self._prepare(action, known)
                problems[action.job] = None
            except AdapterError as error:
                problems[action.job] = error
            seconds[action.job] = time.monotonic() - begin
        begin = time.monotonic()
        ready = [job for job, problem in problems.items() if problem is None]
        released = self._release(ready)
        for job, problem in released.items():
            if problem is not None:
                self._unpin(job, known[job])
        problems |= released
        each = (time.monotonic() - begin) / max(1, len(ready))
        return [_outcome(action, problems[action.job], seconds[action.job] + each) for action in actions]

    def _prepare(self, action: Start, known: Mapping[str, Known]) -> None:
        """All of a start but the release."""
        own = _known(action.job, known)
        if not action.nodes:
            raise AdapterError("a start without nodes", "refused")
        if own.required and not Comment.read(own.comment).pins(own.required):
            raise AdapterError(f"job {action.job} has nodes of its own: {own.required}", "refused")
        for job in action.stop:
            self._writer.requeue(job, _known(job, known))
        if not self._pinned_by_rest(action, own):
            self._writer.pin(action.job, own, action.nodes, action.decision)

    def _release(self, jobs: Sequence[str]) -> dict[str, AdapterError | None]:
        """By slurmrestd where that can; the others by command."""
        problems: dict[str, AdapterError | None] = {}
        for job in jobs:
            try:
                if self._rest.update(job, {"hold": False}):
                    problems[job] = None
            except AdapterError as error:
                problems[job] = error
        return problems | self._writer.release([job for job in jobs if job not in problems])

    def _pinned_by_rest(self, action: Start, known: Known) -> bool:
        own = f"{MARK}{action.decision}@{node_list(action.nodes)}"
        comment = Comment.read(known.comment).with_own(own)
        return not known.delayed and self._rest.update(
            action.job, {"required_nodes": list(action.nodes), "admin_comment": comment}
        )

    def _unpin(self, job: str, known: Known) -> None:
        """Take the nodes back after a release that failed; the first failure is the one that is told."""
        try:
            self._writer.unpin(job, known)
        except AdapterError:
            return

    # --- priorities ---

    def _reordered(self, actions: Sequence[Reorder], known: Mapping[str, Known]) -> list[Outcome]:
        highest: dict[str, int] = {}
        for action in actions:
            if action.job in known:
                address = known[action.job].address
                highest[address] = max(action.priority, highest.get(address, action.priority))
        done: dict[str, Outcome] = {}
        outcomes = []
        for action in actions:
            address = known[action.job].address if action.job in known else action.job
            if address in done:
                outcomes.append(Outcome(action, done[address].error, done[address].code))
                continue
            begin = time.monotonic()
            problem: AdapterError | None = None
            try:
                self._reorder(_known(action.job, known), action, highest.get(address, action.priority))
            except AdapterError as error:
                problem = error
            done[address] = _outcome(action, problem, time.monotonic() - begin)
            outcomes.append(done[address])
        return outcomes

    def _reorder(self, known: Known, action: Reorder, priority: int) -> None:
        comment = Comment.read(known.comment).with_own(f"{MARK}{action.decision}")
        if known.held:
            # Slurm refuses as well, but writes the comment all the same: the mark of a hold would be lost.
            raise AdapterError(f"job {action.job} is held", "refused")
        if known.address == action.job and self._rest.update(
            action.job, {"priority": priority, "admin_comment": comment}
        ):
            return
        self._writer.prioritise(known, priority, action.decision)

    # --- returns ---

    def _returned(self, actions: Sequence[Action], known: Mapping[str, Known]) -> list[Outcome]:
        begin = time.monotonic()
        asked = {action.job for action in actions}
        records: dict[str, Known] = {}
        problems: dict[str, AdapterError | None] = {}
        for action in actions:
            try:
                own = _known(action.job, known)
                if not Comment.read(own.comment).own:
                    raise AdapterError(f"job {action.job} carries no mark of the agent", "refused")
            except AdapterError as error:
                problems[action.job] = error
                continue
            whole = asked.issuperset(own.members)
            records[action.job] = own if whole else replace(own, address=action.job, members=(action.job,))
        written = self._writer.give_back(records.values())
        each = (time.monotonic() - begin) / max(1, len(actions))
        problems |= {job: written[record.address] for job, record in records.items()}
        return [_outcome(action, problems[action.job], each) for action in actions]


def _known(job: str, known: Mapping[str, Known]) -> Known:
    """What is known of a job.

    Raises:
        AdapterError: if it is not in the queue.
    """
    found = known.get(job)
    if found is None:
        raise AdapterError(f"job {job} is not in the queue", "missing")
    return found


def _outcome(action: Action, problem: AdapterError | None, seconds: float) -> Outcome:
    if problem is None:
        return Outcome(action, seconds=seconds)
    return Outcome(action, str(problem) or "no words", write_code(problem), seconds)
