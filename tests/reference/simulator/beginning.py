"""Section 7 of docs/contract/simulator.md: a given beginning."""

from collections.abc import Sequence

from reference.simulator.cluster import Allocation, allowed_pools
from reference.simulator.inputs import Beginning, Request
from reference.simulator.placement import can_hold
from reference.simulator.state import State


class ImpossibleBeginningError(ValueError):
    """What is given cannot have happened."""


def check(given: Beginning, requests: Sequence[Request]) -> None:
    """Raises unless each start is of one job, after its submit and before the policy decides."""
    jobs = [job for job, _, _ in given.starts]
    if len(set(jobs)) < len(jobs):
        raise ImpossibleBeginningError("a job is given twice")
    for job, start_us, _ in given.starts:
        if not 0 <= job < len(requests):
            raise ImpossibleBeginningError(f"there is no job {job}")
        if not requests[job].submit_us <= start_us < given.decides_from_us:
            raise ImpossibleBeginningError(f"job {job} cannot have started at {start_us} us")


def make_starts(state: State) -> None:
    """The given starts of this instant, by job id."""
    for job, start_us, allocation in sorted(state.beginning.starts):
        if start_us == state.now_us:
            request = next(request for request in state.queued if request.id == job)
            check_fits(state, request, allocation)
            state.start(request, allocation, backfilled=False)


def check_fits(state: State, request: Request, allocation: Allocation) -> None:
    job, nodes = request.job, [node for node, _ in allocation]
    allowed = {node: pool.id for pool in allowed_pools(state.pools, job) for node in pool.nodes}
    fits = (
        nodes == sorted(set(nodes))
        and all(node in allowed for node in nodes)
        and all((gpus >= 1) == (job.gpus >= 1) for _, gpus in allocation)
        and all(can_hold(state.free[node], job, gpus) for node, gpus in allocation)
        and sum(gpus for _, gpus in allocation) == job.gpus
    )
    count = job.asked_nodes
    if count is None:
        fits = fits and (job.gpus > 0 or len(nodes) == 1)
    else:
        split = sorted(gpus for _, gpus in allocation)
        even = sorted(job.gpus // count + (i < job.gpus % count) for i in range(count))
        fits = fits and split == even and len({allowed[node] for node in nodes}) == 1
    if not fits:
        raise ImpossibleBeginningError(f"job {request.id} cannot take {allocation}")
