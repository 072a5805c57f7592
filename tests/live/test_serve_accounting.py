"""An agent that begins, or begins again, learns from a real sacct what it did not see."""

import json
import signal
import time
from collections.abc import Iterator

import pytest

from experiments.fidelity.slurm_box import SlurmBox, why_not
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.journal import Journal
from live.served import Ask, Served, served, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not(accounting=True) is not None, reason=why_not(accounting=True) or ""),
    pytest.mark.xdist_group("live-agent"),
]
GPUS = 3
ACCOUNTS = (("add", "account", "physics"), ("add", "user", "games", "Account=physics"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Served]:
    with served(nodes=2, accounts=ACCOUNTS) as running:
        yield running


def ended(box: SlurmBox, jobs: list[str]) -> dict[str, float]:
    """Run times that sacct has of these jobs, once it has all of them."""
    found: dict[str, float] = {}

    def listed() -> bool:
        form = ("-X", "-P", "-n", "-j", ",".join(jobs), "--format=JobID,State,ElapsedRaw")
        rows = [line.split("|") for line in box.run("sacct", *form).splitlines()]
        found.update({job: float(run) for job, state, run in rows if state == "COMPLETED"})
        return len(found) == len(jobs)

    wait_until(listed, 60)
    return found


def remembered(cluster: Served, name: str, round: int | None = None) -> Memory:
    """What the agent remembered in its last round, or in one."""
    with Journal.open(cluster.place / name / "journal.sqlite", readonly=True) as journal:
        text = journal.last_memory() if round is None else journal.memory(round)
    assert text is not None
    return Memory.from_json(text)


def rounds(cluster: Served, name: str) -> list[int]:
    """Numbers of the rounds that the agent recorded."""
    with Journal.open(cluster.place / name / "journal.sqlite", readonly=True) as journal:
        return journal.numbers()


def finished(memory: Memory) -> tuple[int, int]:
    """Finished jobs and their summed run times, microseconds."""
    total_us, count = memory.run_sums.get(json.dumps(["all"]), [0, 0])
    return count, total_us


def test_an_agent_learns_run_times_and_usage_from_sacct_when_it_begins_and_when_it_was_away(
    cluster: Served,
) -> None:
    before = ended(cluster.box, cluster.submit([Ask(GPUS, run_s=run_s) for run_s in (1.0, 2.0, 3.0)]))
    config = cluster.settings("accounting", owner="nobody", estimates="history")
    options = (config, "shadow", "order", "sjf+easy", "nobody")
    agent = cluster.start_agent(*options)
    wait_until(lambda: bool(rounds(cluster, "accounting")), 60, cluster.last_log)
    first = remembered(cluster, "accounting", 1)
    assert finished(first) == (3, round(1e6 * sum(before.values())))
    # One job is seen to run and ends while nobody looks; another comes and goes meanwhile.
    (seen,) = cluster.submit([Ask(GPUS, run_s=12.0)])
    wait_until(lambda: bool(remembered(cluster, "accounting").users.get("games")), 60, cluster.last_log)
    cluster.end(agent, signal.SIGKILL)
    assert remembered(cluster, "accounting").users["games"].gpus == GPUS
    (unseen,) = cluster.submit([Ask(GPUS, run_s=1.0)])
    away = ended(cluster.box, [seen, unseen])
    time.sleep(5.0)
    cluster.start_agent(*options)
    wait_until(lambda: remembered(cluster, "accounting").users["games"].gpus == 0, 60, cluster.last_log)
    memory = remembered(cluster, "accounting")
    assert finished(memory) == (5, round(1e6 * (sum(before.values()) + sum(away.values()))))
    # The clock of usage stopped when the job ended, not when the agent came back.
    assert memory.users["games"].gpu_s == pytest.approx(GPUS * away[seen], abs=GPUS * 1.5)
    assert memory.groups["physics"].gpu_s == memory.users["games"].gpu_s
    (new,) = cluster.submit([Ask(GPUS, run_s=1.0)])
    wait_until(lambda: new in remembered(cluster, "accounting").predictions_s, 30, cluster.last_log)
    mean_s = (sum(before.values()) + sum(away.values())) / 5
    assert remembered(cluster, "accounting").predictions_s[new] == pytest.approx(mean_s)
    code, said = cluster.call("replay", "--json", config=config)
    assert code == 0, said
