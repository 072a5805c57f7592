"""The same jobs as the many shapes of sacct's output."""

import csv
import io
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

FIELDS = (
    "JobID", "User", "Account", "Partition", "QOS", "JobName", "State", "Submit", "Start", "End", "Elapsed",
    "Timelimit", "NNodes", "NCPUS", "ReqMem", "ReqTRES", "AllocTRES", "NodeList",
)  # fmt: skip
EPOCH_S = 1709280000  # 2024-03-01T08:00:00 UTC

# JobID, user, partition, state, submit, start and end (seconds after EPOCH_S, None = not yet), minutes of
# the limit (None = UNLIMITED), nodes, CPUs, MiB, GPUs by type ("" = untyped), hosts.
JOBS: tuple[tuple[Any, ...], ...] = (
    ("101", "ann", "gpu", "COMPLETED", 0, 10, 3610, 120, 1, 8, 4096, {"": 2, "a100": 2}, "gn1"),
    ("102_7", "bob", "gpu", "TIMEOUT", 300, 360, 176760, 2940, 2, 16, 8192, {"": 8, "a100": 8}, "gn[1,3]"),
    ("103", "ann", "cpu", "CANCELLED by 1001", 420, 480, 510, None, 2, 4, 1024, {}, "cn[1-2]"),
    ("104+0", "cat", "gpu", "COMPLETED", 600, 605, 905, 60, 1, 4, 2048, {"": 1}, "gn2"),
    ("104+1", "cat", "cpu", "COMPLETED", 600, 605, 905, 60, 1, 4, 2048, {}, "cn1"),
    ("105", "cat", "gpu", "PREEMPTED", 660, 720, 1320, 60, 1, 4, 2048, {"": 1}, "gn2"),
    ("105", "cat", "gpu", "COMPLETED", 1320, 1800, 4800, 60, 1, 4, 2048, {"": 1}, "gn4"),
    ("106", "bob", "gpu", "RUNNING", 700, 800, None, 600, 1, 4, 2048, {"": 1}, "gn2"),
    ("107_[1-5%2]", "bob", "gpu", "PENDING", 800, None, None, 60, 1, 4, 2048, {}, "None assigned"),
)


def clock(seconds: int) -> str:
    """A length of time as sacct writes it."""
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def moment(seconds: int | None, form: str = "iso", zone: str = "UTC") -> str:
    """A time as sacct writes it: ``iso``, ``epoch``, or with the ``offset`` or ``name`` of the zone."""
    if seconds is None:
        return "Unknown"
    at = datetime.fromtimestamp(EPOCH_S + seconds, UTC).astimezone(ZoneInfo(zone))
    forms = {"iso": "%Y-%m-%dT%H:%M:%S", "offset": "%Y-%m-%dT%H:%M:%S%z", "name": "%Y-%m-%dT%H:%M:%S %Z"}
    return str(EPOCH_S + seconds) if form == "epoch" else at.strftime(forms[form])


def tres(cpus: int, mib: int, nodes: int, gpus: dict[str, int]) -> str:
    named = {f"gres/gpu:{kind}" if kind else "gres/gpu": count for kind, count in gpus.items()}
    parts = {"billing": cpus, "cpu": cpus, **named, "mem": f"{mib}M", "node": nodes}
    return ",".join(f"{name}={value}" for name, value in parts.items())


def rows(form: str = "iso", zone: str = "UTC", *, steps: bool = False) -> list[dict[str, str]]:
    """The jobs as fields of sacct."""
    listed = []
    for job, user, partition, state, submit, start, end, limit, nodes, cpus, mib, gpus, hosts in JOBS:
        times = dict(zip(("Submit", "Start", "End"), (submit, start, end), strict=True))
        resources = tres(cpus, mib, nodes, gpus)
        row = {
            "JobID": job, "User": user, "Account": f"{user}lab", "Partition": partition, "QOS": "normal",
            "JobName": "train", "State": state, **{name: moment(t, form, zone) for name, t in times.items()},
            "Elapsed": clock((end or 0) - (start or 0) if end else 0),
            "Timelimit": "UNLIMITED" if limit is None else clock(limit * 60), "NNodes": str(nodes),
            "NCPUS": str(cpus), "ReqMem": f"{mib}M", "ReqTRES": resources,
            "AllocTRES": resources if start is not None else "", "NodeList": hosts,
        }  # fmt: skip
        listed.append(row)
        if steps and end:
            batch = {**row, "JobID": f"{job}.batch", "User": "", "Partition": "", "Timelimit": ""}
            listed.append({**batch, "QOS": "", "ReqMem": "", "ReqTRES": "", "JobName": "batch"})
    return listed


def delimited(
    listed: list[dict[str, str]], mark: str = "|", *, header: bool = True, end: str = "", quote: bool = False
) -> str:
    """Between marks; ``end`` closes every line."""
    names = list(listed[0])
    lines = [*([names] if header else []), *([row[name] for name in names] for row in listed)]
    if quote:
        out = io.StringIO()
        csv.writer(out, delimiter=mark, lineterminator="\n").writerows(lines)
        return out.getvalue()
    return "".join(mark.join(line) + end + "\n" for line in lines)


def fixed_width(listed: list[dict[str, str]], widths: dict[str, int]) -> str:
    """In columns, JobID to the left and the others to the right, what is too long cut off with a +."""
    names = list(listed[0])

    def cell(name: str, text: str) -> str:
        width = widths.get(name, 10)
        text = text if len(text) <= width else text[: width - 1] + "+"
        return f"{text:<{width}}" if name == "JobID" else f"{text:>{width}}"

    lines = [[cell(name, name) for name in names], ["-" * widths.get(name, 10) for name in names]]
    lines += [[cell(name, row[name]) for name in names] for row in listed]
    return "".join(" ".join(line) + " \n" for line in lines)


def as_json(version: str) -> dict[str, Any]:
    """What ``sacct --json`` prints, as 22.05 or as 24.11 has it."""
    old = version == "22.05"

    def number(value: int | None) -> Any:
        if old:
            return value
        return {"set": value is not None, "infinite": False, "number": value or 0}

    def resources(cpus: int, mib: int, nodes: int, gpus: dict[str, int]) -> list[dict[str, Any]]:
        plain = [("cpu", 1, cpus), ("mem", 2, mib), ("node", 4, nodes)]
        listed = [
            {"type": kind, "name": None if old else "", "id": id, "count": count} for kind, id, count in plain
        ]
        listed += [
            {"type": "gres", "name": f"gpu:{kind}" if kind else "gpu", "id": 1001 + place, "count": count}
            for place, (kind, count) in enumerate(gpus.items())
        ]
        return listed

    jobs = []
    for job, user, partition, state, submit, start, end, limit, nodes, cpus, mib, gpus, hosts in JOBS:
        base, _, task = job.partition("_")
        leader, _, offset = job.partition("+")
        word = state.split(" ")[0]
        listed = resources(cpus, mib, nodes, gpus)
        unlimited = 4294967295 if old else {"set": True, "infinite": True, "number": 0}
        jobs.append(
            {
                "account": f"{user}lab",
                "allocation_nodes": nodes,
                "array": {
                    "job_id": int(base) if task else 0,
                    "task_id": number(int(task) if task.isdecimal() else None),
                    "task": task.strip("[]") if task and not task.isdecimal() else (None if old else ""),
                },
                "association": {"account": f"{user}lab", "cluster": "box", "partition": None, "user": user},
                "cluster": "box",
                "time": {
                    "elapsed": (end - start) if end else 0,
                    "eligible": EPOCH_S + submit,
                    "end": EPOCH_S + end if end else 0,
                    "start": EPOCH_S + start if start is not None else 0,
                    "submission": EPOCH_S + submit,
                    "suspended": 0,
                    "limit": unlimited if limit is None else number(limit),
                },
                "het": {
                    "job_id": int(leader) if offset else 0,
                    "job_offset": number(int(offset) if offset else None),
                },
                "job_id": int(leader if offset else base) + (int(offset) if offset else 0),
                "name": "train",
                "nodes": hosts,
                "partition": partition,
                "qos": "normal",
                "required": {"CPUs": cpus, "memory": mib} if old else {"CPUs": cpus},
                "state": {"current": word if old else [word], "reason": "None"},
                "steps": [{"step": {"id": "batch"}, "state": word}] if end else [],
                "tres": {"allocated": listed if start is not None else [], "requested": listed},
                "user": user,
            }
        )
    meta = {"plugin": {"type": "openapi/dbv0.0.38"}, "Slurm": {"release": "22.05.8"}}
    if old:
        return {"meta": meta, "errors": [], "jobs": jobs}
    return {"jobs": jobs, "meta": {"slurm": {"release": "24.11.5"}}, "errors": [], "warnings": []}
