"""The command line run inside a test, and what is asked of every answer."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gpuyard import cli

Run = Callable[..., tuple[int, str, str]]
HEADER = "submit_s,duration_s,gpus"
GOOD = [HEADER, "0,100,8", "1,100,8", "2,10,1", "3,50,4", "4,20,2", "5,5,1"]
"""Lines of a small file of jobs."""


def runner(capfd: pytest.CaptureFixture[str], *first: str) -> Run:
    """Runs a command line in this process: exit code, standard output, standard error.

    Args:
        capfd: Of the test.
        first: Words that every command line begins with.
    """

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([*first, *(str(argument) for argument in arguments)])
        return code, *capfd.readouterr()

    return call


def document(output: str) -> Any:
    """JSON as it must be: without NaN and infinities."""
    return json.loads(output, parse_constant=_no_constants)


def _no_constants(name: str) -> Any:
    raise AssertionError(f"{name} in JSON")


def assert_refused(code: int, out: str, err: str, words: list[str]) -> None:
    """One paragraph that has these words, nothing else but the same as JSON, and exit code 2."""
    assert code == cli.BAD_INPUT, err
    assert not out or f"error: {document(out)['error']}\n" == err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
