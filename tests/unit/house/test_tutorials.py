"""The tutorials run as they stand: Python and shell, block after block, in an empty directory."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import DOCS, ROOT

TUTORIALS = sorted((DOCS / "start").glob("*.md"))
SLOW = {"first-training"}
"""Tutorials that take minutes: they run with smaller numbers here, and as they stand among slow tests."""
SHOWS = {"first-notebook"}
"""Pages whose cells end in a value: the outputs are held against a new run by the test of notebooks."""
SMALLER = {
    "runs/ppo-1 --minutes 0.1": "runs/ppo-1 --minutes 0.01 --processes 1 --validation.windows 2",
    "runs/search-1 --minutes 0.1": "runs/search-1 --minutes 0.01 --search.ages [1.0] --search.guarded 1",
    "windows 16": "windows 3",
    "windows 8": "windows 2",
    "--windows 20": "--windows 3",
    "512": "64",
}
SHELL = '__import__("subprocess").run(["bash", "-euo", "pipefail", "-c", r"""'


def blocks_of(path: Path) -> list[tuple[str, int]]:
    """Language and line of every block of a document that is to be run."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(line[3:], number) for number, line in enumerate(lines, 1) if line in ("```python", "```sh")]


def script_of(path: Path) -> str:
    """All blocks as one Python script, on the lines that they have in the document."""
    lines: list[str] = []
    language = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("```"):
            lines.append(line if language in ("python", "sh") else "")
        elif language:
            lines.append('"""], check=True)' if language == "sh" else "")
            language = ""
        else:
            language = line[3:] or "text"
            lines.append(SHELL if language == "sh" else "")
    return "\n".join(lines)


def path_with_gpuyard(directory: Path) -> str:
    """A search path on which ``gpuyard`` is the one under test."""
    directory.mkdir()
    command = directory / "gpuyard"
    start = "import sys; from gpuyard.cli import main; sys.exit(main())"
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{start}' \"$@\"\n")
    command.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def run(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script where the repository's examples are at hand and a warning is an error."""
    work = directory / "work"
    work.mkdir()
    shutil.copytree(ROOT / "examples", work / "examples")
    file = directory / "tutorial.py"
    file.write_text(script, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path_with_gpuyard(directory / "bin")}
    return subprocess.run(
        [sys.executable, "-W", "error", file],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def test_there_are_tutorials() -> None:
    names = ["first-environment", "first-notebook", "first-replay", "first-training"]
    assert [path.stem for path in TUTORIALS] == names


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
        for path in TUTORIALS
    ],
)
def test_all_blocks_run_in_order(path: Path, tmp_path: Path) -> None:
    """In a process of their own."""
    assert len(blocks_of(path)) >= 5
    done = run(script_of(path), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout or path.stem in SHOWS, "what a notebook shows is not printed"


@pytest.mark.parametrize("name", sorted(SLOW))
def test_all_blocks_run_with_smaller_numbers(name: str, tmp_path: Path) -> None:
    script = script_of(DOCS / "start" / f"{name}.md")
    for usual, smaller in SMALLER.items():
        assert usual in script
        script = script.replace(usual, smaller)
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_first_replay_prints_the_tables_that_it_shows(tmp_path: Path) -> None:
    page = ROOT / "docs" / "start" / "first-replay.md"
    shown = "".join(re.findall(r"^```text\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S))
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S))
    short = commands.partition("gpuyard simulate")
    replay = f"{short[0]}gpuyard simulate{short[2].partition('gpuyard')[0]}"
    printed = run(f'{SHELL}{replay}"""], check=True)', tmp_path).stdout.splitlines()
    lines = [line.split() for line in shown.splitlines() if line and "─" not in line]
    assert len(lines) >= 12
    for line in lines:
        words = line[:-2] if line[-1] == "..." else line
        assert any(found.split()[: len(words)] == words for found in printed), " ".join(line)


def test_a_command_that_fails_is_noticed_on_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```sh\ngpuyard simulate missing.csv\n```\n\n```python\nprint(1)\n```\n")
    assert blocks_of(page) == [("sh", 3), ("python", 7)]
    done = run(script_of(page), tmp_path)
    assert done.returncode == 1
    assert "missing.csv" in done.stderr
    assert "line 3" in done.stderr
    assert not done.stdout
