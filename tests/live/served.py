"""A real Slurm with the submit script, and the agent's commands as processes of their own beside it."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments.fidelity.slurm_box import BoxError, BoxSettings, SlurmBox, start_box
from gpuyard.cluster.hostlists import expanded_nodes

NODES, GPUS_PER_NODE = 16, 8
LINES = (
    "JobSubmitPlugins=lua",
    "PriorityType=priority/multifactor",
    "PriorityWeightJobSize=500",
    "PriorityCalcPeriod=1",
    "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,sched_interval=1,bf_resolution=1",
    "MaxJobCount=20000",
    "MinJobAge=10",
    "JobCompType=jobcomp/filetxt",
)
SUBMITTERS = 3
_MAIN = """
import os, sys
if package := os.environ.get("GPUYARD_PACKAGE"):
    sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in f"{one} {type(one)}".lower()]
    sys.path.insert(0, package)
from gpuyard.cli import main
sys.exit(main())
"""
COMMAND = (sys.executable, "-c", _MAIN, "serve")
"""Of the build that is tested, as tests/conftest.py has it."""
_FIELD = re.compile(r"(\w+)=(\S*)")
_QUEUE = "--Format=JobID:20,StateCompact:10,PriorityLong:20,AdminComment:80"


@dataclass(frozen=True)
class Ask:
    """A job to submit.

    Attributes:
        gpus: In all.
        limit_min: What it asks for, minutes.
        run_s: How long it sleeps.
        nodes: How many nodes it asks for, with equal parts of its GPUs.
    """

    gpus: int
    limit_min: int = 10
    run_s: float = 1.0
    nodes: int = 1

    @property
    def options(self) -> tuple[str, ...]:
        """For sbatch."""
        each = self.gpus // self.nodes
        nodes = (f"--nodes={self.nodes}", "--ntasks-per-node=1")
        return (
            f"--gres=gpu:{each}",
            "--mem=100",
            f"--time={self.limit_min}",
            *nodes,
            "--uid=games",
            "--export=NIL",
        )


@dataclass(frozen=True)
class Queued:
    """A job in the queue, as squeue shows it."""

    id: str
    state: str
    priority: int
    comment: str

    @property
    def held(self) -> bool:
        """Whether it waits for somebody to release it."""
        return self.state == "PD" and self.priority == 0


@dataclass(frozen=True)
class Done:
    """A job that ended, as Slurm's own record of completions has it."""

    id: str
    state: str
    start: str
    limit: str
    nodes: tuple[str, ...]


class Served:
    """A box, state directories for agents, and processes that are ended with it.

    Args:
        box: The running Slurm.
        place: For state directories, settings and logs; others can read it.
    """

    def __init__(self, box: SlurmBox, place: Path) -> None:
        self.box, self.place = box, place
        self.agents: list[subprocess.Popen[bytes]] = []
        self._logs = 0

    # --- the agent's commands

    def settings(self, name: str, watchdog_s: float = 20.0, owner: str = "", **values: Any) -> Path:
        """Settings of an agent with a state directory of its own; the submit script follows the last one."""
        state = self.place / name
        state.mkdir(exist_ok=True)
        if owner:
            shutil.chown(state, owner)
        values = {"state_dir": str(state), "watchdog_s": watchdog_s, "deadline_ms": 2000, **values}
        path = self.place / f"{name}.toml"
        path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
        return path

    def hold_for(self, name: str, max_age_s: float) -> None:
        """Let the submit script hold jobs for the agent of this name."""
        state = self.place / name
        text = f"heartbeat = {state}/heartbeat\nhalt = {state}/halt\nmax_age_s = {max_age_s:g}\n"
        (self.box.directory / "etc" / "gpuyard-hold.conf").write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        """What the agent's commands see."""
        kept = {name: os.environ[name] for name in ("HOME", "GPUYARD_PACKAGE") if name in os.environ}
        return {**kept, **self.box.environment, "OMP_NUM_THREADS": "1"}

    def call(self, *words: str, config: Path, timeout_s: float = 120.0) -> tuple[int, str]:
        """Run one of the agent's commands to its end: exit code and what it printed."""
        done = subprocess.run(
            [*COMMAND, *words, "--config", str(config)],
            env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")

    def spawn(self, *words: str, config: Path, user: str = "") -> subprocess.Popen[bytes]:
        """Start one of the agent's commands beside us; it dies with us."""
        self._logs += 1
        as_user = (f"--reuid={user}", "--clear-groups") if user else ()
        with self.log_path(self._logs).open("wb") as log:
            process = subprocess.Popen(
                ["setpriv", *as_user, "--pdeathsig", "KILL", *COMMAND, *words, "--config", str(config)],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        self.agents.append(process)
        return process

    def log_path(self, number: int) -> Path:
        """What the process that was spawned as this one, from 1, wrote."""
        return self.place / f"agent-{number}.log"

    def last_log(self) -> str:
        """What the process that was spawned last wrote."""
        return self.log_path(self._logs).read_text(errors="replace")

    def start_agent(
        self, config: Path, mode: str, control: str, policy: str, user: str = "", timeout_s: float = 90.0
    ) -> subprocess.Popen[bytes]:
        """An agent that has done its first round."""
        options = ("--mode", mode, "--control", control, "--policy", policy)
        began = time.time()
        agent = self.spawn("slurm", *options, config=config, user=user)
        heartbeat = self.place / config.stem / "heartbeat"

        def ready() -> bool:
            assert agent.poll() is None, self.last_log()
            if mode == "active":
                return heartbeat.exists() and heartbeat.stat().st_mtime >= began
            return '"serving"' in self.last_log()

        wait_until(ready, timeout_s, self.last_log)
        return agent

    def end(self, agent: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
        """End a process of ours by its own pid; its exit code."""
        agent.send_signal(number)
        code = agent.wait(60)
        self.agents.remove(agent)
        return code

    # --- jobs

    def submit(self, asks: Sequence[Ask]) -> list[str]:
        """Submit jobs; their ids, in the order of the asks."""
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            return list(pool.map(lambda ask: str(self.box.submit(*ask.options, run_s=ask.run_s)), asks))

    def queue(self) -> dict[str, Queued]:
        """Jobs that wait, run or are ending, by id."""
        found = {}
        for line in self.box.run("squeue", "--noheader", _QUEUE).splitlines():
            id, state, priority, comment = (
                line[:20].strip(),
                line[20:30].strip(),
                line[30:50].strip(),
                line[50:130],
            )
            found[id] = Queued(id, state, int(priority), comment.strip())
        return found

    def wait_queue(
        self, holds: Callable[[dict[str, Queued]], bool], seconds: float = 120.0
    ) -> dict[str, Queued]:
        """The first queue of which this holds."""
        seen: list[dict[str, Queued]] = [{}]

        def look() -> bool:
            seen[0] = self.queue()
            return holds(seen[0])

        wait_until(look, seconds, lambda: f"{list(seen[0].values())[:5]}\n{self.last_log()[-2000:]}")
        return seen[0]

    def finished(self) -> dict[str, list[Done]]:
        """Every completion that Slurm recorded, by job."""
        path = self.place / "jobcomp.log"
        found: dict[str, list[Done]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            of = dict(_FIELD.findall(line))
            nodes = tuple(expanded_nodes(of["NodeList"]) or ())
            done = Done(of["JobId"], of["JobState"], of["StartTime"], of["TimeLimit"], nodes)
            found.setdefault(done.id, []).append(done)
        return found

    def wait_finished(self, jobs: Sequence[str], seconds: float = 240.0) -> dict[str, Done]:
        """Completions of these jobs, of which each must have run to its end once."""
        self.wait_queue(lambda queue: not set(jobs) & queue.keys(), seconds)
        wait_until(lambda: set(jobs) <= self.finished().keys(), 30)
        found = self.finished()
        assert {job: [one.state for one in found[job]] for job in jobs} == {
            job: ["COMPLETED"] for job in jobs
        }
        return {job: found[job][0] for job in jobs}

    def clear(self) -> None:
        """End processes and jobs that a test left."""
        for agent in list(self.agents):
            self.end(agent, signal.SIGKILL)
        if jobs := list(self.queue()):
            self.box.run("scancel", *jobs)
        self.wait_queue(lambda queue: not queue)


def wait_until(holds: Callable[[], bool], seconds: float, words: Callable[[], str] = str) -> None:
    """Wait for something, and fail with these words if it takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not so within {seconds:g} s: {words()}"
        time.sleep(0.2)


StartBox = Callable[[BoxSettings], contextlib.AbstractContextManager[SlurmBox]]


@contextlib.contextmanager
def served(
    keep: Path | None = None,
    start: StartBox | None = None,
    *,
    nodes: int = NODES,
    accounts: tuple[tuple[str, ...], ...] = (),
) -> Iterator[Served]:
    """Nodes of 8 GPUs on loopback, with the submit script; nothing is left of it afterwards.

    Args:
        keep: Where to copy logs, settings and journals; None: nowhere.
        start: Starts the Slurm; None: that of this machine.
        nodes: How many.
        accounts: Arguments of calls of sacctmgr; with any of them Slurm keeps accounts.
    """
    place = Path(tempfile.mkdtemp(prefix="served-", dir="/tmp"))  # sockets need short paths
    place.chmod(0o755)
    script = files("gpuyard.serve.slurm").joinpath("files", "job_submit.lua").read_text()
    settings = BoxSettings(
        nodes=nodes,
        accounting=bool(accounts),
        accounts=accounts,
        gpus_per_node=GPUS_PER_NODE,
        lines=(*LINES, f"JobCompLoc={place}/jobcomp.log"),
        files=(("job_submit.lua", script),),
    )
    logs = None if keep is None else keep / "slurm"
    try:
        with start(settings) if start else start_box(settings, keep_logs=logs) as box:
            running = Served(box, place)
            try:
                yield running
            finally:
                with contextlib.suppress(BoxError, AssertionError):
                    running.clear()
    finally:
        if keep is not None:
            shutil.copytree(place, keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.socket"))
        shutil.rmtree(place, ignore_errors=True)
