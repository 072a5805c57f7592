"""What a report holds: packed columns, charts as data, traces, and escaped names."""

import base64
import gzip
import json
import re
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpuyard.config import SimulationConfig
from gpuyard.evaluate import Difference
from gpuyard.evaluate.findings import findings
from gpuyard.evaluate.wording import PAGE, TERMINAL, sentences
from gpuyard.report import write_report
from gpuyard.report.document import page
from gpuyard.report.figures import BINS, MOST_LINES, Palette, cdf_charts, time_charts
from gpuyard.report.frame import script_json
from gpuyard.report.model import Report
from gpuyard.report.schedules.gantt import gantt_data
from gpuyard.report.schedules.packing import LARGEST, Column, pack_columns
from gpuyard.report.schedules.perfetto import trace_events, write_perfetto
from gpuyard.report.sources import read_sources
from gpuyard.report.words import interval, percent
from support.evaluation_cases import comparison_of
from support.report_cases import NASTY, compared, jobs_with_names, simulated
from support.sample_runs import write_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return read_sources([simulated(tmp_path_factory.mktemp("simulation"))])[0]


def unpacked(layout: list[list[Any]], data: str) -> dict[str, list[int]]:
    """What packing.js does, in Python."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(data)), np.uint8)
    columns, at = {}, 0
    for name, count, width, differences in layout:
        folded = sum(
            planes[at + k * count : at + (k + 1) * count].astype(np.int64) << (8 * k) for k in range(width)
        )
        values = (folded >> 1) ^ -(folded & 1)
        columns[name] = (np.cumsum(values) if differences else values).tolist()
        at += count * width
    assert at == len(planes)
    return columns


def test_packed_columns_come_back_as_they_were() -> None:
    columns = {
        "sorted": Column(np.array([5, 5, 9, 1_000_000_000]), differences=True),
        "signed": Column(np.array([0, -1, 1, -LARGEST, LARGEST])),
        "falling": Column(np.array([9, 3, -4]), differences=True),
        "none": Column(np.array([], np.int32)),
    }
    packed = pack_columns(columns)
    expected = {name: column.values.tolist() for name, column in columns.items()}
    assert unpacked(packed["columns"], packed["data"]) == expected


def test_the_gantt_holds_each_job_where_and_when_it_ran(report: Report) -> None:
    made = gantt_data(report, list(report.schedules))
    assert made is not None
    about, data = made
    jobs = unpacked(about["layouts"]["jobs"], data["jobs"])
    names = json.loads(zlib.decompress(base64.b64decode(data["names"])))
    for policy in about["policies"]:
        frame = report.schedules[policy["name"]]
        own = unpacked(about["layouts"][policy["columns"]], data[policy["columns"]])
        start = (np.array(jobs["submit"]) + own["wait"]) * about["unit_s"]
        end = start + (np.array(jobs["duration"]) + own["extra"]) * about["unit_s"]
        np.testing.assert_allclose(start, frame["start_s"], atol=0.001)
        np.testing.assert_allclose(end, frame["end_s"], atol=0.0015)
        assert own["node"] == frame["nodes"].explode().to_list()
        assert own["held"] == frame["node_gpus"].explode().to_list()
        assert [names["user"][code] for code in jobs["user"]] == frame["user"].to_list()
        assert names["id"] == frame["source_id"].to_list()


def test_pieces_of_preempted_jobs_are_bars_of_their_own(tmp_path: Path) -> None:
    directory = simulated(tmp_path, ("srtf+greedy",), config=SimulationConfig(min_run_s=0))
    report = read_sources([directory])[0]
    runs = next(iter(report.runs.values()))
    assert len(runs) > 300, "no job was stopped, so this shows nothing"
    made = gantt_data(report, list(report.schedules))
    assert made is not None
    own = unpacked(made[0]["layouts"]["policy-0"], made[1]["policy-0"])
    assert own["piece_job"] == runs["entry"].to_list()
    np.testing.assert_allclose(np.array(own["piece_from"]) * 0.001, runs["taken_s"], atol=0.001)


def test_a_gantt_that_would_be_too_large_is_cut_and_says_so(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuyard.report.schedules.gantt.MOST_BARS", 300)
    made = gantt_data(report, list(report.schedules))
    assert made is not None
    assert re.search(r"the first \d+ of 300 jobs", made[0]["note"])
    assert made[0]["jobs"] < 300


def test_distributions_reach_from_the_least_to_the_greatest(report: Report) -> None:
    chart = next(one for one in cdf_charts(report, Palette.of(report)) if one["id"] == "cdf-wait")
    for name, series in zip(Palette.of(report).colours, chart["series"], strict=True):
        wait = report.schedules[name].select(pl.col("start_s") - pl.col("submit_s")).to_series()
        assert series["x"][-1] == pytest.approx(wait.max(), rel=1e-4)
        assert series["y"][0] == 0
        assert series["y"][-1] == 1


def test_means_over_time_add_up_to_what_was_held(report: Report) -> None:
    use, queue = time_charts(report, Palette.of(report))
    for name, series, waiting in zip(Palette.of(report).colours, use["series"], queue["series"], strict=True):
        frame = report.schedules[name]
        assert len(series["y"]) == BINS
        span = 2 * (series["x"][1] - series["x"][0]) / 2
        held = frame.select(((pl.col("end_s") - pl.col("start_s")) * pl.col("gpus")).sum()).item()
        assert sum(series["y"]) * span * 16 == pytest.approx(held, rel=1e-3)
        waited = frame.select((pl.col("start_s") - pl.col("submit_s")).sum()).item()
        assert sum(waiting["y"]) * span == pytest.approx(waited, rel=2e-3)


def test_a_trace_has_a_slice_for_every_gpu_of_every_job_and_none_overlap(
    report: Report, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json.gz"
    name = write_perfetto(path, report)
    document = json.loads(gzip.decompress(path.read_bytes()))
    slices = [event for event in document["traceEvents"] if event["ph"] == "X"]
    frame = report.schedules[name]
    assert len(slices) == frame["gpus"].sum()
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in slices:
        place = threads.setdefault((event["pid"], event["tid"]), [])
        place.append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        assert all(after[0] >= before[1] for before, after in pairwise(sorted(spans)))
    assert {tid for _, tid in threads} == {1, 2, 3, 4}
    named = {event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"}
    assert "node 3" in named
    waiting = [event["args"] for event in document["traceEvents"] if event["name"] == "jobs waiting"]
    assert waiting[-1] == {"jobs waiting": 0.0}


def test_json_in_the_page_cannot_end_its_element() -> None:
    text = script_json({name: name for name in NASTY})
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == {name: name for name in NASTY}


def test_no_name_becomes_markup(report: Report) -> None:
    text = page(report, [])
    scripts = re.findall(r"<script[^>]*>", text)
    known = ['<script type="application/json" id="data">', "<script>"]
    assert [one for one in scripts if "packed-" not in one] == known
    assert "<img" not in text
    assert "<i>nasty" not in text
    assert "&lt;i&gt;nasty" in text
    (data,) = re.findall(r'id="data">(.*?)</script>', text)
    rows = json.loads(data)["charts"]["by-user"]["choices"]["mean wait"]["rows"]
    assert {row["name"] for row in rows} == set(NASTY)


def test_the_page_forbids_the_network_and_other_scripts(report: Report) -> None:
    text = page(report, [])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)


def test_a_comparison_is_reported_without_being_written_first(tmp_path: Path) -> None:
    path = tmp_path / "own.html"
    write_report(path, [compared()])
    assert "95 % interval" in path.read_text(encoding="utf-8")


def test_a_report_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    directory = simulated(tmp_path / "simulation", jobs=jobs_with_names(50))
    for name in ("a.html", "b.html"):
        write_report(tmp_path / name, [directory])
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (-0.1234, "−12.3 %"),
        (0.004, "+0.4 %"),
        (0.0, "0.0 %"),
        (5.3, "×6.3"),
        (-0.9983, "−99.83 %"),
        (None, "-"),
    ],
)
def test_differences_read_well(ratio: float | None, text: str) -> None:
    assert percent(ratio) == text


def test_the_page_tells_the_same_findings_in_its_own_notation() -> None:
    base = [2.0 + 0.1 * (i % 7) for i in range(40)]
    found = comparison_of(
        {"base": base, "user-1": [4.5 * one for one in base], "b": [0.9 * one for one in base]}
    )
    told = [sentences(found, findings(found), notation) for notation in (TERMINAL, PAGE)]
    assert [len(one) for one in told] == [len(findings(found))] * 2
    terminal, page = (" ".join(lines) for lines in told)
    assert "b: better in windows, but limits on waits were not checked (none are set). Mean" in page
    assert "Mean bounded slowdown is 10 % lower than base" in page
    assert "is 350 % higher than base (worse; 95 % interval +350 % to +350 %)" in terminal
    assert "is 4.5 times that of base (worse; 95 % interval ×4.5 to ×4.5)" in page
    assert "95 % interval -10 % to -10 %)" in terminal
    assert "95 % interval −10 % to −10 %)" in page
    assert "ties" not in {one.kind for one in findings(found)}


def test_an_interval_names_both_ends() -> None:
    assert interval(Difference(-0.2, -0.3, 0.1, "tie", 4.0, 5.0)) == "−30.0 % to +10.0 %"
    assert interval(Difference.without_interval(4.0, 5.0)) == ""


def test_jobs_that_share_a_gpu_do_not_overlap_in_a_trace(tmp_path: Path) -> None:
    count = 60
    jobs = jobs_with_names(count, gpus=[1] * count, gpu_milli=[300] * count, duration_s=[4000.0] * count)
    report = read_sources([simulated(tmp_path, ("fifo+greedy",), jobs=jobs)])[0]
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in trace_events(report, report.best):
        if event["ph"] == "X":
            spans = threads.setdefault((event["pid"], event["tid"]), [])
            spans.append((event["ts"], event["ts"] + event["dur"]))
    assert len(threads) > 16, "no GPU is shared, so this shows nothing"
    for spans in threads.values():
        assert all(after[0] >= before[1] for before, after in pairwise(sorted(spans)))


def test_episodes_by_return_are_reported_without_a_cluster() -> None:
    comparison = compared()
    setting = replace(comparison.setting, kind="episodes", metric="return", lower_is_better=False, cluster={})
    windows = comparison.windows.select("policy", "window", (-pl.col("mean_wait_s")).alias("return"))
    episodes = replace(
        comparison,
        setting=setting,
        windows=windows,
        classes=comparison.classes.head(0),
        jobs=None,
        schedules={},
    )
    report, runs = read_sources([episodes])
    assert report.best == episodes.ranking()[0]
    text = page(report, runs)
    assert 'id="gantt"' not in text
    assert 'data-chart="change"' in text


def test_curves_of_the_run_that_a_policy_comes_from_are_found(tmp_path: Path) -> None:
    comparison = compared()
    home = write_run(tmp_path / "ppo-1")
    learned = replace(comparison.policies[0], kind="learned", source=str(home / "best.safetensors"))
    gone = replace(comparison.policies[1], kind="learned", source=str(tmp_path / "gone" / "best.safetensors"))
    report, runs = read_sources([replace(comparison, policies=(learned, gone, *comparison.policies[2:]))])
    assert [run.directory for run in runs] == [home]
    assert 'data-chart="validation"' in page(report, runs)


def test_charts_show_what_was_asked_for_before_better_policies() -> None:
    values = {f"policy-{i:02}": [1.0 + i, 1.1 + i, 1.3 + i] for i in range(MOST_LINES + 3)}
    report, _ = read_sources([comparison_of(values)])
    worst, second = list(values)[-1], list(values)[-2]
    asked = {worst: "given", report.reference: "reference"}
    standings = [replace(one, role=asked.get(one.name, "rival")) for one in report.standings]
    shown = Palette.of(replace(report, standings=standings, subject=worst)).colours
    assert len(shown) == MOST_LINES
    assert worst in shown
    assert second not in shown
    standings = [replace(one, role="given" if one.name == second else one.role) for one in standings]
    assert second in Palette.of(replace(report, standings=standings, subject=worst)).colours
