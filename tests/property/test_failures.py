"""Properties of nodes that fail: docs/contract/simulator.md, sections 2 and 16."""

import math
from dataclasses import replace

from differential.cases import Case
from differential.core_runs import runs
from differential.lifecycle_cases import random_failures
from gpuyard.config import SimulationConfig
from gpuyard.simulation.run import simulate
from gpuyard.workload import SynthConfig, synthesize
from property.lifecycle import result
from reference.simulator.simulator import Run, make_pools, work_us

SEEDS = range(60)
MASK = 2**64 - 1


# Section 2, written out once more: nothing here is taken from the reference.
def splitmix64(x: int) -> int:
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def exponential_us(mean_s: float, seed: int, stream: int, node: int, count: int) -> int:
    draw = seed
    for part in (stream, node, count):
        draw = splitmix64(draw) ^ part
    uniform = float(splitmix64(draw) >> 11) * 2.0**-53
    return max(1, round(float(round(mean_s * 1e6)) * -math.log(1.0 - uniform)))


def expected_downtime(config: SimulationConfig, nodes: int, end_us: int) -> list[tuple[int, int, int]]:
    """(node, from, to) of all failures before the end, the last ones cut there."""
    assert config.node_mtbf_s is not None
    spans = []
    for node in range(nodes):
        count = at_us = 0
        while True:
            at_us += exponential_us(config.node_mtbf_s, config.seed, 4, node, count)
            if at_us >= end_us:
                break
            repaired_us = at_us + exponential_us(config.repair_s, config.seed, 5, node, count)
            spans.append((node, at_us, min(repaired_us, end_us)))
            at_us, count = repaired_us, count + 1
    return spans


def test_the_first_draws_are_those_of_the_page() -> None:
    """Values that splitmix64 is known for, so that a mistake shared with the core would show."""
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert splitmix64(1234567) == 6457827717110365317


def test_nodes_fail_and_are_repaired_when_the_draws_say() -> None:
    failures = 0
    for seed in SEEDS:
        case = random_failures(seed)
        outcome = result(case)
        down = outcome.schedule.downtime  # None if no node failed
        end_us = int(outcome.schedule.end_us.max())
        columns = ([], [], []) if down is None else (down.node, down.from_us, down.to_us)
        told = [tuple(int(value) for value in span) for span in zip(*columns, strict=True)]
        expected = expected_downtime(outcome.config, len(case.nodes), end_us)
        assert sorted(span for span in told if span[1] < end_us) == sorted(expected), seed
        failures += len(expected)
    assert failures > 200


def test_failures_do_not_depend_on_the_policy_or_the_jobs() -> None:
    config = SimulationConfig(node_mtbf_s=20_000, node_mttr_s=500, checkpoint_every_s=100, seed=11)
    schedules = [
        simulate(synthesize(SynthConfig(jobs=80, cluster_gpus=16, seed=jobs)), "4x4", policy, config).schedule
        for jobs in (1, 2)
        for policy in ("fifo", "las+greedy/spread", "sjf+conservative")
    ]
    end_us = min(int(schedule.end_us.max()) for schedule in schedules)
    failures = []
    for schedule in schedules:
        assert schedule.downtime is not None
        pairs = zip(schedule.downtime.node.tolist(), schedule.downtime.from_us.tolist(), strict=True)
        failures.append(sorted(pair for pair in pairs if pair[1] < end_us))
    assert len(failures[0]) > 5
    assert all(other == failures[0] for other in failures)


def test_another_seed_makes_nodes_fail_at_other_times() -> None:
    case = random_failures(1)
    starts = [
        result(replace(case, settings=replace(case.settings, seed=seed))).schedule.downtime for seed in (1, 2)
    ]
    assert starts[0] is not None
    assert starts[1] is not None
    assert starts[0].from_us.tolist() != starts[1].from_us.tolist()


def failed_runs(case: Case) -> list[Run]:
    pieces = runs(result(case).schedule)
    return [run for run in pieces if run.ending == "failed"]


def test_a_failure_costs_less_than_a_checkpoints_work() -> None:
    """What is lost is what was done since the last multiple of `checkpoint_every_s` of progress."""
    kept = 0
    for seed in SEEDS:
        case = random_failures(seed)
        every_s = case.settings.checkpoint_every_s
        if every_s is None:
            continue
        pools, penalty = make_pools(case.nodes, case.speeds), case.settings.locality_penalty
        for run in failed_runs(case):
            made_us = max(0, run.stop_us - run.begin_us - run.restore_us)
            job = case.jobs[run.job]
            most_us = work_us(min(made_us, round(every_s * 1e6)), job, run.nodes, pools, penalty) + 1
            assert 0 <= run.lost_us <= most_us, (seed, run)
            kept += run.lost_us < work_us(made_us, job, run.nodes, pools, penalty)
    assert kept > 50


def test_without_checkpoints_a_failure_costs_all_that_the_run_did() -> None:
    lost = 0
    for seed in SEEDS:
        case = random_failures(seed)
        if case.settings.checkpoint_every_s is not None:
            continue
        pools, penalty = make_pools(case.nodes, case.speeds), case.settings.locality_penalty
        for run in failed_runs(case):
            made_us = max(0, run.stop_us - run.begin_us - run.restore_us)
            assert run.lost_us == work_us(made_us, case.jobs[run.job], run.nodes, pools, penalty)
            lost += run.lost_us > 0
    assert lost > 20


def test_nodes_that_hardly_ever_fail_change_nothing() -> None:
    """But for the table of runs: a mean of a hundred years, and jobs of an hour."""
    jobs = synthesize(SynthConfig(jobs=100, cluster_gpus=16, load=1.2, seed=3))
    for policy in ("fifo", "sjf+easy", "fifo+conservative", "las+greedy", "sjf/spread"):
        plain = simulate(jobs, "2x8", policy).schedule
        rare = simulate(jobs, "2x8", policy, SimulationConfig(node_mtbf_s=4e9)).schedule
        assert rare.start_us.tolist() == plain.start_us.tolist(), policy
        assert rare.end_us.tolist() == plain.end_us.tolist(), policy
        assert rare.node.tolist() == plain.node.tolist(), policy
