"""What every benchmark is made of: a figure beside its peer's, measured in a process of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import InputError


@dataclass(frozen=True)
class BenchResult:
    """One measured figure beside its peer's.

    Attributes:
        name: What was measured.
        value: The figure.
        unit: Its unit.
        peer: What it is compared with.
        peer_value: The peer's figure, in the same unit.
        target: What the ratio should reach: at least this, or at most if ``lower_is_better``.
        lower_is_better: Whether a smaller ratio is better.
    """

    name: str
    value: float
    unit: str
    peer: str
    peer_value: float
    target: float | None = None
    lower_is_better: bool = False

    @property
    def ratio(self) -> float:
        """The figure over the peer's."""
        return self.value / self.peer_value

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None without one."""
        if self.target is None:
            return None
        return self.ratio <= self.target if self.lower_is_better else self.ratio >= self.target


def measure_apart(script: str, *arguments: str, one_thread: bool = True) -> dict[str, float]:
    """Run a benchmark's file in a process of its own; it prints its figures as JSON.

    Args:
        script: The benchmark's file.
        arguments: What it shall measure.
        one_thread: Keep libraries from using more than one thread.

    Raises:
        InputError: if it fails, with the last line of what it said.
    """
    limits = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if one_thread else ()
    run = subprocess.run(
        [sys.executable, script, *arguments],
        env=os.environ | dict.fromkeys(limits, "1"),
        capture_output=True,
        text=True,
    )
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"benchmark {Path(script).stem} {' '.join(arguments)} failed: {last}")
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


TRACES_VARIABLE = "GPUYARD_TRACES"  # where benchmarks in processes of their own look for public logs


def traces_folder() -> Path | None:
    """The folder of public logs: the one that was named, else ../shared/traces, else None."""
    named = os.environ.get(TRACES_VARIABLE)
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "traces"
    return folder if folder.is_dir() else None


def peak_memory_gb() -> float:
    """Most memory that this process has held so far, in GB.

    Not from getrusage, where a child starts with what its parent had held.
    """
    status = Path("/proc/self/status").read_text()
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kib) * 1024 / 1e9
