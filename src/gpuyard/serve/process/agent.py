"""Rounds: observe, decide, guard, record, act. Whatever goes wrong, jobs go back to the scheduler."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.policies.base import Policy
from gpuyard.policies.grammar import PolicySpec
from gpuyard.serve.adapter import Action, Adapter, AdapterError, GiveBack, Outcome, Start
from gpuyard.serve.decision.choosing import Choice, Chooser, RangeCheck
from gpuyard.serve.decision.guard import Guarded, guard_order, guard_starts, in_scope, lost_gpu_hours
from gpuyard.serve.decision.memory import InFlight, Memory
from gpuyard.serve.journal import Journal, JournalError
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.metrics import Metrics
from gpuyard.serve.records import Happened, RoundRecord, Verdict
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from gpuyard.serve.state import ClusterState, Ended
from gpuyard.serve.waits.run_times import RunTimes

HALTED = "halted"
_RUN_TIMES = "run_times"
_NOTE_EVERY = 30
"""Rounds after which run times of finished jobs are kept, for an agent that comes after a sudden end."""
_PRUNE_EVERY = 500
"""Rounds after which old ones are removed from the journal."""


class Agent:
    """A policy on a live cluster.

    Args:
        settings: How.
        adapter: The cluster.
        policy: Who decides.
        fallback: Who decides when the policy cannot.
        journal: Where everything is recorded.
        signs: Heartbeat and halt file.
        log: Where to say what happens.
        metrics: Counters; None: none are kept.
        cluster: What the cluster is known to be; None: as the scheduler tells.
        model: Hash of the model or policy file.
        out_of_range: As of ``Chooser``.
        monotonic: A clock that never jumps.
    """

    def __init__(
        self,
        settings: ServeSettings,
        adapter: Adapter,
        policy: Policy,
        fallback: PolicySpec,
        journal: Journal,
        signs: Signs,
        log: Log,
        *,
        metrics: Metrics | None = None,
        cluster: Cluster | None = None,
        model: str = "",
        out_of_range: RangeCheck | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self.adapter, self.journal, self.signs = settings, adapter, journal, signs
        self.log, self.metrics, self.model = log, metrics, model
        self.chooser = Chooser(settings, policy, fallback, cluster, out_of_range)
        self.memory = Memory()
        self.run_times = RunTimes()
        self.last_state: ClusterState | None = None
        self.last_record: RoundRecord | None = None
        self.observed_at: float | None = None
        self.errors: list[str] = []
        """What went wrong in the last round."""
        self.fallbacks: dict[str, int] = {}
        """Rounds that the fallback decided, by cause."""
        self.left: dict[str, str] = {}
        """Waiting jobs that are left to the scheduler, with the reason."""
        self._monotonic = monotonic
        self._good_at = monotonic()
        self._missed: tuple[Ended, ...] = ()

    @property
    def policy(self) -> Policy:
        """Who decides."""
        return self.chooser.policy

    @property
    def state_age_s(self) -> float | None:
        """How old the last state is; None before the first."""
        return None if self.observed_at is None else self._monotonic() - self.observed_at

    # --- beginning

    def restore(self) -> None:
        """Remember what the journal has of an earlier agent, and learn what ended meanwhile.

        Raises:
            JournalError: if the journal cannot be read.
        """
        text, last = self.journal.last_memory(), self.journal.last()
        if text is not None and last is not None:
            self.memory = Memory.from_json(text)
            self.memory.previous = self.journal.state(last.number)
            self.log.info("restored", round=last.number)
        if (kept := self.journal.note(_RUN_TIMES)) is not None:
            self.run_times = RunTimes.from_json(kept)
        finished_since = getattr(self.adapter, "finished_since", None)
        if finished_since is None:
            return
        since_s = self.memory.previous.now_s if self.memory.previous else time.time() - 14 * 86_400.0
        try:
            finished = finished_since(since_s)
        except AdapterError as error:
            self.log.warning("no history of finished jobs", error=str(error))
            return
        self._learn_finished(finished or [])

    def _learn_finished(self, finished: Sequence[Any]) -> None:
        """Jobs that the last state had are told to the memory as ended; others only teach run times."""
        before = self.memory.previous.by_id if self.memory.previous else {}
        ended = []
        for job in finished:
            if job.id in before:
                ended.append(Ended(job.id, job.end_s, job.run_s, job.end_s - job.run_s, job.timeout))
            else:
                self.memory.learn(job.user, job.group, job.gpus, job.run_s)
        self._missed = tuple(ended)

    # --- one round

    def round(self) -> RoundRecord | None:
        """Observe, decide, guard, record, act; None if the cluster could not be observed."""
        self.errors = []
        number = self._next_number()
        began = time.perf_counter()
        try:
            state = self.adapter.observe()
        except AdapterError as error:
            if error.code == "over":
                raise
            self._fail("observe", str(error), error.code)
            self._give_back_if_lost()
            return None
        if self._missed:
            state = replace(state, ended=(*state.ended, *self._missed))
            self._missed = ()
        listed_s = time.perf_counter() - began
        if listed_s > self.settings.max_age_s:
            self._fail("observe", f"the state took {listed_s:.0f} s to list: too old to decide on", "stale")
            self._give_back_if_lost()
            return None
        self.observed_at = self._monotonic()
        before = self.memory.previous
        happened = self.memory.update(
            state, self.settings.simulation.usage_half_life_s, self.settings.estimates
        )
        self._learn_run_times(happened, before)
        self._find_in_flight(state)
        record = RoundRecord(
            number=number,
            at_s=state.now_s,
            wall_s=time.time(),
            mode=HALTED if self.signs.halted else self.settings.mode,
            control=self.settings.control,
            policy=self.policy.name,
            model=self.model,
            happened=happened,
            timings_s={"list": listed_s},
            pending=len(state.waiting),
        )
        self.last_state = state
        if record.mode == HALTED:
            self._halted_round(record, state)
        else:
            self._deciding_round(record, state)
        self._give_back_if_lost()
        return self.last_record

    def _next_number(self) -> int:
        try:
            return self.journal.next_number()
        except JournalError as error:  # then the round cannot be written either, and does nothing
            self._fail("journal", str(error), "journal")
            return self.last_record.number + 1 if self.last_record is not None else 1

    def _deciding_round(self, record: RoundRecord, state: ClusterState) -> None:
        try:
            choice = self.chooser.choose(state, self.memory)
        except InputError as error:
            self._fail("state", str(error), "state")
            self._record(replace(record, cause="state", words=str(error)), state)
            return
        began = time.perf_counter()
        guarded, give_back = self._guarded(choice, state, record.number)
        guard_s = time.perf_counter() - began
        memory_text = self.memory.to_json()
        made = choice.made
        record = replace(
            record,
            decider=choice.decider,
            cause=choice.cause,
            words=choice.words,
            order=made.order,
            starts=made.starts,
            baseline=choice.baseline.starts,
            verdicts=(*guarded.verdicts, *_given_back(give_back, record.number)),
            timings_s=record.timings_s
            | {"encode": made.encode_s, "decide": made.decide_s, "guard": guard_s, "apply": 0.0},
            left=len(made.live.left),
        )
        self.memory.reservations = made.reservations
        self.left = made.live.left
        if choice.cause:
            self.fallbacks[choice.cause] = self.fallbacks.get(choice.cause, 0) + 1
        before_act = self._before_act(choice)
        if before_act is not None:
            before_act()
        if not self._record(record, state, memory_text):
            return  # what cannot be recorded is not done
        self._act([*give_back, *guarded.actions], record, state)

    def _before_act(self, choice: Choice) -> Callable[[], None] | None:
        """A simulated cluster is told what a real one does not need to know."""
        tell = getattr(self.adapter, "expect", None)
        return None if tell is None else lambda: tell(choice.made.wake_s, choice.made.backfilled)

    def _guarded(self, choice: Choice, state: ClusterState, number: int) -> tuple[Guarded, list[GiveBack]]:
        if not self.settings.acts:
            return Guarded((), ()), []
        give_back = self._strays(state, choice.made.live.left)
        if self.settings.control == "start":
            return guard_starts(choice.made.starts, state, self.memory, self.settings, number), give_back
        return guard_order(choice.made.order, state, self.settings, number), give_back

    def _strays(self, state: ClusterState, left: dict[str, str]) -> list[GiveBack]:
        """Jobs that would wait for nobody: held for an agent that does not handle them, or not starting."""
        found = []
        for job in state.waiting:
            release = self.memory.in_flight.get(job.id)
            if release is not None and state.now_s - release.since_s > self.settings.start_timeout_s:
                found.append(GiveBack(job.id, "it did not start on its nodes"))
            elif job.held == "agent" and release is None:
                if self.settings.control == "order":
                    found.append(GiveBack(job.id, "jobs are not held with control order"))
                elif job.id in left or not in_scope(job, self.settings):
                    found.append(GiveBack(job.id, left.get(job.id, "not the agent's")))
        return found

    def _find_in_flight(self, state: ClusterState) -> None:
        """Releases of an agent that died before it could remember them."""
        if self.settings.control != "start" or not self.settings.acts:
            return
        for job in state.waiting:
            if job.mark and not job.held and job.id not in self.memory.in_flight:
                self.memory.in_flight[job.id] = InFlight([], state.now_s, job.mark)

    def _halted_round(self, record: RoundRecord, state: ClusterState) -> None:
        self.signs.stop_beating()
        outcomes = self._give_back_all("halted")
        verdicts = tuple(_verdict(outcome, record.number, place) for place, outcome in enumerate(outcomes))
        self.memory.in_flight.clear()
        if self._record(replace(record, cause=HALTED, verdicts=verdicts), state):
            self._good_at = self._monotonic()

    # --- acting and recording

    def _record(self, record: RoundRecord, state: ClusterState, memory_text: str | None = None) -> bool:
        """Write the round into the journal; whether that worked."""
        self.last_record = record
        try:
            self.journal.write(
                record, state, memory_text if memory_text is not None else self.memory.to_json()
            )
            if record.number % _PRUNE_EVERY == 0:
                self.journal.prune(self.settings.keep_days, self.settings.keep_mb, record.wall_s)
            if record.number % _NOTE_EVERY == 0:
                self.journal.set_note(_RUN_TIMES, self.run_times.to_json())
        except JournalError as error:
            self._fail("journal", str(error), "journal")
            return False
        if self.metrics is not None:
            self.metrics.observe_round(record, state)
        return True

    def _act(self, actions: list[Action], record: RoundRecord, state: ClusterState) -> None:
        began = time.perf_counter()
        # A simulated cluster goes on with every round, also if there is nothing to do.
        try:
            outcomes = self.adapter.apply(actions) if actions or self.adapter.name == "simulated" else []
        except AdapterError as error:
            self._fail("apply", str(error), error.code)
            return
        applied_s = time.perf_counter() - began
        for outcome in outcomes:
            self._remember(outcome, state)
        failed = {
            _decision_of(one.action): one.error for one in outcomes if not one.ok and one.code != "missing"
        }
        self.chooser.apply_errors = self.chooser.apply_errors + 1 if failed else 0
        verdicts = tuple(
            replace(verdict, error=failed.get(verdict.id, failed.get(verdict.job, "")))
            for verdict in record.verdicts
        )
        self.last_record = replace(
            record, verdicts=verdicts, timings_s=record.timings_s | {"apply": applied_s}
        )
        if self.metrics is not None and outcomes:
            self.metrics.count_outcomes(outcomes, self.adapter.name)
        if outcomes:
            try:
                self.journal.write_outcomes(self.last_record)
            except JournalError as error:
                self._fail("journal", str(error), "journal")
                return
        for id, said in failed.items():
            self.log.warning("refused", decision=id, error=said)
        if self.settings.acts and not self.signs.beat():
            # The watchdog and the submit script take it for dead: to go on would be to work against them.
            self._fail("heartbeat", f"{self.signs.heartbeat} cannot be written", "heartbeat")
            return
        self._good_at = self._monotonic()

    def _remember(self, outcome: Outcome, state: ClusterState) -> None:
        action = outcome.action
        if isinstance(action, GiveBack):
            self.memory.in_flight.pop(action.job, None)
        elif isinstance(action, Start) and outcome.ok:
            nodes = list(zip(action.nodes, action.gpus, strict=True))
            self.memory.in_flight[action.job] = InFlight(nodes, state.now_s, action.decision)
            for stop in action.stop:
                if stop in state.by_id:
                    lost = lost_gpu_hours(state.by_id[stop], state.now_s)
                    self.memory.stops.append((stop, state.now_s, lost))

    def _learn_run_times(self, happened: tuple[Happened, ...], before: ClusterState | None) -> None:
        for event in happened:
            job = before.by_id.get(event.job) if before is not None and event.what == "ended" else None
            if job is not None and job.begin_s is not None:
                self.run_times.add(job.user, max(0.0, event.at_s - job.begin_s), job.limit_s)

    # --- when things go wrong

    def _fail(self, what: str, words: str, code: str) -> None:
        self.errors.append(words)
        self.log.error(f"{what} failed", error=words, code=code)
        if self.metrics is not None:
            self.metrics.count_error(self.adapter.name, code)

    def _give_back_if_lost(self) -> None:
        """Without a good round for too long, what the agent holds is better off with the scheduler."""
        if not self.settings.acts or self._monotonic() - self._good_at < self.settings.watchdog_s:
            return
        self.signs.stop_beating()
        self.log.error("giving all jobs back", silence_s=round(self._monotonic() - self._good_at))
        self._give_back_all("no good round for too long")

    def _give_back_all(self, why: str) -> list[Outcome]:
        if not self.settings.acts:
            return []
        try:
            outcomes = self.adapter.give_back_all()
        except AdapterError as error:
            self._fail("give back", str(error), error.code)
            return []
        if outcomes:
            refused = sum(not outcome.ok for outcome in outcomes)
            self.log.info("gave jobs back", jobs=len(outcomes), refused=refused, why=why)
        return outcomes

    def stop(self) -> None:
        """Return everything, so that nothing waits for an agent that is not there."""
        self.signs.stop_beating()
        self.chooser.close()
        self._give_back_all("stopped")
        try:
            self.journal.set_note(_RUN_TIMES, self.run_times.to_json())
        except JournalError as error:
            self._fail("journal", str(error), "journal")


def _given_back(actions: list[GiveBack], number: int) -> tuple[Verdict, ...]:
    return tuple(
        Verdict(f"{number}-g{place}", action.job, "give-back", "", action.why)
        for place, action in enumerate(actions)
    )


def _verdict(outcome: Outcome, number: int, place: int) -> Verdict:
    return Verdict(f"{number}-g{place}", outcome.action.job, "give-back", "", HALTED, outcome.error)


def _decision_of(action: Action) -> str:
    return action.job if isinstance(action, GiveBack) else action.decision
