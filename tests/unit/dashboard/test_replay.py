"""Replays: pictures, moments and queues against schedules, job by job."""

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpuyard import _core
from gpuyard.config import SimulationConfig
from gpuyard.dashboard.replay.colours import SIZE_STEPS, WAIT_STEPS, colouring
from gpuyard.dashboard.replay.index import ReplayIndex, read_index
from gpuyard.dashboard.replay.moment import find, job_facts, job_on, moment
from gpuyard.dashboard.replay.picture import Stretch, picture
from gpuyard.dashboard.replay.series import series
from gpuyard.dashboard.replay.shelf import Shelf
from gpuyard.dashboard.replay.story import Stories
from gpuyard.errors import InputError
from gpuyard.evaluate.storage import read_outline
from gpuyard.report.frame import resource
from support.report_cases import compared, simulated

from .conftest import Visit

SJF, OTHER = "sjf+easy/consolidate", "wspt+easy/consolidate"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("replay") / "results")


@pytest.fixture(scope="module")
def index(results: Path) -> ReplayIndex:
    return read_index(read_outline(results), SJF, "results")


@pytest.fixture(scope="module")
def table(results: Path) -> pl.DataFrame:
    return pl.read_parquet(read_outline(results).schedules[SJF])


def moments(index: ReplayIndex, count: int = 40) -> list[float]:
    return np.random.default_rng(3).uniform(index.began_s, index.ended_s, count).tolist()


def running(table: pl.DataFrame, at_s: float) -> pl.DataFrame:
    return table.with_row_index("entry").filter((pl.col("start_s") <= at_s) & (at_s < pl.col("end_s")))


def test_each_job_holds_as_many_gpus_of_each_node_as_its_schedule_says(
    index: ReplayIndex, table: pl.DataFrame
) -> None:
    first = index.bars.first_lanes
    assert first.tolist() == [0, 4, 8, 12, 16]
    for at_s in moments(index):
        lanes = index.bars.at(round(at_s * 1e6))
        for entry, nodes, held in running(table, at_s).select("entry", "nodes", "node_gpus").iter_rows():
            for node, gpus in zip(nodes, held, strict=True):
                assert (lanes[first[node] : first[node + 1]] == entry).sum() == gpus
        assert (lanes >= 0).sum() == running(table, at_s)["gpus"].sum()


def test_a_moment_tells_what_runs_and_who_waits(index: ReplayIndex, table: pl.DataFrame) -> None:
    colours = colouring(index, "wait")
    for at_s in moments(index):
        told = moment(index, colours, at_s)
        waiting = table.filter((pl.col("submit_s") <= at_s) & (at_s < pl.col("start_s"))).sort("submit_s")
        assert told["busy_gpus"] == running(table, at_s)["gpus"].sum()
        assert told["running"] == len(running(table, at_s))
        assert told["waiting"] == len(waiting)
        assert [one["row"] for one in told["queue"]] == waiting["row"].to_list()[:60]
        keys = np.frombuffer(base64.b64decode(told["lanes"]), np.uint8)
        assert (keys > 0).sum() == told["busy_gpus"]


def test_a_moment_shows_where_the_chosen_job_runs(index: ReplayIndex, table: pl.DataFrame) -> None:
    job = int(table["gpus"].arg_max())  # type: ignore[arg-type]
    at_s = (table["start_s"][job] + table["end_s"][job]) / 2
    told = moment(index, colouring(index, "job"), at_s, job)
    assert len(told["own"]) == table["gpus"][job]
    assert job_on(index, told["own"][0], at_s) == job
    assert moment(index, colouring(index, "job"), table["end_s"][job], job)["own"] == []


def drawn(index: ReplayIndex, by: str, stretch: Stretch) -> tuple[Any, Any]:
    data = zlib.decompress(picture(index, colouring(index, by), stretch))
    columns, rows = struct.unpack("<II", data[:8])
    cells = np.frombuffer(data[8:], np.uint8).reshape(2, rows, columns)
    return cells[0], cells[1]


def test_a_picture_is_no_finer_than_the_cluster_and_no_larger_than_asked(index: ReplayIndex) -> None:
    whole = Stretch(index.began_s, index.ended_s, 0, 4, 300, 500)
    keys, shares = drawn(index, "user", whole)
    assert keys.shape == (16, 300)
    assert ((keys > 0) == (shares > 0)).all()
    assert drawn(index, "user", Stretch(index.began_s, index.ended_s, 1, 3, 100_000, 3))[0].shape == (3, 2400)


@pytest.mark.parametrize(("nodes", "rows"), [((0, 4), 16), ((0, 4), 3), ((1, 3), 5)])
def test_shares_of_a_picture_add_up_to_the_gpu_time_of_the_stretch(
    index: ReplayIndex, table: pl.DataFrame, nodes: tuple[int, int], rows: int
) -> None:
    from_s, to_s = moments(index, 2)[0], moments(index, 2)[0] + 9_000.0
    _, shares = drawn(index, "wait", Stretch(from_s, to_s, *nodes, 50, rows))
    held = 0.0
    for start_s, end_s, on, gpus in table.select("start_s", "end_s", "nodes", "node_gpus").iter_rows():
        within = max(min(end_s, to_s) - max(start_s, from_s), 0.0)
        held += within * sum(
            count for node, count in zip(on, gpus, strict=True) if nodes[0] <= node < nodes[1]
        )
    lanes = np.diff([row * 4 * (nodes[1] - nodes[0]) // rows for row in range(rows + 1)])
    shown = (shares.mean(axis=1) / 255 * lanes).sum() * (to_s - from_s)
    assert shown == pytest.approx(held, rel=0.02)


def test_a_cell_has_the_key_of_those_who_use_most_of_it() -> None:
    stays = {"job": [0, 1, 2], "from_us": [0, 60, 0], "to_us": [60, 100, 100], "gpu_index": [-1, -1, -1]}
    columns = [
        np.array(stays["job"], np.int32),
        *(np.array(stays[key], np.int64) for key in ("from_us", "to_us")),
    ]
    places = [np.array(stays["gpu_index"], np.int32), np.arange(4, dtype=np.int64)]
    bars = _core.Bars(
        np.array([1, 1], np.int32), *columns, *places, np.array([0, 0, 1], np.int32), np.ones(3, np.int32)
    )
    keys = np.array([1, 2, 3], np.uint8)
    assert bars.draw(keys, 0, 100, 0, 2, 1, 2)[0].tolist() == [1, 3]
    assert bars.draw(keys, 0, 100, 0, 1, 2, 1)[0].tolist() == [1, 2]
    key, share = bars.draw(keys, 0, 400, 0, 2, 2, 1)
    assert key.tolist() == [3, 0]
    assert share.tolist() == [127, 0]


def test_bars_refuse_stays_that_cannot_be() -> None:
    one, offset = np.zeros(1, np.int32), np.array([0, 1], np.int64)
    times = np.zeros(1, np.int64), np.ones(1, np.int64)
    gpus = np.array([2], np.int32)
    with pytest.raises(ValueError, match="unknown node"):
        _core.Bars(gpus, one, *times, one - 1, offset, one + 7, one + 1)
    with pytest.raises(ValueError, match="offsets"):
        _core.Bars(gpus, one, *times, one - 1, offset + 3, one, one + 1)
    bars = _core.Bars(gpus, one, *times, one - 1, offset, one, one + 1)
    with pytest.raises(ValueError, match="stretch"):
        bars.draw(np.ones(1, np.uint8), 5, 5, 0, 1, 3, 3)


def test_means_over_time_are_those_of_the_schedule(index: ReplayIndex, table: pl.DataFrame) -> None:
    told = series(index, index.began_s, index.ended_s)
    span_s = index.ended_s - index.began_s
    used = ((table["end_s"] - table["start_s"]) * table["gpus"]).sum() / (16 * span_s)
    assert np.mean(told["in_use"]) == pytest.approx(used, rel=1e-3)
    waited = (table["start_s"] - table["submit_s"]).sum() / span_s
    assert np.mean(told["waiting"]) == pytest.approx(waited, rel=1e-3)


def test_steps_of_colours_are_those_of_the_chart_in_reports() -> None:
    script = resource("gantt.js")
    assert f"WAIT_STEPS = {json.dumps([int(step) for step in WAIT_STEPS])}" in script
    assert f"SIZE_STEPS = {json.dumps(SIZE_STEPS)}" in script


def test_users_have_the_same_colours_under_all_policies(results: Path) -> None:
    outline = read_outline(results)
    names = [colouring(read_index(outline, policy, ""), "user").names for policy in (SJF, OTHER)]
    assert names[0] == names[1]


def test_jobs_are_found_by_id_and_by_row(index: ReplayIndex) -> None:
    job = find(index, "row:17")
    assert job_facts(index, job)["row"] == 17
    assert find(index, index.jobs["source_id"][job]) == job
    with pytest.raises(InputError, match="no job nobody"):
        find(index, "nobody")


def test_schedules_are_read_once_and_anew_when_they_change(results: Path) -> None:
    shelf = Shelf()
    first = shelf.schedule(results, SJF)
    assert shelf.schedule(results, SJF) is first
    simulated(results)
    assert shelf.schedule(results, SJF) is not first


def test_the_shelf_keeps_within_its_bound(results: Path) -> None:
    shelf = Shelf(most_bytes=1)
    for policy in (SJF, OTHER):
        shelf.schedule(results, policy)
    assert shelf.bytes_kept == shelf.schedule(results, OTHER).index.memory_bytes


def test_jobs_in_pieces_are_drawn_piece_by_piece(tmp_path: Path) -> None:
    config = SimulationConfig(estimates="exact", min_run_s=60.0)
    results = simulated(tmp_path / "results", ("srtf",), config=config)
    outline = read_outline(results)
    policy = next(iter(outline.executions))
    index = read_index(outline, policy, "")
    pieces = pl.read_parquet(outline.executions[policy])
    assert len(pieces) > len(index)
    for at_s in moments(index):
        now = pieces.filter((pl.col("taken_s") <= at_s) & (at_s < pl.col("released_s")))
        assert moment(index, colouring(index, "job"), at_s)["busy_gpus"] == sum(map(sum, now["node_gpus"]))


def test_the_story_of_a_job_is_that_of_explain(results: Path, table: pl.DataFrame) -> None:
    row = table.sort(pl.col("start_s") - pl.col("submit_s"))["row"][-1]
    told = Stories().tell(results, read_outline(results), SJF, row)
    assert any("It waited" in sentence for sentence in told["sentences"])
    assert told["spans"]


def test_reasons_of_windows_are_refused_with_why(tmp_path: Path) -> None:
    compared().write(tmp_path / "windows")
    outline = read_outline(tmp_path / "windows")
    with pytest.raises(InputError, match="whole replays"):
        Stories().tell(tmp_path / "windows", outline, next(iter(outline.schedules)), 3)


def asked(**more: Any) -> dict[str, Any]:
    return {"id": "0/results", "policy": SJF, "by": "wait", **more}


def test_the_page_gets_all_it_asks_for(visit: Visit, results: Path) -> None:
    client = visit(results.parent)
    about = client.get("/api/replay/about", params=asked()).json()
    assert (about["jobs"], about["gpus"]) == (300, 16)
    stretch = {
        "from": about["began_s"],
        "to": about["ended_s"],
        "first": 0,
        "last": 4,
        "columns": 40,
        "rows": 9,
    }
    answer = client.get("/api/replay/picture", params=asked(**stretch))
    assert answer.headers["content-encoding"] == "deflate"
    assert struct.unpack("<II", answer.content[:8]) == (40, 9)
    assert client.get("/api/replay/moment", params=asked(at=500, job=3)).json()["at_s"] == 500
    assert client.get("/api/replay/job", params=asked(name="row:3")).json()["job"]["row"] == 3
    assert "<script>alert" not in client.get("/replay").text


@pytest.mark.parametrize(
    ("address", "more", "status", "said"),
    [
        ("moment", {"at": "nan"}, 400, "expected a number"),
        ("moment", {}, 400, "lacks at"),
        ("moment", {"at": 5, "id": "0/../etc"}, 404, "leads out"),
        ("moment", {"at": 5, "policy": "nobody"}, 400, "no schedule of nobody"),
        ("about", {"by": "magic"}, 400, "magic"),
        ("picture", {"from": 5, "to": 4, "first": 0, "last": 1, "columns": 5, "rows": 5}, 400, "stretch"),
        ("picture", {"from": 0, "to": 1e300, "first": 0, "last": 1, "columns": 5, "rows": 5}, 400, "beyond"),
        ("picture", {"from": 0, "to": 9, "first": 0, "last": 1, "columns": 1e99, "rows": 5}, 400, "whole"),
        ("job", {"lane": 99, "at": 5}, 400, "GPUs 0 to 15"),
    ],
)
def test_questions_that_lead_nowhere_are_refused(
    visit: Visit, results: Path, address: str, more: dict[str, Any], status: int, said: str
) -> None:
    answer = visit(results.parent).get(f"/api/replay/{address}", params=asked(**more))
    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text


def test_a_damaged_schedule_is_said(visit: Visit, tmp_path: Path) -> None:
    results = simulated(tmp_path / "results")
    (results / "schedules" / "2.parquet").write_bytes(b"PAR1 and no more")
    answer = visit(tmp_path).get("/api/replay/moment", params=asked(at=5, policy=OTHER))
    assert answer.status_code == 400
    assert "cannot be read" in answer.json()["error"]
