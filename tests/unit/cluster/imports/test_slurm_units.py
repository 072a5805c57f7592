"""Values as Slurm writes them."""

import pytest

from gpuyard.cluster.imports.slurm_units import gpus_of, slurm_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("02:00:00", 7200),
        ("7-0", 604800),
        ("1-12:30", 131400),
        ("2-00:00:05", 172805),
        ("UNLIMITED", None),
        ("Infinite", None),
        ("-1", None),
    ],
)
def test_all_forms_of_times_are_read(text, seconds):
    assert slurm_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1-", "1:2:3:4", "-5", "1.5"])
def test_other_texts_are_no_times(text):
    with pytest.raises(ValueError, match="cannot read the time"):
        slurm_seconds(text)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a100:8(S:0-1)", (("a100", 8),)),
        ("gpu:4,nvme:1", (("gpu", 4),)),
        ("gpu:tesla:no_consume:2", (("tesla", 2),)),
        ("gpu:a100:4,gpu:t4:2", (("a100", 4), ("t4", 2))),
        ("craynetwork:4", ()),
        ("(null)", ()),
    ],
)
def test_gpus_are_found_among_generic_resources(gres, gpus):
    assert gpus_of(gres) == gpus
