"""Pausing, resuming and finishing runs of this machine.

Whoever trains a run holds a lock on its progress log, and the system says who that is. A run of another
machine, or of another user, can be watched only.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Literal

from gpuyard.errors import InputError
from gpuyard.files import check_directory
from gpuyard.runs.directory import PROGRESS, open_run
from gpuyard.runs.progress import is_being_written

Action = Literal["pause", "finish", "resume"]
LOCKS = Path("/proc/locks")
OUTPUT = "resumed.log"
"""What a resumed run says, in its directory."""
_FLOCK = re.compile(r"FLOCK\s+ADVISORY\s+WRITE\s+(\d+)\s+([0-9a-f]+):([0-9a-f]+):(\d+)\s")
_SIGNALS: dict[Action, signal.Signals] = {"pause": signal.SIGINT, "finish": signal.SIGUSR1}


def trainer(directory: Path) -> int | None:
    """The process on this machine that trains a run; None if there is none, or it is not ours."""
    try:
        found = (directory / PROGRESS).stat()
        locks = LOCKS.read_text(encoding="ascii")
    except OSError:
        return None
    place = (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
    for pid, major, minor, inode in _FLOCK.findall(locks):
        if (int(major, 16), int(minor, 16), int(inode)) == place and _is_worker(int(pid), directory):
            return int(pid)
    return None


def _is_worker(pid: int, directory: Path) -> bool:
    """Whether a process is one of ours that trains this run."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        home = Path(f"/proc/{pid}/cwd").readlink()
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return False
    module = b"gpuyard.learn.process.worker"
    if owner != os.getuid() or module not in words:
        return False
    named = words[words.index(module) + 1 : words.index(module) + 2]
    return bool(named) and (home / os.fsdecode(named[0])).resolve() == directory.resolve()


def act(directory: Path, action: Action) -> str:
    """Do something to a run.

    Args:
        directory: Of the run.
        action: ``pause`` writes a checkpoint and ends its processes; ``finish`` validates once more and ends
            it for good; ``resume`` starts it again from its last checkpoint.

    Returns:
        What was done, in a sentence.

    Raises:
        InputError: if that is not possible.
    """
    if action == "resume":
        return _resume(directory)
    pid = trainer(directory)
    if pid is None:
        raise InputError(
            f"{directory}: no process of yours on this machine trains it; use the machine on which it was "
            "started"
        )
    _send(pid, directory, _SIGNALS[action])
    if action == "pause":
        return "Asked to pause: it writes a checkpoint and ends. Resume trains on from there."
    return "Asked to finish: it validates once more and ends."


def _send(pid: int, directory: Path, number: signal.Signals) -> None:
    """Signal a process, and no other one that has taken its number meanwhile."""
    try:
        with closing(_Process(pid)) as process:
            if trainer(directory) == pid:
                signal.pidfd_send_signal(process.descriptor, number)
                return
    except OSError as error:
        raise InputError(f"{directory}: cannot be signalled ({error.strerror})") from None
    raise InputError(f"{directory}: has just ended; nothing was done")


class _Process:
    """A handle on a process, which no other process can take over."""

    def __init__(self, pid: int) -> None:
        self.descriptor = os.pidfd_open(pid)

    def close(self) -> None:
        os.close(self.descriptor)


def _resume(directory: Path) -> str:
    if is_being_written(directory / PROGRESS):
        raise InputError(f"{directory}: is being trained at this moment")
    if not open_run(directory).stopped:
        raise InputError(f"{directory}: cannot be resumed: it is finished, or has no checkpoint")
    check_directory(directory)
    command = [sys.executable, "-c", "import sys; from gpuyard.cli import main; sys.exit(main())"]
    command += ["train", "--resume", str(directory)]
    # A session of its own: it trains on when the dashboard ends.
    with (directory / OUTPUT).open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    threading.Thread(target=process.wait, daemon=True).start()  # so that it does not stay as a zombie
    return f"Resumed; what it says is in {directory / OUTPUT}."
