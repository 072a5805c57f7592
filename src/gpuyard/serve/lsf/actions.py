"""Starts, ranks and returns of jobs, by bmod, bresume and btop.

Every order of steps is one in which a crash between two of them leaves no job held without the agent's word
in its description: whoever finds that word can release the job.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence

from gpuyard.serve.adapter import MARK, Action, AdapterError, GiveBack, Outcome, Reorder, Start
from gpuyard.serve.comments import Comment
from gpuyard.serve.lsf.commands import Commands, write_code
from gpuyard.serve.lsf.jobs import Known
from gpuyard.serve.lsf.ranks import moves, natural_priority, rank_word

_JOB = re.compile(r"\d+(?:\[\d+\])?")
_HOST = re.compile(r"[A-Za-z0-9][\w.-]*")
_AT_ONCE = 50
_Act = Callable[[Action, Mapping[str, Known]], None]


class Actions:
    """Does what the agent decided.

    Args:
        commands: Runs LSF's commands.
        by_brun: Start jobs by brun, which runs them at once whatever LSF's limits say.
    """

    def __init__(self, commands: Commands, by_brun: bool = False) -> None:
        self._commands, self._by_brun = commands, by_brun

    def apply(self, actions: Sequence[Action], known: Mapping[str, Known]) -> list[Outcome]:
        """Try each action; those of one kind together.

        Args:
            actions: What to do.
            known: What was last seen of jobs, in LSF's order.
        """
        done: dict[int, Outcome] = {}
        for kind, act in ((GiveBack, self._returned), (Start, self._started), (Reorder, self._reordered)):
            same = [(place, one) for place, one in enumerate(actions) if isinstance(one, kind)]
            outcomes = act([one for _, one in same], known) if same else []
            done |= {place: outcome for (place, _), outcome in zip(same, outcomes, strict=True)}
        return [done[place] for place in range(len(actions))]

    # --- starts

    def _started(self, actions: Sequence[Action], known: Mapping[str, Known]) -> list[Outcome]:
        """Prescribe the hosts of all, then release all."""
        tried = [self._tried(self._prepare, one, known) for one in actions]
        ready = [one.action for one in tried if one.ok]
        if self._by_brun:
            ran = {one.job: self._tried(self._brun, one, known) for one in ready}
        else:
            problems = self._release([one.job for one in ready])
            ran = {one.job: _outcome(one, problems[one.job]) for one in ready}
        for outcome in ran.values():
            if not outcome.ok and outcome.code != "missing":
                self._unpin(known[outcome.action.job])
        return [ran.get(one.action.job, one) if one.ok else one for one in tried]

    def _prepare(self, action: Action, known: Mapping[str, Known]) -> None:
        assert isinstance(action, Start)
        own = _known(action.job, known)
        if not action.nodes or not all(_HOST.fullmatch(node) for node in action.nodes):
            raise AdapterError(f"job {action.job} cannot start on {action.nodes!r}", "refused")
        if action.stop:
            raise AdapterError("running jobs are not stopped on LSF", "refused")
        if own.held != "agent":
            raise AdapterError(f"job {action.job} is not held for the agent", "refused")
        if own.asked_hosts and not own.pinned:
            raise AdapterError(f"job {action.job} has hosts of its own: {own.asked_hosts}", "refused")
        word = f"{MARK}{action.decision}@{','.join(action.nodes)}"
        comment = Comment.read(own.comment).with_own(word)
        self._bmod(action.job, "-m", " ".join(action.nodes), "-Jd", comment)

    def _brun(self, action: Action, known: Mapping[str, Known]) -> None:
        assert isinstance(action, Start)
        self._commands.text("brun", "-m", " ".join(action.nodes), _checked(action.job))

    def _release(self, jobs: Sequence[str]) -> dict[str, AdapterError | None]:
        """Bresume many at once; each alone if that fails, so that one does not stop the others."""
        problems: dict[str, AdapterError | None] = {}
        for first in range(0, len(jobs), _AT_ONCE):
            group = [_checked(job) for job in jobs[first : first + _AT_ONCE]]
            try:
                self._commands.text("bresume", *group)
                problems |= dict.fromkeys(group)
            except AdapterError as error:
                if len(group) == 1 or error.code in ("timeout", "missing"):
                    problems |= dict.fromkeys(group, error)
                else:
                    problems |= self._release_each(group)
        return problems

    def _release_each(self, jobs: Sequence[str]) -> dict[str, AdapterError | None]:
        problems: dict[str, AdapterError | None] = {}
        for job in jobs:
            try:
                self._commands.text("bresume", job)
                problems[job] = None
            except AdapterError as error:
                # The first try may have released it, and LSF does not resume a job that is not held.
                problems[job] = None if "not suspended" in str(error).lower() else error
        return problems

    def _unpin(self, known: Known) -> None:
        """Take hosts back after a release that failed; the first failure is the one that is told."""
        try:
            self._bmod(known.job, "-mn", *_description(known.comment))
        except AdapterError:
            return

    # --- ranks

    def _reordered(self, actions: Sequence[Action], known: Mapping[str, Known]) -> list[Outcome]:
        """Write the words of all, then move jobs to their places."""
        tried = [self._tried(self._rank, one, known) for one in actions]
        new = {
            one.action.job: one.action.priority for one in tried if one.ok and isinstance(one.action, Reorder)
        }
        problems = self._arrange(known, new)
        return [_outcome(one.action, problems.get(one.action.job)) if one.ok else one for one in tried]

    def _rank(self, action: Action, known: Mapping[str, Known]) -> None:
        assert isinstance(action, Reorder)
        own = _known(action.job, known)
        if own.held:
            raise AdapterError(f"job {action.job} is held", "refused")
        word = f"{MARK}{rank_word(action.decision, action.priority)}"
        self._bmod(action.job, *_description(Comment.read(own.comment).with_own(word)))

    def _arrange(self, known: Mapping[str, Known], new: Mapping[str, int]) -> dict[str, AdapterError | None]:
        """Move the jobs of every queue in which a priority has changed; by job, what went wrong."""
        problems: dict[str, AdapterError | None] = {}
        for queue in {known[job].queue for job in new}:
            # A job that is held has a place like others: it is counted where bjobs lists it.
            listed = [one for one in known.values() if one.queue == queue and one.waits]
            priorities = {one.job: new.get(one.job, one.priority) for one in listed}
            for job, place in moves([one.job for one in listed], priorities):
                try:
                    self._commands.text("btop", _checked(job), str(place))
                except AdapterError as error:
                    problems[job] = error
        return problems

    # --- returns

    def give_back_all(self, known: Mapping[str, Known]) -> list[Outcome]:
        """Return those jobs that wait and carry the agent's mark."""
        marked = [job for job, one in known.items() if one.waits and Comment.read(one.comment).own]
        return self._returned([GiveBack(job, "all jobs are returned") for job in marked], known)

    def _returned(self, actions: Sequence[Action], known: Mapping[str, Known]) -> list[Outcome]:
        """Hosts, holds, places, and words last: until then others see that the hold is the agent's."""
        tried = [self._tried(self._give_up_hosts, one, known) for one in actions]
        held = [one.action.job for one in tried if one.ok and known[one.action.job].held == "agent"]
        released = self._release(held)
        tried = [_outcome(one.action, released.get(one.action.job)) if one.ok else one for one in tried]
        fine = [one.action.job for one in tried if one.ok]
        moved = {job: natural_priority(job) for job in fine if known[job].priority != natural_priority(job)}
        self._arrange(known, moved)
        return [self._tried(self._clean, one.action, known) if one.ok else one for one in tried]

    def _give_up_hosts(self, action: Action, known: Mapping[str, Known]) -> None:
        own = _known(action.job, known)
        if not Comment.read(own.comment).own:
            raise AdapterError(f"job {action.job} carries no mark of the agent", "refused")
        if own.pinned:
            self._bmod(action.job, "-mn")

    def _clean(self, action: Action, known: Mapping[str, Known]) -> None:
        try:
            comment = Comment.read(known[action.job].comment)
            self._bmod(action.job, *_description(comment.with_own("")))
        except AdapterError as error:
            # It may have started as soon as it was released: a word in a running job holds nothing.
            if "started" not in str(error).lower() and write_code(error) != "missing":
                raise

    # --- commands

    def _bmod(self, job: str, *changes: str) -> None:
        self._commands.text("bmod", *changes, _checked(job))

    def _tried(self, act: _Act, action: Action, known: Mapping[str, Known]) -> Outcome:
        began = time.monotonic()
        problem: AdapterError | None = None
        try:
            act(action, known)
        except AdapterError as error:
            problem = error
        return _outcome(action, problem, time.monotonic() - began)


def _description(comment: str) -> tuple[str, ...]:
    return ("-Jd", comment) if comment else ("-Jdn",)


def _known(job: str, known: Mapping[str, Known]) -> Known:
    """What is known of a waiting job.

    Raises:
        AdapterError: if it is not in the queue.
    """
    found = known.get(job)
    if found is None or not found.waits:
        raise AdapterError(f"job {job} does not wait", "missing")
    return found


def _checked(job: str) -> str:
    """An id that is one, and no option of a command."""
    if not _JOB.fullmatch(job):
        raise AdapterError(f"{job[:40]!r} is no job of LSF", "missing")
    return job


def _outcome(action: Action, problem: AdapterError | None, seconds: float = 0.0) -> Outcome:
    if problem is None:
        return Outcome(action, seconds=seconds)
    return Outcome(action, str(problem) or "no words", write_code(problem), seconds)
