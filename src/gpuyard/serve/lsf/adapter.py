"""The adapter of LSF: lists and writes by commands, and leaves to LSF what it cannot represent."""

import time
from collections.abc import Sequence
from dataclasses import replace

from gpuyard.errors import InputError
from gpuyard.serve.adapter import Action, AdapterError, Outcome
from gpuyard.serve.lsf.actions import Actions
from gpuyard.serve.lsf.commands import Commands
from gpuyard.serve.lsf.door import SOCKET, Choose, Door
from gpuyard.serve.lsf.hosts import HOST_FIELDS, Site, gpus_in_use, read_nodes, read_site
from gpuyard.serve.lsf.jobs import FIELDS, JobList, Known, read_jobs
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Node

_SITE_KEPT_S = 60.0
_MOST_NOTES = 20


class LsfAdapter:
    """A live LSF.

    Args:
        settings: Time-outs, and how jobs are started.
        commands: Runs LSF's commands; None: those of PATH.
    """

    name = "lsf"

    def __init__(self, settings: ServeSettings, commands: Commands | None = None) -> None:
        self._commands = commands or Commands(settings.command_timeout_s)
        self._actions = Actions(self._commands, settings.lsf_start == "brun")
        self._socket = settings.state_dir / SOCKET
        self._site: tuple[float, Site] | None = None
        self._known: dict[str, Known] = {}
        self._keys: dict[str, str] = {}
        self._before: set[str] = set()
        self._down_before: set[str] | None = None

    # --- observing

    def observe(self) -> ClusterState:
        """The cluster now.

        Raises:
            AdapterError: if it cannot be known; nothing is guessed.
        """
        site = self._current_site()
        hosts = self._commands.records("bhosts", "-o", HOST_FIELDS, "-json")
        if not hosts:
            raise AdapterError("bhosts lists no hosts", "parse")
        used = gpus_in_use(self._commands.text("bhosts", "-gpu")) if _has_gpus(site) else {}
        records = self._records()
        now_s = time.time()
        nodes = read_nodes(hosts, used, site)
        listed = read_jobs(records, nodes, site, now_s)
        self._known = listed.known
        self._keys = {key: job for job, one in listed.known.items() if (key := one.key)}
        nodes = _without_crowds(nodes, listed)
        names = {node.name for node in nodes}
        state = ClusterState(
            source="lsf",
            now_s=now_s,
            jobs=tuple(listed.jobs),
            nodes=tuple(nodes),
            partitions=tuple(
                replace(queue, nodes=tuple(name for name in queue.nodes if name in names))
                for queue in site.partitions
            ),
            ended=tuple(one for one in listed.ended if one.id in self._before),
            notes=_notes((*site.notes, *listed.notes)),
            nodes_changed=self._nodes_changed(nodes),
        )
        self._before = set(state.by_id)
        try:
            state.check()
        except InputError as error:
            raise AdapterError(str(error), "parse") from None
        return state

    def _records(self) -> list[dict[str, str]]:
        # -a also lists jobs that ended lately: that is how an end is told from a job that is gone.
        return self._commands.records("bjobs", "-a", "-u", "all", "-o", FIELDS, "-json")

    def _current_site(self) -> Site:
        now = time.monotonic()
        if self._site is None or now - self._site[0] > _SITE_KEPT_S:
            self._site = (now, read_site(self._commands))
        return self._site[1]

    def _nodes_changed(self, nodes: Sequence[Node]) -> bool:
        """Whether a host failed or came back."""
        down = {node.name for node in nodes if node.closed}
        before, self._down_before = self._down_before, down
        return before is not None and before != down

    def door(self, choose: Choose) -> Door:
        """Where LSF's scheduler plugin asks; it names jobs by the keys in their descriptions.

        Args:
            choose: Chooses by the id of a job.
        """
        return Door(
            self._socket, lambda key, hosts: choose(self._keys[key], hosts) if key in self._keys else ()
        )

    # --- acting

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Try each action, in this order; one that fails does not keep the others from being tried."""
        if any(action.job not in self._known for action in actions):
            try:
                self._known = self._learn()
            except AdapterError as error:
                return [Outcome(action, str(error), error.code) for action in actions]
        outcomes = self._actions.apply(actions, self._known)
        self._known = {}  # descriptions and places are others now
        return outcomes

    def give_back_all(self) -> list[Outcome]:
        """Return every job that carries the agent's mark, without need of anything the agent remembers.

        Raises:
            AdapterError: if the jobs cannot be listed.
        """
        return self._actions.give_back_all(self._learn())

    def _learn(self) -> dict[str, Known]:
        """List jobs for the sake of their descriptions only."""
        return read_jobs(self._records(), (), Site(), time.time()).known


def _has_gpus(site: Site) -> bool:
    return any(host.gpus for host in site.hosts.values())


def _without_crowds(nodes: list[Node], listed: JobList) -> list[Node]:
    """Hosts on which jobs have more GPUs than there are are closed: the lists were not of one moment."""
    held: dict[str, int] = {}
    for job in listed.jobs:
        for share in job.shares:
            held[share.node] = held.get(share.node, 0) + share.gpus
    crowds = {node.name for node in nodes if held.get(node.name, 0) > node.gpus}
    listed.notes += [f"host {name}: its jobs have more GPUs than it has" for name in sorted(crowds)]
    return [
        replace(node, closed=node.closed or "jobs and host disagree") if node.name in crowds else node
        for node in nodes
    ]


def _notes(notes: Sequence[str]) -> tuple[str, ...]:
    if len(notes) <= _MOST_NOTES:
        return tuple(notes)
    return (*notes[:_MOST_NOTES], f"and {len(notes) - _MOST_NOTES} more")
