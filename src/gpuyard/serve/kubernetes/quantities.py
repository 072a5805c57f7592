"""Amounts and moments as Kubernetes writes them."""

import calendar
import re
import time
from decimal import Decimal

_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]{1,2})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u)?")
_TENS = {"n": -9, "u": -6, "m": -3, None: 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_TWOS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SCALES = {name: Decimal(10) ** power for name, power in _TENS.items()} | {
    name: Decimal(2) ** power for name, power in _TWOS.items()
}


def quantity(text: object) -> Decimal:
    """An amount such as ``250m``, ``1.5`` or ``16Gi``.

    Raises:
        ValueError: if it is none.
    """
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    try:
        return Decimal(found[1]) * _SCALES[found[2]]
    except ArithmeticError:
        raise ValueError(f"{text!r} is no quantity") from None


def moment(text: str | None) -> float | None:
    """Unix time of ``2026-01-31T12:00:00Z``, with or without fractions; None of None."""
    if not text:
        return None
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return seconds + float(f"0.{fraction}") if fraction else float(seconds)


def stamp(now_s: float) -> str:
    """The same the other way, with microseconds, as Leases have it."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s))
    return f"{whole}.{int(now_s % 1 * 1e6):06d}Z"
