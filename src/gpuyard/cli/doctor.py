"""``gpuyard doctor`` and ``completion``: checks of an installation, and commands completed in a shell."""

import importlib
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Literal

from cyclopts import Parameter

from gpuyard.cli.inputs import open_console, print_json
from gpuyard.cli.parameters import Json
from gpuyard.config import available_cores
from gpuyard.plugins import Plugin
from gpuyard.terminal.tables import doctor_table

Status = Literal["ok", "missing", "broken"]

SMOKE_HASH = "eb9e1fc6f43fcbd0-3b5fc0a92293c51b"
"""What ``smoke_schedule_hash`` returns, on every machine."""


@dataclass(frozen=True)
class Check:
    """What was looked at and found.

    Attributes:
        name: What was looked at.
        status: ``missing`` is for what is optional, or required and absent.
        found: What was found.
        advice: What to do; empty if nothing.
        required: Whether gpuyard works at all without it.
    """

    name: str
    status: Status
    found: str
    advice: str = ""
    required: bool = True

    @property
    def failed(self) -> bool:
        """Whether gpuyard does not work because of it."""
        return self.required and self.status != "ok"


def doctor(*, json: Json = False) -> int:
    """Check the installation and say what to do about what is wrong.

    Example: gpuyard doctor
    """
    checks = run_checks()
    code = 1 if any(check.failed for check in checks) else 0
    if json:
        print_json({"ok": code == 0, "checks": [vars(check) for check in checks]})
        return code
    console = open_console()
    console.print(doctor_table(checks))
    console.print("gpuyard works here." if code == 0 else "gpuyard does not work here as it should.")
    return code


def run_checks() -> list[Check]:
    """All checks. None of them raises, and none needs anything but the standard library to report."""
    return [
        _python(),
        _package("numpy"),
        _package("polars"),
        _package("pydantic"),
        _guarded("native core", _native_core, "build it again: pip install --force-reinstall gpuyard"),
        _optional("torch", "learning", "pip install 'gpuyard[learn]'"),
        _optional("gymnasium", "environments", "pip install gymnasium"),
        _optional("uvicorn", "the dashboard", "pip install 'gpuyard[dashboard]'"),
        _optional("simpy", "the tests", "pip install 'gpuyard[test]'"),
        *_plugins(),
        _machine(),
        _guarded("current directory", _writable_directory, "go to a directory that you may write to"),
        _terminal(),
    ]


def smoke_schedule_hash() -> str:
    """Simulate 100 jobs under two policies that use most of the core, and shorten the schedules' hashes."""
    import polars as pl

    from gpuyard.cluster.model import parse_cluster
    from gpuyard.config import SimulationConfig
    from gpuyard.simulation.run import simulate
    from gpuyard.workload import make_workload

    numbers = range(100)
    jobs = pl.DataFrame(
        {
            "submit_s": [37 * i * i % 4001 for i in numbers],
            "duration_s": [1 + 7919 * i * i % 3001 for i in numbers],
            "gpus": [1 << (i * i + i // 7) % 5 for i in numbers],
            "user": [f"u{i % 7}" for i in numbers],
        }
    )
    config = SimulationConfig(estimates="noisy", seed=1, locality_penalty=0.25)
    cluster = parse_cluster("2x8:a100@1.5,4x4:v100")
    hashes = (
        simulate(make_workload(jobs), cluster, policy, config).schedule.hash()
        for policy in ("wspt+easy+express:600:0.1", "fair-share+easy-sjf/spread")
    )
    return "-".join(text[:16] for text in hashes)


def _guarded(name: str, check: Callable[[], Check], advice: str) -> Check:
    try:
        return check()
    except Exception as error:
        return Check(name, "broken", f"{type(error).__name__}: {error}", advice)


def _python() -> Check:
    language = f"{platform.python_implementation()} {platform.python_version()}"
    return Check("Python", "ok", f"{language}, {platform.system()} {platform.machine()}")


def _package(name: str) -> Check:
    def check() -> Check:
        importlib.import_module(name)
        return Check(name, "ok", version(name))

    if importlib.util.find_spec(name) is None:
        return Check(name, "missing", "not installed", f"pip install {name}")
    return _guarded(name, check, f"pip install --force-reinstall {name}")


def _optional(name: str, use: str, install: str) -> Check:
    """By its metadata only: importing some of these takes seconds."""
    try:
        return Check(name, "ok", version(name), required=False)
    except PackageNotFoundError:
        return Check(name, "missing", f"optional, for {use}", install, required=False)


def _native_core() -> Check:
    found = smoke_schedule_hash()
    if found != SMOKE_HASH:
        return Check(
            "native core",
            "broken",
            f"a schedule differs from the known one: {found}, not {SMOKE_HASH}",
            "results are not comparable with other machines'; install a release, and report this",
        )
    return Check("native core", "ok", "schedules are the known ones")


def _plugins() -> list[Check]:
    from gpuyard.registry import loaded_plugins

    return [_plugin(one, names) for one, names in loaded_plugins().items()]


def _plugin(one: Plugin, names: list[str]) -> Check:
    name = f"plug-in {one.name}"
    if one.error:
        return Check(name, "broken", f"{one.source}: {one.error}", "repair or uninstall that package", False)
    return Check(name, "ok", f"{one.source}: {', '.join(names) or 'registers nothing'}", required=False)


def _machine() -> Check:
    cpus = available_cores()
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return Check("machine", "ok", f"{cpus} CPUs, {memory_gib:.1f} GiB of memory", required=False)


def _writable_directory() -> Check:
    with tempfile.TemporaryFile(dir="."):
        pass
    free_gib = shutil.disk_usage(".").free / 2**30
    return Check("current directory", "ok", f"writable, {free_gib:.1f} GiB free")


def _terminal() -> Check:
    size = shutil.get_terminal_size()
    kind = f"{size.columns} columns" if sys.stdout.isatty() else "output is not a terminal"
    encoding = sys.stdout.encoding or "unknown"
    if "utf" not in encoding.lower():
        return Check("terminal", "missing", f"{kind}, {encoding}", "for fine lines set LANG=C.UTF-8", False)
    return Check("terminal", "ok", f"{kind}, {encoding}", required=False)


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell that you use.")], /
) -> None:
    """Print a script that completes commands and options in a shell.

    In ~/.bashrc: eval "$(gpuyard completion bash)".

    Example: gpuyard completion bash
    """
    from gpuyard.cli import app

    print(app.generate_completion(prog_name="gpuyard", shell=shell))
