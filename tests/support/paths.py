"""Where things lie, for tests that read the project's own files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DATA = ROOT / "tests" / "data"


def model_path(name: str) -> str:
    """A trained rule for a cluster's log. None comes with gpuyard: on a busy cluster they starve jobs."""
    return str(DATA / "models" / f"{name}.safetensors")


SHARED = ROOT.parent / "shared"
"""Public traces and other simulators' schedules; beside the project, not in it."""
