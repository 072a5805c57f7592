"""Values of LSF's records: all of them texts, times with units or without a year, unset ones empty."""

import calendar
import re
import time
from collections.abc import Mapping

Record = Mapping[str, str]

UNSET = ("", "-")
_UNITS_S = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(second|minute|hour|day)?(?:\(s\)|s)?(?:/\S+)?", re.IGNORECASE)
_CLOCK = re.compile(r"(\d+):(\d\d):(\d\d)")
_MOMENT = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) +(\d\d):(\d\d)(?::(\d\d))?(?: +(\d{4}))?(?: +[LEX])?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:B|bytes?)?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}
_DAY_S = 86_400.0


def text(record: Record, name: str) -> str:
    """A text; empty where it is not set."""
    value = record.get(name, "").strip()
    return "" if value in UNSET else value


def whole(record: Record, name: str) -> int | None:
    """A whole number that is not negative; None where there is none."""
    value = text(record, name)
    return int(value) if value.isdecimal() else None


def seconds(value: str, unit_s: float = 1.0) -> float | None:
    """``34 second(s)``, ``00:00:34`` or a plain number; None if it is none of these.

    Args:
        value: The text.
        unit_s: What a plain number counts, s.
    """
    if found := _CLOCK.fullmatch(value.strip()):
        return int(found[1]) * 3600.0 + int(found[2]) * 60.0 + int(found[3])
    found = _AMOUNT.fullmatch(value.strip())
    if not found:
        return None
    return float(found[1]) * (_UNITS_S[found[2].lower()] if found[2] else unit_s)


def moment(value: str, now_s: float, ahead_s: float = _DAY_S) -> float | None:
    """``Apr 12 22:27:01 2026 L`` as seconds since 1970; None if it is no time.

    Args:
        value: The text, in UTC. Letters at its end say how a finish is known.
        now_s: Now, for texts without a year: the last year in which the time is past is taken.
        ahead_s: So far ahead of now a time may still be past, as clocks differ.
    """
    found = _MOMENT.fullmatch(value.strip())
    if not found or found[1] not in _MONTHS:
        return None
    rest = (_MONTHS[found[1]], int(found[2]), int(found[3]), int(found[4]), int(found[5] or 0))
    if found[6]:
        return _since_1970(int(found[6]), rest)
    year = time.gmtime(now_s).tm_year
    # 29 February exists in one of five years in a row at most twice: look back until there is one.
    known = [_since_1970(one, rest) for one in range(year + 1, year - 9, -1)]
    return next((one for one in known if one is not None and one <= now_s + ahead_s), None)


def _since_1970(year: int, rest: tuple[int, int, int, int, int]) -> float | None:
    month, day, hour, minute, second = rest
    if not 1 <= day <= calendar.monthrange(year, month)[1] or hour > 23 or minute > 59 or second > 60:
        return None
    return float(calendar.timegm((year, month, day, hour, minute, second)))


def mebibytes(value: str) -> int | None:
    """``503.5G`` or ``9 Mbytes``; None if it cannot be read."""
    found = _MEMORY.fullmatch(value.strip())
    return round(float(found[1]) * _MIB[found[2].upper()]) if found else None


def counted_hosts(value: str) -> dict[str, int]:
    """``8*hostA:4*hostB`` or ``hostA:hostA`` as slots on each host.

    Raises:
        ValueError: if it is something else.
    """
    found: dict[str, int] = {}
    for part in re.split(r"[:\s]+", value.strip()):
        if not part:
            continue
        count, star, name = part.rpartition("*")
        if (star and not count.isdecimal()) or not name:
            raise ValueError(f"{part!r} is no host")
        found[name] = found.get(name, 0) + (int(count) if star else 1)
    return found


def granted_gpus(value: str) -> dict[str, int]:
    """``hostA:0,1;hostB:3`` as GPUs on each host.

    Raises:
        ValueError: if it is something else.
    """
    found: dict[str, int] = {}
    for part in value.split(";"):
        name, between, ids = part.strip().rpartition(":")
        numbers = [one for one in ids.split(",") if one.strip()]
        if not between or not name or not numbers or not all(one.strip().isdecimal() for one in numbers):
            raise ValueError(f"{part!r} is no list of GPUs")
        found[name] = found.get(name, 0) + len(numbers)
    return found
