"""The terms of docs/contract/mdp.md, added up piece of time by piece of time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reference.env.episodes import Episode
from reference.env.observation import quotient
from reference.env.settings import TERMS_BY_JOB, EnvSettings
from reference.env.state import EnvState
from reference.env.window import pool_of
from reference.simulator.simulator import Request, Running, to_s

LEAST_RUN_US = 10_000_000


# --- rates: what a term grows by in a second of a state that does not change


def utilization(state: EnvState, episode: Episode) -> float:
    milli = sum(run.request.job.milli for run in state.running)
    return quotient(float(milli) / 1000.0, episode.gpus)


def flops_utilization(state: EnvState, episode: Episode) -> float:
    held = 0.0
    for run in by_id(state.running):
        for part in run.held:
            milli = len(part.gpu_indices) * part.gpu_milli
            held += (float(milli) / 1000.0) * pool_of(state, part.node).speed
    return quotient(held, sum(float(pool.size * len(pool.nodes)) * pool.speed for pool in state.pools))


def cpu_utilization(state: EnvState, episode: Episode) -> float:
    given = [(node.cpus, free.cpus) for node, free in zip(state.nodes, state.free, strict=True) if node.cpus]
    capacity = sum(cpus for cpus, _ in given)
    return quotient(sum(cpus - free for cpus, free in given), capacity)


def watts(state: EnvState, episode: Episode) -> float:
    total = 0.0
    for node, free in zip(state.nodes, state.free, strict=True):
        total += node.idle_w
        if node.gpus > 0:
            idle_w, peak_w = state.watts[node.type]
            busy = sum(1 for milli in free.gpu_milli if milli < 1000)
            total += float(busy) * peak_w + float(node.gpus - busy) * idle_w
    return total


def variance_of_load(state: EnvState, episode: Episode) -> float:
    loads = [
        (float(1000 * node.gpus - free.free_milli) / 1000.0) / float(node.gpus)
        for node, free in zip(state.nodes, state.free, strict=True)
        if node.gpus > 0
    ]
    if episode.gpus == 0:
        loads = [
            float(node.cpus - free.cpus) / float(node.cpus)
            for node, free in zip(state.nodes, state.free, strict=True)
            if node.cpus is not None
        ]
    if not loads:
        return 0.0
    mean = sum(loads) / float(len(loads))
    return sum((load - mean) * (load - mean) for load in loads) / float(len(loads))


def unfairness(state: EnvState, episode: Episode) -> float:
    """1 - Jain's index of the GPUs held by the users with a job in the system."""
    running = [run.request.job for run in state.running]
    users = sorted({job.user for job in (*running, *(request.job for request in state.queued))})
    held = [float(sum(job.milli for job in running if job.user == user)) / 1000.0 for user in users]
    squares = sum(x * x for x in held)
    if squares == 0.0:
        return 0.0
    total = sum(held)
    return 1.0 - total * total / (float(len(held)) * squares)


RATES: dict[str, Callable[[EnvState, Episode], float]] = {
    "jct": lambda state, episode: (
        -float(
            len(counted(episode, state.queued))
            + len(counted(episode, [run.request for run in state.running]))
        )
    ),
    "wait": lambda state, episode: -float(len(counted(episode, state.queued))),
    "waiting_work": lambda state, episode: -episode.share_of(state.queued),
    "utilization": utilization,
    "flops_utilization": flops_utilization,
    "cpu_utilization": cpu_utilization,
    "energy": lambda state, episode: -(watts(state, episode) / 3.6e6),
    "makespan": lambda *_: -1.0,
    "load_balance": lambda state, episode: -variance_of_load(state, episode),
    "fairness": lambda state, episode: -unfairness(state, episode),
}


def counted(episode: Episode, requests: Sequence[Request]) -> list[Request]:
    """Those that are no cool-down."""
    return [request for request in requests if request.id in episode.counted]


def by_id(running: Sequence[Running]) -> list[Running]:
    return sorted(running, key=lambda run: run.request.id)


def slowdown(waiting: Sequence[Request], from_us: int, until_us: int) -> float:
    """Σ over waiting jobs of the time in which their bounded slowdown grew / max(r, 10 s)."""
    total = 0.0
    for request in sorted(waiting, key=lambda request: request.id):
        grows_from_us = request.submit_us + max(0, LEAST_RUN_US - request.duration_us)
        grew_us = max(0, until_us - max(from_us, grows_from_us))
        total += to_s(grew_us) / to_s(max(request.duration_us, LEAST_RUN_US))
    return total


def backlog(state: EnvState, episode: Episode) -> float:
    """Σ a of waiting jobs, and of running jobs the part of a that is still to be done."""
    left = episode.share_of(state.queued)
    for run in by_id(state.running):
        still = to_s(run.end_us - state.now_us) / to_s(run.end_us - run.begin_us)
        left += episode.share(run.request.id) * still
    return left


@dataclass
class StepRewards:
    """The terms of one step, from before its action to its end."""

    episode: Episode
    settings: EnvSettings
    began_us: int
    terms: dict[str, float] = field(default_factory=dict)

    def add(self, term: str, value: float) -> None:
        if term in self.settings.rewards:
            self.terms[term] = self.terms.get(term, 0.0) + value

    def idle(self, state: EnvState) -> None:
        """A no-op or skip is about to be taken while something else is legal."""
        self.add("idle_while_feasible", -self.episode.share_of(state.queued))

    def pass_time(self, state: EnvState, until_us: int) -> None:
        """The state stays as it is until then."""
        dt = to_s(until_us - state.now_us)
        for term in self.settings.rewards:
            if term in RATES:
                self.add(term, RATES[term](state, self.episode) * dt)
        waiting = counted(self.episode, state.queued)
        self.add("slowdown", -slowdown(waiting, state.now_us, until_us))

    def finish(self, runs: Sequence[Running]) -> None:
        for run in runs:
            self.add("completed_work", self.episode.share(run.request.id))
            if run.status == "completed" and run.request.id in self.episode.counted:
                self.add("completions", run.request.job.priority)

    def end_step(self, state: EnvState) -> None:
        if "backlog" in self.settings.rewards:
            assert self.episode.horizon_s is not None
            passed = quotient(to_s(state.now_us - self.began_us), self.episode.horizon_s)
            self.add("backlog", -passed * backlog(state, self.episode))

    def end_episode(self, state: EnvState, versus_baseline: float) -> None:
        self.add("versus_baseline", versus_baseline)
        if "finish_early" not in self.settings.rewards:
            return
        horizon_s = self.episode.horizon_s
        assert horizon_s is not None
        if self.episode.has_finished(state):
            self.add("finish_early", max(0.0, quotient(horizon_s - to_s(state.now_us), horizon_s)))
        else:
            running = [run.request for run in state.running]
            self.add("finish_early", -self.episode.share_of([*state.queued, *running, *state.arriving]))

    def total(self) -> float:
        """Σ weight · term, in the order of the settings."""
        reward = 0.0
        for term, weight in self.settings.rewards.items():
            value = self.terms.get(term, 0.0)
            if self.settings.per_job and term in TERMS_BY_JOB:
                value = value / float(len(self.episode.own))
            reward += weight * value
        return reward


def versus_baseline(name: str, base: float, own: float) -> float:
    better = (base - own) / max(base, own, 1.0)
    return -better if name == "gpu_utilization" else better
