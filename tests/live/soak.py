"""Thousands of jobs in start control on a real Slurm, while everything around the agent fails.

The agent is killed with -9 and started again, slurmctld restarted, nodes drained, and the disk of the state
directory filled. Afterwards every job must have run exactly once. ``make live-soak`` runs it.
"""

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from experiments.fidelity.slurm_box import BoxError
from live.served import Served, served, wait_until
from live.soak_findings import Findings, findings

NAME = "soak"
DISK_MB = 400
LOOK_EVERY_S = 2.0
TICK_S = LOOK_EVERY_S + 8.0
"""How much later than T the watchdog may be done: one look, and its commands on a busy machine."""
MOST_WAITING = 400
AHEAD = 600
"""Jobs that may be submitted beyond the moment of the next failure: each meets a queue."""
LONG_SILENCE_EVERY = 10
"""Every so many kills the agent stays dead for longer than T."""


@dataclass(frozen=True)
class Plan:
    """What is done.

    Attributes:
        jobs: How many.
        kills: Of the agent, with -9.
        restarts: Of slurmctld.
        drains: Of nodes.
        fills: Of the journal's disk.
        silence_s: T: how long the agent may be silent.
        seed: Of everything that is drawn.
    """

    jobs: int = 10_000
    kills: int = 50
    restarts: int = 5
    drains: int = 10
    fills: int = 1
    silence_s: float = 15.0
    seed: int = 1

    def events(self) -> list[tuple[int, str]]:
        """How many jobs have ended when something fails, and what; in order."""
        draw = random.Random(self.seed)
        kinds = {"kill": self.kills, "restart": self.restarts, "drain": self.drains, "fill": self.fills}
        moments = [
            (int(self.jobs * draw.uniform(0.02, 0.95)), kind) for kind, n in kinds.items() for _ in range(n)
        ]
        return sorted(moments)


@dataclass
class Watch:
    """What was seen meanwhile.

    Attributes:
        beat_s: The last heartbeat that was seen, or when the controller came back after that.
        longest_s: How long jobs were held after that, at most.
        overdue: Jobs that were held for longer than T and a tick after that.
        waiting: Jobs that wait now.
        held: Of these, held ones.
        away: Whether the controller is being restarted.
        event: What fails just now.
        overdue_in: When jobs were overdue: how many, by what failed.
    """

    beat_s: float = field(default_factory=time.time)
    longest_s: float = 0.0
    overdue: set[str] = field(default_factory=set)
    waiting: int = 0
    held: int = 0
    away: bool = False
    event: str = ""
    overdue_in: Counter[str] = field(default_factory=Counter)


class Soak:
    """One run.

    Args:
        cluster: A running Slurm.
        plan: What is done.
    """

    def __init__(self, cluster: Served, plan: Plan) -> None:
        self.cluster, self.plan, self.watch = cluster, plan, Watch()
        self.state = cluster.place / NAME
        self.runs, self.errors = cluster.place / "runs.log", cluster.place / "errors.log"
        self.done = Counter[str]()
        self.draw = random.Random(plan.seed + 1)
        self.over = threading.Event()
        self.began = time.monotonic()
        self._next = iter(range(plan.jobs))
        self._may_submit = 0
        self._lock = threading.Lock()
        self._problems: list[BaseException] = []

    def run(self) -> Findings:
        """All of it."""
        self._prepare()
        self.watchdog = self.cluster.spawn("watchdog", "--every-s", str(LOOK_EVERY_S), config=self.config)
        self._start()
        work = [self._sample, self._submit, self._submit, self._submit]
        threads = [threading.Thread(target=self._guarded, args=(one,), daemon=True) for one in work]
        for thread in threads:
            thread.start()
        for due, kind in self.plan.events():
            self._may_submit = due + AHEAD
            self._until(due)
            self.watch.event = kind
            getattr(self, f"_{kind}")()
            self.watch.event = ""
            self.done[kind] += 1
        self._may_submit = self.plan.jobs
        self._until(self.plan.jobs)
        self.over.set()
        for thread in threads:
            thread.join(60)
        took_s = time.monotonic() - self.began
        self.done["agent_exit"] = self.cluster.end(self.agent)
        self.done["watchdog_alive"] = int(self.watchdog.poll() is None)
        self.cluster.end(self.watchdog)
        return findings(self.cluster, NAME, self.plan.jobs, self.runs, took_s)

    def _prepare(self) -> None:
        for path in (self.runs, self.errors):
            path.touch()
            path.chmod(0o666)
        self.config = self.cluster.settings(
            NAME, watchdog_s=self.plan.silence_s, start_timeout_s=15.0, keep_mb=DISK_MB / 4
        )
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "none", str(self.state)]
        subprocess.run(mount, check=True)
        self.cluster.hold_for(NAME, self.plan.silence_s)

    def _guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as problem:
            self._problems.append(problem)
            self.over.set()

    # --- jobs

    def _submit(self) -> None:
        while not self.over.is_set():
            with self._lock:
                number = next(self._next, None)
            if number is None:
                return
            while not self._wanted(number) and not self.over.is_set():
                time.sleep(0.2)
            self._submit_one(number)

    def _wanted(self, number: int) -> bool:
        return self.watch.waiting <= MOST_WAITING and number < self._may_submit

    def _submit_one(self, number: int) -> None:
        draw = random.Random(self.plan.seed * 1_000_003 + number)
        shapes = ((1, 1),) * 20 + ((2, 1),) * 3 + ((4, 1), (8, 1), (2, 2), (16, 2))
        gpus, nodes = draw.choice(shapes)
        options = (
            *("--parsable", "--output=/dev/null", "--chdir=/", "--export=NONE", "--uid=games", "--mem=100"),
            *(f"--gres=gpu:{gpus // nodes}", f"--nodes={nodes}", "--ntasks-per-node=1"),
            *(f"--time={draw.randint(1, 60)}", f"--job-name=soak-{number}"),
            *(f"--error={self.errors}", "--open-mode=append"),
            f"--wrap=echo soak-{number} $SLURM_JOB_ID >> {self.runs}; exec sleep 0.1",
        )
        while not self.over.is_set():
            try:
                self.cluster.box.run("sbatch", *options)
                return
            except BoxError:  # the controller is away; it may have taken the job all the same
                time.sleep(2)
                if self._is_there(f"soak-{number}"):
                    self.done["submitted_without_answer"] += 1
                    return

    def _is_there(self, name: str) -> bool:
        while not self.over.is_set():
            try:
                listed = self.cluster.box.run("squeue", "--noheader", f"--name={name}", "--format=%A").split()
                return bool(listed) or f"Name={name} " in self._completions()
            except BoxError:
                time.sleep(1)
        return True

    def _completions(self) -> str:
        path = self.cluster.place / "jobcomp.log"
        return path.read_text() if path.exists() else ""

    def _ended(self) -> int:
        return self._completions().count("\n")

    # --- watching

    def _sample(self) -> None:
        told = 0.0
        while not self.over.is_set():
            self._look()
            if time.monotonic() - told > 10:
                told = time.monotonic()
                self._tell()
            time.sleep(0.5)

    def _look(self) -> None:
        seen = self.watch
        try:
            queue = self.cluster.queue()
        except BoxError:
            seen.beat_s = max(seen.beat_s, time.time() - self.plan.silence_s)
            return
        held = {one.id for one in queue.values() if one.held}
        seen.waiting, seen.held = sum(one.state == "PD" for one in queue.values()), len(held)
        now_s = time.time()
        with contextlib.suppress(OSError, ValueError):
            seen.beat_s = max(seen.beat_s, float((self.state / "heartbeat").read_text()))
        if not held or seen.away:
            return
        silence_s = now_s - seen.beat_s
        seen.longest_s = max(seen.longest_s, silence_s)
        if silence_s > self.plan.silence_s + TICK_S:
            seen.overdue_in[seen.event] += len(held - seen.overdue)
            seen.overdue |= held

    def _tell(self) -> None:
        did = ", ".join(f"{self.done[kind]} {kind}s" for kind in ("kill", "restart", "drain", "fill"))
        passed = time.monotonic() - self.began
        seen = self.watch
        line = f"{passed:6.0f} s: {self._ended():6,} of {self.plan.jobs:,} jobs ended"
        print(f"{line}, {seen.waiting} wait ({seen.held} held); {did}", flush=True)

    def _until(self, jobs: int) -> None:
        """Wait until so many have ended; an agent that ended by itself is started again, as systemd would."""
        last, since = -1, time.monotonic()
        while (ended := self._ended()) < jobs:
            if self._problems:
                raise self._problems[0]
            if ended != last:
                last, since = ended, time.monotonic()
            assert time.monotonic() - since < 300, (
                f"no job ended for 300 s: {self.cluster.last_log()[-3000:]}"
            )
            if self.agent.poll() is not None:
                self.done["agent_ended_by_itself"] += 1
                self.cluster.agents.remove(self.agent)
                self._start()
            time.sleep(0.3)

    # --- what fails

    def _start(self) -> None:
        self.agent = self.cluster.start_agent(self.config, "active", "start", "sjf+easy", timeout_s=120)

    def _kill(self) -> None:
        time.sleep(self.draw.uniform(0.0, 2.0))
        self.cluster.end(self.agent, signal.SIGKILL)
        if self.done["kill"] % LONG_SILENCE_EVERY == LONG_SILENCE_EVERY // 2:
            time.sleep(self.plan.silence_s + TICK_S + 2.0)
            self.done["long_silence"] += 1
        self._start()

    def _restart(self) -> None:
        self.watch.away = True
        self.cluster.box.stop_controller()
        time.sleep(self.draw.uniform(1.0, 4.0))
        self.cluster.box.start_controller()
        wait_until(self._answers, 60)
        self.watch.beat_s = max(self.watch.beat_s, time.time() - self.plan.silence_s)
        self.watch.away = False

    def _answers(self) -> bool:
        try:
            self.cluster.box.run("squeue", "--noheader", "--format=%A", timeout_s=5)
        except BoxError:
            return False
        return True

    def _drain(self) -> None:
        node = self.draw.choice(self.cluster.box.node_names)
        self.cluster.box.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=soak")
        time.sleep(self.draw.uniform(2.0, 6.0))
        self.cluster.box.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def _fill(self) -> None:
        """Fill the disk for longer than T; the agent lives, is killed, and is back when there is room."""
        ballast = self.state / "ballast"
        with ballast.open("wb") as file:
            try:
                while True:
                    file.write(bytes(2**20))
                    file.flush()
            except OSError:
                self.done["disk_full"] += 1
        time.sleep(self.plan.silence_s + TICK_S)
        self.done["survived_full_disk"] += int(self.agent.poll() is None)
        self.cluster.end(self.agent, signal.SIGKILL)
        time.sleep(2.0)
        ballast.unlink()
        self._start()


def main() -> int:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in Plan().__dict__.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--out", type=Path, default=Path("build/live-soak.json"))
    parser.add_argument("--keep", type=Path, default=None, help="where to copy logs and the journal")
    asked = vars(parser.parse_args())
    out, keep = asked.pop("out"), asked.pop("keep")
    plan = Plan(**asked)
    with served(keep) as cluster:
        soak = Soak(cluster, plan)
        found = soak.run()
        found.stuck, found.stuck_in = len(soak.watch.overdue), dict(soak.watch.overdue_in)
        found.longest_held_without_agent_s = round(soak.watch.longest_s, 1)
        subprocess.run(["umount", "-l", str(soak.state)], check=False)
    figures = {"plan": plan.__dict__, "did": dict(soak.done), "found": found.__dict__, "good": found.good}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 0 if found.good else 1


if __name__ == "__main__":
    sys.exit(main())
