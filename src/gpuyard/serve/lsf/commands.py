"""LSF's commands, what their failures mean, and lists that may be plain text where nothing was found."""

import re
from collections.abc import Mapping
from typing import Any

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.commands import Runner, parsed_object

_NOTHING = re.compile(r"\bNo (?:\w+ )?jobs? found\b", re.IGNORECASE)
_GONE = ("no matching job", "is not found", "already finished", "has finished", "no unfinished job")
_UNREACHABLE = ("lsf is down", "cannot connect", "connection refused", "mbatchd", "timeout", "not ready")
_VARIABLES = ("LSF_ENVDIR", "LSF_SERVERDIR", "LSF_LIBDIR", "LSF_BINDIR", "XLSF_UIDDIR")


class Commands(Runner):
    """Runs bjobs, bhosts, bqueues, bmod and the like.

    Args:
        timeout_s: A command that takes longer is killed, s.
        environment: What commands see; None: a few variables of this process, such as PATH and LSF_ENVDIR.
    """

    def __init__(self, timeout_s: float = 10.0, environment: Mapping[str, str] | None = None) -> None:
        # Formats of the site must not change what is printed.
        fixed = {"LSB_BJOBS_FORMAT": "", "LSB_BHOSTS_FORMAT": "", "LSB_DISPLAY_YEAR": "y"}
        install = "install LSF's client commands, or source LSF's profile.lsf first"
        super().__init__(timeout_s, environment, _VARIABLES, fixed, install)

    def records(self, *command: str) -> list[dict[str, str]]:
        """The records that a command prints as JSON; none if it says in plain text that it found none.

        Raises:
            AdapterError: if it is missing, fails, takes too long, prints something else, or a number of
                records other than the one it states.
        """
        try:
            raw = self._run(command)
        except AdapterError as error:
            if error.code == "exit" and _NOTHING.search(str(error)):
                return []
            raise
        if _NOTHING.search(raw[:200].decode("utf-8", errors="replace")) and raw.lstrip()[:1] != b"{":
            return []
        return _records(parsed_object(raw, command[0]), command[0])


def _records(answer: dict[str, Any], who: str) -> list[dict[str, str]]:
    found = answer.get("RECORDS")
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise AdapterError(f"{who} printed JSON without a list of RECORDS", "parse")
    stated = next((answer[name] for name in ("JOBS", "HOSTS", "QUEUES") if name in answer), len(found))
    if str(stated) != str(len(found)):
        raise AdapterError(f"{who} states {stated} records, but printed {len(found)}", "parse")
    return [{str(key): "" if value is None else str(value) for key, value in row.items()} for row in found]


def write_code(error: AdapterError) -> str:
    """The code of a write that failed: ``missing`` for a job that is gone, ``refused`` if LSF said no."""
    said = str(error).lower()
    if error.code not in ("exit", "refused") or any(words in said for words in _UNREACHABLE):
        return error.code
    return "missing" if any(words in said for words in _GONE) else "refused"
