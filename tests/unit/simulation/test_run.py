"""The simulation API: orders and deciders from Python, what they may see, and errors that say why."""

import hashlib
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from gpuyard import _core, registry
from gpuyard.cluster.model import Cluster, NodeGroup, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.policies.grammar import parse_policy
from gpuyard.registry import register
from gpuyard.simulation.run import SimulationResult, prepare, simulate
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize

Columns = dict[str, Any]
Order = Callable[[Columns], Any]


@pytest.fixture
def register_order(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Order], None]:
    """Registers orders that are forgotten after the test."""
    monkeypatch.setitem(registry._entries, "order", dict(registry._entries["order"]))
    return lambda name, order: register("order", name)(order) and None


@pytest.fixture(scope="module")
def busy_workload() -> Workload:
    return synthesize(SynthConfig(jobs=400, cluster_gpus=16, load=1.5, overestimation=2.0, seed=3))


def jobs(*rows: tuple[float, float, int], **columns: list[Any]) -> Workload:
    """From (submit_s, duration_s, gpus) of each job, and other columns by name."""
    frame = pl.DataFrame(rows, schema=["submit_s", "duration_s", "gpus"], orient="row")
    return make_workload(frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()}))


def starts_s(result: SimulationResult) -> list[float]:
    return (result.schedule.start_us / 1e6).tolist()


# --- orders from Python


@pytest.mark.parametrize("backfill", ["strict", "greedy", "easy", "easy-sjf"])
def test_an_order_from_python_that_returns_estimates_is_sjf(
    busy_workload: Workload, register_order: Callable[[str, Order], None], backfill: str
) -> None:
    register_order("my-sjf", lambda queue: queue["estimate_s"])
    for config in (SimulationConfig(), SimulationConfig(estimates="noisy", seed=4)):
        own = simulate(busy_workload, "2x8", f"my-sjf+{backfill}", config)
        native = simulate(busy_workload, "2x8", f"sjf+{backfill}", config)
        assert own.policy == f"my-sjf+{backfill}/consolidate"
        assert own.schedule.hash() == native.schedule.hash()


def test_an_order_from_python_that_returns_usage_is_fair_share(
    busy_workload: Workload, register_order: Callable[[str, Order], None]
) -> None:
    register_order("my-share", lambda queue: queue["user_usage"])
    own, native = (simulate(busy_workload, "2x8", f"{name}+easy") for name in ("my-share", "fair-share"))
    assert own.schedule.hash() == native.schedule.hash()


def test_an_order_from_python_sees_the_queue_and_no_duration(
    register_order: Callable[[str, Order], None],
) -> None:
    seen: list[Columns] = []

    def order(queue: Columns) -> Any:
        seen.append(queue)
        return queue["submit_s"]

    register_order("looking", order)
    workload = jobs(
        (0, 100, 2),
        (1, 50, 1),
        (2, 70, 1),
        estimate_s=[200.0, None, 90.0],
        gpu_milli=[1000, 500, 1000],
        priority=[1.0, 2.0, 3.0],
        deadline_s=[None, 400.0, None],
        user=["ada", "bo", "ada"],
    )
    simulate(workload, "1x2", "looking", SimulationConfig(estimates="requested"))
    columns = ["now_s", "submit_s", "wait_s", "estimate_s", "gpus", "priority", "deadline_s", "user_usage"]
    assert [*seen[0]] == [*columns, "user", "job"]
    at_100 = seen[-1]
    assert at_100["now_s"] == 100.0  # when job 0 ends and both others can start
    assert at_100["job"].tolist() == [1, 2]
    assert at_100["submit_s"].tolist() == [1.0, 2.0]
    assert at_100["wait_s"].tolist() == [99.0, 98.0]
    assert at_100["gpus"].tolist() == [0.5, 1.0]
    assert at_100["priority"].tolist() == [2.0, 3.0]
    assert np.isnan(at_100["estimate_s"]).tolist() == [True, False]
    assert at_100["estimate_s"][1] == 90.0
    assert np.isnan(at_100["deadline_s"]).tolist() == [False, True]
    assert at_100["deadline_s"][0] == 400.0
    assert at_100["user"][0] != at_100["user"][1]
    assert at_100["user_usage"][0] == 0.0
    assert at_100["user_usage"][1] == pytest.approx(200.0, rel=1e-3)  # 2 GPUs for 100 s, faded a little
    shown = {value for column in at_100.values() for value in np.ravel(column).tolist()}
    assert not {50.0, 70.0} & shown


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda queue: [math.nan] * len(queue["job"]), "returned NaN as the score of job 0"),
        (lambda queue: [1.0, 2.0], "returned 2 scores for 1 queued jobs"),
        (lambda queue: [], "returned 0 scores for 1 queued jobs"),
        (lambda queue: ["first"], "could not convert"),
    ],
)
def test_bad_scores_are_refused_saying_what_is_wrong(
    register_order: Callable[[str, Order], None], answer: Order, message: str
) -> None:
    register_order("bad", answer)
    with pytest.raises(ValueError, match=message):
        simulate(jobs((0, 10, 1), (1, 10, 1)), "1x1", "bad")


def test_the_job_whose_score_is_nan_is_named(register_order: Callable[[str, Order], None]) -> None:
    register_order("bad", lambda queue: [math.nan if job == 2 else 0.0 for job in queue["job"]])
    with pytest.raises(ValueError, match="NaN as the score of job 2"):
        simulate(jobs((0, 10, 1), (1, 10, 1), (2, 10, 1)), "1x1", "bad")


@pytest.mark.parametrize("steps", [False, True])
def test_an_exception_in_an_order_comes_through_unchanged(
    register_order: Callable[[str, Order], None], steps: bool
) -> None:
    raised: list[KeyError] = []

    def order(queue: Columns) -> Any:
        raised.append(KeyError("no such feature"))
        raise raised[0]

    register_order("failing", order)
    policy: Any = Native("failing") if steps else "failing"
    with pytest.raises(KeyError) as error:
        simulate(jobs((0, 10, 1)), "1x1", policy)
    assert error.value is raised.pop()


# --- policies that decide for themselves


class Native:
    """A native policy, asked snapshot by snapshot."""

    def __init__(self, name: str) -> None:
        self.policy = parse_policy(name).compile()

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        return _core.decide(snapshot, self.policy)


class Scripted:
    """Makes the given starts as soon as the jobs are queued, and no others."""

    def __init__(self, *starts: tuple[int, list[tuple[int, int]]]) -> None:
        self.starts = list(starts)

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        decision = _core.Decision()
        for start in [start for start in self.starts if start[0] in snapshot.queue["job"]]:
            self.starts.remove(start)
            decision.start(*start)
        return decision


class Reckless(Scripted):
    """Makes the given starts at once, queued or not."""

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        decision = _core.Decision()
        for start in self.starts:
            decision.start(*start)
        return decision


def test_a_decider_chooses_jobs_and_nodes() -> None:
    script = Scripted((1, [(0, 1), (1, 2)]), (0, [(1, 2)]), (2, [(0, 1)]))
    result = simulate(jobs((0, 10, 2), (0, 10, 3), (5, 10, 1)), "2x4", script)
    assert result.policy == "Scripted"
    assert starts_s(result) == [0, 0, 5]
    assert result.schedule.frame()["nodes"].to_list() == [[1], [0, 1], [0]]
    assert result.schedule.frame()["node_gpus"].to_list() == [[2], [1, 2], [1]]


def test_a_decision_can_be_read_back() -> None:
    decision = _core.Decision()
    decision.start(7, [(0, 2), (3, 1)])
    assert len(decision) == 1
    assert decision.starts == [(7, [(0, 2), (3, 1)])]


OWNED = Cluster(
    nodes=(
        NodeGroup(gpus=4, type="gpu", cpus=8, memory_mib=100),
        NodeGroup(gpus=4, type="gpu", owner="vision"),
        NodeGroup(gpus=2, type="v100"),
    )
)


@pytest.mark.parametrize(
    ("job", "nodes", "why"),
    [
        (9, [(0, 1)], "9: it is not queued"),
        (-1, [(0, 1)], "-1: it is not queued"),
        (5, [(0, 1)], "5: it is not queued"),  # arrives later
        (0, [(7, 2)], "nodes must exist and ascend"),
        (0, [(-1, 2)], "nodes must exist and ascend"),
        (0, [(2, 1), (0, 1)], "nodes must exist and ascend"),
        (0, [(0, 1), (0, 1)], "nodes must exist and ascend"),
        (0, [(0, 1)], "a gang starts whole or not at all"),
        (0, [(0, 3)], "a gang starts whole or not at all"),
        (0, [], "a gang starts whole or not at all"),
        (0, [(0, 2), (2, 0)], "a bad number of GPUs on node 2"),
        (0, [(0, 3), (2, -1)], "a bad number of GPUs on node 2"),
        (0, [(1, 2)], "it may not use node 1"),  # another group's
        (1, [(0, 1)], "it may not use node 0"),  # its group has nodes of its own
        (2, [(0, 4), (2, 1)], "it may not use node 2"),  # of another type
        (3, [(0, 1)], "node 0 lacks CPUs or memory"),
        (4, [(0, 1)], "a bad number of GPUs on node 0"),  # CPU-only
        (4, [(0, 0), (2, 0)], "a gang starts whole or not at all"),
    ],
)
def test_illegal_starts_are_refused_saying_why(job: int, nodes: list[tuple[int, int]], why: str) -> None:
    workload = jobs(
        (0, 10, 2),
        (0, 10, 1),
        (0, 10, 4),
        (0, 10, 2),
        (0, 10, 0),
        (9, 10, 1),
        group=["", "vision", "", "", "", ""],
        gpu_types=[None, None, ["gpu"], None, None, None],
        cpus=[0, 0, 0, 20, 1, 0],
    )
    with pytest.raises(ValueError, match=f"cannot start job .*{why}"):
        simulate(workload, OWNED, Reckless((job, nodes)))


def test_a_start_on_gpus_that_are_busy_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot start job 1: node 0 has too few empty GPUs"):
        simulate(jobs((0, 10, 2), (1, 10, 3)), "1x4", Scripted((0, [(0, 2)]), (1, [(0, 3)])))


def test_a_shared_job_needs_a_gpu_with_room() -> None:
    workload = jobs((0, 10, 1), (1, 10, 1), gpu_milli=[600, 500])
    with pytest.raises(ValueError, match="cannot start job 1: node 0 has no GPU with room"):
        simulate(workload, "1x1", Scripted((0, [(0, 1)]), (1, [(0, 1)])))


def test_a_job_cannot_start_twice() -> None:
    with pytest.raises(ValueError, match="cannot start job 0: it is not queued"):
        simulate(jobs((0, 10, 1)), "1x4", Scripted((0, [(0, 1)]), (0, [(0, 1)])))


def test_jobs_that_a_decider_leaves_waiting_for_ever_are_an_error() -> None:
    with pytest.raises(InputError, match="Scripted left 2 jobs waiting, row 1 first, with nothing running"):
        simulate(jobs((0, 10, 1), (1, 10, 1), (2, 10, 1)), "1x4", Scripted((0, [(0, 1)])))


# --- what a policy may know


@pytest.mark.parametrize(("returned", "word"), [(None, "None"), ([1], "a list")])
def test_a_decider_that_returns_no_decision_is_named(returned: Any, word: str) -> None:
    class Wrong:
        def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
            return cast(_core.Decision, returned)

    with pytest.raises(InputError, match=rf"Wrong\.decide\(\) returned {word}; expected a Decision"):
        simulate(jobs((0, 10, 1)), "1x8", Wrong())


def test_a_path_is_read_and_anything_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ok.csv"
    path.write_text("submit_s,duration_s,gpus\n0,10,8\n1,5,8\n")
    for workload in (path, str(path)):
        assert simulate(workload, "1x8", "fifo").table()["start_s"].to_list() == [0.0, 10.0]
    with pytest.raises(InputError, match="no such file"):
        simulate(tmp_path / "none.csv", "1x8")
    with pytest.raises(InputError, match=r"workload is a dict; expected a Workload.*path of a file"):
        simulate(cast(Workload, {}), "1x8")
    with pytest.raises(InputError, match="policy is a int; expected a policy's name"):
        simulate(path, "1x8", cast(str, 5))


def test_a_snapshot_shows_no_true_duration() -> None:
    seen: list[_core.Snapshot] = []

    class Looking(Native):
        def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
            seen.append(snapshot)
            return super().decide(snapshot)

    workload = jobs((0, 111, 2), (1, 222, 2), (2, 333, 1), estimate_s=[200.0, None, 90.0])
    simulate(workload, "1x2", Looking("fifo"), SimulationConfig(estimates="requested"))
    snapshot = seen[2]
    assert {name for name in dir(snapshot) if not name.startswith("_")} == {
        *("now_s", "queue", "running", "nodes", "nodes_of", "allowed_pools")
    }
    queue, running = snapshot.queue, snapshot.running
    assert set(queue) == {
        *("job", "submit_s", "wait_s", "estimate_s", "gpus", "gpu_milli", "cpus", "memory_mib"),
        *("nodes", "priority", "deadline_s", "user", "user_usage", "attained_s", "queue"),
    }
    assert set(running) == {"job", "expected_end_s", "attained_s", "may_stop"}
    assert queue["job"].tolist() == [1, 2]
    assert running["expected_end_s"].tolist() == [200.0]
    assert snapshot.nodes_of(0) == [(0, 2)]
    shown = [*queue.values(), *running.values(), *snapshot.nodes.values()]
    assert not {111.0, 222.0, 333.0} & {value for column in shown for value in column.tolist()}


def test_nodes_of_a_job_that_does_not_run_are_an_error() -> None:
    inputs = prepare(jobs((0, 1, 1)), parse_cluster("1x1"), parse_policy("fifo"), SimulationConfig())
    simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings)
    simulator.advance()
    with pytest.raises(ValueError, match="job 0 is not running"):
        simulator.snapshot().nodes_of(0)


def test_requested_estimates_that_nobody_gave_are_an_error() -> None:
    with pytest.raises(InputError, match=r"has no estimate_s.*use exact, noisy, history or none"):
        simulate(jobs((0, 1, 1)), "1x1", "sjf", SimulationConfig(estimates="requested"))


def test_a_job_gets_the_same_noise_in_a_slice_as_in_the_whole(busy_workload: Workload) -> None:
    class Recording(Native):
        def __init__(self) -> None:
            super().__init__("fifo+greedy")
            self.estimates: dict[int, float] = {}

        def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
            queue = snapshot.queue
            self.estimates |= dict(zip(queue["job"].tolist(), queue["estimate_s"].tolist(), strict=True))
            return super().decide(snapshot)

    whole, part = Recording(), Recording()
    config = SimulationConfig(estimates="noisy", seed=9)
    simulate(busy_workload, "2x8", whole, config)
    simulate(make_workload(busy_workload.frame[100:150]), "2x8", part, config)
    assert part.estimates == {job: whole.estimates[100 + job] for job in range(50)}
    exact = busy_workload.frame["duration_s"][100:150].to_list()
    assert all(
        estimate != duration for estimate, duration in zip(part.estimates.values(), exact, strict=True)
    )


# --- jobs that can never run


TOO_LARGE = [(0, 10, 1), (1, 10, 9), (2, 10, 1), (3, 10, 99), (4, 10, 12)]


def test_a_job_that_can_never_run_is_named_and_the_others_counted() -> None:
    workload = jobs(*TOO_LARGE, source_id=["a", "b", "c", "d", "e"])
    with pytest.raises(InputError) as error:
        simulate(workload, "1x8")
    message = str(error.value)
    for part in ("job b (row 1)", "9 GPUs", "cluster 1x8", "placement consolidate"):
        assert part in message
    for part in ("nor can 2 others", "`oversize=drop`"):
        assert part in message


def test_everything_that_such_a_job_needs_is_named() -> None:
    workload = jobs((0, 10, 1), cpus=[99], memory_mib=[7], gpu_types=[["k80", "v100"]], group=["vision"])
    with pytest.raises(InputError) as error:
        simulate(workload, OWNED)
    for part in ("1 GPU, 99 CPUs, 7 MiB", "of type k80 or v100", "on the nodes of group vision"):
        assert part in str(error.value)
    assert "others" not in str(error.value)


def test_dropped_jobs_are_reported_and_the_rest_runs_as_if_they_had_never_been_submitted() -> None:
    result = simulate(jobs(*TOO_LARGE), "1x8", "fifo", SimulationConfig(oversize="drop"))
    assert result.dropped.tolist() == [1, 3, 4]
    assert result.schedule.job.tolist() == [0, 2]
    assert starts_s(result) == [0, 2]
    assert result.table()["submit_s"].to_list() == [0, 2]


def test_what_is_too_large_depends_on_the_placement() -> None:
    workload = jobs((0, 10, 5))
    cluster = Cluster(nodes=(NodeGroup(gpus=4, type="v100"), NodeGroup(gpus=2, type="t4")))
    with pytest.raises(InputError, match=r"row 0 .* can never run .* placement consolidate"):
        simulate(workload, cluster, "fifo")
    assert starts_s(simulate(workload, cluster, "fifo/anywhere")) == [0]


def test_a_workload_of_nothing_but_oversize_jobs_is_an_error_even_if_they_may_be_dropped() -> None:
    with pytest.raises(InputError, match="can never run"):
        simulate(jobs((0, 10, 9), (1, 10, 9)), "1x8", "fifo", SimulationConfig(oversize="drop"))


# --- progress and interruption


@pytest.fixture(scope="module")
def long_workload() -> Workload:
    """40,000 instants and more."""
    return synthesize(SynthConfig(jobs=40_000, cluster_gpus=64, load=0.5))


def test_progress_is_told_how_many_jobs_have_finished(long_workload: Workload) -> None:
    told: list[int] = []
    result = simulate(long_workload, "8x8", "fifo", progress=told.append)
    assert len(told) >= 2
    assert told == sorted(told)
    assert 0 < told[0] < told[-1] <= 40_000
    assert result.schedule.hash() == simulate(long_workload, "8x8", "fifo").schedule.hash()


def test_a_decider_reports_progress_too() -> None:
    told: list[int] = []
    simulate(jobs((0, 1, 1), (0, 2, 1)), "1x1", Native("fifo"), progress=told.append)
    assert told == [0, 1, 2]


@pytest.mark.parametrize("steps", [False, True])
def test_an_exception_in_progress_stops_the_run(long_workload: Workload, steps: bool) -> None:
    def interrupt(finished: int) -> None:
        raise KeyboardInterrupt(finished)

    policy: Any = Native("fifo") if steps else "fifo"
    with pytest.raises(KeyboardInterrupt):
        simulate(long_workload, "8x8", policy, progress=interrupt)


# --- limits


def test_shared_gpus_on_nodes_of_more_than_64_gpus_are_refused() -> None:
    workload = jobs((0, 10, 1), gpu_milli=[500])
    with pytest.raises(InputError, match=r"share GPUs .* need nodes of at most 64 GPUs"):
        simulate(workload, "1x65")
    assert starts_s(simulate(workload, "1x64")) == [0]
    assert starts_s(simulate(jobs((0, 10, 65)), "1x65")) == [0]


def test_the_last_of_64_gpus_can_be_shared() -> None:
    workload = jobs((0, 10, 63), (0, 10, 1), (0, 10, 1), gpu_milli=[1000, 500, 500])
    result = simulate(workload, "1x64")
    assert starts_s(result) == [0, 0, 0]
    assert result.schedule.gpu_index.tolist() == [-1, 63, 63]


@pytest.mark.parametrize("make_policy", [str, Native])
@pytest.mark.parametrize("name", ["fifo", "fifo+easy"])
def test_a_run_time_beyond_the_clock_is_an_error(make_policy: Callable[[str], Any], name: str) -> None:
    with pytest.raises(OverflowError, match="run time exceeds the simulator's clock"):
        simulate(jobs((0, 4e9, 1)), "1x1:v100@0.0001", make_policy(name))


@pytest.mark.parametrize("make_policy", [str, Native])
@pytest.mark.parametrize("name", ["fifo", "fifo+easy"])
def test_a_simulated_time_beyond_the_clock_is_an_error(make_policy: Callable[[str], Any], name: str) -> None:
    # 2^62 us are 4.6e12 s; each job takes 4e9 / 0.001 = 4e12 s.
    with pytest.raises(OverflowError, match="simulated time exceeds the simulator's clock"):
        simulate(jobs((0, 4e9, 1), (0, 4e9, 1)), "1x1:v100@0.001", make_policy(name))


@pytest.mark.parametrize(
    "settings",
    [
        {"estimates": "psychic"},
        {"noise_sigma": -1},
        {"noise_sigma": math.nan},
        {"seed": -1},
        {"seed": 2**63},
        {"locality_penalty": -0.1},
        {"usage_half_life_s": 0},
        {"oversize": "ignore"},
        {"kill_at_estimates": True},
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings))):
        SimulationConfig(**settings)


# --- results


def test_a_schedule_as_a_table() -> None:
    result = simulate(
        jobs((0, 10, 3), (0.5, 10, 1), (1, 2.5, 0), gpu_milli=[1000, 250, 1000], estimate_s=[4.0, 20.0, 9.0]),
        "2x2",
        "fifo",
        SimulationConfig(estimates="requested", kill_at_estimate=True),
    )
    frame = result.schedule.frame()
    assert frame.to_dict(as_series=False) == {
        "job": [0, 1, 2],
        "start_s": [0.0, 0.5, 1.0],
        "end_s": [4.0, 10.5, 3.5],
        "status": ["timeout", "completed", "completed"],
        "backfilled": [False, False, False],
        "gpu_index": [-1, 1, -1],
        "nodes": [[0, 1], [1], [0]],
        "node_gpus": [[2, 1], [1], [0]],
    }


def test_the_hash_is_that_of_the_contract() -> None:
    schedule = simulate(jobs((0, 10, 3), (1, 5, 1)), "2x2", "fifo").schedule
    numbers = [0, 1_000_000, 10_000_000, 6_000_000, 2, 1, 0, 1, 1, 2, 1, 1]
    assert schedule.hash() == hashlib.sha256(struct.pack("<12q", *numbers)).hexdigest()


def test_the_table_of_a_result_joins_jobs_and_outcomes(busy_workload: Workload) -> None:
    result = simulate(busy_workload, "2x8", "sjf+easy")
    table = result.table()
    assert table.columns == [
        *busy_workload.frame.columns,
        *("start_s", "end_s", "outcome", "backfilled", "gpu_index", "nodes", "node_gpus"),
    ]
    assert table[:, : busy_workload.frame.width].equals(busy_workload.frame)
    assert (table["start_s"] >= table["submit_s"]).all()
    wait_s = result.metrics()["mean_wait_s"]
    assert wait_s == pytest.approx((table["start_s"] - table["submit_s"]).mean())


def test_a_result_knows_its_inputs_and_how_long_it_took(busy_workload: Workload) -> None:
    config = SimulationConfig(seed=1, estimates="exact")
    result = simulate(busy_workload, "2x8", "sjf", config)
    assert result.workload is busy_workload
    assert result.cluster == parse_cluster("2x8")
    assert result.config is config
    assert result.elapsed_s > 0
    assert result.dropped.tolist() == []


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="unknown order 'fife'"):
        simulate(jobs((0, 1, 1)), "1x1", "fife")
    with pytest.raises(InputError, match="unknown cluster 'nowhere'"):
        simulate(jobs((0, 1, 1)), "nowhere")


def test_single_settings_are_taken_in_place_of_a_config(busy_workload: Workload) -> None:
    config = SimulationConfig(estimates="requested", seed=5)
    by_name = simulate(busy_workload, "2x8", "sjf+easy", estimates="requested", seed=5)
    assert by_name.config == simulate(busy_workload, "2x8", "sjf+easy", config).config
    with pytest.raises(InputError, match="unknown key estimate; did you mean 'estimates'"):
        simulate(busy_workload, "2x8", "sjf+easy", estimate="exact")
    with pytest.raises(InputError, match="estimates is given beside config"):
        simulate(busy_workload, "2x8", "sjf+easy", config, estimates="exact")
