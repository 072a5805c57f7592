"""What the tests of adapters have in common: a double per test, and plain ways to say what is expected."""

import io
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.adapter import Action, Adapter, AdapterError, Outcome, Start
from gpuyard.serve.journal import Journal
from gpuyard.serve.process.agent import Agent
from gpuyard.serve.process.log import Log
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from gpuyard.serve.state import ClusterState, Job
from gpuyard.testing.double import SchedulerDouble

CODES = ("timeout", "exit", "parse", "refused", "missing")
"""Codes of errors that adapters may have."""


class AdapterCase:
    """A double for each test, in a directory of its own."""

    double_type: ClassVar[type[SchedulerDouble]]
    """What the scheduler is; set it in your class."""

    def setup_method(self, *_: object) -> None:
        """Begin a test, as pytest does."""
        # Paths of sockets must be short, so it is not the directory that pytest would give.
        self.place = Path(tempfile.mkdtemp(prefix="adapter-"))
        self.double = self.double_type(self.place / "site")

    def teardown_method(self, *_: object) -> None:
        """End a test."""
        try:
            self.double.close()
        finally:
            shutil.rmtree(self.place, ignore_errors=True)

    def setUp(self) -> None:
        """Begin a test, as unittest does."""
        self.setup_method()

    def tearDown(self) -> None:
        """End a test, as unittest does."""
        self.teardown_method()

    def need(self, what: str) -> None:
        """Skip the test where the scheduler has no such thing."""
        if what not in self.double.can and what not in self.double.faults:
            raise SkipTest(f"{type(self.double).__name__} has no {what!r}")

    # --- shorthands

    def agent(self, adapter: Adapter, **more: Any) -> Agent:
        """An agent on an adapter that acts by ``fifo+easy``."""
        values: dict[str, Any] = {"mode": "active", "control": "start", "deadline_ms": 10_000.0}
        settings = ServeSettings(state_dir=self.place / "state", **(values | more))
        signs = Signs(settings.state_dir)
        signs.make()
        policy = parse_policy("fifo+easy")
        return Agent(
            settings, adapter, policy, policy, Journal.open(settings.journal), signs, Log(io.StringIO())
        )


def waiting(state: ClusterState, job: str) -> Job:
    """A job that must be listed as waiting."""
    found = state.by_id.get(job)
    assert found is not None, f"job {job} is not listed; listed are {sorted(state.by_id)}"
    assert found.waits, f"job {job} is {found.phase}, expected it to wait"
    return found


def roomy(state: ClusterState, gpus: int = 1, but: Sequence[str] = ()) -> str:
    """A node that takes a job of so many GPUs, the last one: a scheduler by itself takes the first."""
    used = {node.name: node.gpus_used or 0 for node in state.nodes}
    for job in state.running:
        for share in job.shares:
            used[share.node] = max(used[share.node], 0) + share.gpus
    fits = [
        node.name
        for node in state.nodes
        if not node.closed and node.name not in but and node.gpus - used[node.name] >= gpus
    ]
    assert fits, f"no node has room for {gpus} GPUs"
    return fits[-1]


def start(job: str, node: str, decision: str = "1-0", gpus: int = 1) -> Start:
    """A start on one node."""
    return Start(job, (node,), decision, (), (gpus,))


def refusals(outcomes: Sequence[Outcome], actions: Sequence[Action]) -> list[str]:
    """Codes of outcomes, of which there must be one for each action, in the same order."""
    assert [one.action for one in outcomes] == list(actions), "one outcome per action, in their order"
    for one in outcomes:
        assert one.ok or one.code in CODES, f"unknown code {one.code!r}"
        assert one.seconds >= 0.0
    return [one.code for one in outcomes]


def observation_error(adapter: Adapter) -> AdapterError:
    """The error with which an observation must end."""
    try:
        state = adapter.observe()
    except AdapterError as raised:
        error = raised
    else:
        raise AssertionError(f"expected an error, but it observed {len(state.jobs)} jobs")
    assert error.code in CODES, f"unknown code {error.code!r}"
    assert str(error), "an error without words"
    return error
