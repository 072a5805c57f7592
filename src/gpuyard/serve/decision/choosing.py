"""Who decides a round: the policy if it decides well and in time, otherwise the fallback, and why."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuyard.cluster.model import Cluster
from gpuyard.policies.base import Policy
from gpuyard.policies.grammar import PolicySpec
from gpuyard.serve.decision.deciding import IllegalDecisionError, Made, aged, decide_live, encoder_for
from gpuyard.serve.decision.guard import overdue
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.decision.snapshot import Encoder, LiveSnapshot
from gpuyard.serve.records import Decider
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState

RangeCheck = Callable[[LiveSnapshot], str]


@dataclass(frozen=True)
class Choice:
    """What is done this round.

    Attributes:
        made: The decision.
        baseline: What the fallback would do.
        decider: Whose decision it is.
        cause: Why it is not the policy's; empty if it is. One word for counters.
        words: The same for people.
    """

    made: Made
    baseline: Made
    decider: Decider
    cause: str = ""
    words: str = ""


class _Worker:
    """Asks the policy in a thread of its own, because nothing else can be waited for only so long."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[int, Callable[[], Made]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._asked = 0
        self._busy = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="policy")
        self._thread.start()

    def _work(self) -> None:
        while (asked := self._tasks.get()) is not None:
            number, task = asked
            answer: Any
            try:
                answer = task()
            except Exception as error:
                answer = error
            self._answers.put((number, answer))
            del asked, task, answer  # a thread that waits keeps nothing alive

    def close(self) -> None:
        """End the thread, if it does not hang."""
        self._tasks.put(None)
        self._thread.join(0.2)

    def ask(self, task: Callable[[], Made], seconds: float) -> Made:
        """What the task returns or raises.

        Raises:
            TimeoutError: if that takes longer, or an earlier task has not ended.
        """
        while self._busy:
            try:
                number, _ = self._answers.get_nowait()
            except queue.Empty:
                raise TimeoutError("still busy with an earlier round") from None
            self._busy = number != self._asked
        self._asked += 1
        self._busy = True
        self._tasks.put((self._asked, task))
        end = time.monotonic() + seconds
        try:
            _, answer = self._answers.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(f"took longer than {1000 * seconds:g} ms") from None
        self._busy = False
        if isinstance(answer, Exception):
            raise answer
        made: Made = answer
        return made


class Chooser:
    """Decides rounds, one after another.

    Args:
        settings: Of the agent.
        policy: Who should decide.
        fallback: Who decides when the policy cannot.
        cluster: What the cluster is known to be; None: as states tell.
        out_of_range: Says in words what of a snapshot the policy has never seen in training; empty if
            nothing. None: not checked.
    """

    def __init__(
        self,
        settings: ServeSettings,
        policy: Policy,
        fallback: PolicySpec,
        cluster: Cluster | None = None,
        out_of_range: RangeCheck | None = None,
    ) -> None:
        self.settings, self.policy, self.fallback, self.cluster = settings, policy, fallback, cluster
        self._out_of_range = out_of_range
        self._worker = _Worker()
        self._encoders: dict[str, Encoder] = {}
        self._good: int | None = None  # good rounds since the policy failed; None: it decides
        self._failure = ("", "")
        self.apply_errors = 0
        """Rounds in a row in which the scheduler refused an action."""

    def choose(self, state: ClusterState, memory: Memory) -> Choice:
        """Decide on a state that the memory has seen.

        Raises:
            InputError: if the state cannot be: then nobody decides.
        """
        began = time.perf_counter()
        policy, fallback = aged(self.policy, state, self.settings), aged(self.fallback, state, self.settings)
        live = self._encoder(policy).encode(state, memory)
        encode_s = time.perf_counter() - began
        like = self._encoder(fallback) is self._encoder(policy)
        other = live if like else self._encoder(fallback).encode(state, memory)
        baseline = decide_live(other, fallback, encode_s)
        made, cause, words = self._ask(policy, live, encode_s, state, baseline)
        if made is not None and not cause:
            return Choice(made, baseline, "policy")
        return Choice(baseline, baseline, "fallback", cause, words)

    def _encoder(self, policy: Policy) -> Encoder:
        """Who makes snapshots for a policy; policies of the same settings share one."""
        config = policy.configured(self.settings.simulation)
        key = config.model_dump_json()
        if key not in self._encoders:
            self._encoders[key] = encoder_for(policy, self.settings, self.cluster)
        return self._encoders[key]

    def _ask(
        self, policy: Policy, live: LiveSnapshot, encode_s: float, state: ClusterState, baseline: Made
    ) -> tuple[Made | None, str, str]:
        """The policy's decision, and why it does not count."""
        try:
            made = self._worker.ask(
                lambda: decide_live(live, policy, encode_s), self.settings.deadline_ms / 1e3
            )
            cause, words = self._check(made, live, state, baseline)
        except TimeoutError as error:
            return self._failed("deadline", str(error))
        except IllegalDecisionError as error:
            return self._failed(error.cause, str(error))
        except Exception as error:  # a policy may raise anything, and must not end the agent
            return self._failed("exception", f"{type(error).__name__}: {error}")
        if cause == "overdue":  # its turn, not its fault
            return made, cause, words
        if cause:
            return self._failed(cause, words)
        if self._good is not None:
            self._good += 1
            if self._good < self.settings.good_rounds:
                return made, self._failure[0], f"{self._failure[1]} ({self._good} good rounds since)"
            self._good = None
        return made, "", ""

    def _check(self, made: Made, live: LiveSnapshot, state: ClusterState, baseline: Made) -> tuple[str, str]:
        if self.apply_errors >= self.settings.max_errors:
            return "errors", f"the scheduler refused actions in {self.apply_errors} rounds in a row"
        if not made.starts and baseline.starts and not state.running:
            return "no-action", "it starts nothing although nothing runs and jobs fit"
        if self._out_of_range is not None and (unseen := self._out_of_range(live)):
            return "out-of-range", unseen
        if self.policy.rules is None and overdue(state.waiting, state.now_s, self.settings):
            return "overdue", "jobs have waited longer than allowed; they come first"
        return "", ""

    def _failed(self, cause: str, words: str) -> tuple[None, str, str]:
        self._good = 0
        self._failure = (cause, words)
        return None, cause, words

    def close(self) -> None:
        """Ask the policy nothing more."""
        self._worker.close()

    def trust_again(self) -> None:
        """Forget failures: the policy was replaced."""
        self._good = None
