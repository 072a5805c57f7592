#!/usr/bin/env -S python3 -S -E
"""Slurm's commands as one script in a directory for PATH, with answers from a file and faults on demand.

The script answers as Slurm 22.05 does: jobs and nodes are records that a real one printed. Nothing ever runs:
a released job waits.
"""

import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

COMMANDS = ("squeue", "sinfo", "scontrol", "sacct")
RECORDED = Path(__file__).parents[1] / "live" / "recorded" / "22.05"
SHOWN = {
    "config": "SelectTypeParameters = CR_CORE_MEMORY\nSLURM_VERSION = 22.05.8\n",
    "partition": "PartitionName=gpu Default=YES MaxTime=UNLIMITED Nodes=gn[1-4] State=UP\n",
    "reservation": "No reservations in the system\n",
}


class FakeSlurm:
    """A directory with the commands.

    Args:
        place: The directory.
        jobs: How many are held for the agent.
        full: Whether all GPUs are in use.
    """

    def __init__(self, place: Path, jobs: int = 3, full: bool = True) -> None:
        self.place = place
        place.mkdir()
        for name in COMMANDS:
            (place / name).symlink_to(Path(__file__))
        nodes = json.loads((RECORDED / "sinfo.json").read_text())
        for node in nodes["nodes"]:
            used = "gpu:a100:4(IDX:0-3)" if full else "gpu:a100:0(IDX:N/A)"
            node |= {"gres_used": used, "alloc_cpus": 0, "alloc_memory": 0, "state_flags": []}
            node["state"] = "mixed" if full else "idle"
        (place / "nodes.json").write_text(json.dumps(nodes))
        listed = json.loads((RECORDED / "squeue.json").read_text())
        listed["jobs"] = [_held(listed["jobs"][0], number) for number in range(1, jobs + 1)]
        (place / "jobs.json").write_text(json.dumps(listed))
        (place / "jobs.json").chmod(0o666)  # whoever the agent runs as
        self.fault("")
        self.clock(0.0)

    def fault(self, name: str) -> None:
        """``hang``, ``down``, ``garbage``, ``partial``, ``vanished`` (job 1 is only in lists) or empty."""
        (self.place / "fault").write_text(name)

    def clock(self, ahead_s: float) -> None:
        """Set slurmctld's clock ahead of this host's, or behind."""
        (self.place / "clock").write_text(f"{ahead_s}")

    def submit(self, gpus: int = 1, name: str = "job", held: str = "agent") -> int:
        """A job more, held for the ``agent``, by its ``user`` or by nobody; its number."""
        listed, file = _locked(self.place)
        number = 1 + max((job["job_id"] for job in listed["jobs"]), default=0)
        like = json.loads((RECORDED / "squeue.json").read_text())["jobs"][0]
        job = _held(like, number) | {"name": name, "tres_per_node": f"gres:gpu:{gpus}"}
        if held != "agent":
            job["admin_comment"] = ""
        if not held:
            job |= {"priority": 100, "state_reason": "Resources"}
        _store({**listed, "jobs": [*listed["jobs"], job]}, file)
        return number

    def cancel(self, number: int) -> None:
        """A job less."""
        listed, file = _locked(self.place)
        _store({**listed, "jobs": [job for job in listed["jobs"] if job["job_id"] != number]}, file)

    def jobs(self) -> dict[int, dict[str, Any]]:
        """Jobs by number."""
        listed, file = _locked(self.place)
        file.close()
        return {job["job_id"]: job for job in listed["jobs"]}

    def held(self) -> set[int]:
        """Jobs that nobody has released."""
        return {number for number, job in self.jobs().items() if job["priority"] == 0}


def _held(like: dict[str, Any], number: int) -> dict[str, Any]:
    now_s = int(time.time())
    return like | {
        "job_id": number, "job_state": "PENDING", "state_reason": "JobHeldUser", "priority": 0, "nodes": "",
        "admin_comment": "gpuyard:held", "gres_detail": [], "job_resources": {}, "batch_host": "",
        "submit_time": now_s, "eligible_time": now_s, "start_time": 0, "end_time": 0, "required_nodes": "",
    }  # fmt: skip


def _locked(place: Path) -> tuple[dict[str, Any], Any]:
    file = (place / "jobs.json").open("r+")
    fcntl.flock(file, fcntl.LOCK_EX)
    return json.load(file), file


def _write(place: Path, words: list[str], vanished: bool) -> int:
    """``scontrol update`` and ``scontrol release``."""
    listed, file = _locked(place)
    numbers = words[1].removeprefix("JobId=").split(",")
    if vanished and "1" in numbers:
        print("slurm_update error: Invalid job id specified", file=sys.stderr)
        return 1
    changes = dict(word.split("=", 1) for word in words[2:])
    known = {str(job["job_id"]) for job in listed["jobs"]}
    wrong = _refusal(numbers, changes, known)
    if wrong:
        print(f"slurm_update error: {wrong}", file=sys.stderr)
        return 1
    for job in listed["jobs"]:
        if str(job["job_id"]) not in numbers:
            continue
        if words[0] == "release":
            job |= {"priority": 100, "state_reason": "Resources"}
        job["admin_comment"] = changes.get("AdminComment", job["admin_comment"])
        job["required_nodes"] = changes.get("ReqNodeList", job["required_nodes"])
        job["priority"] = int(changes.get("Priority", job["priority"]))
    _store(listed, file)
    return 0


def _refusal(numbers: list[str], changes: dict[str, str], known: set[str]) -> str:
    if not known.issuperset(numbers):
        return "Invalid job id specified"
    asked = changes.get("ReqNodeList", "")
    return "Invalid node name specified" if asked and not asked.startswith("gn") else ""


def _store(listed: dict[str, Any], file: Any) -> None:
    file.seek(0)
    file.truncate()
    json.dump(listed, file)
    file.close()


def answer(place: Path, name: str, words: list[str]) -> int:
    """What the command of this name does."""
    fault = (place / "fault").read_text()
    if fault == "hang":
        time.sleep(600)
    if fault == "down" or name == "sacct":
        said = (
            "Slurm accounting storage is disabled"
            if name == "sacct"
            else "Unable to contact slurm controller"
        )
        print(said, file=sys.stderr)
        return 1
    if fault == "garbage":
        print("<html>502 Bad Gateway</html>")
        return 0
    if name == "scontrol" and "show" not in words:
        return _write(place, words, fault == "vanished")
    if name == "scontrol":
        ahead_s = float((place / "clock").read_text())
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + ahead_s))
        said = (f"Configuration data as of {moment}\n" if ahead_s else "") + SHOWN[words[-1]]
    else:
        said = (place / ("jobs.json" if name == "squeue" else "nodes.json")).read_text() + "\n"
    print(said if fault != "partial" else said[: len(said) // 2], end="")
    return 0


if __name__ == "__main__":
    called = Path(sys.argv[0])
    sys.exit(answer(Path(os.path.abspath(called.parent)), called.name, sys.argv[1:]))  # noqa: PTH100
