import os
import re
import shutil
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest

from gpuyard.serve.process.systemd import Notifier, shipped_files
from gpuyard.serve.settings import ServeSettings, make_settings

UNITS = [name for name in shipped_files() if name.endswith((".service", ".timer"))]
COMMANDS = {
    "gpuyard-serve.service": "gpuyard serve slurm --config FILE",
    "gpuyard-watchdog.service": "gpuyard serve watchdog --config FILE --once",
    "gpuyard-release.service": "gpuyard serve release --config FILE",
}


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_hears_of_every_step(tmp_path: Path, abstract: bool) -> None:
    name = f"@gpuyard-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(5.0)
        systemd.bind(f"\0{name[1:]}" if abstract else name)
        notifier = Notifier({"NOTIFY_SOCKET": name})
        assert notifier.ready("shadow, 3 jobs\nREADY=0")
        assert systemd.recv(1000) == b"READY=1\nSTATUS=shadow, 3 jobs READY=0"
        assert [notifier.alive(), notifier.reloading(), notifier.stopping()] == [True] * 3
        assert [systemd.recv(1000) for _ in range(3)] == [b"WATCHDOG=1", b"RELOADING=1", b"STOPPING=1"]


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "@nobody-listens-here"])
def test_without_systemd_nothing_is_said_and_nothing_breaks(address: str) -> None:
    assert not Notifier({"NOTIFY_SOCKET": address} if address else {}).ready()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_how_often_systemd_wants_a_sign_of_life(environment: dict[str, str], seconds: float | None) -> None:
    assert Notifier(environment).watchdog_s == seconds


def test_the_units_run_the_commands_that_there_are() -> None:
    assert set(UNITS) == {*COMMANDS, "gpuyard-watchdog.timer"}
    for name, command in COMMANDS.items():
        text = shipped_files()[name]
        lines = re.findall(r"^ExecStart=/opt/gpuyard/bin/(.*)$", text, re.MULTILINE)
        assert [line.replace("/etc/gpuyard/serve.toml", "FILE") for line in lines] == [command]
        assert "User=gpuyard" in text
        assert "NoNewPrivileges=yes" in text
    assert (
        "OnFailure=gpuyard-release.service" in shipped_files()["gpuyard-serve.service"].split("[Service]")[0]
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for name in UNITS:
        text = shipped_files()[name].replace("/opt/gpuyard/bin/gpuyard", shutil.which("true") or "/bin/true")
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if "gpuyard" in line]
    assert (done.returncode, said) == (0, [])


def test_the_submit_script_comes_with_its_settings() -> None:
    assert {"job_submit.lua", "gpuyard-hold.conf", "serve.toml"} <= set(shipped_files())
    script = shipped_files()["job_submit.lua"]
    stated = re.findall(r"^([a-z_]+) =", shipped_files()["gpuyard-hold.conf"], re.MULTILINE)
    assert len(stated) == 6
    assert all(re.search(rf"^  {name} = ", script, re.MULTILINE) for name in stated)


def test_the_example_names_every_setting_with_its_default() -> None:
    text = shipped_files()["serve.toml"]
    assert make_settings(tomllib.loads(text)).mode == "shadow"
    everything = tomllib.loads(re.sub(r"^#: ", "", text, flags=re.MULTILINE))
    assert set(everything) == set(ServeSettings.model_fields)
    made, default = make_settings(everything), ServeSettings()
    others = {name for name in everything if getattr(made, name) != getattr(default, name)}
    without_default = {name for name, value in default if value is None}
    assert others == without_default | {"state_dir", "simulation"}
