"""Values of Slurm's JSON, in the shape of 22.05 and in that of 23.02 and later.

The old one has plain numbers and one word for a state. The new one has ``{"set": true, "infinite": false,
"number": 5}`` and lists of words. Both appear in one record, so each value is read as it comes.
"""

import re
from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]

_UNSET = (2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1)
"""How Slurm writes "not set" and "without limit" where it writes numbers."""
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def number(record: Record, name: str) -> float | None:
    """A number; None where it is not set, without limit, or none."""
    value = record.get(name)
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value in _UNSET:
        return None
    return value


def whole(record: Record, name: str) -> int:
    """A whole number that is not negative; 0 where there is none."""
    found = number(record, name)
    return int(found) if found is not None and found > 0 else 0


def moment(record: Record, name: str) -> float | None:
    """Seconds since 1970; None if it has not happened, which Slurm writes as 0."""
    found = number(record, name)
    return float(found) if found is not None and found > 0 else None


def text(record: Record, name: str) -> str:
    """A text; empty where there is none."""
    value = record.get(name)
    return value if isinstance(value, str) and value not in ("(null)", "N/A") else ""


def words(record: Record, *names: str) -> tuple[str, ...]:
    """Words in capitals, of values that are one word or a list of them."""
    found: list[str] = []
    for name in names:
        value = record.get(name)
        listed = value if isinstance(value, list) else [value]
        found += [one.upper() for one in listed if isinstance(one, str) and one]
    return tuple(dict.fromkeys(found))


def table(record: Record, name: str) -> Record:
    """An object; empty where there is none."""
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def rows(record: Record, name: str) -> list[Record]:
    """The objects of a list."""
    value = record.get(name)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def tres(record: Record, name: str) -> dict[str, str]:
    """Trackable resources such as ``cpu=16,mem=62.50G,node=2``, by name."""
    pairs = (part.partition("=") for part in text(record, name).split(","))
    return {key.strip().lower(): amount.strip() for key, found, amount in pairs if found}


def mebibytes(amount: str) -> int:
    """``62.50G`` as 64000; 0 if it cannot be read."""
    found = _MEMORY.fullmatch(amount)
    return round(float(found[1]) * _MIB[found[2]]) if found else 0


def release(answer: Record) -> str:
    """The version that answered, such as ``22.05.8``; empty if it does not say."""
    meta = table(answer, "meta")
    return text(table(meta, "slurm") or table(meta, "Slurm"), "release")
