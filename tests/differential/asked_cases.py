"""The cases of the other generators with jobs that ask for nodes among them."""

import random
from collections.abc import Callable
from dataclasses import replace

from differential.cases import Case
from reference.simulator.simulator import Job, Node, can_ever_start

MakeCase = Callable[[int], Case]


def asking(make_case: MakeCase) -> MakeCase:
    """The same cases, in which about half of the jobs ask for nodes where they can start so."""

    def make(seed: int) -> Case:
        case = make_case(seed)
        rng = random.Random(f"asking {seed}")
        jobs = [asked(rng, case, job, position) for position, job in enumerate(case.jobs)]
        return replace(case, jobs=jobs)

    make.__name__ = f"{make_case.__name__}-asking"
    return make


def asked(rng: random.Random, case: Case, job: Job, position: int) -> Job:
    """The job with a number of nodes that can hold it, or as it was."""
    row = position if job.row is None else job.row
    for _ in range(3):
        if rng.random() < 0.4:
            break
        wanted = random_request(rng, job, case.nodes)
        how = (case.policy.placement, case.settings.seed, case.settings, case.watts)
        if can_ever_start(case.nodes, case.speeds, wanted, row, *how):
            return wanted
    return job


def random_request(rng: random.Random, job: Job, nodes: list[Node]) -> Job:
    """Any number of nodes, also more than GPUs; some jobs without GPUs ask for more CPUs than a node has."""
    count = rng.choice((1, 2, 2, 3, 4, rng.randint(1, len(nodes)), max(job.gpus, 1), job.gpus + 1))
    if job.is_whole and rng.random() < 0.3:
        job = replace(job, gpus=0)
    if job.gpus == 0 and rng.random() < 0.7:
        given = [node.cpus for node in nodes if node.cpus is not None]
        job = replace(job, cpus=count * rng.randint(0, max(given, default=8)) + rng.randint(0, 2))
    elif job.is_whole and rng.random() < 0.5:
        job = replace(job, gpus=count * rng.randint(1, max(1, max(node.gpus for node in nodes))))
    return replace(job, nodes=count)
