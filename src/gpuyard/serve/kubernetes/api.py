"""Requests to an API server, with patience where it asks for some."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.kubernetes.connection import Connection

Object = dict[str, Any]
"""A Kubernetes object as JSON has it."""
JSON_PATCH = "application/json-patch+json"
_PAGE = 500
_TRIES = 5
_LONGEST_PAUSE_S = 5.0
_CODES = {401: "refused", 403: "refused", 404: "missing", 409: "conflict", 410: "gone", 422: "changed"}


class Api:
    """An API server.

    Args:
        connection: Where it is and who we are.
        timeout_s: A request that takes longer fails, seconds.
    """

    def __init__(self, connection: Connection, timeout_s: float = 10.0) -> None:
        self._connection, self._timeout_s = connection, timeout_s
        self._streams: set[httpx.Response] = set()
        self._interrupted = False
        self._http = httpx.Client(
            base_url=connection.server,
            verify=connection.tls if connection.tls is not None else True,
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=16, max_keepalive_connections=8),
            trust_env=False,
        )

    def interrupt(self) -> None:
        """End all watches, and those that begin later."""
        self._interrupted = True
        for answer in list(self._streams):
            stream = answer.extensions["network_stream"]
            with contextlib.suppress(OSError):  # one that has ended meanwhile
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free what is left, once nobody asks any more."""
        self._http.close()

    def get(self, path: str, **query: str) -> Object:
        """One object, or a page of a list.

        Raises:
            AdapterError: if there is none, or the server does not answer.
        """
        return self._request("GET", path, query=query)

    def everything(self, path: str, **query: str) -> tuple[list[Object], str]:
        """All objects of a kind, page by page, and the version that they are of.

        Raises:
            AdapterError: if the server does not answer.
        """
        found: list[Object] = []
        page = self.get(path, limit=str(_PAGE), **query)
        while True:
            found += page.get("items") or []
            further = (page.get("metadata") or {}).get("continue")
            if not further:
                return found, str(page["metadata"]["resourceVersion"])
            page = self.get(path, limit=str(_PAGE), **query, **{"continue": further})

    def patch(self, path: str, operations: list[Object]) -> Object:
        """Change an object by a JSON patch.

        Raises:
            AdapterError: with code ``changed`` if one of its tests failed.
        """
        return self._request("PATCH", path, operations, kind=JSON_PATCH)

    def create(self, path: str, body: Object) -> Object:
        """Make an object.

        Raises:
            AdapterError: with code ``conflict`` if it is there already.
        """
        return self._request("POST", path, body)

    def replace(self, path: str, body: Object) -> Object:
        """Write an object whose version is the one that was read.

        Raises:
            AdapterError: with code ``conflict`` if it has changed meanwhile.
        """
        return self._request("PUT", path, body)

    def watch(self, path: str, version: str, seconds: int) -> Iterator[Object]:
        """Events after a version, as they come, for so long.

        Raises:
            AdapterError: with code ``gone`` if that version is too old.
        """
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        timeout = httpx.Timeout(self._timeout_s, read=seconds + self._timeout_s)
        try:
            with self._http.stream(
                "GET", path, params={**query, "timeoutSeconds": str(seconds)}, headers=self._headers(),
                timeout=timeout,
            ) as answer:  # fmt: skip
                if answer.status_code != 200:
                    answer.read()
                    raise _refusal(answer)
                self._streams.add(answer)
                if self._interrupted:
                    return
                try:
                    for line in answer.iter_lines():
                        if line:
                            yield _event(line)
                finally:
                    self._streams.discard(answer)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _broken(error) from None

    def _headers(self) -> dict[str, str]:
        token = self._connection.bearer()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _request(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Object:  # fmt: skip
        content = None if body is None else json.dumps(body).encode()
        for attempt in range(_TRIES):
            headers = self._headers() | ({"Content-Type": kind} if content is not None else {})
            try:
                answer = self._http.request(method, path, content=content, headers=headers, params=query)
            except httpx.HTTPError as error:
                raise _broken(error) from None
            if answer.status_code != 429 or attempt == _TRIES - 1:
                break
            time.sleep(pause_s(answer.headers.get("Retry-After"), attempt))
        if not answer.is_success:
            raise _refusal(answer)
        try:
            found: Object = answer.json()
        except ValueError:
            raise AdapterError("the API server's answer is no JSON", "parse") from None
        return found


def pause_s(retry_after: str | None, attempt: int) -> float:
    """How long to wait before the next try, seconds."""
    asked = float(retry_after) if retry_after and retry_after.isdecimal() else 0.1 * 2.0**attempt
    return min(_LONGEST_PAUSE_S, asked)


def _event(line: str) -> Object:
    try:
        event: Object = json.loads(line)
        kind, found = event["type"], event["object"]
    except (ValueError, KeyError, TypeError):
        raise AdapterError("a watch sent something that is no event", "parse") from None
    if kind == "ERROR":
        code = found.get("code")
        raise AdapterError(str(found.get("message", "a watch ended")), _CODES.get(code, "exit"))
    return event


def _refusal(answer: httpx.Response) -> AdapterError:
    try:
        words = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        words = answer.text[:200]
    return AdapterError(f"{answer.status_code}: {words}", _CODES.get(answer.status_code, "exit"))


def _broken(error: Exception) -> AdapterError:
    kind = type(error).__name__
    code = "timeout" if isinstance(error, httpx.TimeoutException) else "exit"
    return AdapterError(f"the API server does not answer ({kind}: {error})", code)
