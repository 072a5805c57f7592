"""What starts and priorities must do, and what they must not."""

from dataclasses import replace

from gpuyard.serve.adapter import Action, GiveBack, Reorder
from gpuyard.testing.case import AdapterCase, refusals, roomy, start, waiting


class ActingTests(AdapterCase):
    """Starts and priorities."""

    def test_a_started_job_gets_the_nodes_of_the_decision_and_no_others(self) -> None:
        """And the hold is gone."""
        job, other = self.double.submit(), self.double.submit()
        adapter = self.double.adapter()
        node = roomy(adapter.observe())
        actions = [start(job, node)]
        assert refusals(adapter.apply(actions), actions) == [""]
        if "run" in self.double.can:
            self.double.run()
        assert self.double.nodes_of(job) == {node}
        assert not self.double.is_held(job)
        assert self.double.is_held(other) == ("hold" in self.double.can)

    def test_a_started_job_is_seen_where_it_runs(self) -> None:
        """With the GPUs that it holds there."""
        self.need("run")
        job, _ = self.double.submit(2), self.double.submit()
        adapter = self.double.adapter()
        node = roomy(adapter.observe(), 2)
        adapter.apply([start(job, node, gpus=2)])
        self.double.run()
        seen = adapter.observe().by_id[job]
        assert seen.phase in ("starting", "running")
        assert [(share.node, share.gpus) for share in seen.shares] == [(node, 2)]
        assert seen.begin_s is not None

    def test_a_released_job_carries_its_decision(self) -> None:
        """So that an agent that comes after a sudden end knows what is on its way."""
        self.need("hold")
        job = self.double.submit()
        adapter = self.double.adapter()
        adapter.apply([start(job, roomy(adapter.observe()), "7-3")])
        seen = self.double.adapter().observe().by_id[job]
        assert (seen.held, seen.mark) == ("", "7-3")

    def test_what_fails_keeps_nothing_else_from_being_tried(self) -> None:
        """One outcome for each, in order."""
        self.need("vanish")
        first, gone, last = (self.double.submit() for _ in range(3))
        adapter = self.double.adapter()
        state = adapter.observe()
        self.double.vanish(gone)
        node = roomy(state)
        actions: list[Action] = [start(first, node), start(gone, node, "1-1"), start(last, node, "1-2")]
        assert refusals(adapter.apply(actions), actions) == ["", "missing", ""]
        assert self.double.nodes_of(first) == self.double.nodes_of(last) == {node}

    def test_a_job_that_never_was_is_missing(self) -> None:
        """Also if its id is none."""
        self.need("hold")
        self.double.submit()
        adapter = self.double.adapter()
        node = roomy(adapter.observe())
        actions: list[Action] = [start(id, node) for id in ("987654", "-h", "$(id)", "")]
        codes = refusals(adapter.apply(actions), actions)
        assert set(codes) <= {"missing", "refused"}

    def test_a_start_on_a_node_that_there_is_not_changes_nothing(self) -> None:
        """The job waits for the agent as before."""
        self.need("hold")
        job = self.double.submit()
        adapter = self.double.adapter()
        adapter.observe()
        actions: list[Action] = [start(job, "no-such-node")]
        assert refusals(adapter.apply(actions), actions) == ["refused"]
        assert self.double.is_held(job)
        assert waiting(self.double.adapter().observe(), job).held == "agent"

    def test_a_start_without_nodes_is_refused(self) -> None:
        """Rather than a start anywhere."""
        self.need("hold")
        job = self.double.submit()
        adapter = self.double.adapter()
        adapter.observe()
        actions: list[Action] = [replace(start(job, "x"), nodes=(), gpus=())]
        assert refusals(adapter.apply(actions), actions) == ["refused"]
        assert self.double.is_held(job)

    def test_a_job_that_its_user_holds_is_never_released(self) -> None:
        """Not even if somebody decides so."""
        self.need("hold")
        job = self.double.submit(held="user")
        adapter = self.double.adapter()
        adapter.observe()
        adapter.apply([GiveBack(job, "by mistake")])
        assert self.double.is_held(job)

    def test_priorities_become_the_order_of_the_scheduler(self) -> None:
        """Larger goes first; jobs that nobody ranked come after."""
        self.need("order")
        jobs = [self.double.submit(held="") for _ in range(6)]
        wanted = [jobs[place] for place in (4, 1, 5, 0)]
        adapter = self.double.adapter()
        adapter.observe()
        actions: list[Action] = [
            Reorder(job, 1_500_000_000 - place, f"1-{place}") for place, job in enumerate(wanted)
        ]
        assert refusals(adapter.apply(actions), actions) == ["", "", "", ""]
        assert self.double.order()[:4] == wanted
        state = adapter.observe()
        priorities = [state.by_id[job].priority for job in wanted]
        assert priorities == sorted(priorities, reverse=True)
        assert all(state.by_id[job].mark for job in wanted)

    def test_a_priority_never_releases_a_held_job(self) -> None:
        """Whoever holds it."""
        self.need("order")
        self.need("hold")
        jobs = [self.double.submit(held=who) for who in ("agent", "user")]
        adapter = self.double.adapter()
        adapter.observe()
        actions: list[Action] = [Reorder(job, 1_500_000_000, "1-0") for job in jobs]
        codes = refusals(adapter.apply(actions), actions)
        assert codes == ["refused", "refused"]
        assert all(self.double.is_held(job) for job in jobs)
        assert waiting(self.double.adapter().observe(), jobs[0]).held == "agent"
