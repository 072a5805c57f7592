"""What every registered rule must do. A rule is found through the registry: being there, it is tested."""

import re

import numpy as np
import pytest

from conformance.policy_cases import (
    BACKFILLS,
    LEGAL,
    ORDERS,
    PLACEMENTS,
    PREEMPTIVE,
    is_legal,
    legal,
    mixed_cluster,
)
from differential.core_runs import StepByStep
from gpuyard import _core
from gpuyard.native.schedule import RUN_ENDINGS
from gpuyard.policies.grammar import parse_policy
from gpuyard.policies.heuristics import Heuristic
from gpuyard.registry import registered
from gpuyard.simulation.run import SimulationResult, simulate
from support.invariants import check_result
from support.paths import DOCS

CONTRACT = DOCS / "contract" / "simulator.md"
NOT_NATIVE = "milp"
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    "failures": {"node_mtbf_s": 40_000.0, "node_mttr_s": 3600.0, "checkpoint_every_s": 600.0},
    "sleep": {"sleep_after_s": 300.0, "wake_s": 120.0},
    "defragment": {"defragment": True},
    "failures and sleep": {"node_mtbf_s": 60_000.0, "node_mttr_s": 600.0, "sleep_after_s": 0.0},
}


def allows(variant: str, policy: str) -> bool:
    """Section 20."""
    spec = parse_policy(policy)
    if variant == "defragment":
        return spec.backfill in ("strict", "greedy") and spec.placement != NOT_NATIVE
    return "sleep" not in variant or spec.backfill not in ("conservative", "slurm")


def cases(policies: list[str]) -> list[object]:
    """Every policy under one variant, by turns; the slow test has all of them."""
    found = []
    for number, policy in enumerate(policies):
        variants = [variant for variant in VARIANTS if allows(variant, policy)]
        found.append((policy, variants[number % len(variants)]))
    return [pytest.param(*case, id=", ".join(case)) for case in found]


def one_of_each(policies: list[str]) -> list[str]:
    """The first policy with each order, each backfill and each placement."""
    first: dict[tuple[str, str], str] = {}
    for policy in policies:
        spec = parse_policy(policy)
        for kind in ("order", "backfill", "placement"):
            first.setdefault((kind, getattr(spec, kind)), policy)
    return list(dict.fromkeys(first.values()))


def run(policy: str, variant: str = "plain", *, by_steps: bool = False) -> SimulationResult:
    how = legal(policy, **VARIANTS[variant])
    chosen = StepByStep(parse_policy(policy)) if by_steps else policy
    return simulate(how.workload, mixed_cluster(), chosen, how.config)


def endings(result: SimulationResult) -> dict[str, int]:
    """How many runs ended in which way."""
    counts = np.bincount(result.schedule.pieces().ending, minlength=len(RUN_ENDINGS))
    return dict(zip(RUN_ENDINGS, counts.tolist(), strict=True))


def check_policy(policy: str, variant: str) -> None:
    result = run(policy, variant)
    assert result.policy == policy
    assert len(result.schedule) == len(result.workload)
    check_result(result)
    assert run(policy, variant).schedule.hash() == result.schedule.hash()
    if parse_policy(policy).placement != NOT_NATIVE:
        assert run(policy, variant, by_steps=True).schedule.hash() == result.schedule.hash()


@pytest.mark.parametrize(("policy", "variant"), cases(LEGAL))
def test_schedules_are_legal_repeatable_and_the_same_step_by_step(policy: str, variant: str) -> None:
    check_policy(policy, variant)


@pytest.mark.slow
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("order", ORDERS)
def test_all_legal_combinations_are_legal_repeatable_and_the_same_step_by_step(
    order: str, placement: str
) -> None:
    for backfill in BACKFILLS:
        policy = f"{order}+{backfill}/{placement}"
        for variant in VARIANTS:
            if is_legal(policy) and allows(variant, policy):
                check_policy(policy, variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backfill", ["strict", "greedy"])
@pytest.mark.parametrize("order", PREEMPTIVE)
def test_preemptive_orders_stop_jobs(order: str, backfill: str, variant: str) -> None:
    assert endings(run(f"{order}+{backfill}/consolidate", variant))["stopped"] > 20


@pytest.mark.parametrize("policy", one_of_each(LEGAL))
def test_only_preemptive_orders_stop_jobs(policy: str) -> None:
    check_endings(policy)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [policy for policy in LEGAL if policy not in one_of_each(LEGAL)])
def test_only_preemptive_orders_stop_jobs_in_any_combination(policy: str) -> None:
    check_endings(policy)


def check_endings(policy: str) -> None:
    ended = endings(run(policy))
    assert (ended["stopped"] > 0) == parse_policy(policy).preempts
    assert ended["failed"] == 0
    assert endings(run(policy, "failures"))["failed"] > 3


@pytest.mark.parametrize("placement", [name for name in PLACEMENTS if name != NOT_NATIVE])
def test_defragment_moves_jobs_of_orders_that_do_not_preempt(placement: str) -> None:
    assert endings(run(f"fifo+greedy/{placement}", "defragment"))["stopped"] > 0


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_but_fifo_makes_a_difference(order: str) -> None:
    assert (order == "fifo") == (run(f"{order}+strict/consolidate").schedule.hash() == fifo_hash())


def fifo_hash() -> str:
    return run("fifo+strict/consolidate").schedule.hash()


def test_no_two_orders_are_the_same() -> None:
    hashes = {order: run(f"{order}+strict/consolidate").schedule.hash() for order in ORDERS}
    assert len(set(hashes.values())) == len(ORDERS), hashes


def test_no_two_backfills_are_the_same() -> None:
    workload = legal("fifo+conservative/consolidate").workload
    hashes = {
        backfill: simulate(workload, mixed_cluster(), f"fifo+{backfill}").schedule.hash()
        for backfill in BACKFILLS
    }
    assert len(set(hashes.values())) == len(BACKFILLS), hashes


def test_no_two_placements_are_the_same_but_consolidate_and_best_fit() -> None:
    native = [name for name in PLACEMENTS if name != NOT_NATIVE]
    hashes = {placement: run(f"fifo+strict/{placement}").schedule.hash() for placement in native}
    assert hashes["consolidate"] == hashes["best-fit"]
    assert len(set(hashes.values())) == len(native) - 1, hashes


def test_milp_places_jobs_otherwise_than_the_rule_it_falls_back_to() -> None:
    workload = legal("fifo+strict/milp").workload
    tier, milp = (simulate(workload, mixed_cluster(), f"fifo/{name}") for name in ("tier", "milp"))
    assert milp.counters["milp_solved"] > 50
    assert tier.schedule.hash() != milp.schedule.hash()


@pytest.mark.parametrize("kind", ["order", "backfill", "placement"])
def test_the_registry_names_exactly_what_the_core_can_do(kind: str) -> None:
    native = [name for name, rule in registered(kind).items() if isinstance(rule, Heuristic)]
    in_core = {
        "order": [order["name"] for order in _core.orders()],
        "backfill": _core.testing.BACKFILLS,
        "placement": _core.testing.PLACEMENTS,
    }
    assert [name for name in native if name != NOT_NATIVE] == in_core[kind]


@pytest.mark.parametrize("kind", ["order", "backfill", "placement"])
def test_every_rule_has_a_summary_and_stands_in_the_contract(kind: str) -> None:
    contract = CONTRACT.read_text(encoding="utf-8")
    for name, rule in registered(kind).items():
        assert rule.name == name
        assert len(rule.summary) > 8
        assert f"`{rule.form or name}`" in contract, f"{kind} {name} is not in docs/contract/simulator.md"


def section(number: int) -> str:
    text = CONTRACT.read_text(encoding="utf-8")
    return text.partition(f"\n## {number}. ")[2].partition(f"\n## {number + 1}. ")[0]


def test_the_contract_promises_no_order_that_is_not_there() -> None:
    assert re.findall(r"^\| `([a-z0-9-]+)(?::A)?` \|", section(8), re.MULTILINE) == list(registered("order"))


def test_the_contract_promises_no_backfill_that_is_not_there() -> None:
    assert tuple(re.findall(r"^\* `([a-z0-9-]+)`:", section(10), re.MULTILINE)) == BACKFILLS


def test_the_contract_marks_preemptive_orders() -> None:
    marked = re.findall(r"^\| `([a-z0-9-]+)` \| .*\(preemptive\) \|$", section(8), re.MULTILINE)
    assert tuple(marked) == PREEMPTIVE
