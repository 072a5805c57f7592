"""The policy decides if it decides well and in time; otherwise the fallback does, and it is said why."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuyard import _core, registry
from gpuyard.policies.base import Policy, as_policy
from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.decision.choosing import Choice, Chooser
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Share
from support.live_states import running, state, waiting

Decide = Callable[[_core.Snapshot], Any]
TWO = state(waiting("1", 4, waited_s=50.0), waiting("2", 2, waited_s=40.0))


class Scripted(Policy):
    """A policy that does what it is told, round by round; then what ``fifo+greedy`` does."""

    def __init__(self, *script: Decide) -> None:
        self.script = list(script)

    @property
    def name(self) -> str:
        return "scripted"

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        rule = self.script.pop(0) if self.script else good
        decision: _core.Decision = rule(snapshot)
        return decision


def good(snapshot: _core.Snapshot) -> Any:
    return parse_policy("fifo+greedy").decide(snapshot)


def starting(job: int, node: int, gpus: int = 4) -> Decide:
    def decide(_: _core.Snapshot) -> Any:
        decision = _core.Decision()
        decision.start(job, [(node, gpus)])
        return decision

    return decide


def raising(_: _core.Snapshot) -> Any:
    raise ZeroDivisionError("division by zero")


def wrong_type(_: _core.Snapshot) -> Any:
    return [(0, [(0, 4)])]


@pytest.fixture
def choose() -> Iterator[Callable[..., "Rounds"]]:
    made: list[Rounds] = []

    def make(policy: Policy, **settings: Any) -> "Rounds":
        made.append(Rounds(policy, **settings))
        return made[-1]

    yield make
    for one in made:
        one.chooser.close()


class Rounds:
    """A chooser, and the memory that goes with it."""

    def __init__(self, policy: Policy, out_of_range: Any = None, **settings: Any) -> None:
        usual = {"mode": "shadow", "deadline_ms": 60_000.0}
        self.settings = ServeSettings(**(usual | settings))
        fallback = parse_policy(self.settings.fallback)
        self.chooser = Chooser(self.settings, policy, fallback, None, out_of_range)
        self.memory = Memory()

    def __call__(self, at: ClusterState = TWO) -> Choice:
        self.memory.update(at, 1000.0, "requested")
        return self.chooser.choose(at, self.memory)


def test_a_policy_that_decides_well_decides(choose: Any) -> None:
    choice = choose(as_policy(parse_policy("sjf+easy")))()
    assert (choice.decider, choice.cause, choice.words) == ("policy", "", "")
    assert [planned.job for planned in choice.made.starts] == ["1", "2"]


@pytest.mark.parametrize(
    ("rule", "cause", "words"),
    [
        (raising, "exception", "ZeroDivisionError"),
        (wrong_type, "illegal", "list"),
        (starting(99, 0), "illegal", "job number 99"),
        (starting(-1, 0), "illegal", "job number -1"),
        (starting(0, 99), "illegal", "node number 99"),
        (starting(0, -1), "illegal", "node number -1"),
        (lambda _: None, "illegal", "NoneType"),
        (lambda _: _core.Decision(), "no-action", "starts nothing"),
    ],
)
def test_a_decision_that_cannot_be_is_replaced_by_the_fallback(
    choose: Any, rule: Decide, cause: str, words: str
) -> None:
    choice = choose(Scripted(rule))()
    assert (choice.decider, choice.cause) == ("fallback", cause)
    assert words in choice.words
    assert [planned.job for planned in choice.made.starts] == ["1", "2"]
    assert choice.made is choice.baseline


def test_a_job_that_is_started_twice_is_illegal(choose: Any) -> None:
    def twice(_: _core.Snapshot) -> Any:
        decision = _core.Decision()
        decision.start(1, [(0, 2)])
        decision.start(1, [(1, 2)])
        return decision

    assert choose(Scripted(twice))().cause == "illegal"


def test_a_running_job_cannot_be_started(choose: Any) -> None:
    at = state(running("1", Share("n1", 4, 4), ran_s=100.0), waiting("2", 2, waited_s=10.0))

    def start_it(snapshot: _core.Snapshot) -> Any:
        waits = set(_core.ranking(snapshot, parse_policy("fifo").compile())[0].tolist())
        (runs,) = {0, 1} - waits
        return starting(runs, 1)(snapshot)

    choice = choose(Scripted(start_it))(at)
    assert (choice.decider, choice.cause) == ("fallback", "illegal")
    assert "does not wait" in choice.words


def test_scores_that_are_no_numbers_are_noticed(choose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._entries, "order", dict(registry._entries["order"]))
    registry.register("order", "no-number")(lambda queue: queue["wait_s"] * float("nan"))
    choice = choose(as_policy(parse_policy("no-number+easy")))()
    assert choice.decider == "fallback"
    assert choice.cause in ("nan", "exception")
    assert "score of job" in choice.words
    assert [planned.job for planned in choice.made.starts] == ["1", "2"]


def test_a_policy_that_sleeps_is_not_waited_for(choose: Any) -> None:
    wake = threading.Event()

    def sleep(snapshot: _core.Snapshot) -> Any:
        wake.wait(10.0)
        return good(snapshot)

    rounds = choose(Scripted(sleep), deadline_ms=50.0, good_rounds=1)
    for words in ("took longer than 50 ms", "still busy"):
        began = time.monotonic()
        choice = rounds()
        assert time.monotonic() - began < 2.0
        assert (choice.decider, choice.cause) == ("fallback", "deadline")
        assert words in choice.words
    wake.set()
    rounds.chooser.settings = rounds.settings.model_copy(update={"deadline_ms": 60_000.0})
    for _ in range(200):
        choice = rounds()
        if choice.decider == "policy":
            break
        time.sleep(0.02)
    assert choice.decider == "policy"


def test_the_policy_comes_back_after_good_rounds(choose: Any) -> None:
    rounds = choose(Scripted(raising), good_rounds=3)
    choices = [rounds() for _ in range(5)]
    assert [choice.decider for choice in choices] == ["fallback"] * 3 + ["policy"] * 2
    assert [choice.cause for choice in choices] == ["exception"] * 3 + [""] * 2
    assert "2 good rounds since" in choices[2].words


def test_another_failure_begins_the_count_anew(choose: Any) -> None:
    rounds = choose(Scripted(raising, good, wrong_type), good_rounds=2)
    choices = [rounds() for _ in range(5)]
    assert [choice.cause for choice in choices] == ["exception", "exception", "illegal", "illegal", ""]


def test_a_replaced_policy_is_trusted_at_once(choose: Any) -> None:
    rounds = choose(Scripted(raising), good_rounds=100)
    assert rounds().decider == "fallback"
    rounds.chooser.trust_again()
    assert rounds().decider == "policy"


def test_what_a_policy_has_not_seen_in_training_is_left_to_the_fallback(choose: Any) -> None:
    unseen = ["more jobs than in training", ""]
    rounds = choose(Scripted(), out_of_range=lambda _: unseen.pop(0), good_rounds=1)
    choice = rounds()
    assert (choice.cause, choice.words) == ("out-of-range", "more jobs than in training")
    assert rounds().decider == "policy"


def test_errors_in_a_row_call_for_the_fallback(choose: Any) -> None:
    rounds = choose(Scripted(), max_errors=3, good_rounds=1)
    rounds.chooser.apply_errors = 2
    assert rounds().decider == "policy"
    rounds.chooser.apply_errors = 3
    assert rounds().cause == "errors"
    rounds.chooser.apply_errors = 0
    assert rounds().decider == "policy"


def test_overdue_jobs_are_put_first_by_the_same_rule(choose: Any) -> None:
    old = waiting("1", 8, waited_s=10_000.0, limit_s=9000.0)
    busy = running("0", Share("n1", 8, 8))
    at = state(busy, old, waiting("2", 8, limit_s=60.0), nodes=state().nodes)
    rounds = choose(as_policy(parse_policy("sjf+easy")), max_wait_s=5_000.0)
    choice = rounds(at)
    assert choice.decider == "policy"
    assert [planned.job for planned in choice.made.starts] == ["1"]
    rounds = choose(as_policy(parse_policy("sjf+easy")), max_wait_s=50_000.0)
    assert [planned.job for planned in rounds(at).made.starts] == ["2"]


def test_a_policy_without_rules_gives_way_to_overdue_jobs_and_is_not_blamed(choose: Any) -> None:
    rounds = choose(Scripted(), max_wait_s=45.0, good_rounds=100)
    assert (rounds().decider, rounds().cause) == ("fallback", "overdue")
    assert rounds(state(waiting("3", 1, waited_s=5.0))).decider == "policy"
