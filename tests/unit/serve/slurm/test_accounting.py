"""Finished jobs, as sacct prints them."""

import pytest

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.slurm.accounting import Finished, NoAccountingError, finished_since
from gpuyard.serve.slurm.commands import Commands


class Said(Commands):
    def __init__(self, text: str = "", error: AdapterError | None = None) -> None:
        self._said, self._error = text, error

    def text(self, *command: str) -> str:
        if self._error:
            raise self._error
        return self._said


def test_finished_jobs_come_in_the_order_of_their_ends() -> None:
    text = (
        "12|ada|physics|billing=2,cpu=2,gres/gpu=3,mem=1G,node=1|60|2026-11-18T14:30:00|TIMEOUT\n"
        "7_1|bob|bio|cpu=1,node=1|5|2026-11-18T14:29:00|CANCELLED by 1000\n"
        "13|ada|physics||0|Unknown|PENDING\n"
        "2|ada|physics|cpu=1|5|2020-01-01T00:00:00|COMPLETED\n"
    )
    assert finished_since(Said(text), 1_700_000_000.0) == [
        Finished("7_1", "bob", "bio", 0, 5.0, 1795012140.0, False),
        Finished("12", "ada", "physics", 3, 60.0, 1795012200.0, True),
    ]


def test_without_accounting_the_reason_is_said() -> None:
    error = AdapterError("sacct ended with 1: Slurm accounting storage is disabled", "exit")
    with pytest.raises(NoAccountingError, match="accounting storage is disabled"):
        finished_since(Said(error=error), 0.0)


@pytest.mark.parametrize("code", ["timeout", "exit"])
def test_other_failures_are_failures(code: str) -> None:
    with pytest.raises(AdapterError):
        finished_since(Said(error=AdapterError("sacct: no answer", code)), 0.0)


def test_torn_lines_are_errors() -> None:
    with pytest.raises(AdapterError, match="fields"):
        finished_since(Said("12|ada|phys"), 0.0)
