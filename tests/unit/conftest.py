"""Fixtures that several files share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Run, runner


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("GPUYARD_DEBUG", raising=False)
    return runner(capfd)


@pytest.fixture
def jobs(tmp_path: Path) -> Callable[..., Path]:
    """Write lines to a CSV file."""

    def write(*lines: str) -> Path:
        path = tmp_path / "jobs.csv"
        path.write_text("\n".join(lines) + "\n" if lines else "")
        return path

    return write
