"""Random simulations that begin with a given schedule: section 7 of docs/contract/simulator.md.

What is given is what another policy did up to a moment, sometimes without some of its jobs, which then wait,
and sometimes with one that cannot have run so.
"""

import random
from dataclasses import replace

from differential import cases, lifecycle_cases, slurm_cases
from differential.asked_cases import asking
from differential.cases import Case
from differential.core_runs import run_core
from reference.simulator.simulator import Beginning, Outcome, Policy

MAKERS = (
    cases.random_case,
    cases.random_queues,
    cases.random_splits,
    asking(cases.random_case),
    asking(lifecycle_cases.random_everything),
    lifecycle_cases.random_preemption,
    lifecycle_cases.random_power,
    lifecycle_cases.random_quotas,
    lifecycle_cases.random_fairness,
    lifecycle_cases.random_history,
    lifecycle_cases.random_conservative,
    lifecycle_cases.random_tiers,
    lifecycle_cases.random_everything,
    slurm_cases.random_backfill,
    slurm_cases.random_partitions,
    slurm_cases.random_slurm_cluster,
)
NOTHING_FAILS = {"node_mtbf_s": None, "node_mttr_s": None, "checkpoint_every_s": None}
NOTHING_SLEEPS = {"sleep_after_s": None, "wake_s": None}


def random_beginning(seed: int) -> Case:
    """A case of any kind that begins with what a greedy policy did before."""
    rng = random.Random(f"beginning {seed}")
    made = MAKERS[seed % len(MAKERS)](seed // len(MAKERS))
    settings = replace(made.settings, **NOTHING_FAILS, **NOTHING_SLEEPS)
    case = replace(made, settings=settings, jobs=[replace(job, after=()) for job in made.jobs])
    before = run_core(_greedily(case, rng.choice(("fifo", "smallest", "lifo"))))
    moment_us = _moment(rng, before)
    kept = rng.choice((1.0, 1.0, 1.0, 0.9, 0.5, 0.0))
    starts = [
        (job, done.start_us, done.nodes)
        for job, done in enumerate(before)
        if done.start_us < moment_us and rng.random() < kept
    ]
    if starts and rng.random() < 0.1:
        place = rng.randrange(len(starts))
        starts[place] = _spoiled(rng, case, starts[place])
    return replace(case, given=Beginning(moment_us, tuple(starts)))


def _greedily(case: Case, order: str) -> Case:
    settings = replace(case.settings, defragment=False, group_quotas={}, power_cap_w=None)
    return replace(case, policy=Policy(order, "greedy", placement=case.policy.placement), settings=settings)


def _moment(rng: random.Random, before: list[Outcome]) -> int:
    """When something happened, or at any time."""
    ends = [time_us for done in before for time_us in (done.start_us, done.end_us)]
    if rng.random() < 0.6:
        return rng.choice(ends)
    return rng.randint(0, max(ends) + 2)


def _spoiled(
    rng: random.Random, case: Case, start: tuple[int, int, tuple[tuple[int, int], ...]]
) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    job, start_us, nodes = start
    if rng.random() < 0.3:
        return job, start_us - rng.choice((1, 1000)), nodes
    moved = tuple((min(node + 1, len(case.nodes) - 1), gpus) for node, gpus in nodes)
    return job, start_us, rng.choice((moved, nodes[1:], tuple((node, gpus + 1) for node, gpus in nodes)))
