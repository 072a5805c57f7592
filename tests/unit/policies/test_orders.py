"""What is true of each order: the core's one table, against what scores do and what was true before it."""

import math
from typing import Any

import pytest

from gpuyard import _core
from gpuyard.policies.heuristics import Order
from gpuyard.registry import registered

TRAITS: dict[str, dict[str, Any]] = {traits["name"]: traits for traits in _core.orders()}
MORE_THAN_THE_JOB = ("multifactor", "tiresias", "gittins")
SCORED = [name for name in TRAITS if name not in MORE_THAN_THE_JOB]


def score(order: str, **given: Any) -> float:
    job = {
        "submit_us": 5_000_000,
        "estimate_us": 70_000_000,
        "size_gpus": 4.0,
        "priority": 2.0,
        "deadline_us": 90_000_000,
        "row": 3,
        "user_usage": 17.0,
        "now_us": 20_000_000,
        "instant": 6,
        "seed": 1,
        "origin_s": 0.0,
    }
    return _core.testing.score(order, **(job | given))


def those_with(trait: str) -> list[str]:
    return [name for name, traits in TRAITS.items() if traits[trait]]


def test_the_registry_has_the_orders_of_the_table() -> None:
    assert list(registered("order"))[: len(TRAITS)] == list(TRAITS)
    for name, traits in TRAITS.items():
        rule = registered("order")[name]
        assert isinstance(rule, Order)
        for trait in ("preempts", "uses_estimates", "needs_watts", "predicts", "sees_names", "runs_lean"):
            assert getattr(rule, trait) == traits[trait], (name, trait)


@pytest.mark.parametrize("order", SCORED)
def test_orders_that_use_estimates_put_jobs_without_one_last(order: str) -> None:
    without = score(order, estimate_us=_core.ENDLESS)
    assert TRAITS[order]["uses_estimates"] == math.isinf(without)


@pytest.mark.parametrize("order", SCORED)
def test_scores_that_are_fixed_while_waiting_do_not_change_with_time(order: str) -> None:
    later = score(order, now_us=30_000_000, instant=7, user_usage=18.0)
    if TRAITS[order]["fixed_while_waiting"]:
        assert later == score(order)
    elif order not in ("drf", "group-fair-share"):  # they go by what others hold, not by time
        assert later != score(order)


def test_static_orders_are_fixed_while_waiting_and_remember_nothing() -> None:
    for name in those_with("is_static"):
        assert TRAITS[name]["fixed_while_waiting"]
        assert not TRAITS[name]["preempts"]
        assert not TRAITS[name]["sees_names"]


@pytest.mark.parametrize(
    ("trait", "orders"),
    [
        ("preempts", ["srtf", "ssf", "las", "las-2d", "tiresias", "gittins"]),
        ("needs_watts", ["power-aware"]),
        ("predicts", ["qssf"]),
        ("sees_names", ["fair-share", "qssf", "group-fair-share", "drf", "multifactor", "gittins"]),
    ],
)
def test_exactly_these_orders_have_the_trait(trait: str, orders: list[str]) -> None:
    assert those_with(trait) == orders


def test_the_lean_simulator_runs_what_neither_preempts_nor_remembers_more_than_usage() -> None:
    full = {name for name in TRAITS if not TRAITS[name]["runs_lean"]}
    assert full == {"qssf", "group-fair-share", "drf", "multifactor", *those_with("preempts")}


@pytest.mark.parametrize("order", MORE_THAN_THE_JOB)
def test_orders_that_depend_on_more_than_the_job_say_so(order: str) -> None:
    with pytest.raises(ValueError, match="depends on more than the job"):
        score(order)
