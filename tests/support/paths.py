"""Where things lie, for tests that read the project's own files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DATA = ROOT / "tests" / "data"
SHARED = ROOT.parent / "shared"
"""Public traces and other simulators' schedules; beside the project, not in it."""
