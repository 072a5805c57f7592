"""The price of energy: one price, or one for each span of hours of the day."""

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuyard.errors import InputError

GRAMMAR = (
    "a price per kWh, 0 or more, or prices of all hours from 0 to 24, such as 0-7:0.12,7-20:0.31,20-24:0.18"
)
DAY_S = 86400.0
_PART = re.compile(r"\s*([^:\s-]+)\s*-\s*([^:\s-]+)\s*:\s*(\S+)\s*")


@dataclass(frozen=True)
class Tariff:
    """Prices of a kWh by hour of the day, in any currency. Make one with ``parse_tariff``.

    Attributes:
        hours: Ascending, from 0 to 24.
        prices: From each hour to the next; one fewer.
        text: What it was made from.
    """

    hours: tuple[float, ...]
    prices: tuple[float, ...]
    text: str

    @property
    def flat(self) -> float | None:
        """The price if it is the same all day, else None."""
        return self.prices[0] if len(self.prices) == 1 else None

    @property
    def document(self) -> float | str:
        """As JSON documents show it: a number if it is flat, else the text."""
        return self.text if self.flat is None else self.flat

    def between(
        self, from_s: float, to_s: float, midnight_s: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Times from one moment to a later one at which the price may change, and the prices in between.

        Args:
            from_s: The first time.
            to_s: The last time.
            midnight_s: Some time, on the same clock, at which a day begins.
        """
        days = np.arange(np.floor((from_s - midnight_s) / DAY_S), np.floor((to_s - midnight_s) / DAY_S) + 1)
        starts = (midnight_s + days[:, None] * DAY_S + np.array(self.hours[:-1]) * 3600).ravel()
        prices = np.tile(np.array(self.prices), len(days))
        times = np.clip(np.append(starts, to_s), from_s, to_s)
        return times, prices


def parse_tariff(price: "float | str | Tariff", where: str = "price of energy") -> Tariff:
    """A tariff from a price, or from a text such as ``0.25`` or ``0-7:0.12,7-20:0.31,20-24:0.18``.

    Args:
        price: The price; a tariff is returned as it is.
        where: What messages call it.

    Raises:
        InputError: if it is not a price, or if the hours leave a gap or overlap.
    """
    if isinstance(price, Tariff):
        return price
    text = str(price)
    if ":" not in text:
        return Tariff((0.0, 24.0), (_price(text, text, where),), text)
    hours, prices = [0.0], []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise InputError(f"{where} {text}: cannot read {part!r}; expected {GRAMMAR}")
        begin, end = (_hour(hour, text, where) for hour in match.groups()[:2])
        if begin != hours[-1]:
            raise InputError(
                f"{where} {text}: {part.strip()!r} begins at hour {begin:g}, expected {hours[-1]:g}; "
                "the hours must go from 0 to 24 without gap or overlap, in order"
            )
        if end <= begin:
            raise InputError(
                f"{where} {text}: {part.strip()!r} does not end after it begins; "
                "write a span over midnight as two"
            )
        hours.append(end)
        prices.append(_price(match[3], text, where))
    if hours[-1] != 24:
        raise InputError(
            f"{where} {text}: ends at hour {hours[-1]:g}, expected 24; give prices for all hours"
        )
    return Tariff(tuple(hours), tuple(prices), text)


def _price(number: str, text: str, where: str) -> float:
    value = _number(number)
    if not 0 <= value < math.inf:
        shown = "" if number == text else f" {number!r} is no price;"
        raise InputError(f"{where} {text}:{shown} expected {GRAMMAR}")
    return value


def _hour(number: str, text: str, where: str) -> float:
    value = _number(number)
    if not 0 <= value <= 24:
        raise InputError(f"{where} {text}: {number!r} is no hour from 0 to 24; expected {GRAMMAR}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
