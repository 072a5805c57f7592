"""Changes, pushed to browsers as server-sent events.

Whatever is watched has one watcher, however many browsers look at it: it is read once, its events are written
once, and all get the same bytes. An event replaces the one of the same name before it, so a slow browser
skips what it missed.
"""

import asyncio
import json
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import StreamingResponse

from gpuyard.errors import InputError, spelt

LOOK_EVERY_S = 0.5
ALIVE_EVERY_S = 15.0
"""A line without meaning is sent so often, so that a connection that is gone is noticed."""
TROUBLE = "trouble"
"""The event of what cannot be read (any more): a sentence; an empty one when it can be read again."""


class Source(Protocol):
    """Something that is watched. Where it has a method ``close``, that is called when nobody follows it."""

    def look(self) -> Mapping[str, Any]:
        """What has changed since the last call, by name of event, ready for JSON; at first, everything.

        Called by one thread at a time, never by the server's own.

        Raises:
            InputError: if it cannot be read; it is asked again later.
        """


class Feeds:
    """All watchers of a server."""

    def __init__(self, every_s: float = LOOK_EVERY_S) -> None:
        self._every_s = every_s
        self._watchers: dict[str, _Watcher] = {}
        self._closed = False

    def answer(self, request: Request, key: str, make: Callable[[], Source]) -> StreamingResponse:
        """The stream of events of a source.

        Args:
            request: Who asks.
            key: What is watched; requests with the same key share the watcher.
            make: Makes the source, if it is not being watched yet.
        """
        stream = self.follow(key, make)
        return StreamingResponse(
            stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def follow(self, key: str, make: Callable[[], Source]) -> AsyncIterator[bytes]:
        """Events as they are sent: first the latest of each name, then changes."""
        watcher = self._watchers.get(key)
        if watcher is None:
            watcher = self._watchers[key] = _Watcher(make(), self._every_s)
        follower = watcher.add()
        try:
            yield b"retry: 2000\n\n"
            while not self._closed:
                for event in await follower.next():
                    yield event
        finally:
            if watcher.remove(follower) and self._watchers.get(key) is watcher:
                del self._watchers[key]

    def close(self) -> None:
        """End all streams: the server stops."""
        self._closed = True
        for watcher in self._watchers.values():
            watcher.stop()

    @property
    def watched(self) -> int:
        """How many sources are being watched."""
        return len(self._watchers)


class _Follower:
    """What one browser has not been sent yet."""

    def __init__(self, events: Mapping[str, bytes]) -> None:
        self._waiting = dict(events)
        self._changed = asyncio.Event()
        if events:
            self._changed.set()

    def put(self, events: Mapping[str, bytes]) -> None:
        self._waiting.update(events)
        self._changed.set()

    def wake(self) -> None:
        self._changed.set()

    async def next(self) -> list[bytes]:
        try:
            await asyncio.wait_for(self._changed.wait(), ALIVE_EVERY_S)
        except TimeoutError:
            return [b": alive\n\n"]
        self._changed.clear()
        events, self._waiting = self._waiting, {}
        return list(events.values())


class _Watcher:
    """Looks at one source again and again, as long as anybody follows it."""

    def __init__(self, source: Source, every_s: float) -> None:
        self._source, self._every_s = source, every_s
        self._latest: dict[str, bytes] = {}
        self._followers: set[_Follower] = set()
        self._looking = threading.Lock()
        self._closed = False
        self._task = asyncio.create_task(self._watch())

    def add(self) -> _Follower:
        follower = _Follower(self._latest)
        self._followers.add(follower)
        return follower

    def remove(self, follower: _Follower) -> bool:
        """Take a follower away; whether it was the last one."""
        self._followers.discard(follower)
        if not self._followers:
            self.stop()
        return not self._followers

    def stop(self) -> None:
        self._task.cancel()
        for follower in self._followers:
            follower.wake()

    async def _watch(self) -> None:
        try:
            while True:
                events = await asyncio.to_thread(self._look)
                changed = {name: text for name, text in events.items() if self._latest.get(name) != text}
                self._latest |= changed
                for follower in self._followers if changed else ():
                    follower.put(changed)
                await asyncio.sleep(self._every_s)
        finally:
            # The thread that looks may still do so: a look cannot be called off.
            asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        with self._looking:
            self._closed = True
            getattr(self._source, "close", lambda: None)()

    def _look(self) -> dict[str, bytes]:
        with self._looking:
            return {} if self._closed else self._events()

    def _events(self) -> dict[str, bytes]:
        try:
            found = {TROUBLE: "", **self._source.look()}
        except InputError as error:
            found = {TROUBLE: plain(error)}
        except OSError as error:
            found = {TROUBLE: f"cannot be read ({error.strerror or error})"}
        except Exception as error:  # one broken page must not end the others
            traceback.print_exc(file=sys.stderr)
            found = {TROUBLE: f"unexpected {type(error).__name__}: {error}"}
        return {name: event_bytes(name, data) for name, data in found.items()}


def event_bytes(name: str, data: Any) -> bytes:
    """A server-sent event. JSON has no line breaks of its own, which would end it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"event: {name}\ndata: {text}\n\n".encode()


def plain(error: InputError) -> str:
    """What an error says, for people: settings by their names."""
    return spelt(str(error), lambda name, value: name if value is None else f"{name} {value}")
