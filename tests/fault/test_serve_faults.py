"""The agent as a process beside commands of Slurm that hang or fail, and a journal that it cannot write."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fault.fake_slurm import FakeSlurm
from live.served import COMMAND, wait_until

SILENCE_S = 3.0
Process = subprocess.Popen[bytes]


class Site:
    """A fake Slurm, settings, and processes of ours."""

    def __init__(self, place: Path) -> None:
        self.place, self.state = place, place / "state"
        self.state.mkdir()
        self.config, self.log = place / "serve.toml", place / "agent.log"
        self.config.write_text(
            f'state_dir = "{self.state}"\nmode = "active"\ncontrol = "start"\ninterval_s = 0.3\n'
            f"watchdog_s = {SILENCE_S}\ncommand_timeout_s = 1.0\ndeadline_ms = 5000\n"
        )
        self.processes: list[Process] = []

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.place / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}

    def spawn(self, *before: str) -> Process:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*before, *COMMAND, "slurm", "--config", str(self.config)],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def call(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*COMMAND, *words, "--config", str(self.config)],
            env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def logged(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.said().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def wait(self, holds: Callable[[], object], seconds: float = 90.0) -> None:
        wait_until(lambda: bool(holds()), seconds, self.said)

    def beats(self) -> bool:
        """Whether the agent showed life within the last second."""
        heartbeat = self.state / "heartbeat"
        return heartbeat.exists() and time.time() - heartbeat.stat().st_mtime < 1.0


@pytest.fixture
def site() -> Iterator[Site]:
    place = Path(tempfile.mkdtemp(prefix="fault-"))  # a socket's path must be short
    place.chmod(0o755)
    made = Site(place)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.wait()
    shutil.rmtree(place)


@pytest.mark.parametrize(("fault", "code"), [("hang", "timeout"), ("down", "exit")])
def test_commands_that_fail_for_longer_than_the_silence_allowed_end_nothing(
    site: Site, fault: str, code: str
) -> None:
    slurm = FakeSlurm(site.place / "bin")
    agent = site.spawn()
    site.wait(site.beats)
    assert slurm.held() == {1, 2, 3}
    slurm.fault(fault)
    site.wait(lambda: site.logged("giving all jobs back"))
    assert not (site.state / "heartbeat").exists()  # from now on no job is held at its submission
    assert {line["code"] for line in site.logged("observe failed")} == {code}
    watchdog_code, said = site.call("watchdog", "--once", "--json")
    assert watchdog_code == 1
    assert json.loads(said)["error"]
    slurm.fault("")
    site.wait(site.beats)
    assert agent.poll() is None
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(60) == 0
    assert slurm.held() == set()


def test_an_agent_whose_commands_hang_still_ends_when_it_is_told_to(site: Site) -> None:
    slurm = FakeSlurm(site.place / "bin")
    agent = site.spawn()
    site.wait(site.beats)
    slurm.fault("hang")
    site.wait(lambda: site.logged("observe failed"))
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(60) == 0
    slurm.fault("")
    code, said = site.call("watchdog", "--once", "--json")
    assert (code, sorted(json.loads(said)["jobs"])) == (0, ["1", "2", "3"])
    assert slurm.held() == set()


def test_a_job_that_vanished_keeps_no_other_from_starting_and_is_no_failure(site: Site) -> None:
    slurm = FakeSlurm(site.place / "bin", jobs=4, full=False)
    slurm.fault("vanished")
    site.spawn()
    site.wait(lambda: slurm.held() == {1})
    site.wait(site.beats)
    assert not site.logged("refused")
    assert not site.logged("apply failed")
    started = {number: job["required_nodes"] for number, job in slurm.jobs().items() if job["priority"]}
    assert all(nodes.startswith("gn") for nodes in started.values())


def test_an_agent_that_may_not_write_its_journal_starts_nothing_and_returns_its_jobs(site: Site) -> None:
    slurm = FakeSlurm(site.place / "bin", full=False)
    slurm.fault("down")
    code, said = site.call("slurm", "--rounds", "1")
    assert code == 0, said
    slurm.fault("")
    journal = site.state / "journal.sqlite"
    journal.chmod(0o444)
    as_somebody: tuple[str, ...] = ()
    if os.geteuid() == 0:  # root may write everywhere
        as_somebody = ("setpriv", "--reuid=nobody", "--clear-groups")
        for path in (site.state, site.state / "lock"):
            shutil.chown(path, "nobody")
    agent = site.spawn(*as_somebody)
    site.wait(lambda: site.logged("gave jobs back"))
    assert "write permission" in site.said()
    assert slurm.held() == set()
    assert {job["required_nodes"] for job in slurm.jobs().values()} == {""}
    assert not (site.state / "heartbeat").exists()
    assert agent.poll() is None
