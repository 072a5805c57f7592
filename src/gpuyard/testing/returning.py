"""That no job waits for an agent that is not there."""

from gpuyard.serve.adapter import Action, GiveBack
from gpuyard.serve.signs import Signs
from gpuyard.serve.watchdog import look
from gpuyard.testing.case import AdapterCase, refusals, roomy, start
from gpuyard.testing.double import held_ones

SILENCE_S = 30.0


class ReturningTests(AdapterCase):
    """Giving jobs back, by the agent, by an operator and by the watchdog."""

    def _signs(self, beats: bool) -> Signs:
        signs = Signs(self.place / "state")
        signs.make()
        if beats:
            assert signs.beat()
        return signs

    def test_the_watchdog_returns_what_a_silent_agent_holds(self) -> None:
        """And nothing that its user holds."""
        self.need("hold")
        jobs = [self.double.submit() for _ in range(3)]
        own = self.double.submit(held="user")
        found = look(self._signs(False), self.double.adapter(), SILENCE_S)
        assert found.ok, found.error
        assert {one.action.job for one in found.outcomes} == set(jobs)
        assert held_ones(self.double, [*jobs, own]) == {own}

    def test_the_watchdog_leaves_a_living_agent_alone(self) -> None:
        """A young heartbeat is enough."""
        job = self.double.submit()
        before = self.double.account()
        assert look(self._signs(True), self.double.adapter(), SILENCE_S).alive
        assert self.double.account() == before, job

    def test_a_halt_returns_all_jobs_though_the_agent_lives(self) -> None:
        """``gpuyard serve halt``."""
        self.need("hold")
        job = self.double.submit()
        signs = self._signs(True)
        signs.halt("a test")
        assert look(signs, self.double.adapter(), SILENCE_S).ok
        assert not self.double.is_held(job)

    def test_the_watchdog_says_so_when_the_scheduler_is_down(self) -> None:
        """And returns the jobs when it is back."""
        self.need("down")
        self.need("hold")
        job = self.double.submit()
        self.double.fault("down")
        found = look(self._signs(False), self.double.adapter(), SILENCE_S)
        assert found.error or not all(one.ok for one in found.outcomes)
        self.double.fault("")
        assert look(self._signs(False), self.double.adapter(), SILENCE_S).ok
        assert not self.double.is_held(job)

    def test_what_was_given_back_carries_no_mark(self) -> None:
        """A second time there is nothing to give back."""
        jobs = [self.double.submit() for _ in range(2)]
        self.double.adapter().give_back_all()
        assert self.double.adapter().give_back_all() == []
        if "hold" in self.double.can:
            state = self.double.adapter().observe()
            assert {state.by_id[job].held for job in jobs if job in state.by_id} <= {""}
            assert {state.by_id[job].mark for job in jobs if job in state.by_id} <= {""}

    def test_a_released_job_that_does_not_start_can_be_given_back(self) -> None:
        """Then it may run anywhere."""
        self.need("hold")
        self.need("unpin")
        job = self.double.submit()
        adapter = self.double.adapter()
        adapter.apply([start(job, roomy(adapter.observe()))])
        adapter.observe()
        actions: list[Action] = [GiveBack(job, "it did not start")]
        assert refusals(adapter.apply(actions), actions) == [""]
        assert self.double.nodes_of(job) == frozenset()
        assert not self.double.is_held(job)

    def test_ranks_can_be_given_back(self) -> None:
        """After that nothing is marked, and the jobs are all still there."""
        self.need("order")
        jobs = [self.double.submit(held="") for _ in range(3)]
        agent = self.agent(self.double.adapter(), control="order", policy="fifo+easy")
        record = agent.round()
        assert record is not None, agent.errors
        agent.stop()
        state = self.double.adapter().observe()
        assert set(jobs) <= set(state.by_id)
        assert {state.by_id[job].mark for job in jobs} == {""}
        assert sorted(self.double.order()) == sorted(jobs)

    def test_an_agent_that_ends_returns_what_it_holds(self) -> None:
        """SIGTERM ends in ``stop``."""
        self.need("hold")
        jobs = [self.double.submit() for _ in range(3)]
        agent = self.agent(self.double.adapter())
        assert agent.round() is not None, agent.errors
        later = self.double.submit()
        agent.stop()
        assert held_ones(self.double, [*jobs, later]) == set()

    def test_an_agent_starts_every_job_once(self) -> None:
        """On nodes with room, and an agent that comes after it starts none again."""
        self.need("hold")
        jobs = [self.double.submit() for _ in range(3)]
        first = self.agent(self.double.adapter())
        assert first.round() is not None, first.errors
        first.chooser.close()
        first.journal.close()
        placed = {job: self.double.nodes_of(job) for job in jobs}
        assert all(placed.values()), placed
        second = self.agent(self.double.adapter())
        second.restore()
        record = second.round()
        assert record is not None, second.errors
        assert record.starts == (), "it starts again what is on its way"
        assert {job: self.double.nodes_of(job) for job in jobs} == placed
        second.chooser.close()
        second.journal.close()
