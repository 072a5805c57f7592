"""Prices of energy: what is read, what is refused, and when prices change."""

import math

import pytest

from gpuyard.errors import InputError
from gpuyard.metrics.tariff import Tariff, parse_tariff

DAY_S = 86400.0


@pytest.mark.parametrize("price", [0.25, "0.25", " 0.25 ", "0-24:0.25"])
def test_a_flat_price(price: float | str) -> None:
    tariff = parse_tariff(price)
    assert (tariff.flat, tariff.document) == (0.25, 0.25)
    assert (tariff.hours, tariff.prices) == ((0.0, 24.0), (0.25,))


def test_prices_by_hour_of_the_day() -> None:
    tariff = parse_tariff("0-6.5:0.12, 6.5-20:0.31,20-24:1e-2")
    assert tariff.hours == (0.0, 6.5, 20.0, 24.0)
    assert tariff.prices == (0.12, 0.31, 0.01)
    assert tariff.flat is None
    assert tariff.document == "0-6.5:0.12, 6.5-20:0.31,20-24:1e-2"
    assert parse_tariff(tariff) is tariff


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a price per kWh"),
        ("cheap", "expected a price per kWh"),
        ("-1", "expected a price per kWh, 0 or more"),
        ("nan", "expected a price per kWh"),
        ("inf", "expected a price per kWh"),
        ("0-24:-1", "'-1' is no price"),
        ("0-24:x", "'x' is no price"),
        ("0-12:1,12-24:inf", "'inf' is no price"),
        ("0-7:1,8-24:2", "'8-24:2' begins at hour 8, expected 7"),
        ("0-7:1,6-24:2", "'6-24:2' begins at hour 6, expected 7"),
        ("7-24:2,0-7:1", "'7-24:2' begins at hour 7, expected 0"),
        ("0-7:1,7-20:2", "ends at hour 20, expected 24"),
        ("0-7:1,7-7:2,7-24:3", "'7-7:2' does not end after it begins"),
        ("0-20:1,20-7:2", "'20-7:2' does not end after it begins; write a span over midnight as two"),
        ("0-25:1", "'25' is no hour from 0 to 24"),
        ("0-x:1", "'x' is no hour from 0 to 24"),
        ("0-24:1,", "cannot read ''"),
        ("0-12,12-24:1", "cannot read '0-12'"),
        ("0:1", "cannot read '0:1'"),
    ],
)
def test_what_is_no_tariff_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_tariff(text, "--energy-price")
    assert str(caught.value).startswith(f"--energy-price {text}: ")
    assert message in str(caught.value)


def test_not_a_number_is_no_price() -> None:
    with pytest.raises(InputError, match="expected a price per kWh"):
        parse_tariff(math.nan)


def spans(tariff: Tariff, from_s: float, to_s: float, midnight_s: float) -> list[tuple[float, float, float]]:
    """(from, to, price) of every span that is not empty."""
    times, prices = tariff.between(from_s, to_s, midnight_s)
    pairs = zip(times[:-1].tolist(), times[1:].tolist(), prices.tolist(), strict=True)
    return [span for span in pairs if span[0] < span[1]]


def test_prices_change_at_the_same_hours_every_day() -> None:
    tariff = parse_tariff("0-6:1,6-24:2")
    # Midnight at -3 h: from 3 o'clock on the first day to 7 o'clock on the third.
    assert spans(tariff, 0.0, 2 * DAY_S + 4 * 3600, -3 * 3600.0) == [
        (0.0, 3 * 3600.0, 1.0),
        (3 * 3600.0, 21 * 3600.0, 2.0),
        (21 * 3600.0, 27 * 3600.0, 1.0),
        (27 * 3600.0, 45 * 3600.0, 2.0),
        (45 * 3600.0, 51 * 3600.0, 1.0),
        (51 * 3600.0, 52 * 3600.0, 2.0),
    ]


def test_a_time_span_within_one_price() -> None:
    tariff = parse_tariff("0-6:1,6-24:2")
    assert spans(tariff, 7 * 3600.0, 8 * 3600.0, 0.0) == [(7 * 3600.0, 8 * 3600.0, 2.0)]
    assert spans(tariff, 6 * 3600.0, 24 * 3600.0, 0.0) == [(6 * 3600.0, 24 * 3600.0, 2.0)]
    assert spans(tariff, 0.0, 0.0, 0.0) == []
