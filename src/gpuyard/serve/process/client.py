"""Asking the agent that runs on this host, over its unix socket."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuyard.errors import InputError, setting

_LARGEST_ANSWER = 1 << 30


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def job_path(job: str, what: str) -> str:
    """The address of what is known about a job: ``explain`` or ``eta``."""
    return f"/v1/jobs/{quote(job, safe='')}/{what}"


def ask(socket_path: Path, path: str, timeout: float = 10.0) -> Any:
    """What an agent answers.

    Args:
        socket_path: Of the agent.
        path: Such as ``/v1/status`` or what ``job_path`` returns.
        timeout: Seconds.

    Raises:
        InputError: if no agent is there, it does not answer in time, or it answers with an error.
    """
    connection = _UnixConnection(socket_path, timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        answer = json.loads(response.read(_LARGEST_ANSWER))
    except (FileNotFoundError, ConnectionRefusedError):
        raise InputError(
            f"no agent answers at {socket_path}; start one with gpuyard serve slurm or lsf, or give the "
            f"{setting('state_dir')} of the one that runs"
        ) from None
    except PermissionError:
        raise InputError(
            f"you may not ask the agent at {socket_path}; ask as the user that it runs as"
        ) from None
    except TimeoutError:
        raise InputError(
            f"the agent at {socket_path} did not answer within {timeout:g} s; see its log"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(f"the agent at {socket_path} broke off: {error}; ask again") from None
    finally:
        connection.close()
    if response.status != 200:
        raise InputError(f"{answer.get('error', 'the agent refused')}; {answer.get('do', 'see its log')}")
    return answer
