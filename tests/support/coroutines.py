"""Coroutines in tests whose process drives browsers: Playwright keeps a loop running in the main thread."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run_alone(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run it to its end on a loop of its own, in a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, coroutine).result()
