"""Training curves for TensorBoard, where that is installed; ``progress.jsonl`` has the same and more."""

import math
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpuyard.runs.directory import POLICY, Validation
from gpuyard.runs.progress import Record

FOLDER = "tensorboard"
"""The folder in a run's directory that holds its event files."""
HINT = "TensorBoard is not installed: pip install 'gpuyard[tensorboard]'"
"""For those who ask for it explicitly."""
FLUSH_EVERY_S = 10


class Board:
    """Writes the records of a run as scalars."""

    def __init__(self, writer: Any) -> None:
        """Write to a ``torch.utils.tensorboard.SummaryWriter``, or what has its ``add_scalar``."""
        self._writer = writer

    def write(self, record: Record) -> None:
        """Write what a record of ``progress.jsonl`` holds in numbers; what is not finite is left out."""
        for tag, value in scalars(record):
            if math.isfinite(value):
                self._writer.add_scalar(tag, value, record["step"])

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def open_board(directory: str | Path, step: int = 0) -> Board | None:
    """A board in the folder of a run, or None where TensorBoard is not installed.

    Args:
        directory: The run's.
        step: Samples that the checkpoint of a resumed run has seen: what was written about later ones is no
            longer shown.
    """
    if find_spec("tensorboard") is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # one that torch cannot use
        return None
    open_writer: Any = SummaryWriter
    purge = step + 1 if step else None
    return Board(open_writer(str(Path(directory) / FOLDER), purge_step=purge, flush_secs=FLUSH_EVERY_S))


def scalars(record: Record) -> Iterator[tuple[str, float]]:
    """Tags and values of a record.

    Values of updates keep their names (``loss/policy``), those without a group are put into ``update``; those
    of validations are ``validation/<metric>/<policy>``, so that the policy and heuristics stand together.
    """
    event, values = record["event"], record.get("values", {})
    if event == "update":
        for name, value in values.items():
            if value is not None:
                yield (name if "/" in name else f"update/{name}"), float(value)
        if record.get("samples_per_s") is not None:
            yield "update/samples_per_s", float(record["samples_per_s"])
    elif event == "validation":
        yield from _validation_scalars(Validation.of(record))
    elif event == "actions":
        for name, value in values.items():
            if isinstance(value, (int, float)):
                yield f"actions/{name}", float(value)


def _validation_scalars(done: Validation) -> Iterator[tuple[str, float]]:
    if done.score is not None:
        yield f"validation/score/{POLICY}", done.score
    for policy, metrics in done.metrics.items():
        for metric, value in metrics.items():
            if value is not None and (metric, policy) != ("score", POLICY):
                yield f"validation/{metric}/{policy}", value
