"""What may go wrong with a scheduler, and that nothing is guessed then."""

import math
import time
from unittest import SkipTest

from gpuyard.serve.adapter import Action, AdapterError
from gpuyard.testing.case import AdapterCase, observation_error, refusals, roomy, start
from gpuyard.testing.double import FAULTS, held_ones

LONGEST_S = 30.0
"""A scheduler that hangs is given up long before this."""


class FaultTests(AdapterCase):
    """Hang, garbage, half an answer, no answer, jobs that vanish, clocks that jump."""

    def test_a_scheduler_that_hangs_is_given_up(self) -> None:
        """Within the time-out of the settings."""
        began = time.monotonic()
        assert self._observed_error("hang").code == "timeout"
        assert time.monotonic() - began < LONGEST_S

    def test_garbage_is_an_error_and_no_empty_cluster(self) -> None:
        """An empty list would give every job up."""
        assert self._observed_error("garbage").code in ("parse", "exit")

    def test_half_an_answer_is_an_error(self) -> None:
        """Half of the jobs are not the jobs."""
        assert self._observed_error("partial").code in ("parse", "exit")

    def test_a_scheduler_that_is_down_is_an_error(self) -> None:
        """And it is not forgotten what it says."""
        assert self._observed_error("down").code in ("exit", "timeout", "refused")

    def _observed_error(self, name: str) -> AdapterError:
        self.need(name)
        jobs = [self.double.submit() for _ in range(2)]
        adapter = self.double.adapter()
        before = adapter.observe()
        self.double.fault(name)
        error = observation_error(adapter)
        self.double.fault("")
        after = adapter.observe()
        assert set(after.by_id) == set(before.by_id) == set(jobs), "all is well again afterwards"
        return error

    def test_writes_that_fail_lose_no_job(self) -> None:
        """Whatever a fault leaves behind, the job starts later or can be given back."""
        known = [name for name in FAULTS if name in self.double.faults]
        if not known:
            raise SkipTest(f"{type(self.double).__name__} has no faults")
        jobs = [self.double.submit() for _ in known]
        adapter = self.double.adapter()
        node = roomy(adapter.observe())
        for name, job in zip(known, jobs, strict=True):
            adapter.observe()
            self.double.fault(name)
            self._tried(job, node)
            self.double.fault("")
        for outcome in self.double.adapter().give_back_all():
            assert outcome.ok, outcome.error
        assert held_ones(self.double, jobs) == set()

    def _tried(self, job: str, node: str) -> None:
        adapter = self.double.adapter()
        actions: list[Action] = [start(job, node)]
        try:
            codes = refusals(adapter.apply(actions), actions)
        except AdapterError:
            return
        assert codes != [""] or not self.double.is_held(job), "it says that it worked, but it did not"

    def test_a_job_that_vanishes_between_look_and_deed_is_missing(self) -> None:
        """It is no failure of the scheduler."""
        self.need("vanish")
        job = self.double.submit()
        adapter = self.double.adapter()
        node = roomy(adapter.observe())
        self.double.vanish(job)
        actions: list[Action] = [start(job, node)]
        assert refusals(adapter.apply(actions), actions) == ["missing"]
        assert job not in {one.id for one in adapter.observe().waiting}

    def test_a_clock_that_jumps_breaks_nothing(self) -> None:
        """Jobs are then submitted in the future, or started before they came."""
        self.need("clock")
        jobs = [self.double.submit() for _ in range(2)]
        agent = self.agent(self.double.adapter(), interval_s=0.1)
        for jump_s in (0.0, -7200.0, 14400.0):
            self.double.clock(jump_s)
            jobs.append(self.double.submit())
            record = agent.round()
            assert record is not None, agent.errors
            assert record.cause == "", record.words
            assert math.isfinite(record.at_s)
        agent.stop()
        assert held_ones(self.double, jobs) == set()
