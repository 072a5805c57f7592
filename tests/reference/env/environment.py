"""The reference environment: docs/contract/{mdp,observation}.md in slow, plain Python, and nothing else.

It exists to be compared with the C++ core, so it is written for obviousness: it drives the reference
simulator event by event, and every observation is computed anew from the whole state. The parts:

    settings     what an environment is made of, and what is refused
    state        the reference simulator, driven from outside; warm-up
    window       the window, the current job, what a policy would do with a window
    observation  jobs and globals, with `tokens` for nodes and `lookahead`
    episodes     work, horizon, metrics, the draw of an episode
    rewards      the terms
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpuyard.cluster.model import Cluster
from reference.env.episodes import Episode, baseline_metric, make_episode, metric
from reference.env.experts import expert_action
from reference.env.observation import View
from reference.env.rewards import StepRewards, versus_baseline
from reference.env.settings import (
    HOST_KINDS,
    JOB_KINDS,
    EnvSettings,
    InvalidActionError,
    cluster_parts,
    fits_on_one_node,
    parse_policy,
    refuse,
)
from reference.env.state import EnvState, make_state, warm_up
from reference.env.tokens import node_rows
from reference.env.window import (
    Start,
    backfill_around,
    current_job,
    first_start,
    host_window,
    hosts_of,
    window,
)
from reference.simulator.simulator import Job, Policy, Request, allowed_pools, make_pools, to_s, to_us

Action = int | Sequence[float]


class ReferenceEnv:
    """An environment of one episode: reset it, then step until it is terminated or truncated.

    Args:
        kind: One of `KINDS`.
        jobs: The jobs, sorted by submit time; the first `settings.warmup` of them are warm-up.
        cluster: The cluster.
        base_policy: `ORDER[+BACKFILL][+express:T0:K][/PLACEMENT]`.
        settings: All else.

    Attributes:
        state: The state of the simulator, on the clock of the episode.
        episode: What is fixed when the episode begins.
        is_over: Whether the episode has ended; at once after `reset` if warm-up jobs outlast the horizon.

    Raises:
        ValueError: If docs/contract/mdp.md does not offer this.
    """

    def __init__(
        self,
        kind: str,
        jobs: Sequence[Job],
        cluster: Cluster,
        base_policy: str,
        settings: EnvSettings | None = None,
    ) -> None:
        self.kind, self.jobs = kind, list(jobs)
        self.settings = settings or EnvSettings()
        self.base_policy: Policy = parse_policy(base_policy)
        refuse(kind, self.base_policy, self.settings)
        self.nodes, self.speeds, self.watts = cluster_parts(cluster)
        self._refuse_jobs()
        self.time_0_us = to_us(self.jobs[self.settings.warmup].submit_s)
        self.state: EnvState
        self.episode: Episode
        self.steps = 0
        self.is_over = True

    def _refuse_jobs(self) -> None:
        if "energy" in self.settings.rewards:
            for node in self.nodes:
                if node.gpus > 0 and node.type not in self.watts:
                    raise ValueError(f"GPU type {node.type} has no watts")
        if self.kind not in HOST_KINDS:
            return
        pools = make_pools(self.nodes, self.speeds)
        for id, job in enumerate(self.jobs):
            allowed = [node for pool in allowed_pools(pools, job) for node in pool.nodes]
            if not fits_on_one_node(self.nodes, allowed, job):
                raise ValueError(f"job {id} does not fit on one node: {job}")

    # --- the interface of an environment

    @property
    def now_us(self) -> int:
        return self.state.now_us

    def reset(self) -> None:
        """Begins the episode: warm-up, the events of time 0, and on to the first state that is offered."""
        settings = self.settings
        simulator = settings.simulator(settings.origin_s + to_s(self.time_0_us))
        self.state = make_state(
            self.nodes, self.speeds, self.watts, self.jobs, self.base_policy, simulator, self.time_0_us
        )
        requests = tuple(self.state.arriving)
        self.episode = make_episode(
            requests, settings.warmup, settings.cooldown, self.nodes, settings.horizon_factor
        )
        warm_up(self.state)
        self.base_metric = math.nan
        if "versus_baseline" in settings.rewards:
            baseline = parse_policy(settings.baseline)
            self.base_metric = baseline_metric(settings.baseline_metric, self.episode, self.state, baseline)
        self.steps = 0
        self.state.happen()
        assert self.state.now_us == 0
        self._rewards = StepRewards(self.episode, settings, 0)
        self._pass_over()
        self.is_over = self._has_finished or self._is_past_horizon()

    def step(self, action: Action) -> tuple[float, bool, bool]:
        """The reward, and whether the episode was terminated or truncated.

        Raises:
            InvalidActionError: If the action is not legal and `invalid` is "error"; nothing changes.
        """
        if self.is_over:
            raise ValueError("the episode is over")
        penalty = 0.0
        if not self.is_legal(action):
            if self.settings.invalid == "error":
                raise InvalidActionError(f"{action!r} can not be executed now")
            action, penalty = self._substitute(), self.settings.invalid_penalty
        if self.steps > 0:  # what passed before the first state was offered counts for the first step
            self._rewards = StepRewards(self.episode, self.settings, self.now_us)
        started = self._act(action)
        self._move(started)
        self._pass_over()
        self.steps += 1
        reward, terminated, truncated = self._end_of_step()
        return reward - penalty, terminated, truncated

    def mask(self) -> NDArray[np.int8]:
        """1 where the action can be executed now."""
        return np.array(self._mask(), dtype=np.int8)

    def observation(self) -> dict[str, NDArray[np.generic]]:
        """`jobs`, `nodes`, `globals` (float32) and `mask` (int8), with all columns."""
        view = self.view()
        return {
            "jobs": np.array(view.jobs(), dtype=np.float64).astype(np.float32),
            "nodes": np.array(node_rows(view), dtype=np.float64).astype(np.float32),
            "globals": np.array(view.globals(), dtype=np.float64).astype(np.float32),
            "mask": self.mask(),
        }

    def expert_action(self, policy: str) -> Action:
        """What the policy would do in this state; RankHosts gets a list with a number for each host."""
        return expert_action(self, parse_policy(policy))

    def starts(self) -> list[tuple[int, int | None, tuple[tuple[int, int], ...]] | None]:
        """For every job, warm-up included, its start and end in µs and its (node, GPUs) pairs.

        The end is None for a job that has not finished. Jobs that have not started are None.
        """
        found: dict[int, tuple[int, int | None, tuple[tuple[int, int], ...]]] = {
            run.request.id: (run.begin_us, None, run.allocation) for run in self.state.running
        }
        for id, outcome in self.state.outcomes.items():
            found[id] = (outcome.start_us, outcome.end_us, outcome.nodes)
        return [found.get(id) for id in range(len(self.jobs))]

    # --- what is seen

    def rows(self) -> list[Request]:
        """The jobs of the window."""
        if self.kind in HOST_KINDS:
            return host_window(self.state, self.settings.window)
        return window(self.state, self.settings.window)

    def base_choice(self) -> Start | None:
        """The base policy's next start; where hosts are chosen, its placement of the current job."""
        if self.kind not in HOST_KINDS:
            return first_start(self.state, self.rows(), self.rows())
        current = self.current_job()
        allocation = None if current is None else self.state.place(self.state.free, current)
        return None if current is None or allocation is None else (current, allocation)

    def view(self) -> View:
        asks_host = self.kind in HOST_KINDS
        return View(self.state, self.rows(), self.base_choice(), asks_host, self.settings, self.time_0_us)

    def current_job(self) -> Request | None:
        """The job whose host is asked for."""
        return current_job(self.state, self.settings.window)

    # --- masks

    @property
    def pools(self) -> int:
        """P."""
        return self.settings.max_pools or len(self.state.pools)

    @property
    def hosts(self) -> int:
        """H."""
        return self.settings.max_nodes or len(self.nodes)

    @property
    def no_op(self) -> int | None:
        """The no-op or skip; None where there is none."""
        per_row = {"select-job": 1, "select-job-and-pool": self.pools}.get(self.kind)
        if per_row is None:
            return 0 if self.kind == "accept-or-skip" else None
        return self.settings.window * per_row

    @property
    def is_blocking(self) -> bool:
        return self.settings.step_mode == "blocking"

    def _mask(self) -> list[int]:
        if self.kind in HOST_KINDS:
            current = self.current_job()
            hosts = [] if current is None else hosts_of(self.state, current)
            return [int(id in hosts) for id in range(self.hosts)]
        if self.kind == "accept-or-skip":
            starts = [int(self.base_choice() is not None)]
            return [self._may_wait(starts), *starts]
        rows = [self._row_mask(request) for request in self.rows()]
        blank = [0] * (1 if self.kind == "select-job" else self.pools)
        rows += [blank] * (self.settings.window - len(rows))
        starts = [entry for row in rows for entry in row]
        return [*starts, self._may_wait(starts)]

    def _may_wait(self, starts: list[int]) -> int:
        """Whether the no-op or skip is legal: a job runs, or nothing can be started."""
        return int(not self.is_blocking and (bool(self.state.running) or not any(starts)))

    def _row_mask(self, request: Request) -> list[int]:
        state = self.state
        if self.kind == "select-job":
            return [int(self.is_blocking or state.place(state.free, request) is not None)]
        entries = [0] * self.pools
        for pool in range(len(state.pools)):
            if self.is_blocking:
                entries[pool] = int(state.could_ever_hold(pool, request))
            else:
                entries[pool] = int(state.place_in(pool, state.free, request) is not None)
        return entries

    def is_legal(self, action: Action) -> bool:
        mask = self._mask()
        if self.kind == "rank-hosts":
            numbers = list(action) if isinstance(action, (Sequence, np.ndarray)) else []
            return len(numbers) == self.hosts and all(math.isfinite(x) for x in numbers) and any(mask)
        index = int(action)  # type: ignore[call-overload]
        return 0 <= index < len(mask) and mask[index] == 1

    def something_else_is_legal(self) -> bool:
        """Other than the no-op or skip."""
        return any(entry == 1 for action, entry in enumerate(self._mask()) if action != self.no_op)

    def _substitute(self) -> Action:
        """What is done in place of an action that is not legal, under invalid = noop."""
        mask = self._mask()
        if self.kind == "rank-hosts":
            return [float(id == mask.index(1)) for id in range(self.hosts)]
        if self.no_op is not None and mask[self.no_op] == 1:
            return self.no_op
        return mask.index(1)

    # --- acting

    def _act(self, action: Action) -> bool:
        """Whether a job was started (in `blocking`: also if the horizon came first)."""
        state = self.state
        if self.kind in HOST_KINDS:
            current = self.current_job()
            assert current is not None
            state.start(current, ((self._host(action, current), current.job.gpus),), backfilled=False)
            return True
        if action == self.no_op:
            if self.something_else_is_legal():
                self._rewards.idle(state)
            if self.kind == "accept-or-skip" and self.settings.step_mode == "instant":
                choice = self.base_choice()
                assert choice is not None
                state.held_back.add(choice[0].id)
            return False
        if self.kind == "accept-or-skip":
            choice = self.base_choice()
            assert choice is not None
            state.start(*choice, backfilled=False)
            return True
        row, pool = divmod(int(action), 1 if self.kind == "select-job" else self.pools)  # type: ignore[call-overload]
        request = self.rows()[row]
        if self.kind == "select-job-and-pool":
            state.pinned[request.id] = pool
        self._start_when_it_fits(request)
        state.pinned.clear()
        return True

    def _host(self, action: Action, current: Request) -> int:
        if self.kind == "select-host":
            return int(action)  # type: ignore[call-overload]
        priorities = [float(x) for x in action]  # type: ignore[union-attr]
        return max(hosts_of(self.state, current), key=lambda id: (priorities[id], -id))

    def _start_when_it_fits(self, request: Request) -> None:
        """At once, but in `blocking` mode perhaps later."""
        while (allocation := self.state.place(self.state.free, request)) is None:
            assert self.is_blocking
            if self.settings.blocking_backfill:
                backfill_around(self.state, request)
            self._to_next_event()
            if self._has_finished or self._is_past_horizon():
                return
        self.state.start(request, allocation, backfilled=False)

    # --- time

    def _move(self, started: bool) -> None:
        """After the action, by the step mode."""
        mode = self.settings.step_mode
        if mode == "tick":
            if not started or self.kind not in HOST_KINDS:
                self._to_next_tick()
        elif mode == "instant" and self.kind == "accept-or-skip":
            return
        elif (mode == "event" or not started) and self.state.event_is_pending:
            self._to_next_event()

    def _pass_over(self) -> None:
        """Time moves until a state is offered or the episode ends."""
        while not self._has_finished and not self._is_past_horizon() and not self._is_offered():
            assert self.state.event_is_pending
            if self.settings.step_mode == "tick":
                self._to_next_tick()
            else:
                self._to_next_event()

    def _is_offered(self) -> bool:
        if self.is_blocking:
            return bool(self.state.queued)
        if self.settings.step_mode in ("event", "tick") and self.kind in JOB_KINDS:
            return True
        return self.something_else_is_legal()

    def _to_next_event(self) -> None:
        self._rewards.pass_time(self.state, self.state.next_event_us)
        self._rewards.finish(self.state.happen())

    def _to_next_tick(self) -> None:
        """Each event up to the next multiple at its own time; the clock stops at the last finish, past H."""
        tick_us = to_us(self.settings.tick_s)
        until_us = (self.now_us // tick_us + 1) * tick_us
        while self.state.event_is_pending and self.state.next_event_us <= until_us:
            self._to_next_event()
            if self._has_finished or self._is_past_horizon():
                return
        self._rewards.pass_time(self.state, until_us)
        self.state.held_back.clear()
        self.state.now_us = until_us

    @property
    def _has_finished(self) -> bool:
        return self.episode.has_finished(self.state)

    def _is_past_horizon(self) -> bool:
        return self.episode.horizon_s is not None and to_s(self.now_us) > self.episode.horizon_s

    def _end_of_step(self) -> tuple[float, bool, bool]:
        terminated = self._has_finished
        is_last = self.settings.max_steps is not None and self.steps >= self.settings.max_steps
        truncated = not terminated and (self._is_past_horizon() or is_last)
        self._rewards.end_step(self.state)
        if terminated or truncated:
            self.is_over = True
            self._rewards.end_episode(self.state, self._versus_baseline(terminated))
        return self._rewards.total(), terminated, truncated

    def _versus_baseline(self, terminated: bool) -> float:
        if not terminated or "versus_baseline" not in self.settings.rewards:
            return -1.0
        name = self.settings.baseline_metric
        return versus_baseline(name, self.base_metric, metric(name, self.episode, self.state.outcomes))
