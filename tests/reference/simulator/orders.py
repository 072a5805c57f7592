"""Section 8 of docs/contract/simulator.md: the scores."""

import math

from reference.simulator.cluster import allowed_pools, energy_rate, queue_of
from reference.simulator.inputs import (
    NEW_ORDERS,
    ORDERS_BY_ESTIMATE,
    PREEMPTIVE_ORDERS,
    Request,
    to_s,
    to_us,
    uniform,
)
from reference.simulator.memory import Usage
from reference.simulator.multifactor import score as multifactor_score
from reference.simulator.state import State


def score(state: State, request: Request) -> float:
    """The table of section 8, for a waiting job; with a preemptive order also for a running one."""
    if is_aged(state, request):
        return -math.inf
    job, order, n = request.job, state.policy.order, request.job.size
    s, w = to_s(request.submit_us), to_s(state.now_us - request.submit_us)
    if order in ORDERS_BY_ESTIMATE:
        if request.estimate_us is None:
            return math.inf
        r, t = to_s(request.estimate_us), max(state.settings.origin_s + s, 1.0)
        return score_by_estimate(order, r, n, w, t)
    if order in NEW_ORDERS:
        return new_score(state, request)
    if order in PREEMPTIVE_ORDERS:
        return preemptive_score(state, request)
    if order == "edf":
        return math.inf if job.deadline_s is None else to_s(to_us(job.deadline_s))
    if order == "fair-share":
        return usage_now(state, state.usage, job.user) / state.settings.user_shares.get(job.user, 1.0)
    if order == "random":
        return uniform(state.settings.seed, 2, state.instant, request.row)
    return {"fifo": s, "lifo": -s, "smallest": n, "largest": -n, "priority": -job.priority}[order]


def is_aged(state: State, request: Request) -> bool:
    """Section 11: whether the job has waited for as long as the policy's ageing bound."""
    bound_s = state.policy.max_wait_s
    return bound_s is not None and state.now_us - request.submit_us >= max(1, to_us(bound_s))


def score_by_estimate(order: str, r: float, n: float, w: float, t: float) -> float:
    name, _, exponent = order.partition(":")
    if name == "power":
        return math.pow(r, float(exponent)) * n
    q = w / r
    return {
        "sjf": r,
        "ljf": -r,
        "saf": r * n,
        "laf": -(r * n),
        "wspt": r * max(r, 10.0) * n,
        "wfp3": -(q * q * q * n),
        "unicep": -(w / (math.log2(max(n, 2.0)) * r)),
        "f1": math.log10(r) * n + 870.0 * math.log10(t),
        "f2": math.sqrt(r) * n + 25600.0 * math.log10(t),
        "f3": r * n + 6860000.0 * math.log10(t),
        "f4": r * math.sqrt(n) + 530000.0 * math.log10(t),
    }[order]


def usage_now(state: State, usages: dict[str, Usage], name: str) -> float:
    return usages.get(name, Usage()).at(state.now_us, state.settings.usage_half_life_s)


def new_score(state: State, request: Request) -> float:
    job, settings = request.job, state.settings
    if state.policy.order == "power-aware":
        if request.estimate_us is None:
            return math.inf
        return to_s(request.estimate_us) * least_energy_rate(state, request)
    if state.policy.order == "qssf":
        return job.size * to_s(state.predictions_us[request.id])
    if state.policy.order == "group-fair-share":
        return usage_now(state, state.group_usage, job.group) / settings.group_shares.get(job.group, 1.0)
    if state.policy.order == "drf":
        return dominant_share(state, request)
    assert state.policy.order == "multifactor"
    return multifactor_score(state, request)


def least_energy_rate(state: State, request: Request) -> float:
    if request.job.gpus == 0:
        return 0.0
    allowed = allowed_pools(state.pools, request.job)  # of size >= 1, since the job has GPUs
    return min(energy_rate(request.job, pool, state.nodes, state.watts) for pool in allowed)


def dominant_share(state: State, request: Request) -> float:
    """The score of `drf`."""
    user, queue = request.job.user, queue_of(state.pools, request.job)
    jobs = [run.request.job for run in state.running if run.request.job.user == user]
    jobs += [
        other.job
        for other in state.queued
        if other.job.user == user
        and queue_of(state.pools, other.job) == queue
        and (other.id < request.id or other.id == request.id)
    ]
    shares = [0.0]
    for capacity, wanted in (
        (1000 * sum(node.gpus for node in state.nodes), sum(job.milli for job in jobs)),
        (sum(node.cpus or 0 for node in state.nodes), sum(job.cpus for job in jobs)),
        (sum(node.memory_mib or 0 for node in state.nodes), sum(job.memory_mib for job in jobs)),
    ):
        if capacity > 0:
            shares.append(float(wanted) / float(capacity))
    return max(shares)


def preemptive_score(state: State, request: Request) -> float:
    order, n = state.policy.order, request.job.size
    if order in ("srtf", "ssf"):
        if request.estimate_us is None:
            return math.inf
        remaining = to_s(max(request.estimate_us - state.done_now_us(request.id), 0))
        return remaining if order == "srtf" else remaining * n
    attained_us = state.attained_now_us(request.id)
    if order == "gittins":
        return -state.finished.gittins_index(attained_us, request.job)
    if order == "tiresias":
        return float(level(state, request, attained_us))
    attained = to_s(attained_us)
    return attained if order == "las" else attained * n


def level(state: State, request: Request, attained_us: int) -> int:
    """The level of `tiresias`."""
    settings, kept = state.settings, state.kept_of(request.id)
    is_waiting = any(other.id == request.id for other in state.queued)
    if is_waiting and state.now_us - kept.entered_us >= to_us(settings.starvation_s):
        return 0
    x = to_s(attained_us - kept.promoted_us) * request.job.size
    return sum(1 for edge in settings.tiresias_levels_gpu_s if edge <= x)
