"""The tutorials' code runs as it stands, block after block."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIALS = sorted((Path(__file__).parents[3] / "docs" / "start").glob("*.md"))


def code_of(path: Path) -> str:
    """The Python blocks of a document, on the lines that they have in it."""
    lines: list[str] = []
    inside = False
    for line in path.read_text(encoding="utf-8").splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        inside = line == "```python" if fence else inside
    return "\n".join(lines)


def test_there_are_tutorials() -> None:
    assert "first-environment" in [path.stem for path in TUTORIALS]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_all_blocks_run_in_order(path: Path, tmp_path: Path) -> None:
    """In a process of their own, where a warning is an error."""
    blocks = len(re.findall(r"^```python$", path.read_text(encoding="utf-8"), re.M))
    assert blocks >= 5
    script = tmp_path / f"{path.stem}.py"
    script.write_text(code_of(path), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
