"""The adapter on a real Slurm: what it sees, what its actions do, and what the submit script holds."""

import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from experiments.fidelity.slurm_box import BoxError, BoxSettings, SlurmBox, start_box, why_not
from gpuyard.serve.adapter import AdapterError, GiveBack, Reorder, Start
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.slurm import SlurmAdapter
from gpuyard.serve.slurm.commands import Commands
from gpuyard.serve.state import ClusterState, Job

pytestmark = [
    pytest.mark.skipif(why_not(rest=True) is not None, reason=why_not(rest=True) or ""),
    pytest.mark.xdist_group("live"),
]

SCRIPT = files("gpuyard.serve.slurm").joinpath("files", "job_submit.lua").read_text()
LINES = (
    "JobSubmitPlugins=lua",
    "PriorityType=priority/multifactor",
    "PriorityWeightJobSize=500",
    "PriorityCalcPeriod=1",
    "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,sched_interval=1",
    "MinJobAge=10",
    "Licenses=matlab:2",
)


class Cluster:
    """A box with the submit script, and an adapter of it."""

    def __init__(self, box: SlurmBox, place: Path) -> None:
        self.box, self.heartbeat, self.halt = box, place / "heartbeat", place / "halt"
        self.commands = Commands(10.0, box.environment)
        self.adapter = SlurmAdapter(ServeSettings(), self.commands)

    def submit(self, *options: str, user: str = "games") -> str:
        return str(self.box.submit("--mem=100", f"--uid={user}", *options, run_s=300))

    def held(self, *options: str) -> str:
        """Submit while the agent lives."""
        self.heartbeat.write_text(f"{time.time():.0f}\n")
        try:
            return self.submit(*options)
        finally:
            self.heartbeat.unlink()

    def job(self, name: str) -> Job:
        return self.adapter.observe().by_id[name]

    def wait(self, holds: Callable[[ClusterState], bool], seconds: float = 20.0) -> ClusterState:
        end = time.monotonic() + seconds
        while not holds(state := self.adapter.observe()):
            assert time.monotonic() < end, f"not so within {seconds} s: {state.jobs}"
            time.sleep(0.1)
        return state

    def nodes_of(self, name: str) -> tuple[str, ...]:
        state = self.wait(lambda state: state.by_id[name].phase == "running")
        return tuple(share.node for share in state.by_id[name].shares)

    def comment(self, name: str) -> str:
        lines = self.box.run("scontrol", "show", "job", name).splitlines()
        return next((line.strip()[13:] for line in lines if line.strip().startswith("AdminComment=")), "")

    def clear(self) -> None:
        jobs = self.box.run("squeue", "--noheader", "--format=%A").split()
        if jobs:
            self.box.run("scancel", *jobs)
        self.wait(lambda state: not state.jobs)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    place = tmp_path_factory.mktemp("agent")
    config = (
        f"# for the tests\nheartbeat = {place}/heartbeat\nhalt = {place}/halt\n"
        "max_age_s = 30\nrefuse_self_release = yes\n"
    )
    files_of_it = (("job_submit.lua", SCRIPT), ("gpuyard-hold.conf", config))
    settings = BoxSettings(
        nodes=4, gpus_per_node=4, gpu_type="a100", lines=LINES, files=files_of_it, rest=True
    )
    with start_box(settings) as box:
        yield Cluster(box, place)


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    yield running
    running.clear()


def test_held_jobs_start_on_exactly_the_nodes_that_were_decided(cluster: Cluster) -> None:
    one, wide = cluster.held("--gres=gpu:a100:2"), cluster.held("--nodes=2", "--gres=gpu:1")
    alone, array = cluster.held("--exclusive", "--gres=gpu:1"), cluster.held("--array=1-3", "--gpus=1")
    state = cluster.adapter.observe()
    assert {job.held for job in state.jobs} == {"agent"}
    assert {job.left for job in state.jobs} == {""}
    assert (state.by_id[one].gpus, state.by_id[one].gpu_types) == (2, ("a100",))
    assert (state.by_id[wide].gpus, state.by_id[wide].nodes) == (2, 2)
    assert state.by_id[alone].exclusive
    starts = {
        one: ("gn3",), wide: ("gn1", "gn3"), alone: ("gn4",), f"{array}_2": ("gn2",),
    }  # fmt: skip
    outcomes = cluster.adapter.apply([Start(job, nodes, f"1-{job}") for job, nodes in starts.items()])
    assert [one.error for one in outcomes] == [""] * 4
    assert {job: cluster.nodes_of(job) for job in starts} == starts
    state = cluster.adapter.observe()
    assert state.by_id[one].mark == f"1-{one}"
    assert [(share.gpus, share.cpus, share.memory_mib) for share in state.by_id[wide].shares] == [
        (1, 1, 100)
    ] * 2
    assert state.by_id[f"{array}_1"].held == "agent"  # the other tasks wait on
    used = {node.name: node.gpus_used for node in state.nodes}
    assert used == {"gn1": 1, "gn2": 1, "gn3": 3, "gn4": 4}


def test_a_job_that_is_stopped_waits_for_the_agent_again(cluster: Cluster) -> None:
    old, new = cluster.held("--gres=gpu:4"), cluster.held("--gres=gpu:4")
    assert cluster.adapter.apply([Start(old, ("gn1",), "1-1")])[0].ok
    cluster.nodes_of(old)
    assert cluster.adapter.apply([Start(new, ("gn1",), "2-1", stop=(old,))])[0].ok
    assert cluster.nodes_of(new) == ("gn1",)
    stopped = cluster.job(old)
    assert (stopped.phase, stopped.held, stopped.left, stopped.requeues) == ("waiting", "agent", "", 1)
    assert cluster.adapter.apply([Start(old, ("gn2",), "3-1")])[0].ok
    assert cluster.nodes_of(old) == ("gn2",)


def test_giving_back_restores_slurms_own_priority(cluster: Cluster) -> None:
    full = cluster.submit("--nodes=4", "--exclusive", "--gres=gpu:4", user="root")
    cluster.nodes_of(full)
    job, array = cluster.submit("--gres=gpu:1"), cluster.submit("--array=1-4", "--gres=gpu:1")
    cluster.box.run("scontrol", "update", f"JobId={job}", "AdminComment=site: a; b")
    usual = cluster.wait(lambda state: state.by_id[job].priority > 1).by_id[job].priority
    actions = [
        Reorder(job, 5000, "1-1"),
        *(Reorder(f"{array}_{n}", 6000 + n, f"1-{n}") for n in (1, 2, 3, 4)),
    ]
    assert all(one.ok for one in cluster.adapter.apply(actions))
    time.sleep(1.5)  # Slurm calculates anew every second, and leaves what was set
    state = cluster.adapter.observe()
    assert (state.by_id[job].priority, state.by_id[job].mark) == (5000, "1-1")
    assert {state.by_id[f"{array}_{n}"].priority for n in (1, 2, 3, 4)} == {6004}
    assert cluster.box.run("squeue", "--noheader", "--format=%i", "-j", array).split() == [f"{array}_[1-4]"]
    assert cluster.adapter.apply([GiveBack(job, "test")])[0].ok
    cluster.wait(lambda state: state.by_id[job].priority == usual)
    assert cluster.comment(job) == "site: a; b"
    assert {one.action.job for one in cluster.adapter.give_back_all()} == {array}
    state = cluster.wait(lambda state: state.by_id[f"{array}_1"].priority == usual)
    assert {one.mark for one in state.jobs} == {""}


def test_everything_is_given_back_by_one_who_remembers_nothing(cluster: Cluster) -> None:
    waiting = cluster.held("--gres=gpu:1", "--hold")  # its user's own hold
    held, array = cluster.held("--gres=gpu:1"), cluster.held("--array=1-2", "--gres=gpu:1")
    pinned = cluster.held("--gres=gpu:1")
    # As if the agent had died between prescribing nodes and the release.
    cluster.box.run(
        "scontrol", "update", f"JobId={pinned}", "ReqNodeList=gn2", "AdminComment=gpuyard:9-1@gn2"
    )
    assert cluster.job(pinned).held == "agent"
    outcomes = SlurmAdapter(ServeSettings(), cluster.commands).give_back_all()
    assert all(one.ok for one in outcomes)
    names = {held, f"{array}_1", f"{array}_2", pinned}
    state = cluster.wait(lambda state: all(state.by_id[name].phase == "running" for name in names))
    assert state.by_id[waiting].held == "other"
    assert {state.by_id[name].mark for name in names} == {""}
    assert "ReqNodeList=(null)" in cluster.box.run("scontrol", "show", "job", pinned)


def test_refusals_and_jobs_that_are_gone_have_their_codes(cluster: Cluster) -> None:
    gone, held, fine = (cluster.held("--gres=gpu:1") for _ in range(3))
    cluster.adapter.observe()
    cluster.box.run("scancel", gone)
    starts = [Start(gone, ("gn1",), "1-1"), Start(held, ("nosuch",), "1-2"), Start(fine, ("gn3",), "1-3")]
    outcomes = cluster.adapter.apply(starts)
    assert [one.code for one in outcomes] == ["missing", "refused", ""]
    assert cluster.nodes_of(fine) == ("gn3",)
    after = cluster.job(held)
    assert (after.held, after.left) == ("agent", "")


def test_what_the_agent_must_not_touch_is_left_and_never_held(cluster: Cluster) -> None:
    cluster.nodes_of(cluster.submit("--nodes=4", "--exclusive", "--gres=gpu:4", user="root"))
    options = {
        "--nodelist=gn1": "nodes named", "--begin=now+1hour": "begin time", "--licenses=matlab:1": "licences",
        "--nodes=1-2": "range of nodes", "--array=1-3%1": "limit of running tasks",
        "--dependency=singleton": "dependency", "--exclude=gn1": "excluded",
    }  # fmt: skip
    names = {cluster.held("--gres=gpu:1", "--job-name=same", option): why for option, why in options.items()}
    state = cluster.adapter.observe()
    assert {name: state.by_id[name].held for name in names} == dict.fromkeys(names, "")
    assert {name: why in state.by_id[name].left for name, why in names.items()} == dict.fromkeys(names, True)
    cpus = cluster.held("--ntasks=1")
    assert (cluster.job(cpus).held, cluster.job(cpus).left) == ("", "asks for no GPUs")


def test_the_submit_script_holds_nothing_unless_the_agent_lives(cluster: Cluster) -> None:
    def priority() -> float:
        return cluster.job(cluster.submit("--gres=gpu:1")).priority

    assert priority() > 0  # no heartbeat
    for beat in ("", "nonsense", "100", f"{time.time() + 3600:.0f}", f"{time.time() - 31:.0f}"):
        cluster.heartbeat.write_text(beat)
        assert priority() > 0, beat
    cluster.heartbeat.write_text(f"{time.time():.3f}\n")
    assert priority() == 0
    cluster.halt.touch()
    assert priority() > 0
    cluster.halt.unlink()
    cluster.heartbeat.unlink()


def test_owners_release_held_jobs_only_when_the_agent_is_dead(cluster: Cluster) -> None:
    cluster.heartbeat.write_text(f"{time.time():.0f}\n")
    job = cluster.submit("--gres=gpu:1")
    with pytest.raises(BoxError):
        cluster.box.run("scontrol", "release", job, user="games")
    with pytest.raises(BoxError):
        cluster.box.run("scontrol", "update", f"JobId={job}", "Priority=5", user="games")
    cluster.box.run("scontrol", "update", f"JobId={job}", "TimeLimit=5", user="games")
    assert cluster.job(job).held == "agent"
    cluster.heartbeat.unlink()
    cluster.box.run("scontrol", "release", job, user="games")
    cluster.nodes_of(job)


def test_a_user_without_rights_sees_the_same(cluster: Cluster) -> None:
    class Unprivileged(Commands):
        def _run(self, command: tuple[str, ...]) -> bytes:
            return super()._run(("setpriv", "--reuid=nobody", "--clear-groups", *command))

    cluster.held("--gres=gpu:1")
    own = SlurmAdapter(ServeSettings(), Unprivileged(10.0, cluster.box.environment)).observe()
    state = cluster.adapter.observe()
    assert (own.jobs, own.nodes, own.partitions) == (state.jobs, state.nodes, state.partitions)


def test_drained_and_reserved_nodes_are_closed(cluster: Cluster) -> None:
    run = cluster.box.run
    run("scontrol", "update", "NodeName=gn1", "State=DRAIN", "Reason=test")
    window = ("starttime=now", "duration=60", "users=root", "nodes=gn2", "flags=maint,ignore_jobs")
    run("scontrol", "create", "reservation", "reservationname=m1", *window)
    try:
        fresh = SlurmAdapter(ServeSettings(), cluster.commands)
        closed = {node.name: node.closed for node in fresh.observe().nodes}
        assert closed["gn1"] == "drained"
        assert "maintenance" in closed["gn2"] or closed["gn2"] == "reservation m1"
        assert closed["gn3"] == closed["gn4"] == ""
    finally:
        run("scontrol", "delete", "reservation=m1")
        run("scontrol", "update", "NodeName=gn1", "State=RESUME")
    cluster.wait(lambda state: not any(node.closed for node in state.nodes))


def test_slurmrestd_lists_the_same_and_commands_take_over_without_it(cluster: Cluster) -> None:
    held = cluster.held("--gres=gpu:2")
    rest = SlurmAdapter(ServeSettings(rest=f"unix:{cluster.box.rest_socket}"), cluster.commands)
    seen, state = rest.observe(), cluster.adapter.observe()
    assert (seen.jobs, seen.nodes, seen.notes) == (state.jobs, state.nodes, ())
    assert rest.apply([Start(held, ("gn4",), "1-1")])[0].ok  # v0.0.38 takes no nodes: by command
    assert cluster.nodes_of(held) == ("gn4",)
    lost = SlurmAdapter(
        ServeSettings(rest=f"unix:{cluster.box.directory}/nobody"), cluster.commands
    ).observe()
    assert [job.id for job in lost.jobs] == [held]
    assert "instead of slurmrestd" in lost.notes[0]


def test_no_accounting_is_said(cluster: Cluster) -> None:
    assert cluster.adapter.finished_since(0.0) is None
    assert "accounting storage is disabled" in cluster.adapter.accounting_problem


def test_a_controller_that_is_away_is_an_error_in_time_and_then_all_is_as_before(cluster: Cluster) -> None:
    held = cluster.held("--gres=gpu:1")
    hasty = SlurmAdapter(ServeSettings(), Commands(1.0, cluster.box.environment))
    hasty.observe()
    cluster.box.stop_controller()
    begin = time.monotonic()
    with pytest.raises(AdapterError) as caught:
        hasty.observe()
    assert caught.value.code in ("timeout", "exit")
    assert time.monotonic() - begin < 3
    assert hasty.apply([Start(held, ("gn1",), "1-1")])[0].code in ("timeout", "exit")
    cluster.box.start_controller()
    cluster.wait(lambda state: all(not node.closed for node in state.nodes))
    assert cluster.job(held).held == "agent"
    assert cluster.adapter.apply([Start(held, ("gn1",), "2-1")])[0].ok
    assert cluster.nodes_of(held) == ("gn1",)
