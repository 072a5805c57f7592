"""One decision on a live state: the order, the starts, and what is refused."""

from dataclasses import replace

import pytest

from gpuyard import _core
from gpuyard.errors import InputError
from gpuyard.network.policy import LearnedPolicy
from gpuyard.policies.base import Policy, as_policy
from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.decision.deciding import Made, aged, check_served, decide_on, may_decide
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Share
from gpuyard.simulation.find import find_policy
from support.live_states import running, state, waiting
from support.paths import model_path

SHADOW = ServeSettings()
QUEUE = (
    waiting("1", 8, waited_s=50.0, limit_s=9000.0),
    waiting("2", 8, waited_s=40.0, limit_s=60.0),
    waiting("3", 8, waited_s=30.0, limit_s=600.0),
)


def decided(at: ClusterState, policy: Policy | str, settings: ServeSettings = SHADOW) -> Made:
    memory = Memory()
    memory.update(at, 1000.0, settings.estimates)
    chosen = as_policy(parse_policy(policy)) if isinstance(policy, str) else policy
    return decide_on(at, memory, chosen, settings)


def test_the_order_is_that_of_the_rule_with_its_scores() -> None:
    made = decided(state(*QUEUE), "sjf+easy")
    assert [(ranked.job, ranked.score) for ranked in made.order] == [("2", 60.0), ("3", 600.0), ("1", 9000.0)]
    assert [planned.job for planned in made.starts] == ["2", "3"]


def test_jobs_without_an_estimate_rank_last_and_without_a_score() -> None:
    made = decided(state(waiting("1", limit_s=None), waiting("2", limit_s=5.0)), "sjf+easy")
    assert [(ranked.job, ranked.score) for ranked in made.order] == [("2", 5.0), ("1", None)]


def test_backfilled_jobs_and_plans_are_told() -> None:
    at = state(
        running("0", Share("n1", 8, 8)), waiting("1", 16, waited_s=90.0), waiting("2", 1, limit_s=60.0)
    )
    made = decided(at, "fifo+conservative")
    assert [planned.job for planned in made.starts] == ["2"]
    assert made.backfilled == {"2"}
    (job, begin_s, _, nodes) = made.reservations[0]
    assert (job, begin_s) == ("1", 3500.0)
    assert sorted(nodes) == [["n1", 8], ["n2", 8]]
    assert made.wake_s == 3500.0


def test_a_plan_is_followed_at_the_next_round() -> None:
    memory = Memory()
    at = state(running("0", Share("n1", 8, 8)), waiting("1", 16, waited_s=90.0))
    policy = as_policy(parse_policy("fifo+conservative"))
    for seconds in (0.0, 10.0, 20.0):
        later = replace(at, now_s=at.now_s + seconds)
        memory.update(later, 1000.0, "requested")
        made = decide_on(later, memory, policy, SHADOW)
        memory = Memory.from_json(memory.to_json())
        memory.previous = later
        memory.reservations = made.reservations
        assert made.reservations[0][:2] == ["1", 3500.0]


class StartsLast(Policy):
    """Starts the job that came last, and leaves the rest."""

    @property
    def name(self) -> str:
        return "starts-last"

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        decision = _core.Decision()
        last = _core.ranking(snapshot, parse_policy("lifo").compile())[0].tolist()[0]
        decision.start(last, [(0, 8)])
        return decision


def test_a_policy_without_rules_ranks_what_it_starts_first() -> None:
    made = decided(state(*QUEUE), StartsLast())
    assert [ranked.job for ranked in made.order] == ["3", "1", "2"]
    assert {ranked.score for ranked in made.order} == {None}


def test_estimates_of_history_are_used_where_asked_for() -> None:
    settings = ServeSettings(estimates="history")
    assert {ranked.score for ranked in decided(state(*QUEUE), "sjf+easy", settings).order} == {3600.0}


@pytest.mark.parametrize(
    ("mode", "control", "held", "may"),
    [
        ("active", "start", "agent", True),
        ("active", "start", "", False),
        ("active", "start", "other", False),
        ("active", "order", "", True),
        ("shadow", "start", "", True),
        ("shadow", "start", "agent", True),
        ("shadow", "order", "other", False),
    ],
)
def test_which_jobs_are_decided_on(mode: str, control: str, held: str, may: bool) -> None:
    settings = ServeSettings.model_validate({"mode": mode, "control": control})
    assert may_decide(waiting("1", held=held), settings) is may


def test_ageing_begins_when_a_job_is_overdue_and_keeps_a_shorter_bound() -> None:
    at = state(waiting("1", waited_s=500.0))
    sjf = parse_policy("sjf+easy")
    assert aged(sjf, at, ServeSettings(max_wait_s=600.0)) is sjf
    late = aged(sjf, at, ServeSettings(max_wait_s=400.0))
    assert late.rules is not None
    assert late.rules.max_wait_s == 400.0
    strict = aged(parse_policy("sjf+easy+age:50"), at, ServeSettings(max_wait_s=400.0))
    assert strict.rules is not None
    assert strict.rules.max_wait_s == 50.0


def test_jobs_that_are_left_make_nobody_overdue() -> None:
    at = state(waiting("1", waited_s=500.0, left="asks for licences"))
    sjf = parse_policy("sjf+easy")
    assert aged(sjf, at, ServeSettings(max_wait_s=400.0)) is sjf


def test_models_that_select_jobs_may_serve_and_others_may_not() -> None:
    check_served(LearnedPolicy.open(model_path("venus-order")))
    check_served(as_policy(parse_policy("srtf+greedy")))
    with pytest.raises(InputError, match="replays a log"):
        check_served(find_policy("recorded"))
