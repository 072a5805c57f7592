"""Addresses at which an agent answers, and what it answers there; the server knows of none."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

from gpuyard.serve.state import ClusterState

JSON = "application/json"
MOST_DECISIONS = 10_000
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JOB = re.compile(r"/v1/jobs/([^/]{1,600})/(explain|eta)")


class Agent(Protocol):
    """What answers are made of. Its methods are called by many threads at once."""

    def status(self) -> dict[str, Any]:
        """How the agent does."""

    def order(self) -> dict[str, Any]:
        """The waiting jobs as the policy ranks them."""

    def state(self) -> ClusterState | None:
        """The last state; None before the first round."""

    def explain(self, job: str) -> dict[str, Any]:
        """Why a job waits. Raises a LookupError for a job that is not there."""

    def eta(self, job: str) -> dict[str, Any]:
        """When a job will start. Raises a LookupError for a job that is not there."""

    def decisions(self, since: float | None, job: str | None, limit: int) -> list[dict[str, Any]]:
        """The latest decisions since a moment, of one job or of all."""

    def metrics(self) -> bytes:
        """For Prometheus."""

    def ready(self) -> tuple[bool, str]:
        """Whether decisions are made on a fresh state, and why not."""


class AnswerError(Exception):
    """A request that is answered with an error: its code, what is wrong and what to do.

    Attributes:
        allow: Methods that are possible, for code 405.
    """

    def __init__(self, code: int, error: str, do: str, allow: str = "") -> None:
        super().__init__(error)
        self.code, self.error, self.do, self.allow = code, error, do, allow


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        method: ``GET`` or ``POST``.
        path: Without the query.
        query: What follows the question mark.
        body: Of a POST.
    """

    method: str
    path: str
    query: str = ""
    body: bytes = b""

    def asked(self) -> dict[str, str]:
        """The query's values by name.

        Raises:
            AnswerError: if there are too many.
        """
        try:
            found = parse_qs(self.query, keep_blank_values=True, max_num_fields=10)
        except ValueError:
            raise AnswerError(400, "the query has too many parts", "give each name once") from None
        return {name: values[-1] for name, values in found.items()}


Route = Callable[[Request], Any]
"""Answers a request with a document, or with bytes that are JSON already."""
Routes = Mapping[tuple[str, str], Route]
"""Answers by method and path."""


class Addresses:
    """All addresses of an agent.

    Args:
        agent: Who knows the answers.
        further: Addresses besides those that every agent has.
    """

    def __init__(self, agent: Agent, further: Routes | None = None) -> None:
        self._agent = agent
        self._routes: dict[tuple[str, str], Route] = {
            ("GET", "/healthz"): lambda _: {"alive": True},
            ("GET", "/readyz"): lambda _: _readiness(agent),
            ("GET", "/metrics"): lambda _: agent.metrics(),
            ("GET", "/v1/health"): lambda _: _health(agent),
            ("GET", "/v1/status"): lambda _: agent.status(),
            ("GET", "/v1/order"): lambda _: agent.order(),
            ("GET", "/v1/snapshot"): self._snapshot,
            ("GET", "/v1/explain"): self._explain,
            ("GET", "/v1/decisions"): lambda asked: {"decisions": agent.decisions(*_decision_query(asked))},
            **(further or {}),
        }

    def find(self, method: str, path: str) -> Route:
        """Who answers.

        Raises:
            AnswerError: if nobody does.
        """
        route = self._routes.get((method, path))
        if route is not None:
            return route
        found = _JOB.fullmatch(path)
        if found is not None and method == "GET":
            tell = self._agent.explain if found[2] == "explain" else self._agent.eta
            return lambda _: _about(unquote(found[1]), tell)
        methods = sorted(known for known, there in self._routes if there == path)
        if methods or method != "GET":
            raise _method_error(method, methods or ["GET"])
        paths = {there for _, there in self._routes} | {"/v1/jobs/ID/explain", "/v1/jobs/ID/eta"}
        raise AnswerError(404, "there is nothing at this address", f"use one of {', '.join(sorted(paths))}")

    def _snapshot(self, _: Request) -> bytes:
        state = self._agent.state()
        if state is None:
            raise AnswerError(503, "no state has been observed yet", "ask again after the first round")
        return state.json_text.encode()

    def _explain(self, asked: Request) -> dict[str, Any]:
        job = asked.asked().get("job", "")
        if not job:
            raise AnswerError(400, "no job is named", "use /v1/explain?job=ID")
        return _about(job, self._agent.explain)


def _method_error(method: str, methods: list[str]) -> AnswerError:
    allow = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
    return AnswerError(
        405, f"{method} is not possible here", f"use {allow}; to stop the agent, gpuyard serve halt", allow
    )


def _about(job: str, tell: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return tell(job)
    except LookupError:
        raise AnswerError(404, f"there is no job {job!r}", "give the id of a job that waits") from None


def _health(agent: Agent) -> dict[str, Any]:
    ready, why = agent.ready()
    return {"alive": True, "ready": ready, "words": why}


def _readiness(agent: Agent) -> dict[str, Any]:
    ready, why = agent.ready()
    if not ready:
        raise AnswerError(503, f"not ready: {why}", "see /v1/status")
    return {"ready": True, "words": why}


def _decision_query(asked: Request) -> tuple[float | None, str | None, int]:
    given = asked.asked()
    try:
        since = float(given["since"]) if "since" in given else None
        limit = int(given.get("limit", "100"))
    except ValueError:
        raise AnswerError(
            400, "since or limit is not a number", "use ?since=UNIX_TIME&job=ID&limit=100"
        ) from None
    if (since is not None and not math.isfinite(since)) or not 1 <= limit <= MOST_DECISIONS:
        raise AnswerError(400, "since or limit is out of range", f"use a limit of 1 to {MOST_DECISIONS}")
    return since, given.get("job"), limit


def answer_of(route: Route, asked: Request) -> tuple[bytes, str]:
    """The answer's body and its type.

    Raises:
        AnswerError: if there is none.
    """
    found = route(asked)
    body = found if isinstance(found, bytes) else json_bytes(found)
    return body, _TEXT if asked.path == "/metrics" else JSON


def json_bytes(document: Any) -> bytes:
    """One line of JSON."""
    return json.dumps(document, ensure_ascii=True, default=str).encode() + b"\n"
