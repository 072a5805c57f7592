"""The process that answers schedulers which ask: rounds are made when a question comes."""

import gc
import queue
import threading
from collections.abc import Callable
from typing import Any

from gpuyard.errors import InputError, setting
from gpuyard.serve.process.agent import Agent
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.routes import AnswerError, Request, Routes
from gpuyard.serve.process.service import Service
from gpuyard.serve.remote.decisions import Decisions
from gpuyard.serve.remote.documents import openapi_text, read_question, read_state
from gpuyard.serve.remote.posted import PostedCluster
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.waits.forecaster import Forecaster

ANSWER_S = 20.0
"""Time that a question waits for its answer, seconds."""
_FULL_COLLECTION = 1000
"""Questions after which all garbage is looked for."""


class _Question:
    """Waits for the thread that makes the rounds."""

    def __init__(self, ask: Callable[[Decisions], Any]) -> None:
        self.ask = ask
        self.answered = threading.Event()
        self.given_up = False
        self.answer: Any = None
        self.error: Exception | None = None


class RemoteService(Service):
    """Runs an agent that decides when it is asked.

    Args:
        settings: How.
        log: Where to say what happens.
        reload: Reads the settings again; None: they do not change.
    """

    def __init__(
        self, settings: ServeSettings, log: Log, reload: Callable[[], ServeSettings] | None = None
    ) -> None:
        if settings.cluster is not None:
            raise InputError(f"{setting('cluster')}: whoever asks sends its nodes; leave it out")
        self._cluster = PostedCluster()
        self._questions: queue.SimpleQueue[_Question] = queue.SimpleQueue()
        super().__init__(
            settings.model_copy(update={"scheduler": "http"}), lambda _: self._cluster, log, reload
        )

    def _routes(self, agent: Agent) -> Routes:
        schema = openapi_text().encode()
        return {
            ("GET", "/v1/openapi.json"): lambda _: schema,
            ("POST", "/v1/decide"): self._decide,
            ("POST", "/v1/select-host"): self._select_host,
        }

    def _decide(self, asked: Request) -> Any:
        state = _read(read_state, asked.body)
        return self._ask(lambda decisions: decisions.decide(state))

    def _select_host(self, asked: Request) -> Any:
        question = _read(read_question, asked.body)
        return self._ask(lambda decisions: decisions.select_host(question))

    def _ask(self, ask: Callable[[Decisions], Any]) -> Any:
        """Have the thread of the rounds answer.

        Raises:
            AnswerError: if it does not within ``ANSWER_S``, or cannot.
        """
        question = _Question(ask)
        self._questions.put(question)
        if not question.answered.wait(ANSWER_S):
            question.given_up = True
            raise AnswerError(503, "too many questions at once", "do what the scheduler would do by itself")
        if question.error is not None:
            raise question.error
        return question.answer

    def _rounds(self, agent: Agent, forecaster: Forecaster, rounds: int | None) -> None:
        decisions, done = Decisions(agent, self._cluster), 0
        gc.freeze()
        gc.disable()  # collections of garbage take their time between rounds, not within them
        while self._goes_on and (rounds is None or done < rounds):
            try:
                question = self._questions.get(timeout=0.2)
            except queue.Empty:
                self._notifier.alive()
                continue
            if question.given_up:
                continue
            self._answer(question, decisions)
            done += 1
            self._notifier.alive()
            self._after_round(agent, forecaster)
            gc.collect(2 if done % _FULL_COLLECTION == 0 else 0)

    def _answer(self, question: _Question, decisions: Decisions) -> None:
        try:
            question.answer = question.ask(decisions)
        except Exception as error:  # whoever asked must learn it, and others must be answered still
            question.error = error
            if not isinstance(error, AnswerError):
                self.log.error("a question could not be answered", error=f"{type(error).__name__}: {error}")
        question.answered.set()


def _read(read: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return read(body)
    except InputError as error:
        code = 400 if str(error).startswith("Invalid JSON") else 422
        raise AnswerError(code, str(error), "send what /v1/openapi.json describes") from None
