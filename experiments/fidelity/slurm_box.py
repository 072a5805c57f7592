"""A real Slurm on this machine: slurmctld and slurmds with fake GPUs, in one directory, gone after use.

Needs root and Debian's packages (``tests/live/install.sh``), no systemd and no cgroups. Nothing under /etc is
read or written. Daemons listen on loopback only, and live as long as the box.
"""

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_DAEMONS = ("munged", "slurmctld", "slurmd")
_ACCOUNTING_DAEMONS = ("mariadbd", "slurmdbd")
_TOOLS = ("unshare", "setpriv", "hostname")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_CLIENT_TIMEOUT_S = 30.0
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 15.0


class BoxError(Exception):
    """A real Slurm that does not come up, or a command of it that fails."""


@dataclass(frozen=True)
class BoxSettings:
    """What the cluster is. Nodes are called gn1, gn2, ...

    Attributes:
        nodes: How many; each is a slurmd of its own.
        gpus_per_node: Fake devices of a node.
        cpus_per_node: What a node claims to have.
        memory_mib_per_node: What a node claims to have, MiB.
        accounting: Whether slurmdbd and MariaDB run, so that sacct and fair shares work.
        accounts: Arguments of calls of sacctmgr that are made before slurmctld starts.
        partitions: ``PartitionName=`` lines of slurm.conf.
        lines: Further lines of slurm.conf; they come after those of the box and override them.
        gpu_type: What kind the fake devices are said to be; empty: none is named.
        files: Further files next to slurm.conf, such as job_submit.lua, by name.
        rest: Whether slurmrestd answers on ``SlurmBox.rest_socket``.
    """

    nodes: int = 2
    gpus_per_node: int = 8
    cpus_per_node: int = 32
    memory_mib_per_node: int = 256_000
    accounting: bool = False
    accounts: tuple[tuple[str, ...], ...] = ()
    partitions: tuple[str, ...] = ("PartitionName=batch Nodes=ALL Default=YES State=UP",)
    lines: tuple[str, ...] = ()
    gpu_type: str = ""
    files: tuple[tuple[str, str], ...] = ()
    rest: bool = False


def why_not(accounting: bool = False, rest: bool = False) -> str | None:
    """Why no box can start here, with what to do; None if one can."""
    further = (*(_ACCOUNTING_DAEMONS if accounting else ()), *(("slurmrestd",) if rest else ()))
    needed = (*_DAEMONS, *further, *_TOOLS, "sbatch")
    missing = [name for name in needed if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"no real Slurm here ({', '.join(missing)} missing): as root on Debian, tests/live/install.sh"
    if os.geteuid() != 0:
        return "a real Slurm needs root here, because it runs jobs as several users"
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode:
        return "a real Slurm needs unshare --uts here, because without it daemons listen on every address"
    return None


class SlurmBox:
    """A running Slurm; ``start_box`` makes one.

    Attributes:
        directory: Where everything lies: etc/, log/, spool/, state/, dev/.
        settings: What the cluster is.
        environment: What clients need, such as SLURM_CONF.
    """

    def __init__(self, directory: Path, settings: BoxSettings) -> None:
        self.directory = directory
        self.settings = settings
        self.environment = {
            "PATH": _PATH,
            "SLURM_CONF": str(directory / "etc" / "slurm.conf"),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        self._daemons: list[tuple[str, subprocess.Popen[bytes]]] = []

    @property
    def node_names(self) -> tuple[str, ...]:
        """gn1, gn2, ..."""
        return tuple(f"gn{number}" for number in range(1, self.settings.nodes + 1))

    @property
    def rest_socket(self) -> Path:
        """Where slurmrestd answers, if it runs."""
        return self.directory / "rest.socket"

    def run(self, *command: str, timeout_s: float = _CLIENT_TIMEOUT_S, user: str = "") -> str:
        """What a client such as squeue prints.

        Args:
            command: Its name and arguments.
            timeout_s: How long it may take, s.
            user: Who runs it; empty: root.

        Raises:
            BoxError: if it fails or takes too long.
        """
        if user:
            command = ("setpriv", f"--reuid={user}", "--clear-groups", *command)
        try:
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise BoxError(f"{' '.join(command)}: no answer within {timeout_s:g} s") from None
        if done.returncode:
            raise BoxError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def submit(self, *options: str, run_s: float) -> int:
        """Submit a job that sleeps, seconds; its number."""
        script = ("--parsable", "--output=/dev/null", "--chdir=/", "--export=NONE")
        return int(self.run("sbatch", *script, *options, f"--wrap=exec sleep {run_s}").split(";")[0])

    def processes(self) -> list[int]:
        """Daemons of this box, and jobs' shepherds, whoever started them."""
        mark = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return [number for number in found if number != os.getpid()]

    def listeners(self) -> list[tuple[str, int]]:
        """Addresses and ports on which processes of this box take connections."""
        return [place for number in self.processes() for place in _listening(number)]

    def start(self) -> None:
        """Start all daemons and wait until nodes are idle."""
        _write_files(self)
        place = self.directory
        self._spawn(
            "munged",
            *("--foreground", "--force", f"--key-file={place}/etc/munge.key"),
            *(f"--socket={place}/munge.socket", f"--pid-file={place}/munged.pid"),
            *(f"--log-file={place}/log/munged.log", f"--seed-file={place}/munge.seed"),
        )
        self._wait_for((place / "munge.socket").exists, "munged", _START_TIMEOUT_S)
        if self.settings.accounting:
            self._start_accounting()
        self.start_controller()
        for name in self.node_names:
            self._spawn("slurmd", "-D", "-N", name, "-f", self.environment["SLURM_CONF"])
        self._wait_for(self._idle, "slurmctld and its nodes", _START_TIMEOUT_S)
        if self.settings.rest:
            # Without the name of a plugin it also loads the accounting's, and ends where there is none.
            self._spawn("slurmrestd", "-s", "openapi/v0.0.38", f"unix:{self.rest_socket}")
            self._wait_for(self.rest_socket.exists, "slurmrestd", _START_TIMEOUT_S)

    def start_controller(self) -> None:
        """Start slurmctld, also after ``stop_controller``; jobs and nodes are as they were."""
        self._spawn("slurmctld", "-D", "-f", self.environment["SLURM_CONF"])

    def stop_controller(self) -> None:
        """End slurmctld; jobs run on, and commands find nobody."""
        found = [entry for entry in self._daemons if entry[0] == "slurmctld"]
        for entry in found:
            entry[1].send_signal(signal.SIGTERM)
            entry[1].wait(_STOP_TIMEOUT_S)
            self._daemons.remove(entry)

    def stop(self) -> None:
        """End all jobs and daemons; only processes of this box."""
        with contextlib.suppress(BoxError):
            jobs = self.run("squeue", "--noheader", "--format=%A", timeout_s=5).split()
            if jobs:
                self.run("scancel", *jobs, timeout_s=10)
                self._wait_for(lambda: not self._queue(), "jobs to end", _STOP_TIMEOUT_S)
        for _, daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(_STOP_TIMEOUT_S)
        for number in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        for _, daemon in self._daemons:
            daemon.wait()
        self._daemons.clear()

    def _queue(self) -> list[str]:
        return self.run("squeue", "--noheader", "--format=%A", timeout_s=5).split()

    def _start_accounting(self) -> None:
        place = self.directory
        data, port = place / "database", place / "mariadb.socket"
        self.run(
            *("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db"),
            "--auth-root-authentication-method=socket",
            timeout_s=_START_TIMEOUT_S,
        )
        self._spawn(
            *("mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={port}", "--user=root"),
            *("--skip-networking", f"--pid-file={place}/mariadbd.pid", "--innodb-buffer-pool-size=64M"),
            *("--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"),
        )
        self._wait_for(port.exists, "mariadbd", _START_TIMEOUT_S)
        self._spawn("slurmdbd", "-D")
        self._wait_for(self._registers_the_cluster, "slurmdbd", _START_TIMEOUT_S)
        for arguments in self.settings.accounts:
            self.run("sacctmgr", "-i", *arguments)

    def _registers_the_cluster(self) -> bool:
        try:
            self.run("sacctmgr", "-i", "add", "cluster", "box", timeout_s=10)
        except BoxError:
            return False
        return True

    def _idle(self) -> bool:
        try:
            states = self.run("sinfo", "--noheader", "--Node", "--format=%N %t", timeout_s=5).split("\n")
        except BoxError:
            return False
        return {line for line in states if line} == {f"{name} idle" for name in self.node_names}

    def _spawn(self, name: str, *arguments: str) -> None:
        # Slurm binds to the address of the host's name: inside, that name is localhost (NoInAddrAny).
        inside = ("unshare", "--uts", "sh", "-c", 'hostname localhost && exec "$@"', "sh")
        with_us = ("setpriv", "--pdeathsig", "TERM")
        log = (self.directory / "log" / f"{name}.out").open("ab")
        socket_path = str(self.directory / "mariadb.socket")
        with log:
            daemon = subprocess.Popen(
                [*inside, *with_us, name, *arguments],
                env={
                    **self.environment,
                    "MYSQL_UNIX_PORT": socket_path,
                    # Up to 22.05 root may be answered on a socket that only root can open.
                    "SLURMRESTD_SECURITY": "disable_user_check",
                },
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._daemons.append((name, daemon))

    def _wait_for(self, holds: Callable[[], bool], what: str, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not holds():
            for name, daemon in self._daemons:
                if daemon.poll() is not None:
                    raise BoxError(f"{name} ended with {daemon.returncode}:\n{self._last_lines(name)}")
            if time.monotonic() > end:
                raise BoxError(f"waited {timeout_s:g} s for {what} in {self.directory}")
            time.sleep(0.05)

    def _last_lines(self, name: str) -> str:
        files = sorted((self.directory / "log").glob(f"{name}*"))
        lines = [line for file in files for line in file.read_text(errors="replace").splitlines()[-15:]]
        return "\n".join(lines)


@contextlib.contextmanager
def start_box(settings: BoxSettings | None = None, keep_logs: Path | None = None) -> Iterator[SlurmBox]:
    """A running Slurm; its processes and its directory are gone afterwards.

    Args:
        settings: What the cluster is.
        keep_logs: Where to copy the daemons' logs.

    Raises:
        BoxError: if it cannot start; the logs of the daemon are in the message.
    """
    settings = settings or BoxSettings()
    reason = why_not(settings.accounting)
    if reason is not None:
        raise BoxError(reason)
    # Jobs of other users must reach it, and paths of sockets must be short: not a directory of pytest's.
    directory = Path(tempfile.mkdtemp(prefix="slurm-box-"))
    box = SlurmBox(directory, settings)
    try:
        directory.chmod(0o755)
        box.start()
        yield box
    finally:
        box.stop()
        if keep_logs is not None:
            shutil.copytree(directory / "log", keep_logs, dirs_exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
        return ports


def _write_files(box: SlurmBox) -> None:
    """Directories, devices, the munge key and the configuration."""
    place, settings = box.directory, box.settings
    for name in ("etc", "log", "spool", "state", "dev"):
        (place / name).mkdir()
    for number in range(settings.gpus_per_node):
        os.mknod(place / "dev" / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    key = place / "etc" / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    dbd_port, ctld_port, *node_ports = _free_ports(2 + settings.nodes)
    (place / "etc" / "slurm.conf").write_text(_slurm_conf(box, dbd_port, ctld_port, node_ports))
    (place / "etc" / "gres.conf").write_text(_gres_conf(box))
    (place / "etc" / "cgroup.conf").write_text("CgroupAutomount=no\n")
    for name, text in settings.files:
        (place / "etc" / name).write_text(text)
    if settings.accounting:
        conf = place / "etc" / "slurmdbd.conf"
        conf.touch(0o600)
        conf.write_text(_slurmdbd_conf(box, dbd_port))


def _gres_conf(box: SlurmBox) -> str:
    names = f"gn[1-{box.settings.nodes}]"
    devices = f"{box.directory}/dev/gpu[0-{box.settings.gpus_per_node - 1}]"
    kind = f" Type={box.settings.gpu_type}" if box.settings.gpu_type else ""
    return f"NodeName={names} Name=gpu{kind} File={devices}\n" if box.settings.gpus_per_node else ""


def _slurmdbd_conf(box: SlurmBox, dbd_port: int) -> str:
    return f"""\
AuthType=auth/munge
AuthInfo=socket={box.directory}/munge.socket
CommunicationParameters=NoInAddrAny
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
LogFile={box.directory}/log/slurmdbd.log
PidFile={box.directory}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


def _slurm_conf(box: SlurmBox, dbd_port: int, ctld_port: int, node_ports: Sequence[int]) -> str:
    place, settings = box.directory, box.settings
    kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
    gres = f" Gres=gpu:{kind}{settings.gpus_per_node}" if settings.gpus_per_node else ""
    nodes = "\n".join(
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} State=UNKNOWN "
        f"CPUs={settings.cpus_per_node} RealMemory={settings.memory_mib_per_node}{gres}"
        for name, port in zip(box.node_names, node_ports, strict=True)
    )
    accounting = f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={dbd_port}
AccountingStoragePass={place}/munge.socket
AccountingStorageTRES=gres/gpu
"""
    return f"""\
ClusterName=box
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool/%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/log/slurmctld.log
SlurmdLogFile={place}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
{accounting if settings.accounting else ""}{nodes}
{chr(10).join(settings.partitions)}
{chr(10).join(settings.lines)}
"""


def _listening(process: int) -> list[tuple[str, int]]:
    """IPv4 and IPv6 addresses on which one process listens, from /proc."""
    inodes = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == "0A" and columns[9] in inodes:  # 0A is LISTEN
                    address, port = columns[1].split(":")
                    found.append((_address(address, family), int(port, 16)))
    return found


def _address(text: str, family: int) -> str:
    """An address of /proc/net/tcp: words of four bytes, each in the order of the machine."""
    raw = bytes.fromhex(text)
    words = b"".join(raw[place : place + 4][::-1] for place in range(0, len(raw), 4))
    return socket.inet_ntop(family, words)
