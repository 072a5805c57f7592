#!/usr/bin/env -S python3 -S -E
"""LSF's commands as one script in a directory for PATH, with queues that live in a file.

It answers in the shapes that LSF documents and does what LSF does with jobs: holds, hosts, places in queues,
GPUs. ``tick`` is what LSF's daemons do: it starts and ends jobs. As ``DIRECTORY serve`` it is such a daemon,
and without it commands fail as they do when LSF is down.
"""

import contextlib
import fcntl
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMANDS = (
    *("bjobs", "bhosts", "bqueues", "lshosts"),
    *("bmod", "bresume", "bstop", "btop", "bbot", "brun", "bsub", "bkill"),
)
SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, place REAL, state TEXT, user TEXT, queue TEXT,
  name TEXT, description TEXT, hosts TEXT, slots INTEGER, gpus INTEGER, run_s REAL, limit_min REAL,
  submit_s REAL, start_s REAL, finish_s REAL, on_hosts TEXT, more TEXT);
CREATE TABLE IF NOT EXISTS events (job INTEGER, what TEXT, hosts TEXT);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT);
"""
Row = sqlite3.Row


class CommandError(Exception):
    """What a command says before it fails."""


class LsfDouble:
    """A directory with the commands and the queues.

    Args:
        place: The directory; made anew if it is not there.
        hosts: How many hosts there are.
        gpus: GPUs of each.
        slots: Job slots of each.
    """

    def __init__(self, place: Path, hosts: int = 4, gpus: int = 4, slots: int = 16) -> None:
        self.place = place
        if not place.exists():
            place.mkdir()
            for name in COMMANDS:
                (place / name).symlink_to(Path(__file__).resolve())
            with self._changing() as db:
                for statement in SCHEMA.split(";")[:-1]:
                    db.execute(statement)
            self.set(hosts=hosts, gpus=gpus, slots=slots, fault="", ahead_s=0.0, daemon="")

    # --- the file

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, one at a time, whoever is killed."""
        db = sqlite3.connect(self.place / "queues.sqlite", timeout=60.0, isolation_level=None)
        db.row_factory = sqlite3.Row
        try:
            db.execute("PRAGMA synchronous=OFF")  # processes are killed, not machines
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        finally:
            db.close()  # without a commit nothing has happened

    def set(self, **values: Any) -> None:
        """Settings: hosts, gpus, slots, fault, ahead_s, daemon."""
        with self._changing() as db:
            db.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", list(values.items()))

    @staticmethod
    def _settings(db: sqlite3.Connection) -> dict[str, Any]:
        return {row["name"]: row["value"] for row in db.execute("SELECT * FROM settings")}

    def setting(self, name: str) -> Any:
        """One of them."""
        with self._changing() as db:
            return self._settings(db).get(name)

    def jobs(self) -> dict[int, dict[str, Any]]:
        """All jobs that there ever were, by number."""
        with self._changing() as db:
            return {row["id"]: dict(row) for row in db.execute("SELECT * FROM jobs ORDER BY place, id")}

    def events(self) -> list[tuple[int, str, str]]:
        """Starts and ends, in order."""
        with self._changing() as db:
            return [tuple(row) for row in db.execute("SELECT job, what, hosts FROM events ORDER BY rowid")]

    def submit(self, **given: Any) -> int:
        """A new job; its number."""
        with self._changing() as db:
            return self._submit(db, **given)

    def _submit(self, db: sqlite3.Connection, **given: Any) -> int:
        usual = {
            "state": "PEND", "user": "ada", "queue": "normal", "name": "job", "description": "", "hosts": "",
            "slots": 1, "gpus": 0, "run_s": 60.0, "limit_min": 60.0, "on_hosts": "", "more": "{}",
            "submit_s": time.time() + float(self._settings(db)["ahead_s"]),
        }  # fmt: skip
        values = usual | given
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        number = db.execute(f"INSERT INTO jobs ({names}) VALUES ({marks})", list(values.values())).lastrowid
        db.execute("UPDATE jobs SET place = id WHERE id = ?", (number,))
        return int(number or 0)

    def forget(self, number: int) -> None:
        """As if it had never been."""
        with self._changing() as db:
            db.execute("DELETE FROM jobs WHERE id = ?", (number,))

    # --- what the daemons do

    def host_names(self) -> list[str]:
        """Of all hosts."""
        return [f"gpu{number}.site" for number in range(1, int(self.setting("hosts")) + 1)]

    def tick(self) -> None:
        """End jobs whose time has come, then start what fits, each queue in its order."""
        with self._changing() as db:
            settings = self._settings(db)
            now_s = time.time()
            for row in db.execute("SELECT * FROM jobs WHERE state = 'RUN'").fetchall():
                if now_s >= row["start_s"] + row["run_s"]:
                    self._end(db, row, now_s)
            free = self._free(db, settings)
            for row in db.execute("SELECT * FROM jobs WHERE state = 'PEND' ORDER BY place, id").fetchall():
                allowed = row["hosts"].split() or list(free)
                self._start(db, row, allowed, free, now_s)

    def _free(self, db: sqlite3.Connection, settings: dict[str, Any]) -> dict[str, list[int]]:
        count = int(settings["hosts"])
        free = {
            f"gpu{number}.site": [int(settings["gpus"]), int(settings["slots"])]
            for number in range(1, count + 1)
        }
        for row in db.execute("SELECT * FROM jobs WHERE state IN ('RUN', 'USUSP')"):
            used = row["on_hosts"].split()
            for host in used:
                free[host][0] -= row["gpus"]
                free[host][1] -= row["slots"] // len(used)
        return free

    def _start(
        self, db: sqlite3.Connection, row: Row, allowed: list[str], free: dict[str, list[int]], now_s: float
    ) -> bool:
        """All its hosts, or none. GPUs are counted for each host; ``ptile`` says how many slots one has."""
        each = json.loads(row["more"]).get("ptile", row["slots"])
        count = row["slots"] // each
        fits = [host for host in allowed if free[host][0] >= row["gpus"] and free[host][1] >= each][:count]
        if len(fits) < count:
            return False
        for host in fits:
            free[host][0] -= row["gpus"]
            free[host][1] -= each
        db.execute(
            "UPDATE jobs SET state = 'RUN', start_s = ?, on_hosts = ? WHERE id = ?",
            (now_s, " ".join(fits), row["id"]),
        )
        db.execute("INSERT INTO events VALUES (?, 'started', ?)", (row["id"], " ".join(fits)))
        return True

    def _end(self, db: sqlite3.Connection, row: Row, now_s: float) -> None:
        db.execute("UPDATE jobs SET state = 'DONE', finish_s = ? WHERE id = ?", (now_s, row["id"]))
        db.execute("INSERT INTO events VALUES (?, 'ended', '')", (row["id"],))

    def serve(self) -> None:
        """Tick until it is killed."""
        lock = self.daemon_lock()
        assert lock is not None, "another daemon is there"
        self.set(daemon="needed")
        while True:
            self.tick()
            time.sleep(0.1)

    def daemon_lock(self) -> Any:
        """Whoever has it is the daemon, as long as it lives; None: somebody else is."""
        file = (self.place / "daemon").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
        return file

    # --- commands that list

    def answer(self, name: str, words: list[str]) -> str:
        """What the command of this name prints.

        Raises:
            CommandError: with what it says before it fails.
        """
        fault = self.setting("fault")
        if fault == "hang":
            time.sleep(600)
        lives = self.setting("daemon") != "needed" or self.daemon_lock() is None
        if fault == "down" or not lives:
            raise CommandError("LSF is down. Please wait ...")
        if fault == "garbage":
            return "<html>502 Bad Gateway</html>\n"
        said = str(getattr(self, f"_{name}")(words))
        return said if fault != "partial" else said[: len(said) // 2]

    def _bjobs(self, words: list[str]) -> str:
        fields = words[words.index("-o") + 1].split()
        jobs = [job for job in self.jobs().values() if "-a" in words or job["state"] not in ("DONE", "EXIT")]
        if not jobs:
            return "No job found\n"
        records = [self._job_record(job) for job in jobs]
        return _json("bjobs", "JOBS", [{field.upper(): one[field] for field in fields} for one in records])

    def _job_record(self, job: dict[str, Any]) -> dict[str, str]:
        on_hosts, gpus = job["on_hosts"].split(), job["gpus"]
        ptile = json.loads(job["more"]).get("ptile")
        need = f"rusage[ngpus_physical={gpus}.00]" if gpus else ""
        span = f" span[ptile={ptile}]" if ptile else " span[hosts=1]"
        started = job["start_s"] is not None
        unset = ("dependency", "exclusive", "specified_start_time", "rsvid", "service_class")
        granted = [f"{host}:{','.join(map(str, range(gpus)))}" for host in on_hosts] if gpus else []
        return {
            **dict.fromkeys(unset, ""),
            "jobid": str(job["id"]), "jobindex": "0", "stat": job["state"], "user": job["user"],
            "queue": job["queue"], "job_name": job["name"], "job_description": job["description"],
            "proj_name": "default", "submit_time": _time(job["submit_s"]),
            "start_time": _time(job["start_s"]),
            "finish_time": f"{_time(job['finish_s'])} L" if job["finish_s"] else "",
            "run_time": f"{int(time.time() - job['start_s'])} second(s)" if started else "0 second(s)",
            "runtimelimit": f"{job['limit_min']:.1f}", "nreq_slot": str(job["slots"]),
            "gpu_num": str(gpus * len(on_hosts)) if started and gpus else "",
            "gpu_alloc": ";".join(granted),
            "alloc_slot": ":".join(f"{job['slots'] // len(on_hosts)}*{host}" for host in on_hosts),
            "ask_hosts": job["hosts"],
            "combined_resreq": f"select[type == any] order[r15s:pg] {need}{span}",
            "effective_resreq": "", "mem": "",
        } | {name: value for name, value in json.loads(job["more"]).items() if name != "ptile"}  # fmt: skip

    def _bhosts(self, words: list[str]) -> str:
        hosts = self.host_names()
        used = dict.fromkeys(hosts, 0)
        for job in self.jobs().values():
            for host in job["on_hosts"].split() if job["state"] == "RUN" else ():
                used[host] += job["gpus"]
        if "-gpu" in words:
            lines = ["HOST_NAME ID MODEL MUSED MRSV NJOBS RUN SUSP RSV"]
            for host in hosts:
                for gpu in range(int(self.setting("gpus"))):
                    busy = int(gpu < used[host])
                    lines.append(f"{host if not gpu else ' '} {gpu} TeslaV100 0M 0M {busy} {busy} 0 0")
            return "\n".join(lines) + "\n"
        slots = str(self.setting("slots"))
        return _json("bhosts", "HOSTS", [{
            "HOST_NAME": host, "STATUS": "ok", "MAX": slots, "NJOBS": "0", "RUN": "0", "SSUSP": "0",
            "USUSP": "0", "RSV": "0",
        } for host in hosts])  # fmt: skip

    def _lshosts(self, words: list[str]) -> str:
        if "-gpu" not in words:
            heading = "HOST_NAME type model cpuf ncpus maxmem maxswp server RESOURCES\n"
            return heading + "".join(
                f"{host} X86_64 Intel_EM64T 60.0 {self.setting('slots')} 503.5G 8G Yes (mg)\n"
                for host in self.host_names()
            )
        lines = ["HOST_NAME gpu_id gpu_model gpu_driver gpu_factor numa_id vendor"]
        for host in self.host_names():
            lines += [
                f"{host if not gpu else ' '} {gpu} TeslaV100 470.57 7.0 0 Nvidia"
                for gpu in range(int(self.setting("gpus")))
            ]
        return "\n".join(lines) + "\n"

    def _bqueues(self, words: list[str]) -> str:
        return _json("bqueues", "QUEUES", [{
            "QUEUE_NAME": "normal", "PRIORITY": "30", "STATUS": "Open:Active", "HOSTS": "all",
        }])  # fmt: skip

    # --- commands that write

    def _job(self, db: sqlite3.Connection, word: str) -> Row:
        row = db.execute("SELECT * FROM jobs WHERE id = ?", (word if word.isdecimal() else -1,)).fetchone()
        if row is None:
            raise CommandError(f"Job <{word}>: No matching job found")
        if row["state"] in ("DONE", "EXIT"):
            raise CommandError(f"Job <{word}>: Job has already finished")
        return row  # type: ignore[no-any-return]

    def _bmod(self, words: list[str]) -> str:
        with self._changing() as db:
            row = self._job(db, words[-1])
            if row["state"] == "RUN":
                raise CommandError(f"Job <{words[-1]}>: Job has started; cannot modify it")
            rest, changes = words[:-1], {}
            while rest:
                option = rest.pop(0)
                if option in ("-mn", "-Jdn"):
                    changes["hosts" if option == "-mn" else "description"] = ""
                elif option in ("-m", "-Jd"):
                    changes["hosts" if option == "-m" else "description"] = rest.pop(0)
                else:
                    raise CommandError(f"bmod: illegal option {option}")
            unknown = set(changes.get("hosts", "").split()) - set(self._free(db, self._settings(db)))
            if unknown:
                raise CommandError(f"{sorted(unknown)[0]}: Bad host name, host group name or cluster name")
            for name, value in changes.items():
                db.execute(f"UPDATE jobs SET {name} = ? WHERE id = ?", (value, row["id"]))
        return f"Parameters of job <{words[-1]}> are being changed\n"

    def _bresume(self, words: list[str]) -> str:
        """Each job by itself: one that cannot be resumed stops no other, but the command fails."""
        wrong = []
        for word in words:
            with self._changing() as db:
                try:
                    row = self._job(db, word)
                    if row["state"] not in ("PSUSP", "USUSP"):
                        raise CommandError(f"Job <{word}>: Job is not suspended")
                    state = "PEND" if row["state"] == "PSUSP" else "RUN"
                    db.execute("UPDATE jobs SET state = ? WHERE id = ?", (state, row["id"]))
                except CommandError as error:
                    wrong.append(str(error))
        if wrong:
            raise CommandError("\n".join(wrong))
        return "".join(f"Job <{word}> is being resumed\n" for word in words)

    def _bstop(self, words: list[str]) -> str:
        with self._changing() as db:
            row = self._job(db, words[-1])
            state = "PSUSP" if row["state"] == "PEND" else "USUSP"
            db.execute("UPDATE jobs SET state = ? WHERE id = ?", (state, row["id"]))
        return f"Job <{words[-1]}> is being stopped\n"

    def _btop(self, words: list[str]) -> str:
        return self._move(words[0], int(words[1]) if len(words) > 1 else 1)

    def _bbot(self, words: list[str]) -> str:
        return self._move(words[0], -(int(words[1]) if len(words) > 1 else 1))

    def _move(self, word: str, target: int) -> str:
        with self._changing() as db:
            row = self._job(db, word)
            if row["state"] not in ("PEND", "PSUSP"):
                raise CommandError(f"Job <{word}>: Job has started")
            others = [
                other["place"]
                for other in db.execute(
                    "SELECT place FROM jobs WHERE state IN ('PEND', 'PSUSP') AND queue = ? AND id != ? "
                    "ORDER BY place, id",
                    (row["queue"], row["id"]),
                )
            ]
            index = min(target - 1, len(others)) if target > 0 else max(0, len(others) + 1 + target)
            before = others[index - 1] if index else (others[0] - 2.0 if others else 0.0)
            after = others[index] if index < len(others) else before + 2.0
            db.execute("UPDATE jobs SET place = ? WHERE id = ?", ((before + after) / 2, row["id"]))
        return f"Job <{word}> has been moved to position {abs(target)} from top.\n"

    def _brun(self, words: list[str]) -> str:
        hosts, word = words[words.index("-m") + 1].split(), words[-1]
        with self._changing() as db:
            row = self._job(db, word)
            if row["state"] not in ("PEND", "PSUSP"):
                raise CommandError(f"Job <{word}>: Job has started")
            free = self._free(db, self._settings(db))
            if not set(free).issuperset(hosts):
                raise CommandError(f"{hosts}: Bad host name, host group name or cluster name")
            everything = {host: [10**6, 10**6] for host in hosts}  # brun looks at no limits
            self._start(db, row, hosts, everything, time.time())
        return f"Job <{word}> is being forced to run.\n"

    def _bkill(self, words: list[str]) -> str:
        with self._changing() as db:
            row = self._job(db, words[-1])
            db.execute("UPDATE jobs SET state = 'EXIT', finish_s = ? WHERE id = ?", (time.time(), row["id"]))
        return f"Job <{words[-1]}> is being terminated\n"

    def _bsub(self, words: list[str]) -> str:
        """With the executables of the site before (esub), as LSF calls them."""
        given: dict[str, Any] = {}
        rest, held = list(words), False
        names = {
            "-J": "name",
            "-Jd": "description",
            "-q": "queue",
            "-m": "hosts",
            "-n": "slots",
            "-W": "limit_min",
        }
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if option == "-H":
                held = True
            elif option == "-gpu":
                given["gpus"] = int(re.search(r"num=(\d+)", rest.pop(0))[1])  # type: ignore[index]
            else:
                given[names[option]] = rest.pop(0)
        given["run_s"] = float(rest[-1]) if rest and rest[0] == "sleep" else 60.0
        asked = self._esub(
            {
                "LSB_SUB_QUEUE": given.get("queue", ""),
                "LSB_SUB_HOLD": "Y" if held else "",
                "LSB_SUB_JOB_DESCRIPTION": given.get("description", ""),
            }
        )
        given["description"] = asked["LSB_SUB_JOB_DESCRIPTION"]
        number = self.submit(state="PSUSP" if asked.get("LSB_SUB_HOLD") == "Y" else "PEND", **given)
        return f"Job <{number}> is submitted to queue <{given.get('queue', 'normal')}>.\n"

    def _esub(self, parameters: dict[str, str]) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            given, changed = Path(folder, "given"), Path(folder, "changed")
            given.write_text("".join(f'{name}="{value}"\n' for name, value in parameters.items() if value))
            changed.write_text("")
            self._call_esubs({"LSB_SUB_PARM_FILE": str(given), "LSB_SUB_MODIFY_FILE": str(changed)})
            pairs = (line.partition("=") for line in changed.read_text().splitlines())
            return parameters | {name: value.strip('"') for name, _, value in pairs}

    def _call_esubs(self, variables: dict[str, str]) -> None:
        for script in sorted(self.place.glob("esub.*")):
            known = {**os.environ, **variables, "LSF_INVOKE_CMD": "bsub", "LSB_SUB_ABORT_VALUE": "97"}
            known["PATH"] = f"{self.place}:{known.get('PATH', '')}"
            if subprocess.run([script], env=known, check=False).returncode == 97:
                raise CommandError("Request aborted by esub. Job not submitted.")


def _json(command: str, counted: str, records: list[dict[str, str]]) -> str:
    return json.dumps({"COMMAND": command, counted: len(records), "RECORDS": records}, indent=2) + "\n"


def _time(moment_s: float | None) -> str:
    return "" if moment_s is None else time.strftime("%b %d %H:%M:%S %Y", time.gmtime(moment_s))


def main(called: Path, words: list[str]) -> int:
    """Be the command of that name, or the daemon."""
    if words[-1:] == ["serve"]:
        LsfDouble(Path(words[0])).serve()
    try:
        print(LsfDouble(called.parent).answer(called.name, words), end="")
    except CommandError as error:
        print(error, file=sys.stderr)
        return 255
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(os.path.abspath(sys.argv[0])), sys.argv[1:]))  # noqa: PTH100
