"""What an adapter must see, and that to look changes nothing."""

from dataclasses import replace

from gpuyard.serve.state import ClusterState
from gpuyard.testing.case import AdapterCase, waiting


class ObservingTests(AdapterCase):
    """Observations."""

    def test_a_state_reads_back_from_its_text(self) -> None:
        """The journal keeps texts: a state must survive that to the last bit."""
        self.double.submit()
        state = self.double.adapter().observe()
        state.check()
        assert state.source, "a state says who said so"
        assert ClusterState.from_json(state.json_text) == state

    def test_a_job_is_seen_as_it_was_submitted(self) -> None:
        """GPUs, and who holds it."""
        job = self.double.submit(2)
        state = self.double.adapter().observe()
        seen = waiting(state, job)
        assert (seen.gpus, seen.left) == (2, ""), "a plain job is the agent's"
        assert seen.begin_s is None
        assert seen.shares == ()
        assert seen.submit_s <= state.now_s + 60.0, "it was submitted before now"
        assert seen.held == ("agent" if "hold" in self.double.can or seen.held else "")

    def test_a_job_that_its_user_holds_is_not_the_agents(self) -> None:
        """Somebody's own hold must never be released."""
        self.need("hold")
        job = self.double.submit(held="user")
        assert waiting(self.double.adapter().observe(), job).held == "other"

    def test_a_job_that_nobody_holds_is_seen_so(self) -> None:
        """Such as those that came while no agent lived."""
        self.need("hold")
        job = self.double.submit(held="")
        seen = waiting(self.double.adapter().observe(), job)
        assert (seen.held, seen.mark) == ("", "")

    def test_nodes_are_whole(self) -> None:
        """At least two nodes with room, each with a type and with CPUs."""
        self.double.submit()
        state = self.double.adapter().observe()
        opened = [node for node in state.nodes if not node.closed]
        assert sum(node.gpus >= 2 for node in opened) >= 2
        assert all(node.gpu_type and node.cpus >= 1 for node in opened)
        listed = {node.name for node in state.nodes}
        assert all(listed.issuperset(partition.nodes) for partition in state.partitions)

    def test_looking_changes_nothing(self) -> None:
        """Shadow mode only observes."""
        for _ in range(2):
            self.double.submit()
        adapter, before = self.double.adapter(), self.double.account()
        adapter.observe()
        assert self.double.account() == before

    def test_the_same_cluster_looks_the_same_to_an_agent_that_came_later(self) -> None:
        """An adapter may remember what saves time, but nothing that a restart would lose."""
        self.need("hold")
        for gpus in (1, 2):
            self.double.submit(gpus)
        old = self.double.adapter()
        old.observe()
        one, other = old.observe(), self.double.adapter().observe()
        assert replace(one, now_s=0.0) == replace(other, now_s=0.0)

    def test_names_of_jobs_are_never_commands(self) -> None:
        """No name, however nasty, reaches a shell or breaks a list."""
        target = self.place / "touched"
        run = f"touch {target}"
        nasty = [f"$({run})", f"`{run}`", f"'; {run}; '", '"}, {"a": "', "-f", "é☃"]
        jobs = [self.double.submit(name=name) for name in nasty]
        adapter = self.double.adapter()
        state = adapter.observe()
        assert [waiting(state, job).id for job in jobs] == jobs
        adapter.give_back_all()
        assert not target.exists(), "the name of a job was run as a command"
