"""Properties of quotas, the power cap and sleep: docs/contract/simulator.md, sections 17 and 18."""

from collections import Counter
from dataclasses import replace

import pytest

from differential.cases import Case
from differential.core_runs import runs
from differential.lifecycle_cases import random_everything, random_power, random_quotas, random_sleep
from property.lifecycle import MakeCase, decisions, result
from reference.simulator.simulator import Run, to_us

SEEDS = range(60)


def changes(pieces: list[Run]) -> list[tuple[int, int, Run]]:
    """When GPUs are released (-1) and taken (+1), in order of time, releases first."""
    events = [(run.taken_us, 1, run) for run in pieces] + [(run.released_us, -1, run) for run in pieces]
    return sorted(events, key=lambda event: event[:2])


# --- quotas


def share_of(case: Case, group: str) -> str | None:
    """Whose quota the group's jobs count against; None: that of all others together."""
    return group if group in case.settings.group_quotas else None


def quotas_milli(case: Case) -> dict[str | None, int]:
    quotas = case.settings.group_quotas
    rest = sum(node.gpus for node in case.nodes) - sum(quotas.values())
    return {name: 1000 * gpus for name, gpus in {**quotas, None: rest}.items()}


def most_held_milli(case: Case) -> Counter[str | None]:
    """The most that each share's jobs hold at a time."""
    held, most = Counter[str | None](), Counter[str | None]()
    for _, sign, run in changes(runs(result(case).schedule)):
        job = case.jobs[run.job]
        share = share_of(case, job.group)
        held[share] += sign * job.milli
        most[share] = max(most[share], held[share])
    return most


def test_a_group_that_may_not_borrow_never_holds_more_than_its_quota() -> None:
    full = checked = 0
    for make_case in (random_quotas, random_everything):
        for seed in SEEDS:
            case = make_case(seed)
            if not case.settings.group_quotas or case.settings.quota_borrowing:
                continue
            quotas = quotas_milli(case)
            for share, most in most_held_milli(case).items():
                assert most <= quotas[share], (make_case.__name__, seed, share)
                full += most == quotas[share] > 0
                checked += 1
    assert checked > 30
    assert full > 10


def test_groups_that_may_borrow_do() -> None:
    over = 0
    for seed in SEEDS:
        case = random_quotas(seed)
        if case.settings.quota_borrowing:
            quotas = quotas_milli(case)
            over += any(most > quotas[share] for share, most in most_held_milli(case).items())
    assert over > 10


def is_within(case: Case, held: Counter[str | None], job: int) -> bool:
    share = share_of(case, case.jobs[job].group)
    return held[share] + case.jobs[job].milli <= quotas_milli(case)[share]


def test_nobody_borrows_while_a_job_within_its_quota_waits() -> None:
    borrowed = 0
    for seed in SEEDS:
        case = random_quotas(seed)
        if not case.settings.quota_borrowing:
            continue
        for snapshot, decision in decisions(case):
            held = Counter[str | None]()
            for job in snapshot.running["job"].tolist():
                held[share_of(case, case.jobs[job].group)] += case.jobs[job].milli

            waiting = snapshot.queue["job"].tolist()
            for job, _ in decision.starts:
                if not is_within(case, held, job):
                    assert not any(is_within(case, held, other) for other in waiting), (
                        seed,
                        snapshot.now_s,
                        job,
                    )
                    borrowed += 1
                waiting.remove(job)
                held[share_of(case, case.jobs[job].group)] += case.jobs[job].milli
    assert borrowed > 30


# --- the power cap


def milliwatts(watts: float) -> int:
    return round(watts * 1000)


def most_drawn_mw(case: Case) -> int:
    """The highest draw at any time, counted GPU by GPU."""
    idle_mw = sum(
        milliwatts(node.idle_w) + node.gpus * milliwatts(case.watts[node.type][0])
        for node in case.nodes
        if node.gpus or node.idle_w
    )
    growth = {type: milliwatts(peak) - milliwatts(idle) for type, (idle, peak) in case.watts.items()}
    whole, shared = Counter[int](), Counter[tuple[int, int]]()  # by node; by node and GPU, thousandths
    most = idle_mw
    for _, sign, run in changes(runs(result(case).schedule)):
        job = case.jobs[run.job]
        for node, gpus in run.nodes:
            if job.is_shared:
                shared[node, run.gpu_index] += sign * job.gpu_milli
            else:
                whole[node] += sign * gpus
        busy = whole + Counter(node for (node, _), milli in shared.items() if milli > 0)
        drawn = idle_mw + sum(gpus * growth[case.nodes[node].type] for node, gpus in busy.items())
        most = max(most, drawn)
    return most


@pytest.mark.parametrize(("make_case", "seeds"), [(random_power, 60), (random_everything, 150)])
def test_the_cluster_never_draws_more_than_the_cap(make_case: MakeCase, seeds: int) -> None:
    capped = needed = 0
    for seed in range(seeds):
        case = make_case(seed)
        if case.settings.power_cap_w is None:
            continue
        cap_mw = milliwatts(case.settings.power_cap_w)
        assert most_drawn_mw(case) <= cap_mw, seed
        capped += 1
        free = replace(case, settings=replace(case.settings, power_cap_w=None))
        needed += most_drawn_mw(free) > cap_mw
    assert capped > 5
    assert needed > 2, "the caps were never reached"


# --- sleep


def awake(case: Case) -> Case:
    """Without failures, which would hide runs that never began."""
    off = {"node_mtbf_s": None, "node_mttr_s": None, "checkpoint_every_s": None}
    return replace(case, settings=replace(case.settings, **off))


def begins_us(case: Case, pieces: list[Run]) -> dict[tuple[int, int], int]:
    """When the runs, by (job, taken), must begin: when the last of their nodes is awake."""
    after_us = to_us(case.settings.sleep_after_s or 0.0)
    wake_us = to_us(60.0 if case.settings.wake_s is None else case.settings.wake_s)
    idle_since, awake_us, holders = Counter[int](), Counter[int](), Counter[int]()
    expected: dict[tuple[int, int], int] = {}
    for at_us, sign, run in changes(pieces):
        for node, _ in run.nodes:
            if sign < 0:
                holders[node] -= 1
                idle_since[node] = at_us
            elif holders[node] == 0 and at_us - idle_since[node] >= after_us:
                awake_us[node] = at_us + wake_us
        if sign > 0:
            holders.update(node for node, _ in run.nodes)
            expected[run.job, at_us] = max(at_us, *(awake_us[node] for node, _ in run.nodes))
    return expected


def test_a_job_on_sleeping_nodes_begins_when_they_have_woken() -> None:
    woken = shared_wake = 0
    for seed in range(150):
        case = awake(random_sleep(seed))
        pieces = runs(result(case).schedule)
        if any(run.ending == "stopped" for run in pieces):
            continue  # nodes that were promised are awake for longer
        wake_us = to_us(60.0 if case.settings.wake_s is None else case.settings.wake_s)
        for (job, taken_us), begin_us in begins_us(case, pieces).items():
            (run,) = (run for run in pieces if (run.job, run.taken_us) == (job, taken_us))
            assert run.begin_us == begin_us, (seed, run)
            woken += begin_us == taken_us + wake_us > taken_us
            shared_wake += taken_us < begin_us < taken_us + wake_us
    assert woken > 100
    assert shared_wake > 5


def test_without_sleep_every_run_begins_at_once() -> None:
    for seed in SEEDS:
        case = awake(random_sleep(seed))
        never = replace(case, settings=replace(case.settings, sleep_after_s=None, wake_s=None))
        assert all(run.taken_us == run.begin_us for run in runs(result(never).schedule))
