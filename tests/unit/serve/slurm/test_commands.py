"""Commands that hang, fail, are missing, or print half of their answer."""

import stat
import time
from pathlib import Path

import pytest

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.slurm.commands import Commands, write_code


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


def script(place: Path, body: str, name: str = "squeue") -> Commands:
    path = place / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Commands(timeout_s=0.5, environment={"PATH": f"{place}:/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("exit 0", "parse"),
        ("echo", "parse"),
        ("""printf '{"jobs": [{"job_id": 1'""", "parse"),
        ("echo slurm_load_jobs error", "parse"),
        ("echo '[]'", "parse"),
        ("""printf '{"jobs": "\\377\\376'""", "parse"),
        ("echo '{}'; exit 1", "exit"),
        ("echo Unable to contact slurm controller >&2; exit 1", "exit"),
        ("kill -9 $$", "exit"),
        ("exec sleep 60", "timeout"),
    ],
)
def test_faults_have_a_code(place: Path, body: str, code: str) -> None:
    begin = time.monotonic()
    with pytest.raises(AdapterError) as caught:
        script(place, body).json("squeue", "--json")
    assert caught.value.code == code
    assert time.monotonic() - begin < 5


def test_a_missing_command_says_what_to_do(place: Path) -> None:
    with pytest.raises(AdapterError, match="install Slurm's client commands") as caught:
        Commands(1.0, {"PATH": str(place)}).text("squeue")
    assert caught.value.code == "missing"


def test_arguments_reach_the_command_as_they_are(place: Path) -> None:
    commands = script(place, """printf '%s|' "$@" """)
    words = ('AdminComment=a; rm -rf $HOME `id` "x"', "*", "two words")
    assert commands.text("squeue", *words) == "".join(f"{word}|" for word in words)


def test_commands_see_one_language_and_time_zone_and_no_secrets(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(place, "env")
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("SLURM_JWT", "secret")
    monkeypatch.setenv("SQUEUE_STATES", "all")
    seen = Commands(1.0).text("squeue").splitlines()
    assert {"LC_ALL=C", "TZ=UTC"} <= set(seen)
    assert not any(line.startswith(("SLURM_JWT", "SQUEUE_")) for line in seen)


@pytest.mark.parametrize(
    ("said", "code", "expected"),
    [
        ("scontrol ended with 1: Invalid job id specified for job 9", "exit", "missing"),
        ("scontrol ended with 1: Job/step already completing or completed", "exit", "missing"),
        ("scontrol ended with 1: Requested node configuration is not available", "exit", "refused"),
        ("scontrol ended with 1: Unable to contact slurm controller (connect failure)", "exit", "exit"),
        ("no answer within 1 s", "timeout", "timeout"),
    ],
)
def test_a_write_that_failed_says_whether_the_job_is_gone(said: str, code: str, expected: str) -> None:
    assert write_code(AdapterError(said, code)) == expected
