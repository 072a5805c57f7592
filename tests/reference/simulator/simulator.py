"""The reference simulator: docs/contract/simulator.md and slurm.md in slow, plain Python, and nothing else.

It exists to be compared with the C++ core, so it is written for obviousness. Every decision pass sorts the
whole queue, every count is counted anew, and every question about the future is answered by releasing jobs
one by one on a copy of the nodes. Section numbers refer to docs/contract/simulator.md.

This module is what tests import; the parts are in tests/reference:

    inputs        1-4    numbers, draws, jobs, settings, estimates
    cluster       5, 6   pools, what is free and held, run times; 17: watts
    placement     9      rules, with `tiers` for the choice among ways
    memory        8, 19  decayed usage, finished jobs, the index of `gittins`
    orders        8      scores
    state         14-17  runs, promises, nodes that fail and sleep
    events        7, 16  what happens at an instant
    beginning     7      starts that are given
    passes        10, 11, 15, 18  one pass over a queue
    conservative  10     reservations
    support       20     what is refused
    simulation           the run loop

And those of docs/contract/slurm.md, in its order:

    partitions    1      which partition a job uses, and which share a queue
    limits        2      of partitions and qualities of service
    dependencies  3      jobs that wait for others to end
    multifactor   4      Slurm's priority
    slurm         5      its main and its backfill pass
"""

from reference.simulator.beginning import ImpossibleBeginningError
from reference.simulator.cluster import (
    Allocation,
    FreeNode,
    Held,
    Pool,
    Watts,
    allowed_pools,
    change,
    copy_of,
    draw_mw,
    empty_cluster,
    energy_rate,
    least_nodes,
    make_pools,
    queue_of,
    run_time_us,
    share,
    take,
    work_us,
)
from reference.simulator.inputs import (
    ALL_BACKFILLS,
    ALL_ESTIMATES,
    ALL_ORDERS,
    ALL_PLACEMENTS,
    BACKFILLS,
    ESTIMATES,
    LARGEST_INPUT_US,
    LATEST_US,
    NEW_ORDERS,
    NEW_POOL_RULES,
    ORDERS_BY_ESTIMATE,
    OTHER_ORDERS,
    POOL_RULES,
    PREEMPTIVE_ORDERS,
    SPLITTING_RULES,
    TIER_RULES,
    UNLIMITED,
    Beginning,
    Job,
    Node,
    Outcome,
    Partition,
    Policy,
    Qos,
    Request,
    Run,
    Settings,
    checkpoint_us,
    draw,
    estimate,
    exponential_us,
    make_request,
    normal,
    restore_us,
    splitmix64,
    to_s,
    to_us,
    uniform,
)
from reference.simulator.memory import Finished, Usage, bucket, gittins_index, lower_edge
from reference.simulator.placement import World, can_ever_start, can_hold, fragmentation, place, quota_of
from reference.simulator.simulation import Simulation, simulate, simulate_with_runs
from reference.simulator.state import Kept, NodeState, Promise, Running

__all__ = [
    "ALL_BACKFILLS",
    "ALL_ESTIMATES",
    "ALL_ORDERS",
    "ALL_PLACEMENTS",
    "BACKFILLS",
    "ESTIMATES",
    "LARGEST_INPUT_US",
    "LATEST_US",
    "NEW_ORDERS",
    "NEW_POOL_RULES",
    "ORDERS_BY_ESTIMATE",
    "OTHER_ORDERS",
    "POOL_RULES",
    "PREEMPTIVE_ORDERS",
    "SPLITTING_RULES",
    "TIER_RULES",
    "UNLIMITED",
    "Allocation",
    "Beginning",
    "Finished",
    "FreeNode",
    "Held",
    "ImpossibleBeginningError",
    "Job",
    "Kept",
    "Node",
    "NodeState",
    "Outcome",
    "Partition",
    "Policy",
    "Pool",
    "Promise",
    "Qos",
    "Request",
    "Run",
    "Running",
    "Settings",
    "Simulation",
    "Usage",
    "Watts",
    "World",
    "allowed_pools",
    "bucket",
    "can_ever_start",
    "can_hold",
    "change",
    "checkpoint_us",
    "copy_of",
    "draw",
    "draw_mw",
    "empty_cluster",
    "energy_rate",
    "estimate",
    "exponential_us",
    "fragmentation",
    "gittins_index",
    "least_nodes",
    "lower_edge",
    "make_pools",
    "make_request",
    "normal",
    "place",
    "queue_of",
    "quota_of",
    "restore_us",
    "run_time_us",
    "share",
    "simulate",
    "simulate_with_runs",
    "splitmix64",
    "take",
    "to_s",
    "to_us",
    "uniform",
    "work_us",
]
