import math
import random

import pytest

from gpuyard import _core
from gpuyard.policies.base import as_policy
from gpuyard.serve.settings import ServeSettings, make_settings
from gpuyard.serve.state import ClusterState, Job, Partition, Share
from gpuyard.serve.waits.forecast import Forecast, forecast
from gpuyard.serve.waits.run_times import RunTimes
from gpuyard.simulation.find import find_policy
from support.live_states import NOW_S, node, running, state, waiting

FULL = (running("1", Share("n1", 8, 8)), running("2", Share("n2", 8, 8)))


def halves(share: float = 0.5) -> RunTimes:
    """All jobs ran for one share of their limit."""
    times = RunTimes()
    for _ in range(20):
        times.add("ada", share * 1000.0, 1000.0)
    return times


def seen(live: ClusterState, policy: str = "fifo+easy", **options: object) -> Forecast:
    return forecast(live, find_policy(policy), ServeSettings(), halves(), **options)  # type: ignore[arg-type]


def test_a_job_starts_when_what_runs_before_it_ends() -> None:
    found = seen(state(*FULL, waiting("3", 8, waited_s=20.0), waiting("4", 16, waited_s=10.0)))
    assert found.reasons == {}
    assert found.etas["3"].mid_s == pytest.approx(NOW_S + 1700.0)
    assert found.etas["4"].mid_s == pytest.approx(NOW_S + 1700.0 + 1800.0)
    assert (found.etas["3"].drawn, found.etas["3"].started_share) == (16, 1.0)


def test_a_job_that_fits_starts_now() -> None:
    found = seen(state(FULL[0], waiting("3", 8)))
    assert found.etas["3"].low_s == found.etas["3"].high_s == NOW_S


def test_without_knowledge_there_is_an_interval_and_it_is_the_same_each_time() -> None:
    live = state(*FULL, waiting("3", 8))
    policy, settings = find_policy("fifo+easy"), ServeSettings()
    eta = forecast(live, policy, settings, RunTimes()).etas["3"]
    assert NOW_S < (eta.low_s or 0) < (eta.mid_s or 0) < (eta.high_s or 0) <= NOW_S + 3500.0
    assert forecast(live, policy, settings, RunTimes()).etas["3"] == eta


def test_the_order_is_that_of_the_policy() -> None:
    live = state(*FULL, waiting("long", 16, 90.0, 7200.0), waiting("short", 16, 10.0, 60.0))
    by_size, by_time = seen(live, "sjf+strict").etas, seen(live, "fifo+strict").etas
    assert (by_size["short"].mid_s or 0) < (by_size["long"].mid_s or 0)
    assert (by_time["short"].mid_s or 0) > (by_time["long"].mid_s or 0)


def test_a_job_with_unlike_shares_on_its_nodes_holds_exactly_those() -> None:
    odd = running("1", Share("n1", 7, 60, 1000), Share("n2", 1, 3, 500_000))
    found = seen(
        state(odd, waiting("one", 1), waiting("seven", 7, waited_s=50), waiting("eight", 8, waited_s=40))
    )
    assert [found.etas[job].mid_s == NOW_S for job in ("one", "seven", "eight")] == [True, True, False]


def test_nodes_that_are_closed_take_no_jobs_even_when_theirs_end() -> None:
    nodes = (node("n1"), node("n2", closed="drained"))
    found = seen(state(*FULL, waiting("3", 8), waiting("4", 8, waited_s=30.0), waiting("5", 16), nodes=nodes))
    assert found.etas["3"].mid_s == pytest.approx(NOW_S + 1700.0)
    assert found.etas["4"].mid_s == pytest.approx(NOW_S + 1700.0 + 1800.0)
    assert found.reasons == {"5": "it can never start on the nodes that are open now"}


def test_nodes_that_are_planned_for_another_job_are_open_to_forecasts() -> None:
    live = state(waiting("3", 8), nodes=(node("n1", closed="planned for another job"),))
    assert seen(live).etas["3"].mid_s == NOW_S


def test_gpus_in_use_by_jobs_that_are_not_listed_are_not_free() -> None:
    assert (seen(state(waiting("3", 8), nodes=(node("n1", gpus_used=3),))).etas["3"].mid_s or 0) > NOW_S + 100


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (waiting("3", held="other"), "held by its user"),
        (waiting("3", left="depends on another job"), "depends on another job"),
        (waiting("3", partition="nowhere"), "no partition nowhere"),
        (waiting("3", partition="night"), "partition night is closed"),
        (waiting("3", partition="brief"), "time limit is above"),
        (waiting("3", gpu_types=("h100",)), "GPUs of type h100"),
        (waiting("3", 100), "never start"),
    ],
)
def test_a_job_that_cannot_be_forecast_has_a_reason(job: Job, words: str) -> None:
    partitions = (
        Partition("gpu", ("n1", "n2"), default=True),
        Partition("night", ("n1", "n2"), open=False),
        Partition("brief", ("n1",), max_time_s=60.0),
    )
    found = seen(state(job, waiting("other"), partitions=partitions))
    assert words in found.reasons["3"]
    assert found.of("3")["eta"] is None
    assert "other" in found.etas


def test_partitions_keep_jobs_to_their_nodes() -> None:
    partitions = (Partition("gpu", ("n1",), default=True), Partition("all", ("n1", "n2"), tier=2))
    live = state(FULL[0], waiting("here", 8), waiting("there", 8, partition="all"), partitions=partitions)
    found = seen(live).etas
    assert found["there"].mid_s == NOW_S
    assert found["here"].mid_s == pytest.approx(NOW_S + 1700.0)


def test_a_job_of_several_partitions_is_forecast_in_the_first_that_is_open() -> None:
    partitions = (Partition("a", ("n1",), open=False), Partition("b", ("n2",)))
    assert seen(state(waiting("3", 8, partition="a,b"), partitions=partitions)).etas["3"].mid_s == NOW_S


@pytest.mark.parametrize("policy", ["tiresias+greedy", "srtf+greedy", "model:bursty-order"])
def test_where_the_policy_cannot_be_simulated_the_fallback_is_and_it_says_so(policy: str) -> None:
    found = seen(state(*FULL, waiting("3", 8)), policy)
    assert found.policy.startswith("fifo+easy")
    assert "because there is none of" in found.notes[0]
    assert "3" in found.etas


@pytest.mark.parametrize(
    "policy", ["fifo+conservative", "multifactor+slurm", "fair-share+easy", "random+easy"]
)
def test_policies_of_many_kinds_are_simulated_themselves(policy: str) -> None:
    found = seen(state(*FULL, waiting("3", 8), waiting("4", 2)), policy)
    assert found.policy.startswith(policy)
    assert set(found.etas) == {"3", "4"}


class _Own:
    def __init__(self, fails: bool) -> None:
        self._fails, self._base = fails, find_policy("fifo+easy")

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        if self._fails:
            raise RuntimeError("out of order")
        return self._base.decide(snapshot)


def test_a_policy_that_is_asked_says_the_same_as_one_that_the_core_runs() -> None:
    live = state(*FULL, *(waiting(str(number), 1 + number % 9, waited_s=number) for number in range(3, 40)))
    asked = forecast(live, as_policy(_Own(False)), ServeSettings(), RunTimes(), draws=4)
    assert asked.etas == forecast(live, find_policy("fifo+easy"), ServeSettings(), RunTimes(), draws=4).etas


def test_a_policy_that_raises_is_replaced() -> None:
    found = forecast(state(*FULL, waiting("3", 8)), as_policy(_Own(True)), ServeSettings(), halves())
    assert "out of order" in found.notes[0]
    assert found.etas["3"].mid_s == pytest.approx(NOW_S + 1700.0)


def test_a_rollout_that_is_cut_off_says_in_how_many_a_job_started() -> None:
    live = state(FULL[0], waiting("now", 8), waiting("later", 16, waited_s=1.0))
    found = forecast(live, as_policy(_Own(False)), ServeSettings(), halves(), budget_s=0.0)
    assert found.etas["now"].mid_s == NOW_S
    assert (found.etas["later"].mid_s, found.etas["later"].started_share) == (None, 0.0)
    assert "1 of 16 draws" in found.notes[0]


def test_predictions_take_the_place_of_limits_if_the_agent_goes_by_history() -> None:
    live = state(*FULL, waiting("3", 16, 90.0, 60.0), waiting("4", 16, 10.0, 7200.0))
    settings = make_settings({"estimates": "history"})
    found = forecast(
        live, find_policy("sjf+strict"), settings, halves(), predictions_s={"3": 9000.0, "4": 5.0}
    ).etas
    assert (found["4"].mid_s or 0) < (found["3"].mid_s or 0)


def test_settings_of_simulations_that_need_a_past_do_not_matter() -> None:
    settings = make_settings({"simulation": {"node_mtbf_s": 1e6, "sleep_after_s": 60.0, "defragment": True}})
    assert "3" in forecast(state(waiting("3")), find_policy("fifo+easy"), settings, halves()).etas


def test_one_job_has_a_document() -> None:
    found = seen(state(waiting("3"))).of("3")
    assert found["eta"]["mid_s"] == NOW_S
    assert found["policy"].startswith("fifo+easy")
    assert seen(state()).of("7")["reason"] == "it does not wait"


def _odd_state(draw: random.Random) -> ClusterState:
    """What no scheduler should say, and some do."""
    pick, some = draw.choice, draw.randrange
    limits = (0.0, -5.0, 1e12, None, 3600.0)

    def shares() -> tuple[Share, ...]:
        names = draw.sample(["n1", "n2", "n3", "gone"], some(4))
        return tuple(Share(name, some(12), some(100), some(2000)) for name in names)

    nodes = tuple(
        node(name, pick([0, 8, 8, 8]), closed=pick(["", "", "down"]), gpus_used=pick([None, 0, 20]),
             cpus=pick([0, 64, 64]), memory_mib=pick([0, 512, 512]), gpu_type=pick(["a100"] * 9 + ["a b:c"]))
        for name in ("n1", "n2", "n3")
    )  # fmt: skip
    held = [
        Job(str(number), pick(["starting", "running", "ending"]), pick([0.0, NOW_S, NOW_S + 500]),
            user="\ud800", gpus=some(20), limit_s=pick(limits), exclusive=draw.random() < 0.2,
            begin_s=pick([None, 0.0, NOW_S - 5, NOW_S + 3600]), shares=shares())
        for number in range(some(6))
    ]  # fmt: skip
    queued = [
        waiting(f"w{number}", pick([0, 1, 2, 8, 30]), pick([-100.0, 0.0, 1e9]), pick(limits),
                nodes=pick([0, 0, 1, 3]), exclusive=draw.random() < 0.3, memory_mib=some(100),
                partition=pick(["", "gpu", "a,b"]), site_priority=pick([1.0, math.nan]),
                gpu_types=pick([None, None, None, (), ("a100",), ("x|y",)]))
        for number in range(some(6))
    ]  # fmt: skip
    partitions = pick([(), (Partition("gpu", ("n1", "zz"), default=True),)])
    return ClusterState("odd", NOW_S, (*held, *queued), nodes, partitions)


@pytest.mark.parametrize("seed", range(60))
def test_no_state_however_odd_makes_it_raise_and_every_waiting_job_has_an_answer(seed: int) -> None:
    live = _odd_state(random.Random(seed))
    found = seen(live, draws=2)
    assert set(found.etas) | set(found.reasons) == {job.id for job in live.waiting}
    assert not set(found.etas) & set(found.reasons)
    assert all((eta.low_s or NOW_S) >= NOW_S for eta in found.etas.values())


def test_a_state_without_nodes_or_jobs_has_no_forecast() -> None:
    assert seen(ClusterState("none", NOW_S)).etas == {}
    assert seen(ClusterState("none", NOW_S, (waiting("3"),))).reasons == {"3": "no node is open"}
