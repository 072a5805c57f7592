"""Starting the processes of a training run, and seeing them through. Needs no torch itself."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuyard.errors import InputError
from gpuyard.learn.process.exit_codes import (
    BAD_INPUT,
    DONE,
    FAILED,
    INTERRUPTED,
    NOT_FINITE,
    PEER_LOST,
    REFUSED,
)
from gpuyard.runs.directory import process_log

# glibc gives every large block back to the system at once, and asks for it again at the next layer: with
# these settings, which only count before a process starts, forward and backward passes take half the time.
MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
EXPLAINED = (DONE, INTERRUPTED, NOT_FINITE)
"""Ends that the run's own files tell everything about."""


class TrainingFailedError(Exception):
    """A process of a run ended as none should; the message says where it wrote why."""


class TrainingProcesses:
    """The processes of one run.

    Args:
        directory: Of the run.
        count: How many.
        resume: Go on from its checkpoint.
    """

    def __init__(self, directory: Path, count: int, *, resume: bool) -> None:
        self._directory = directory
        self._interrupted = False
        memory = os.memfd_create("gpuyard-gradients") if count > 1 else -1
        pairs = [socket.socketpair() for _ in range(count - 1)]
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(count):
                ends = [a.fileno() for a, _ in pairs] if rank == 0 else [pairs[rank - 1][1].fileno()]
                self._processes.append(self._start(rank, count, memory, ends, resume))
        finally:
            for pair in pairs:
                pair[0].close()
                pair[1].close()
            if memory >= 0:
                os.close(memory)

    def _start(
        self, rank: int, count: int, memory: int, sockets: list[int], resume: bool
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gpuyard.learn.process.worker", str(self._directory)]
        command += ["--rank", str(rank), "--size", str(count), "--memory", str(memory)]
        command += ["--sockets", ",".join(map(str, sockets)), "--parent", str(os.getpid())]
        if resume:
            command.append("--resume")
        passed = [*sockets, memory] if memory >= 0 else []
        # Until it can deal with it, an interrupt shall not end a process: it is sent again and again.
        with self._log(rank).open("wb") as log, _ignored(signal.SIGINT):
            return subprocess.Popen(
                command,
                env=os.environ | MALLOC | ONE_THREAD,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=passed,
            )

    def _log(self, rank: int) -> Path:
        return self._directory / process_log(rank)

    def poll(self) -> int | None:
        """None while any of them runs, then the exit code of the one that explains the end of all."""
        codes = [process.poll() for process in self._processes]
        if any(code is None for code in codes):
            if self._interrupted:
                self._signal(signal.SIGINT)
            return None
        code = self._processes[self._explaining()].returncode
        return FAILED if code == PEER_LOST or code < 0 else code

    def _explaining(self) -> int:
        """The rank of the process whose end explains that of the others, which may have lost a peer only."""
        codes = [process.returncode for process in self._processes]
        rest = (BAD_INPUT, NOT_FINITE, INTERRUPTED, PEER_LOST, DONE)
        crashed = [rank for rank, code in enumerate(codes) if code not in rest]
        return crashed[0] if crashed else min(range(len(codes)), key=lambda rank: rest.index(codes[rank]))

    def interrupt(self) -> None:
        """Ask them to write a checkpoint and end."""
        self._interrupted = True
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End them at once."""
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _signal(self, number: int) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    def check(self, code: int) -> None:
        """Say what went wrong, if something did.

        Raises:
            InputError: what a process refused.
            TrainingFailedError: naming the log of the process that failed.
        """
        if code in EXPLAINED:
            return
        rank = self._explaining()
        said = self._log(rank).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if code == BAD_INPUT and said and said[-1].startswith(REFUSED):
            raise InputError(said[-1].removeprefix(REFUSED))
        number = self._processes[rank].returncode
        reason = said[-1] if said else "it said nothing"
        if number < 0:
            why = " (the system does so for want of memory)" if number == -signal.SIGKILL else ""
            reason = f"it was ended by signal {signal.Signals(-number).name}{why}"
        raise TrainingFailedError(
            f"{self._directory}: training failed in process {rank}: {reason}; all that it said is in "
            f"{self._log(rank)}; gpuyard train --resume {self._directory} resumes from the last checkpoint"
        )


@contextmanager
def _ignored(number: int) -> Iterator[None]:
    """While a process is started that shall ignore a signal at first; only the main thread can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)
