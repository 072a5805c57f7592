"""Distributions by hand-computed numbers, and pages that are whole, quiet and safe."""

import json
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from gpuyard.cluster.model import parse_cluster
from gpuyard.report.pages.workload import card_page, description_page
from gpuyard.terminal.workload import bar, card_table, distribution_tables, import_table, sparkline
from gpuyard.workload import Workload, describe, make_workload
from gpuyard.workload.auditing.audit import audit
from gpuyard.workload.distributions import distributions, gini
from gpuyard.workload.importing import Finding, ImportReport
from gpuyard.workload.shaping.shape import relabel_groups
from support.written_pages import OWN_SCRIPTS, WrittenPage

EVIL = "<script>alert(1)</script>"
SEPTEMBER_S = 1_598_918_400.0  # 2020-09-01 00:00, a Tuesday


def make(epoch_s: float = SEPTEMBER_S, **columns: Any) -> Workload:
    frame = {
        "submit_s": [0.0, 3600.0, 3700.0, 2 * 86400.0],
        "duration_s": [5.0, 50.0, 500.0, 500.0],
        "gpus": [1, 1, 2, 4],
        "user": ["ann", "ann", "bob", "eve"],
    }
    return make_workload(pl.DataFrame(frame | columns), name="four", epoch_s=epoch_s)


# Distributions


def test_durations_fall_into_logarithmic_bins() -> None:
    spread = distributions(make())["durations"]
    edges = spread["edges_s"]
    assert edges[0] <= 5.0
    assert edges[-1] >= 500.0
    assert edges[4] / edges[0] == pytest.approx(10.0)
    assert sum(spread["jobs"]) == 4
    work = {5.0: 5, 50.0: 50, 500.0: 3000}
    for low, high, share in zip(edges, edges[1:], spread["share_of_gpu_time"], strict=False):
        inside = sum(gpu_s for value, gpu_s in work.items() if low <= value < high)
        assert share == pytest.approx(inside / 3055)


def test_cumulative_curves_are_quantiles_of_jobs_and_of_gpu_time() -> None:
    spread = distributions(make())["durations"]
    assert len(spread["quantiles_s"]) == 101
    assert (spread["quantiles_s"][0], spread["quantiles_s"][50], spread["quantiles_s"][100]) == (
        5.0,
        275.0,
        500.0,
    )
    assert spread["gpu_time_quantiles_s"][1] == 50.0
    assert spread["gpu_time_quantiles_s"][2] == 500.0


def test_arrivals_are_on_the_log_s_own_clock() -> None:
    arrivals = distributions(make())["arrivals"]
    assert arrivals["dated"]
    assert arrivals["by_hour"][:3] == [2, 2, 0]
    assert arrivals["by_weekday"] == [0, 3, 0, 1, 0, 0, 0]
    undated = distributions(make(epoch_s=7200.0))["arrivals"]
    assert not undated["dated"]
    assert undated["by_hour"][:3] == [2, 2, 0]
    assert undated["by_weekday"] is None


def test_users_have_shares_and_a_lorenz_curve() -> None:
    users = distributions(make())["users"]
    assert users["users"] == 3
    assert [(entry["user"], entry["jobs"]) for entry in users["top"]] == [("eve", 1), ("bob", 1), ("ann", 2)]
    assert users["top"][0]["share_of_gpu_time"] == pytest.approx(2000 / 3055)
    assert users["gini"] == pytest.approx(2 * (55 + 2 * 1000 + 3 * 2000) / (3 * 3055) - 4 / 3)
    assert (users["lorenz"][0], users["lorenz"][100]) == (0.0, pytest.approx(1.0))
    assert distributions(make(user=["", "", "", ""]))["users"] is None


def test_gini_is_0_for_equals_and_near_1_for_one_who_has_all() -> None:
    import numpy as np

    assert gini(np.array([5.0, 5.0, 5.0])) == pytest.approx(0.0)
    assert gini(np.array([0.0] * 99 + [1.0])) == pytest.approx(0.99)
    assert gini(np.zeros(3)) is None


def test_distributions_are_plain_json() -> None:
    for workload in (make(), make(gpus=[0, 0, 0, 0]), make(duration_s=[5.0] * 4)):
        json.loads(json.dumps(distributions(workload, 8), allow_nan=False))


# Pages


def pages(workload: Workload) -> list[str]:
    cluster = parse_cluster("1x4")
    report = ImportReport(
        format=EVIL,
        files=(EVIL,),
        rows_read=5,
        jobs=4,
        merged=0,
        rejected=(Finding(reason=EVIL, rows=1, first=(EVIL,)),),
        assumed=(EVIL,),
    )
    return [
        description_page(describe(workload, cluster), distributions(workload, cluster.total_gpus)),
        description_page(describe(workload), distributions(workload)),
        card_page(audit(workload, cluster, report)),
        card_page(audit(workload)),
    ]


def test_pages_are_whole_and_load_nothing() -> None:
    for html in pages(make()):
        page = WrittenPage(html)
        assert html.startswith("<!DOCTYPE html>")
        assert all(link.startswith("#") for link in page.links)
        assert "http://" not in html.replace("http://www.w3.org", "")
        assert "https://" not in html
        assert "url(" not in html
        assert page.charts


def test_names_from_logs_never_become_markup_in_pages() -> None:
    workload = make_workload(
        make(user=[EVIL] * 4, group=[EVIL] * 4, source_id=[EVIL] * 4).frame, name=EVIL, source=EVIL
    )
    workload = relabel_groups(workload, {EVIL: f"{EVIL}2"})
    for html in pages(workload):
        page = WrittenPage(html)
        assert page.scripts == OWN_SCRIPTS
        assert EVIL in page.text


def test_the_description_shows_every_distribution() -> None:
    page = WrittenPage(pages(make())[0])
    for words in ("Gang sizes", "Durations", "cumulative", "Demand by", "Submits by hour", "day of the week"):
        assert words in page.text
    for words in ("Lorenz", "Gini coefficient", "eve", "load on 1x4", "Quantiles"):
        assert words in page.text
    assert page.places == list(page.data["charts"])
    assert page.charts["Demand by hour"]["levels"] == [{"name": "all GPUs", "value": 1.0}]
    assert WrittenPage(pages(make())[1]).charts["Demand by hour"]["levels"] == []


def test_charts_of_the_description_hold_what_was_counted() -> None:
    workload = make()
    spread = distributions(workload, 4)
    charts = WrittenPage(pages(workload)[0]).charts
    gangs = charts["Gang sizes"]
    assert gangs["labels"] == ["1", "2", "4"]
    assert gangs["series"][0]["y"] == [0.5, 0.25, 0.25]
    assert gangs["series"][1]["y"] == pytest.approx([55 / 3055, 1000 / 3055, 2000 / 3055], rel=1e-4)
    assert charts["Durations"]["edges"] == pytest.approx(spread["durations"]["edges_s"], rel=1e-4)
    assert len(charts["Durations"]["series"][0]["y"]) == len(charts["Durations"]["edges"]) - 1
    cumulative = charts["Durations, cumulative"]["series"][0]
    assert (cumulative["x"][50], cumulative["y"][50]) == (275.0, 0.5)
    assert (cumulative["x"][100], cumulative["y"][100]) == (500.0, 1.0)
    submitted = charts["Jobs submitted by hour"]
    assert submitted["steps"]
    assert submitted["series"][0]["y"][:3] == [1.0, 2.0, 0.0]
    assert submitted["series"][0]["y"][-1] == submitted["series"][0]["y"][-2]  # the last is held to its end
    assert charts["Submits by hour"]["series"][0]["y"] == spread["arrivals"]["by_hour"]
    by_day = charts["Submits by day of the week"]
    assert by_day["series"][0]["y"] == spread["arrivals"]["by_weekday"]


def test_the_card_shows_findings_with_what_to_do() -> None:
    text = WrittenPage(pages(make())[2]).text
    for words in ("serious", "few-jobs", "Checks that found nothing", "duplicated-ids", "peak demand"):
        assert words in text
    assert "How it was made" in WrittenPage(card_page(audit(relabel_groups(make(), {"": "x"})))).text


@pytest.mark.parametrize(
    "columns",
    [{"gpus": [0, 0, 0, 0]}, {"submit_s": [0.0] * 4}, {"duration_s": [1e-6] * 4}, {"user": [""] * 4}],
)
def test_odd_workloads_have_pages_too(columns: dict[str, Any]) -> None:
    for html in pages(make(**columns)):
        WrittenPage(html)


# On a terminal


def shown(thing: Any, width: int = 100) -> str:
    console = Console(width=width, markup=False, emoji=False, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(thing)
    return captured.get()


def test_bars_and_sparklines_are_in_proportion() -> None:
    assert bar(0.0) == ""
    assert bar(0.5, 10) == "█████"
    assert bar(1 / 16, 2) == "▏"
    assert bar(2.0, 3) == "███"
    assert sparkline([0, 1, 4, 8]) == " ▁▄█"
    assert sparkline([0, 0]) == "  "
    assert sparkline([1, 1000]) == "▁█"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_terminal(width: int) -> None:
    workload = make()
    report = ImportReport(
        format="swf",
        files=("a.swf",),
        rows_read=9,
        jobs=4,
        merged=2,
        rejected=(Finding(reason="no GPUs", rows=3, first=("a.swf:1", "a.swf:2", "a.swf:3")),),
        assumed=("times are UTC",),
    )
    for thing in (
        distribution_tables(distributions(workload, 4)),
        card_table(audit(workload, parse_cluster("1x4"), report)),
        import_table(report),
    ):
        assert max(len(line) for line in shown(thing, width).splitlines()) <= width


def test_the_import_report_balances_on_the_terminal() -> None:
    report = ImportReport(
        format="swf",
        files=("a.swf",),
        rows_read=9,
        jobs=4,
        merged=2,
        rejected=(Finding(reason="no GPUs", rows=3, first=("a.swf:1", "a.swf:2", "a.swf:3")),),
        repaired=(Finding(reason="duration 0 made 1 s", rows=1, first=("a.swf:7",)),),
        assumed=("times are UTC",),
    )
    lines = [line.strip() for line in shown(import_table(report)).splitlines()]
    assert any(line.startswith("3  rejected: no GPUs") and "a.swf:1, a.swf:2, ..." in line for line in lines)
    assert any(line.startswith("1  repaired: duration 0 made 1 s") for line in lines)
    assert any(line.startswith("2  merged") for line in lines)
    assert "Assumed: times are UTC." in lines
