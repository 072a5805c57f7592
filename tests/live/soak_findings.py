"""What a soak came to: from Slurm's record of completions, from the jobs' own words, and from the journal."""

import json
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.serve.journal import Journal, JournalError
from live.served import Served


@dataclass
class Findings:
    """Figures; all but the last group must be 0.

    Attributes:
        lost: Jobs that did not complete.
        completed_twice: Jobs that Slurm recorded more than once.
        ran_twice: Jobs that said more than once that they began.
        submitted_twice: Jobs that Slurm has under two numbers: the submitter's fault, not the agent's.
        left_in_queue: Jobs that are still there.
        stuck: Jobs that were held for longer than T and a tick without an agent.
        journal_problems: What is wrong with the journal.
    """

    lost: int = 0
    completed_twice: int = 0
    ran_twice: int = 0
    submitted_twice: int = 0
    left_in_queue: int = 0
    stuck: int = 0
    journal_problems: list[str] = field(default_factory=list)

    jobs: int = 0
    seconds: float = 0.0
    longest_held_without_agent_s: float = 0.0
    states: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    jobs_started_by_agent: int = 0
    jobs_on_decided_nodes: int = 0
    jobs_returned_by_watchdog: int = 0
    events_logged: dict[str, int] = field(default_factory=dict)
    replay: dict[str, Any] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether all is as it must be."""
        bad = (self.lost, self.completed_twice, self.ran_twice, self.left_in_queue, self.stuck)
        return not any(bad) and not self.journal_problems and not self.replay.get("code", 0)


def findings(cluster: Served, name: str, jobs: int, runs: Path, seconds: float) -> Findings:
    """Look at everything that is left after a soak.

    Args:
        cluster: Still running, without an agent.
        name: Of the state directory.
        jobs: How many were to be run.
        runs: What the jobs wrote: a name and a number per line.
        seconds: How long it took.
    """
    found = Findings(jobs=jobs, seconds=round(seconds, 1))
    began = Counter(line.split()[0] for line in runs.read_text().splitlines())
    names = _names(cluster)
    finished = cluster.finished()
    completed = {names[id] for id, all_of_it in finished.items() if all_of_it[-1].state == "COMPLETED"}
    found.lost = sum(f"soak-{number}" not in completed for number in range(jobs))
    found.completed_twice = sum(len(all_of_it) > 1 for all_of_it in finished.values())
    found.ran_twice = sum(count > 1 for count in began.values())
    found.submitted_twice = sum(count > 1 for count in Counter(names.values()).values())
    found.left_in_queue = len(cluster.queue())
    found.states = dict(Counter(one.state for all_of_it in finished.values() for one in all_of_it))
    _read_journal(found, cluster, name, finished)
    _read_logs(found, cluster)
    code, said = cluster.call("replay", "--json", config=cluster.place / f"{name}.toml", timeout_s=900)
    found.replay = {"code": code, **_scalars(said)}
    return found


def _names(cluster: Served) -> dict[str, str]:
    lines = (cluster.place / "jobcomp.log").read_text().splitlines()
    fields = [dict(part.split("=", 1) for part in line.split() if "=" in part) for line in lines]
    return {of["JobId"]: of["Name"] for of in fields}


def _scalars(said: str) -> dict[str, Any]:
    try:
        found = json.loads(said)
    except ValueError:
        return {"said": said[-500:]}
    return {key: value for key, value in found.items() if isinstance(value, bool | int | float | str)}


def _read_journal(found: Findings, cluster: Served, name: str, finished: dict[str, Any]) -> None:
    path = cluster.place / name / "journal.sqlite"
    decided: dict[str, set[str]] = {}
    try:
        with Journal.open(path, readonly=True) as journal:
            for number in journal.numbers():
                record = journal.record(number)
                journal.state(number).check()
                found.rounds += 1
                passed = {one.job for one in record.verdicts if one.action == "start" and not one.rule}
                decided |= {
                    one.job: {node for node, _ in one.nodes} for one in record.starts if one.job in passed
                }
        with sqlite3.connect(path) as connection:
            (word,) = connection.execute("PRAGMA integrity_check").fetchone()
        connection.close()
    except JournalError as error:
        found.journal_problems.append(str(error))
        return
    if word != "ok":
        found.journal_problems.append(str(word))
    found.jobs_started_by_agent = len(decided.keys() & finished.keys())
    found.jobs_on_decided_nodes = sum(
        set(finished[job][-1].nodes) == nodes for job, nodes in decided.items() if job in finished
    )


def _read_logs(found: Findings, cluster: Served) -> None:
    """What the agent and the watchdog logged above the level of information, counted."""
    events: Counter[str] = Counter()
    for path in sorted(cluster.place.glob("agent-*.log")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                events["lines that are no JSON"] += 1
                continue
            if said.get("level") in ("warning", "error"):
                words = str(said.get("error", said.get("why", "")))
                events[f"{said.get('event')}: {words.split(':')[0][:60]}"] += 1
            if path.name == "agent-1.log" and said.get("event") == "gave jobs back":
                found.jobs_returned_by_watchdog += int(said.get("jobs", 0))
    found.events_logged = dict(events.most_common(25))
