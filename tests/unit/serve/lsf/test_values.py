"""Texts of LSF: units, years, letters at the end, lists of hosts and of GPUs."""

import calendar

import pytest

from gpuyard.serve.lsf.values import counted_hosts, granted_gpus, mebibytes, moment, seconds

NOW_S = float(calendar.timegm((2026, 3, 1, 12, 0, 0)))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("34 second(s)", 34.0),
        ("00:00:34", 34.0),
        ("26:00:00", 93_600.0),
        ("12", 12.0),
        ("1.5 hour(s)", 5400.0),
        ("", None),
        ("-", None),
        ("soon", None),
        ("1:2", None),
    ],
)
def test_lengths_of_time_come_with_and_without_units(stated: str, expected: float | None) -> None:
    assert seconds(stated) == expected


def test_run_limits_are_minutes_also_when_they_are_scaled_by_a_host() -> None:
    assert seconds("1440.0", 60.0) == 86_400.0
    assert seconds("60.0/hostA", 60.0) == 3600.0


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("Apr 12 22:27:01 2026 L", (2026, 4, 12, 22, 27, 1)),
        ("Apr 12 22:27:01 2026 E", (2026, 4, 12, 22, 27, 1)),
        ("Apr 12 22:27:01 2026 X", (2026, 4, 12, 22, 27, 1)),
        ("Apr  2 22:27 2026", (2026, 4, 2, 22, 27, 0)),
        ("Feb 28 10:00", (2026, 2, 28, 10, 0, 0)),  # this year: it is past
        ("Dec 31 23:59:59", (2025, 12, 31, 23, 59, 59)),  # last year: this year's is to come
        ("Mar  1 12:30", (2026, 3, 1, 12, 30, 0)),  # clocks differ
        ("Feb 29 00:00", (2024, 2, 29, 0, 0, 0)),  # there is none in 2025 and 2026
    ],
)
def test_moments_have_years_or_the_last_one_that_can_be(stated: str, expected: tuple[int, ...]) -> None:
    assert moment(stated, NOW_S) == calendar.timegm(expected)


@pytest.mark.parametrize(
    "stated", ["", "-", "Apr 31 00:00 2026", "Foo 1 00:00 2026", "2026-04-12", "Apr 1 25:00"]
)
def test_what_is_no_moment_is_none(stated: str) -> None:
    assert moment(stated, NOW_S) is None


def test_memory_hosts_and_gpus() -> None:
    assert (mebibytes("9 Mbytes"), mebibytes("503.5G"), mebibytes("2T"), mebibytes("-")) == (
        9,
        515_584,
        2_097_152,
        None,
    )
    assert counted_hosts("8*hostA:4*hostB") == {"hostA": 8, "hostB": 4}
    assert counted_hosts("hostA:hostA:hostB") == {"hostA": 2, "hostB": 1}
    assert granted_gpus("nodes-1:0,1;nodes-2:0,1") == {"nodes-1": 2, "nodes-2": 2}


@pytest.mark.parametrize("broken", ["nodes-1", "nodes-1:", "nodes-1:a", ":0", "nodes-1:0;;"])
def test_lists_of_gpus_that_cannot_be_read_are_errors(broken: str) -> None:
    with pytest.raises(ValueError, match="no list of GPUs"):
        granted_gpus(broken)
