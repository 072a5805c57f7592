"""The adapter of Slurm: lists by slurmrestd or by commands, writes the same way, and says when it changes."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace

from gpuyard.errors import InputError
from gpuyard.serve.adapter import Action, AdapterError, Outcome
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.slurm.accounting import Finished, NoAccountingError, finished_since
from gpuyard.serve.slurm.actions import Actions
from gpuyard.serve.slurm.commands import Commands
from gpuyard.serve.slurm.jobs import STATES, JobList, Known, Memory, read_jobs
from gpuyard.serve.slurm.nodes import crowded, read_nodes
from gpuyard.serve.slurm.rest import Rest, RestFirst
from gpuyard.serve.slurm.site import SECONDS_KEPT, Site, read_site
from gpuyard.serve.slurm.values import Record, release, rows, whole
from gpuyard.serve.state import ClusterState, Node, Partition

_NODES_FROM_SCONTROL = (23, 2)
"""From this version on sinfo groups nodes, and scontrol lists them as JSON."""
_MOST_NOTES = 20


class SlurmAdapter:
    """A live Slurm.

    Args:
        settings: Time-outs, and the address of slurmrestd.
        commands: Runs Slurm's commands; None: those of PATH.
    """

    name = "slurm"

    def __init__(self, settings: ServeSettings, commands: Commands | None = None) -> None:
        self._commands = commands or Commands(settings.command_timeout_s)
        self._rest = RestFirst(_rest(settings))
        self._actions = Actions(self._commands, self._rest)
        self._site: tuple[float, Site] | None = None
        self._known: dict[str, Known] = {}
        self._memory = Memory()
        self._before: set[str] = set()
        self._down_before: set[str] | None = None
        self.accounting_problem = ""

    # --- observing ---

    def observe(self) -> ClusterState:
        """The cluster now.

        Raises:
            AdapterError: if it cannot be known; nothing is guessed.
        """
        site = self._current_site()
        node_records, job_records = self._listed("nodes"), self._listed("jobs")
        now_s = time.time() + site.clock_ahead_s
        nodes = read_nodes(node_records, site.reserved)
        threads = {
            node.name: whole(row, "threads") or 1 for node, row in zip(nodes, node_records, strict=True)
        }
        listed = read_jobs(job_records, nodes, site, threads, now_s, self._memory)
        self._known = listed.known
        nodes = _without_crowds(nodes, listed)
        state = ClusterState(
            source=f"slurm {site.version}",
            now_s=now_s,
            jobs=tuple(listed.jobs),
            nodes=tuple(nodes),
            partitions=_partitions(site, nodes, listed.notes),
            ended=tuple(one for one in listed.ended if one.id in self._before),
            notes=_notes((*site.notes, *self._rest.notes, *listed.notes)),
            nodes_changed=self._nodes_changed(nodes),
        )
        self._before = set(state.by_id)
        try:
            state.check()
        except InputError as error:
            raise AdapterError(str(error), "parse") from None
        return state

    def _current_site(self) -> Site:
        now = time.monotonic()
        if self._site is None or now - self._site[0] > SECONDS_KEPT:
            self._site = (now, read_site(self._commands))
        return self._site[1]

    def _listed(self, what: str) -> list[Record]:
        """Records of ``jobs`` or ``nodes``, from slurmrestd if that works, otherwise from commands."""
        answer: Record | None = self._rest.get(what)
        if answer is None:
            answer = self._jobs_by_command() if what == "jobs" else self._nodes_by_command()
        if not isinstance(answer.get(what), list):
            raise AdapterError(f"an answer of Slurm {release(answer)} without {what}", "parse")
        return rows(answer, what)

    def _jobs_by_command(self) -> Record:
        # Also those of partitions that are hidden: they hold nodes like others.
        return self._commands.json("squeue", "--all", "--json", f"--states={STATES}")

    def _nodes_by_command(self) -> Record:
        if _version(self._current_site().version) < _NODES_FROM_SCONTROL:
            return self._commands.json("sinfo", "--all", "--json")
        return self._commands.json("scontrol", "--all", "show", "nodes", "--json")

    def _nodes_changed(self, nodes: Sequence[Node]) -> bool:
        """Whether a node failed or came back; a plan of Slurm's is neither."""
        down = {node.name for node in nodes if node.closed and not node.closed.startswith("planned")}
        before, self._down_before = self._down_before, down
        return before is not None and before != down

    # --- acting ---

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Try each action, in this order; one that fails does not keep the others from being tried."""
        if any(action.job not in self._known for action in actions):
            try:
                self._learn()
            except AdapterError as error:
                return [Outcome(action, str(error), error.code) for action in actions]
        outcomes = self._actions.apply(actions, self._known)
        for action in actions:  # their comments are others now
            self._known.pop(action.job, None)
        return outcomes

    def give_back_all(self) -> list[Outcome]:
        """Return every job that carries the agent's mark, without need of anything the agent remembers.

        Raises:
            AdapterError: if the jobs cannot be listed.
        """
        waiting = self._learn()
        return self._actions.give_back_all([known for name, known in self._known.items() if name in waiting])

    def _learn(self) -> set[str]:
        """List jobs for the sake of their comments only; the ids of those that wait."""
        answer = self._jobs_by_command()
        if not isinstance(answer.get("jobs"), list):
            raise AdapterError("squeue printed no list of jobs", "parse")
        # Without nodes and partitions jobs count as left to Slurm, but their comments are all there.
        listed = read_jobs(rows(answer, "jobs"), (), Site(), {}, time.time())
        self._known = listed.known
        return {job.id for job in listed.jobs if job.waits}

    # --- history ---

    def finished_since(self, when_s: float) -> list[Finished] | None:
        """Jobs that ended since a time; None where Slurm keeps no history (``accounting_problem`` says why).

        Raises:
            AdapterError: if sacct fails otherwise.
        """
        try:
            found = finished_since(self._commands, when_s)
        except NoAccountingError as why:
            self.accounting_problem = str(why)
            return None
        self.accounting_problem = ""
        return found


def _rest(settings: ServeSettings) -> Rest | None:
    if settings.rest is None:
        return None
    return Rest(settings.rest, settings.rest_token_file, settings.rest_user, settings.command_timeout_s)


def _version(text: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _without_crowds(nodes: list[Node], listed: JobList) -> list[Node]:
    """Nodes on which jobs have more than there is are closed: the two lists were not of one moment."""
    crowds = set(crowded(nodes, listed.jobs))
    listed.notes += [f"node {name}: its jobs have more GPUs than it has" for name in sorted(crowds)]
    return [
        replace(node, closed=node.closed or "jobs and node disagree") if node.name in crowds else node
        for node in nodes
    ]


def _partitions(site: Site, nodes: Sequence[Node], notes: list[str]) -> tuple[Partition, ...]:
    names = {node.name for node in nodes}
    found = []
    for partition in site.partitions:
        known = tuple(name for name in partition.nodes if name in names)
        if len(known) < len(partition.nodes):
            notes.append(f"partition {partition.name}: some of its nodes are not listed")
        found.append(replace(partition, nodes=known))
    return tuple(found)


def _notes(notes: Sequence[str]) -> tuple[str, ...]:
    if len(notes) <= _MOST_NOTES:
        return tuple(notes)
    return (*notes[:_MOST_NOTES], f"and {len(notes) - _MOST_NOTES} more")
