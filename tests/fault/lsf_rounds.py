"""Jobs through an agent on the double of LSF, while both are killed at random."""

import contextlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from fault.lsf_double import LsfDouble
from gpuyard.serve.signs import Signs
from live.served import COMMAND

DOUBLE = Path(__file__).with_name("lsf_double.py")
SILENCE_S = 20.0
"""After which the watchdog returns jobs. A round writes dozens of commands, slow ones on a busy machine."""
Process = subprocess.Popen[bytes]


class Town:
    """A double with its daemon, an agent, and a watchdog, each a process that may be killed.

    Args:
        place: A directory with a short path: the agent's socket is in it.
        control: Of the agent.
        seed: Of what is drawn.
        hosts: Of the double, with 8 GPUs each.
    """

    def __init__(self, place: Path, control: str, seed: int, hosts: int = 4) -> None:
        self.place, self.control = place, control
        self.lsf = LsfDouble(place / "bin", hosts=hosts, gpus=8, slots=64)
        self.draw = random.Random(seed)
        self.config, self.log = place / "serve.toml", place / "agent.log"
        self.config.write_text(
            f'state_dir = "{place / "state"}"\nscheduler = "lsf"\nmode = "active"\ncontrol = "{control}"\n'
            f'policy = "sjf+easy"\ninterval_s = 0.2\nwatchdog_s = {SILENCE_S}\nmax_starts = 12\n'
            "deadline_ms = 5000\ncommand_timeout_s = 20.0\n"
        )
        self.signs = Signs(place / "state")
        self.processes: dict[str, Process] = {}
        self.kills = {"agent": 0, "daemon": 0}

    # --- processes

    def begin(self, name: str) -> None:
        """Start one that does not live."""
        words = {
            "daemon": [sys.executable, "-S", "-E", str(DOUBLE), str(self.lsf.place), "serve"],
            "agent": [*COMMAND, "lsf", "--config", str(self.config)],
            "watchdog": [*COMMAND, "watchdog", "--config", str(self.config), "--every-s", "1"],
        }[name]
        known = self.processes.get(name)
        if known is not None and known.poll() is None:
            return
        path = f"{self.lsf.place}:/usr/local/bin:/usr/bin:/bin"
        environment = {"PATH": path, "OMP_NUM_THREADS": "1", "HOME": str(self.place)}
        with self.log.open("ab") as log:
            self.processes[name] = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """As a crash: nothing is said before."""
        process = self.processes.get(name)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
            self.kills[name] = self.kills.get(name, 0) + 1

    def end(self) -> None:
        """Kill all that live."""
        for name in list(self.processes):
            with contextlib.suppress(OSError):
                self.kill(name)

    def serves(self) -> bool:
        """Whether an agent has lately made a good round."""
        silence_s = self.signs.silence_s()
        return silence_s is not None and silence_s < 3.0

    def stop_agent(self) -> int:
        """As systemd does, once it serves; its exit code."""
        for name in ("daemon", "agent"):
            self.begin(name)
        began = time.time()
        while not self.signs.heartbeat.exists() or self.signs.heartbeat.stat().st_mtime < began:
            assert time.time() < began + 120, self.said()
            time.sleep(0.1)
        process = self.processes["agent"]
        process.send_signal(signal.SIGTERM)
        return process.wait(120)

    # --- jobs

    def submit(self, count: int) -> None:
        """Some jobs, as they come: held with ``start`` control, as long as the agent shows life."""
        silence_s = self.signs.silence_s()
        held = self.control == "start" and silence_s is not None and silence_s < 0.75 * SILENCE_S
        for _ in range(count):
            gpus = self.draw.choice((0, 1, 1, 2, 4, 8))
            gang = gpus == 8 and self.draw.random() < 0.5
            self.lsf.submit(
                gpus=gpus,
                slots=8 if gang else 1,
                more='{"ptile": 4}' if gang else "{}",
                run_s=self.draw.uniform(0.1, 1.0),
                limit_min=self.draw.choice((1.0, 5.0, 30.0)),
                name="$(touch x)",
                state="PSUSP" if held else "PEND",
                description="gpuyard:held" if held else "",
            )

    def left(self) -> int:
        """Jobs that have not ended."""
        return sum(job["state"] not in ("DONE", "EXIT") for job in self.lsf.jobs().values())

    def run(self, jobs: int, kill_every_s: float, most_s: float) -> None:
        """Submit jobs in bursts and kill at random until all have ended.

        Args:
            jobs: How many.
            kill_every_s: Time from a good round after a kill to the next kill, about.
            most_s: How long all may take.

        Raises:
            AssertionError: if some have not after so long.
        """
        end = time.monotonic() + most_s
        submitted = 0
        for name in ("daemon", "agent"):
            self.begin(name)
        while self.signs.silence_s() is None:
            assert time.monotonic() < end, self.said()
            time.sleep(0.1)
        next_kill = None
        while submitted < jobs or self.left():
            assert time.monotonic() < end, f"{self.left()} jobs are left: {self.said()}"
            for name in ("daemon", "agent", "watchdog"):
                self.begin(name)
            if submitted < jobs and self.left() < 60:
                burst = min(jobs - submitted, self.draw.randint(5, 20))
                self.submit(burst)
                submitted += burst
            if next_kill is None and self.serves():
                next_kill = time.monotonic() + kill_every_s * self.draw.uniform(0.5, 1.5)
            if next_kill is not None and time.monotonic() > next_kill:
                self.kill(self.draw.choice(("agent", "daemon")))
                next_kill = None
            time.sleep(0.2)

    def said(self) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-3000:]

    # --- what must hold

    def check(self, jobs: int) -> None:
        """Every job started once and ended once, on hosts that had room for it."""
        events = self.lsf.events()
        for what in ("started", "ended"):
            found = sorted(job for job, name, _ in events if name == what)
            assert found == list(range(1, jobs + 1)), f"not each {what} once"
        self._check_room(events)

    def _check_room(self, events: list[tuple[int, str, str]]) -> None:
        jobs = self.lsf.jobs()
        free = dict.fromkeys(self.lsf.host_names(), 8)
        on: dict[int, list[str]] = {}
        for job, what, hosts in events:
            if what == "started":
                on[job] = hosts.split()
            for host in on[job]:
                free[host] += jobs[job]["gpus"] * (1 if what == "ended" else -1)
                assert free[host] >= 0, f"{host} holds more than it has"
