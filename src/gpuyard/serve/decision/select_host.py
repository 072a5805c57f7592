"""Which of its candidates a job should get, for schedulers that ask about one job at a time."""

from collections.abc import Sequence

from gpuyard.serve.decision.guard import in_scope
from gpuyard.serve.records import RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState


def select_host(
    job: str,
    candidates: Sequence[str],
    state: ClusterState,
    record: RoundRecord,
    settings: ServeSettings,
) -> tuple[str, ...]:
    """The nodes on which the last round would start a job.

    Args:
        job: Its id.
        candidates: Nodes that its scheduler could give it.
        state: Of the last round.
        record: What was decided then.
        settings: Of the agent.

    Returns:
        All nodes of the job. None where the scheduler's own choice should stand: the agent does not act on
        the job, would rather let it wait, or wants a node that is no candidate.
    """
    known = state.by_id.get(job)
    if known is None or not known.waits or known.held or known.left or not in_scope(known, settings):
        return ()
    planned = next((one for one in record.starts if one.job == job), None)
    if planned is None or planned.stops:
        return ()
    nodes = tuple(node for node, _ in planned.nodes)
    return nodes if set(candidates).issuperset(nodes) else ()
