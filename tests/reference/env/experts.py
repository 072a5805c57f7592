"""Experts: what a policy would do in a state of an environment (docs/contract/mdp.md)."""

from dataclasses import replace
from typing import TYPE_CHECKING

from reference.env.settings import HOST_KINDS
from reference.env.window import first_start, pool_of, pools_in_order, ranked, seen_by, starts_of_pass
from reference.simulator.simulator import SPLITTING_RULES, Policy

if TYPE_CHECKING:
    from reference.env.environment import Action, ReferenceEnv


def expert_action(env: "ReferenceEnv", policy: Policy) -> "Action":
    """The policy's action; the no-op, or else the first legal action, where that is not legal."""
    mask = env.mask().tolist()
    if env.kind in ("select-job", "accept-or-skip"):
        policy = replace(policy, placement=env.state.policy.placement)
    if env.kind in HOST_KINDS:
        host = host_of(env, policy)
        return host if env.kind == "select-host" else [float(id == host) for id in range(env.hosts)]
    if env.kind == "accept-or-skip":
        action: int | None = int(accepts(env, policy))
    elif env.is_blocking:
        action = first_row(env, policy)
    else:
        action = start_of(env, policy)
    for candidate in (action, env.no_op):
        if candidate is not None and mask[candidate] == 1:
            return candidate
    return int(mask.index(1))


def host_of(env: "ReferenceEnv", policy: Policy) -> int:
    """The node of the rule's allocation that can hold the job; the first legal node if there is none."""
    mask, current = env.mask().tolist(), env.current_job()
    assert current is not None
    allocation = seen_by(env.state, policy, env.rows()).place(env.state.free, current) or ()
    return next((id for id, _ in allocation if mask[id] == 1), mask.index(1))


def accepts(env: "ReferenceEnv", policy: Policy) -> bool:
    choice = env.base_choice()
    return choice is not None and choice[0].id in starts_of_pass(env.state, policy, env.rows())


def start_of(env: "ReferenceEnv", policy: Policy) -> int | None:
    """The policy's first start with the window as its queue."""
    rows = env.rows()
    view = seen_by(env.state, policy, rows)
    start = first_start(view, rows, ranked(view))
    if start is None:
        return None
    row = [request.id for request in rows].index(start[0].id)
    if env.kind == "select-job":
        return row
    refuse_splitting(policy)
    return row * env.pools + pool_of(env.state, start[1][0][0]).id


def first_row(env: "ReferenceEnv", policy: Policy) -> int:
    """In `blocking` mode: the first row in the policy's order.

    Its pool is the one that the rule chooses now; if the job does not fit, the first one in the order in
    which the rule tries them that could ever hold it.
    """
    rows = env.rows()
    view = seen_by(env.state, policy, rows)
    request = ranked(view)[0]
    row = [other.id for other in rows].index(request.id)
    if env.kind == "select-job":
        return row
    refuse_splitting(policy)
    allocation = view.place(view.free, request)
    if allocation is not None:
        return row * env.pools + pool_of(view, allocation[0][0]).id
    pools = [pool.id for pool in pools_in_order(view, request)]
    pool = next(pool for pool in pools if env.state.could_ever_hold(pool, request))
    return row * env.pools + pool


def refuse_splitting(policy: Policy) -> None:
    if policy.placement in SPLITTING_RULES:
        raise ValueError("rules that split freely have no pool")
