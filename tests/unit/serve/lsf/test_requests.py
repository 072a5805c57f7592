"""What jobs ask for, and why some are left to LSF."""

import pytest

from gpuyard.serve.lsf.requests import Asked, UnclearError, asked


def need(requirement: str, slots: str = "1") -> Asked:
    return asked({"NREQ_SLOT": slots, "COMBINED_RESREQ": requirement, "EFFECTIVE_RESREQ": ""})


@pytest.mark.parametrize(
    ("requirement", "slots", "expected"),
    [
        ("", "", Asked(0, 1, 1, 0)),
        ("select[type == any] rusage[ngpus_physical=2.00]", "1", Asked(2, 1, 1, 0)),
        ("rusage[ngpus_physical=2.00,mem=4G] span[hosts=1]", "8", Asked(2, 1, 8, 4096)),
        ("rusage[ngpus_physical=4.00:mem=100.00] span[ptile=8]", "16", Asked(8, 2, 16, 200)),
        ("rusage[ngpus_physical=1.00/task] span[ptile=4]", "8", Asked(8, 2, 8, 0)),
        ("select[type == local] span[hosts=1]", "4", Asked(0, 1, 4, 0)),
    ],
)
def test_plain_requirements_are_understood(requirement: str, slots: str, expected: Asked) -> None:
    assert need(requirement, slots) == expected


@pytest.mark.parametrize(
    ("requirement", "slots", "why"),
    [
        ("rusage[ngpus_physical=1.00]", "4", "any number of hosts"),
        ("rusage[ngpus_physical=1.00] span[ptile=3]", "4", "unlike parts"),
        ("", "1,4", "range of slots"),
        ("select[type == any && mem>100]", "1", "selects hosts"),
        ("select[gpu && ngpus>0]", "1", "selects hosts"),
        ("rusage[ngpus_physical=0.50]", "1", "parts of GPUs"),
        ("rusage[ngpus_physical=1.00,gmem=8G]", "1", "uses gmem"),
        ("rusage[ngpus_physical=1.00:licence=1]", "1", "uses licence"),
        ("cu[type=rack]", "1", "cu requirements"),
        ("2*{span[hosts=1]} + 1*{rusage[mem=1]}", "3", "alternative or compound"),
        ("{a} || {b}", "1", "alternative or compound"),
        ("affinity[core(1)]", "1", "affinity requirements"),
        ("rusage[ngpus_physical=1] same[model]", "1", "same requirements"),
        ("whatever", "1", "not understood"),
        ("rusage[ngpus_physical=1,ngpus=2]", "1", "several requirements of GPUs"),
    ],
)
def test_what_cannot_be_represented_is_left_with_a_reason(requirement: str, slots: str, why: str) -> None:
    with pytest.raises(UnclearError, match=why):
        need(requirement, slots)


def test_the_effective_requirement_counts() -> None:
    record = {
        "NREQ_SLOT": "1",
        "COMBINED_RESREQ": "rusage[ngpus_physical=1]",
        "EFFECTIVE_RESREQ": "rusage[ngpus_physical=3]",
    }
    assert asked(record).gpus == 3
