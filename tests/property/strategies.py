"""Small, contended simulations for Hypothesis: few nodes, few jobs, times that often coincide.

Smaller choices stand first, so that a failing case shrinks to one node, one job and plain settings.
"""

from hypothesis import assume
from hypothesis import strategies as st

from differential.cases import ORDERS, PLACEMENTS, Case
from reference_simulator import BACKFILLS, Job, Node, Policy, Settings, can_ever_start

TYPES = ("a100", "v100", "t4")
OWNERS = ("vision", "speech")
GROUPS = ("", *OWNERS, "guests")
STATIC_ORDERS = tuple(order for order in ORDERS if order not in ("wfp3", "unicep", "fair-share", "random"))

nodes = st.builds(
    Node,
    type=st.sampled_from(TYPES),
    gpus=st.sampled_from((1, 2, 4, 0, 3, 8)),
    cpus=st.sampled_from((None, 2, 4, 8)),
    memory_mib=st.sampled_from((None, 100, 250)),
    owner=st.sampled_from((None, None, *OWNERS)),
)
speeds = st.dictionaries(st.sampled_from(TYPES), st.sampled_from((1.0, 2.0, 0.5, 1 / 3, 0.7)))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job whose `submit_s` is the time since the job before it."""
    gpus = draw(st.sampled_from((1, 2, 3, 4, 5, 8, 0, 9, 12)))
    duration_s = draw(st.sampled_from((1.0, 2.0, 3.0, 5.0, 10.0, 40.0, 0.000001, 2.5)))
    factor = draw(st.sampled_from((1.0, 2.0, 0.5, 10.0, None)))
    return Job(
        submit_s=draw(st.sampled_from((0.0, 0.0, 1.0, 2.0, 0.5))),
        duration_s=duration_s,
        gpus=gpus,
        gpu_milli=draw(st.sampled_from((1000, 1000, 500, 300, 701))) if gpus == 1 else 1000,
        cpus=draw(st.sampled_from((0, 0, 1, 2, 5))),
        memory_mib=draw(st.sampled_from((0, 0, 50, 101))),
        estimate_s=None if factor is None else max(duration_s * factor, 0.000001),
        gpu_types=draw(st.sampled_from((None, None, ("v100",), ("t4", "a100")))),
        priority=draw(st.sampled_from((1.0, 2.0, 0.0))),
        user=draw(st.sampled_from(("ada", "bo", ""))),
        group=draw(st.sampled_from(GROUPS)),
        deadline_s=draw(st.sampled_from((None, 5.0, 20.0))),
    )


@st.composite
def policies(
    draw: st.DrawFn,
    orders: tuple[str, ...] = ORDERS,
    backfills: tuple[str, ...] = BACKFILLS,
    admission: bool = True,
) -> Policy:
    lanes = (None, None, (1.0, 0.25), (2.0, 1.0)) if admission else (None,)
    return Policy(
        draw(st.sampled_from(orders)),
        draw(st.sampled_from(backfills)),
        draw(st.sampled_from(lanes)),
        draw(st.sampled_from(PLACEMENTS)),
    )


def settings(
    estimates: tuple[str, ...] = ("exact", "requested", "noisy", "none"),
) -> st.SearchStrategy[Settings]:
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
    """One to six nodes, up to twelve jobs, each of which can start on the empty cluster."""
    cluster = draw(st.lists(nodes, min_size=1, max_size=6))
    types = draw(speeds)
    chosen, how = draw(policy), draw(simulation)
    kept: list[Job] = []
    now_s = 0.0
    for job in draw(st.lists(jobs(), min_size=1, max_size=12)):
        if can_ever_start(cluster, types, job, len(kept), chosen.placement, how.seed):
            now_s = now_s + job.submit_s if kept else 0.0
            kept.append(Job(now_s, *list(vars(job).values())[1:]))
    assume(kept)
    return Case(cluster, types, kept, chosen, how)
