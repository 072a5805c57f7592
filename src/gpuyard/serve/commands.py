"""Commands of schedulers: argument lists, never a shell; ended when they take too long."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from gpuyard.serve.adapter import AdapterError

MOST_OUTPUT_BYTES = 2_000_000_000
"""More than this is no list of jobs: 100,000 jobs are 370 MB in Slurm 22.05."""

_SHOWN_CHARACTERS = 5_000  # fifty jobs at once may each have a line
_KEPT = ("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME")


class Runner:
    """Runs the commands of one scheduler, with numbers and times in one form.

    Args:
        timeout_s: A command that takes longer is killed, s.
        environment: What commands see; None: a few variables of this process.
        kept: These variables, beside PATH and the like.
        fixed: What else commands see, whatever the environment.
        install: What to do if a command is missing.
    """

    def __init__(
        self,
        timeout_s: float,
        environment: Mapping[str, str] | None,
        kept: Sequence[str],
        fixed: Mapping[str, str],
        install: str,
    ) -> None:
        self._timeout_s, self._install = timeout_s, install
        chosen = {name: os.environ[name] for name in (*_KEPT, *kept) if name in os.environ}
        given = chosen if environment is None else environment
        self._environment = {**given, "LC_ALL": "C", "TZ": "UTC", **fixed}

    def text(self, *command: str) -> str:
        """What a command prints.

        Raises:
            AdapterError: if it is missing, fails or takes too long.
        """
        return self._run(command).decode("utf-8", errors="replace")

    def json(self, *command: str) -> dict[str, Any]:
        """The object that a command prints as JSON.

        Raises:
            AdapterError: if it is missing, fails, takes too long or prints something else.
        """
        raw = self._run(command)
        if not raw.strip():
            raise AdapterError(f"{command[0]} printed nothing where JSON was expected", "parse")
        return parsed_object(raw, command[0])

    def _run(self, command: tuple[str, ...]) -> bytes:
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AdapterError(f"{command[0]}: no answer within {self._timeout_s:g} s", "timeout") from None
        except FileNotFoundError:
            raise AdapterError(f"{command[0]} was not found; {self._install}", "missing") from None
        except (OSError, ValueError) as error:
            raise AdapterError(f"{command[0]} cannot be run: {error}", "exit") from None
        if done.returncode:
            said = (done.stderr or done.stdout).decode("utf-8", errors="replace").strip()
            said = " / ".join(said.splitlines())[:_SHOWN_CHARACTERS]
            raise AdapterError(f"{command[0]} ended with {done.returncode}: {said or 'no words'}", "exit")
        if len(done.stdout) > MOST_OUTPUT_BYTES:
            raise AdapterError(f"{command[0]} printed {len(done.stdout):,} bytes", "parse")
        return done.stdout


def parsed_object(raw: bytes, who: str) -> dict[str, Any]:
    """An object of JSON, also with names that are no UTF-8.

    Raises:
        AdapterError: for anything else.
    """
    try:
        found = from_json(raw)  # twice as fast as the standard library
    except ValueError:
        try:
            found = json.loads(raw.decode("utf-8", errors="replace"))
        except (ValueError, RecursionError) as error:
            raise AdapterError(f"{who} gave no whole JSON: {str(error)[:120]}", "parse") from None
    if not isinstance(found, dict):
        raise AdapterError(f"{who} gave JSON that is no object", "parse")
    return found
