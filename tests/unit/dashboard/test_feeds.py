"""One watcher for all browsers; a slow one skips what it missed; trouble is told and passes."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from gpuyard.dashboard.feeds import TROUBLE, Feeds, event_bytes
from gpuyard.errors import InputError
from support.coroutines import run_alone

EVERY_S = 0.005


class Counting:
    """A source that counts its looks and says what it is told to."""

    def __init__(self) -> None:
        self.looks = 0
        self.closed = 0
        self.says: dict[str, Any] = {"number": 1}
        self.raises: Exception | None = None

    def look(self) -> Mapping[str, Any]:
        self.looks += 1
        if self.raises is not None:
            raise self.raises
        return self.says

    def close(self) -> None:
        self.closed += 1


def parsed(events: list[bytes]) -> list[tuple[str, Any]]:
    found = []
    for event in events:
        if event.startswith(b"event: "):
            name, data = event.decode().rstrip("\n").split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


async def take(stream: Any, name: str, value: Any) -> list[tuple[str, Any]]:
    """Events up to the one of this name and value."""
    found: list[tuple[str, Any]] = []
    async with asyncio.timeout(5):
        while (name, value) not in found:
            found += parsed([await anext(stream)])
    return found


def test_fifty_browsers_cost_one_watcher_and_get_the_same_bytes() -> None:
    source = Counting()

    async def run() -> None:
        feeds = Feeds(EVERY_S)
        made = 0

        def make() -> Counting:
            nonlocal made
            made += 1
            return source

        streams = [feeds.follow("key", make) for _ in range(50)]
        for stream in streams:
            await take(stream, "number", 1)
        assert (made, feeds.watched) == (1, 1)
        source.says = {"number": 2}
        events = []
        for stream in streams:
            while True:
                event = await anext(stream)
                if parsed([event]) == [("number", 2)]:
                    events.append(event)
                    break
        assert len({id(event) for event in events}) == 1
        for stream in streams:
            await stream.aclose()
        assert feeds.watched == 0
        looks = source.looks
        await asyncio.sleep(10 * EVERY_S)
        assert source.looks <= looks + 1

    run_alone(run())
    assert source.closed == 1


def test_a_late_browser_is_told_the_latest_of_everything() -> None:
    async def run() -> None:
        feeds, source = Feeds(EVERY_S), Counting()
        first = feeds.follow("key", lambda: source)
        await take(first, "number", 1)
        source.says = {"other": "x"}
        await take(first, "other", "x")
        second = feeds.follow("key", lambda: source)
        told = await take(second, "other", "x")
        assert ("number", 1) in told

    run_alone(run())


def test_a_slow_browser_gets_the_latest_only() -> None:
    async def run() -> None:
        feeds, source = Feeds(EVERY_S), Counting()
        slow, quick = feeds.follow("key", lambda: source), feeds.follow("key", lambda: source)
        await take(slow, "number", 1)
        await take(quick, "number", 1)
        for number in range(2, 9):
            source.says = {"number": number}
            await take(quick, "number", number)
        told = await take(slow, "number", 8)
        assert [value for name, value in told if name == "number"] == [8]

    run_alone(run())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_trouble_is_told_and_passes(capfd: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        feeds, source = Feeds(EVERY_S), Counting()
        stream = feeds.follow("key", lambda: source)
        await take(stream, "number", 1)
        for error, said in (
            (InputError("runs/a: is not there any more"), "runs/a: is not there any more"),
            (FileNotFoundError(2, "No such file"), "cannot be read (No such file)"),
            (KeyError("x"), "unexpected KeyError: 'x'"),
        ):
            source.raises = error
            await take(stream, TROUBLE, said)
            source.raises = None
            await take(stream, TROUBLE, "")

    run_alone(run())
    assert "KeyError" in capfd.readouterr().err  # what nobody expected is not swallowed


def test_closing_ends_all_streams_at_once() -> None:
    async def run() -> None:
        feeds = Feeds(EVERY_S)
        stream = feeds.follow("key", Counting)
        await take(stream, "number", 1)
        feeds.close()
        began = time.monotonic()
        async with asyncio.timeout(5):
            assert [event async for event in stream] in ([], [b""])
        assert time.monotonic() - began < 1

    run_alone(run())


def test_nothing_in_data_can_end_an_event() -> None:
    text = event_bytes("name", {"a": "\n\ndata: x\r\u2028"})
    assert text.count(b"\n") == 3
    assert b"\r" not in text
