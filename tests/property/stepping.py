"""Steps the core through a case and keeps an account of its own of what is free."""

from collections.abc import Iterator
from dataclasses import dataclass

from differential.cases import Case
from differential.core_runs import cluster_of, config_of, policy_of, workload_of
from gpuyard import _core
from gpuyard.simulation.run import prepare
from reference.simulator.simulator import (
    Allocation,
    FreeNode,
    Held,
    Pool,
    Request,
    change,
    empty_cluster,
    make_pools,
    make_request,
    take,
)


@dataclass
class Step:
    """One decision point.

    Attributes:
        now_us: When.
        started: The starts of this decision point, in the order in which they were made.
        waiting: What waits after them.
        held: What each running job holds after them, by job.
        free: What is free after them, by this account.
        snapshot: The core's view after them.
    """

    now_us: int
    started: list[tuple[Request, Allocation]]
    waiting: list[Request]
    held: dict[int, list[Held]]
    free: list[FreeNode]
    snapshot: _core.Snapshot


def requests_of(case: Case) -> list[Request]:
    return [make_request(id, job, case.settings) for id, job in enumerate(case.jobs)]


def pools_of(case: Case) -> list[Pool]:
    return make_pools(case.nodes, case.speeds)


def steps(case: Case) -> Iterator[Step]:
    policy = policy_of(case)
    inputs = prepare(workload_of(case), cluster_of(case), policy, config_of(case))
    simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings)
    requests, compiled = requests_of(case), policy.compile()
    free, held = empty_cluster(case.nodes), dict[int, list[Held]]()
    while simulator.advance():
        before = simulator.snapshot()
        for job in set(held) - set(before.running["job"].tolist()):
            change(free, held.pop(job), +1)
        decision = _core.decide(before, compiled)
        started = [(requests[job], tuple(nodes)) for job, nodes in decision.starts]
        for request, allocation in started:
            held[request.id] = take(free, request.job, allocation)
        simulator.apply(decision)
        waiting = [requests[job] for job in simulator.waiting]
        yield Step(round(simulator.now_s * 1e6), started, waiting, held, free, simulator.snapshot())
