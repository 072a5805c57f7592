"""Small, contended simulations for Hypothesis: few nodes, few jobs, times that often coincide.

Smaller choices stand first, so that a failing case shrinks to one node, one job and plain settings.
"""

from dataclasses import replace

from hypothesis import strategies as st

from differential.cases import ORDERS, PLACEMENTS, Case
from reference.simulator.simulator import BACKFILLS, ESTIMATES, Job, Node, Policy, Settings, can_ever_start

TYPES = ("a100", "v100", "t4")
OWNERS = ("vision", "speech")
STATIC_ORDERS = tuple(order for order in ORDERS if order not in ("wfp3", "unicep", "fair-share", "random"))

speeds = st.dictionaries(st.sampled_from(TYPES), st.sampled_from((1.0, 2.0, 0.5, 1 / 3, 0.7)))


def nodes(various: bool, limited: bool) -> st.SearchStrategy[Node]:
    return st.builds(
        Node,
        type=st.sampled_from(TYPES if various else TYPES[:1]),
        gpus=st.sampled_from((1, 2, 4, 3, 4, 2, 0)),
        cpus=st.sampled_from((None, 2, 4, 8) if limited else (None,)),
        memory_mib=st.sampled_from((None, 100, 250) if limited else (None,)),
        owner=st.sampled_from((None, None, *OWNERS) if various else (None,)),
    )


@st.composite
def jobs(draw: st.DrawFn, various: bool, limited: bool) -> Job:
    """A job whose `submit_s` is the time since the job before it."""
    gpus = draw(st.sampled_from((1, 2, 3, 4, 5, 1, 0, 8)))
    duration_s = draw(st.sampled_from((1.0, 2.0, 3.0, 5.0, 10.0, 40.0, 0.000001, 2.5)))
    factor = draw(st.sampled_from((1.0, 2.0, 0.5, 10.0, None)))
    return Job(
        submit_s=draw(st.sampled_from((0.0, 0.0, 0.0, 1.0, 0.5))),
        duration_s=duration_s,
        gpus=gpus,
        gpu_milli=draw(st.sampled_from((1000, 1000, 500, 300, 701))) if gpus == 1 else 1000,
        cpus=draw(st.sampled_from((0, 1, 2, 5))) if limited else 0,
        memory_mib=draw(st.sampled_from((0, 50, 101))) if limited else 0,
        estimate_s=None if factor is None else max(duration_s * factor, 0.000001),
        gpu_types=draw(st.sampled_from((None, None, ("v100",), ("t4", "a100")))) if various else None,
        priority=draw(st.sampled_from((1.0, 2.0, 0.0))),
        user=draw(st.sampled_from(("ada", "bo", ""))),
        group=draw(st.sampled_from(("", *OWNERS, "guests"))) if various else "",
        deadline_s=draw(st.sampled_from((None, 5.0, 20.0))),
        nodes=draw(st.sampled_from((None, None, None, 2, 3, 1))),
    )


@st.composite
def policies(
    draw: st.DrawFn,
    orders: tuple[str, ...] = ORDERS,
    backfills: tuple[str, ...] = BACKFILLS,
    admission: bool = True,
    bounds_s: tuple[float | None, ...] = (None,),
) -> Policy:
    lanes = (None, None, (1.0, 0.25), (2.0, 1.0)) if admission else (None,)
    return Policy(
        draw(st.sampled_from(orders)),
        draw(st.sampled_from(backfills)),
        draw(st.sampled_from(lanes)),
        draw(st.sampled_from(PLACEMENTS)),
        draw(st.sampled_from(bounds_s)),
    )


def settings(estimates: tuple[str, ...] = ESTIMATES) -> st.SearchStrategy[Settings]:
    return st.builds(
        Settings,
        estimates=st.sampled_from(estimates),
        seed=st.integers(0, 3),
        kill_at_estimate=st.booleans(),
        locality_penalty=st.sampled_from((0.0, 0.3, 1.0)),
        usage_half_life_s=st.sampled_from((604800.0, 7.0)),
    )


@st.composite
def cases(
    draw: st.DrawFn,
    policy: st.SearchStrategy[Policy] = policies(),  # noqa: B008 (a description, not a value)
    simulation: st.SearchStrategy[Settings] = settings(),  # noqa: B008
) -> Case:
    """One to four nodes and up to twelve jobs, each of which can start on the empty cluster."""
    various, limited = draw(st.booleans()), draw(st.booleans())
    cluster = draw(st.lists(nodes(various, limited), min_size=1, max_size=4))
    types = draw(speeds)
    chosen, how = draw(policy), draw(simulation)
    kept: list[Job] = []
    for job in draw(st.lists(jobs(various, limited), min_size=draw(st.sampled_from((1, 4, 8))), max_size=12)):
        submit_s = kept[-1].submit_s + job.submit_s if kept else 0.0
        kept.append(replace(runnable(job, cluster, types, len(kept), chosen, how), submit_s=submit_s))
    return Case(cluster, types, kept, chosen, how)


def runnable(
    job: Job, cluster: list[Node], types: dict[str, float], row: int, policy: Policy, how: Settings
) -> Job:
    """The job itself, or if it can never start one like it that asks for less."""
    modest = replace(job, cpus=0, memory_mib=0, gpu_types=None, nodes=None, group=cluster[0].owner or "")
    smaller = [replace(modest, gpus=gpus, gpu_milli=1000) for gpus in range(job.gpus - 1, -1, -1)]
    can_start = (
        choice
        for choice in (job, modest, *smaller)
        if can_ever_start(cluster, types, choice, row, policy.placement, how.seed)
    )
    return next(can_start)
