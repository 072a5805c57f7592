"""Charts for papers: every one, in every format, from the data of the page."""

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="pip install 'gpuyard[figures]'")
from gpuyard.errors import InputError
from gpuyard.report.document import parts_of
from gpuyard.report.figures import Chart
from gpuyard.report.model import Report
from gpuyard.report.paper.choice import find_chart, write_figure
from gpuyard.report.paper.drawing import draw
from gpuyard.report.sources import read_sources
from support.report_cases import compared

HEADS = {".pdf": b"%PDF", ".png": b"\x89PNG", ".svg": b"<?xml"}


@pytest.fixture(scope="module")
def report() -> Report:
    return read_sources([compared()])[0]


@pytest.fixture(scope="module")
def charts(report: Report) -> dict[str, Chart]:
    found: dict[str, Chart] = parts_of(report, (), gantt=False, pareto=True).data["charts"]
    return found


def test_every_chart_is_drawn_with_all_its_series(charts: dict[str, Chart]) -> None:
    for id in charts:
        chart = find_chart(charts, id)
        axes = draw(chart, 8.6).axes[0]
        if chart["kind"] == "rows":
            assert [text.get_text() for text in axes.get_yticklabels()] == [
                row["name"] for row in chart["rows"]
            ]
        elif chart["kind"] == "lines":
            for one, line in zip(chart["series"], axes.get_lines(), strict=False):
                assert list(line.get_xdata()) == one["x"]
        assert axes.get_xlabel()


@pytest.mark.parametrize("ending", sorted(HEADS))
def test_a_figure_is_written_as_its_name_ends_and_the_same_each_time(
    report: Report, tmp_path: Path, ending: str
) -> None:
    paths = [tmp_path / f"{name}{ending}" for name in "ab"]
    for path in paths:
        assert write_figure(path, report, "cdf-wait", width_cm=8.6) == "Wait of jobs"
    assert paths[0].read_bytes().startswith(HEADS[ending])
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_charts_with_choices_are_named_with_one(charts: dict[str, Chart]) -> None:
    assert find_chart(charts, "by-gpus:p99-wait")["x"]["label"] == "p99 wait"
    assert find_chart(charts, "pareto:p99-wait")["kind"] == "points"
    assert find_chart(charts, "per-class-waits")["x"]["label"] == "mean wait"
    assert find_chart(charts, "queue-length")["id"] == "queue"


def test_what_there_is_no_chart_of_is_refused(
    report: Report, charts: dict[str, Chart], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="cdf-wait"):
        find_chart(charts, "cdf-waits")
    with pytest.raises(InputError, match="one of"):
        find_chart(charts, "by-gpus:magic")
    with pytest.raises(InputError, match="2 to 100"):
        write_figure(tmp_path / "x.pdf", report, "cdf-wait", width_cm=0.0)
