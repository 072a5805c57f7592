"""Charts: where marks lie, what axes say, and that nothing from a log becomes markup."""

import re
import xml.etree.ElementTree as ET

import pytest

from gpuyard.report.pages import charts
from gpuyard.report.pages.charts import Axis, Series

EVIL = "<script>alert(1)</script>"
SVG = "{http://www.w3.org/2000/svg}"


def parsed(figure: str) -> ET.Element:
    """The chart, which must be well-formed."""
    return ET.fromstring(figure)


def bars(figure: str) -> list[dict[str, float]]:
    names = ("x", "y", "width", "height")
    return [{name: float(rect.attrib[name]) for name in names} for rect in parsed(figure).iter("rect")]


def texts(figure: str) -> list[str]:
    return [text.text or "" for text in parsed(figure).iter("text")]


def test_bars_are_as_high_as_their_values() -> None:
    figure = charts.bar_chart("t", ["a", "b"], [Series("s", [1.0, 2.0])], charts.linear_axis("jobs", 2.0))
    low, high = bars(figure)
    room = charts.HEIGHT - charts.TOP - charts.BOTTOM
    assert high["height"] == pytest.approx(room, abs=0.1)
    assert low["height"] == pytest.approx(room / 2, abs=0.1)
    assert low["y"] + low["height"] == pytest.approx(high["y"] + high["height"], abs=0.2)


def test_a_bar_of_nothing_is_not_drawn() -> None:
    figure = charts.bar_chart("t", ["a", "b"], [Series("s", [0.0, 2.0])], charts.linear_axis("jobs", 2.0))
    assert len(bars(figure)) == 1


def test_bars_of_several_series_stand_side_by_side() -> None:
    series = [Series("one", [1.0]), Series("two", [1.0])]
    first, second = bars(charts.bar_chart("t", ["a"], series, charts.linear_axis("jobs", 1.0)))
    assert first["x"] + first["width"] == pytest.approx(second["x"], abs=0.2)


def test_labels_are_thinned_out_where_they_would_overlap() -> None:
    labels = [f"label {k}" for k in range(40)]
    figure = charts.bar_chart("t", labels, [Series("s", [1.0] * 40)], charts.linear_axis("jobs", 1.0))
    shown = [text for text in texts(figure) if text.startswith("label")]
    assert 5 < len(shown) < 15


def test_histogram_bars_span_their_bins_on_a_log_scale() -> None:
    x = charts.duration_axis("duration", 1.0, 100.0)
    figure = charts.histogram(
        "t", [1.0, 10.0, 100.0], [Series("s", [1.0, 1.0])], x, charts.share_axis("share")
    )
    first, second = bars(figure)
    assert first["width"] == pytest.approx(second["width"], abs=0.2)


def test_lines_go_through_their_points() -> None:
    x, y = charts.linear_axis("x", 10.0), charts.linear_axis("y", 10.0)
    figure = charts.line_chart("t", [[0.0, 10.0]], [Series("s", [0.0, 10.0])], x, y)
    path = next(p.attrib["d"] for p in parsed(figure).iter("path") if "stroke-width" in p.attrib)
    left, right = charts.LEFT, charts.WIDTH - charts.RIGHT
    top, bottom = charts.TOP, charts.HEIGHT - charts.BOTTOM
    assert path == f"M{left:.1f} {bottom:.1f}L{right:.1f} {top:.1f}"
    stepped = charts.line_chart("t", [[0.0, 10.0]], [Series("s", [0.0, 10.0])], x, y, steps=True)
    assert f"H{right:.1f}V{top:.1f}" in stepped


def test_a_limit_is_marked_if_it_is_in_sight() -> None:
    x, y = charts.linear_axis("x", 10.0), charts.linear_axis("y", 2.0)
    one = [Series("s", [0.0, 1.0])]
    assert "all GPUs" in charts.line_chart("t", [[0.0, 1.0]], one, x, y, limit=(1.0, "all GPUs"))
    assert "all GPUs" not in charts.line_chart("t", [[0.0, 1.0]], one, x, y, limit=(5.0, "all GPUs"))


def test_values_beyond_the_axis_stay_in_the_picture() -> None:
    x, y = charts.linear_axis("x", 1.0), charts.linear_axis("y", 1.0)
    figure = charts.line_chart("t", [[0.0, 1.0]], [Series("s", [0.0, 99.0])], x, y)
    assert f" {charts.TOP:.1f}" in figure


def test_cumulative_curves_rise_to_the_whole() -> None:
    figure = charts.cdf_chart(
        "t", [Series("jobs", [1.0, 10.0, 100.0])], charts.duration_axis("d", 1.0, 100.0)
    )
    path = next(p.attrib["d"] for p in parsed(figure).iter("path") if "stroke-width" in p.attrib)
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] == charts.TOP


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (2.0, ["0", "0.5", "1", "1.5", "2"]),
        (9.0, ["0", "2", "4", "6", "8", "10"]),
        (43_000.0, ["0", "10k", "20k", "30k", "40k", "50k"]),
        (3.1e6, ["0", "1M", "2M", "3M", "4M"]),
        (0.0, None),
    ],
)
def test_axes_have_round_ticks_that_reach_the_largest_value(high: float, ticks: list[str] | None) -> None:
    axis = charts.linear_axis("x", high)
    assert axis.high >= high
    if ticks is not None:
        assert [text for _, text in axis.ticks] == ticks


def test_time_axes_have_ticks_that_people_know() -> None:
    texts_shown = [text for _, text in charts.duration_axis("d", 1.0, 100_000.0).ticks]
    assert texts_shown == ["1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d"]
    axis = Axis(1.0, 100.0, "d", (), log=True)
    assert axis.share(10.0) == pytest.approx(0.5)


def test_shares_read_in_percent() -> None:
    assert [text for _, text in charts.share_axis("s", 0.4).ticks] == ["0 %", "10 %", "20 %", "30 %", "40 %"]


def test_charts_have_a_title_a_description_and_a_legend() -> None:
    series = [Series("share of jobs", [0.2]), Series("share of GPU time", [0.9])]
    figure = charts.bar_chart("Gang sizes", ["8"], series, charts.share_axis("share"))
    assert parsed(figure).find("svg").attrib["role"] == "img"  # type: ignore[union-attr]
    assert "<title>Gang sizes</title>" in figure
    assert "share of GPU time: 1 values up to 0.9 at 8." in figure
    assert figure.count('class="key"') == 2
    assert 'class="key"' not in charts.bar_chart("t", ["8"], series[:1], charts.share_axis("share"))


def test_names_from_logs_never_become_markup() -> None:
    y = charts.linear_axis(EVIL, 1.0)
    one = [Series(EVIL, [1.0]), Series("b", [1.0])]
    figures = [
        charts.bar_chart(EVIL, [EVIL], one, y, EVIL),
        charts.histogram(EVIL, [1.0, 2.0], one, charts.duration_axis(EVIL, 1.0, 2.0), y),
        charts.line_chart(EVIL, [[0.0], [0.0]], one, charts.linear_axis(EVIL, 1.0), y, limit=(0.5, EVIL)),
        charts.cdf_chart(EVIL, [Series(EVIL, [1.0, 2.0])], charts.duration_axis(EVIL, 1.0, 2.0)),
    ]
    for figure in figures:
        assert "<script" not in figure
        assert "&lt;script&gt;" in figure
        parsed(figure)


def test_colours_come_from_the_page() -> None:
    figure = charts.bar_chart("t", ["a"], [Series("s", [1.0])], charts.linear_axis("jobs", 1.0))
    assert "var(--series-1, currentColor)" in figure
    assert "prefers-color-scheme: dark" in charts.COLOURS
