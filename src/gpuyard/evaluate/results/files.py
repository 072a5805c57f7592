"""Which directories hold results; loads nothing heavy."""

from pathlib import Path

DOCUMENT = "results.json"
OLD_EVALUATION = "evaluation.json"
"""What gpuyard 0.1.0 wrote."""


def holds_results(directory: Path) -> bool:
    """Whether a directory has the document of results, of whichever version."""
    return any((directory / name).is_file() for name in (DOCUMENT, OLD_EVALUATION))
