"""A real Slurm of another version: a box whose daemons and commands live in a Debian system of their own.

``tests/live/roots.sh`` makes such systems. They are entered through a mount namespace that ends with the box,
so nothing stays mounted.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from experiments.fidelity.slurm_box import BoxSettings, SlurmBox, why_not

ROOTS = Path(os.environ.get("GPUYARD_SLURM_ROOTS", Path(__file__).parents[2] / "build" / "slurm-roots"))
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "sacct")
DROPPED = ("SwitchType=",)
"""Lines of slurm.conf that newer versions do not know."""


def why_no_root(suite: str) -> str | None:
    """Why no box of this Debian can start; None if one can."""
    if (reason := why_not()) is not None:
        return reason
    if not (ROOTS / suite / "usr" / "sbin" / "slurmctld").exists():
        return f"no Debian {suite} with its Slurm in {ROOTS}: as root, tests/live/roots.sh"
    return None


class NewerBox(SlurmBox):
    """A box whose programs are those of another Debian.

    Args:
        directory: As of ``SlurmBox``; below /tmp.
        settings: As of ``SlurmBox``.
        root: Where the other Debian lies.
    """

    def __init__(self, directory: Path, settings: BoxSettings, root: Path) -> None:
        super().__init__(directory, settings)
        self.root = root.resolve()
        self._keeper: subprocess.Popen[bytes] | None = None
        self.environment["PATH"] = f"{directory}/bin:{self.environment['PATH']}"

    def start(self) -> None:
        """Start all daemons and wait until nodes are idle."""
        inside = [f"mount --rbind {place} {self.root}{place}" for place in ("/proc", "/sys", "/dev", "/tmp")]
        script = " && ".join([*inside, "echo ready", "exec sleep infinity"])
        self._keeper = subprocess.Popen(
            ["unshare", "--mount", "setpriv", "--pdeathsig", "KILL", "sh", "-c", script],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert self._keeper.stdout is not None
        with self._keeper.stdout as said:
            assert said.readline() == b"ready\n", f"{self.root} cannot be entered"
        self._write_wrappers(self._keeper.pid)
        hosts = self.root / "etc" / "hosts"
        hosts.write_text("127.0.0.1 localhost\n")
        super().start()

    def _write_wrappers(self, keeper: int) -> None:
        place = self.directory / "bin"
        place.mkdir()
        for name in PROGRAMS:
            home = next(at for at in ("usr/sbin", "usr/bin") if (self.root / at / name).exists())
            enter = f"nsenter --mount=/proc/{keeper}/ns/mnt chroot {self.root}"
            (place / name).write_text(f'#!/bin/sh\nexec {enter} /{home}/{name} "$@"\n')
            (place / name).chmod(0o755)

    def _spawn(self, name: str, *arguments: str) -> None:
        if name == "munged":  # the first: the files were written just now
            conf = self.directory / "etc" / "slurm.conf"
            lines = [line for line in conf.read_text().splitlines() if not line.startswith(DROPPED)]
            conf.write_text("\n".join(lines) + "\n")
            (self.directory / "etc" / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        super()._spawn(name, *arguments)

    def stop(self) -> None:
        """End all jobs and daemons, and leave the other Debian."""
        super().stop()
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait()


@contextlib.contextmanager
def start_newer_box(settings: BoxSettings, suite: str) -> Iterator[NewerBox]:
    """A running Slurm of another Debian; its processes and its directory are gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="slurm-box-", dir="/tmp"))
    directory.chmod(0o755)
    box = NewerBox(directory, settings, ROOTS / suite)
    try:
        box.start()
        yield box
    finally:
        box.stop()
        shutil.rmtree(directory, ignore_errors=True)
