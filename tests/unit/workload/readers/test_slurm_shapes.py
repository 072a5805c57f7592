"""Every shape of sacct's output gives the same jobs, or is refused with what to do."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from support.damage import damaged, import_or_refuse
from support.paths import DATA
from support.slurm_shapes import EPOCH_S, FIELDS, as_json, delimited, fixed_width, rows

WIDE = dict.fromkeys(FIELDS, 80)
NAMES = ",".join(FIELDS)
PLAIN = delimited(rows())


def renamed(old: str, new: str) -> list[dict[str, str]]:
    return [{new if name == old else name: value for name, value in row.items()} for row in rows()]


def gres_rows() -> list[dict[str, str]]:
    """As Slurm before 20.11: no TRES; AllocGRES counts the GPUs of each node."""
    listed = []
    for row in rows():
        gpus = {"101": "gpu:a100:2", "102_7": "gpu:a100:4", "104+0": "gpu:1", "105": "gpu:1"}.get(
            row["JobID"], ""
        )
        kept = {name: value for name, value in row.items() if name not in ("ReqTRES", "AllocTRES")}
        listed.append({**kept, "AllocGRES": gpus, "ReqNodes": row["NNodes"]})
    return listed


def raw_rows() -> list[dict[str, str]]:
    """Elapsed in seconds and limits in minutes."""
    listed = []
    for row in rows():
        kept = {name: value for name, value in row.items() if name not in ("Elapsed", "Timelimit")}
        seconds = [_seconds(row[name]) for name in ("Elapsed", "Timelimit")]
        raw = {
            "ElapsedRaw": str(seconds[0]),
            "TimelimitRaw": str(seconds[1] // 60 if seconds[1] else "UNLIMITED"),
        }
        listed.append({**kept, **raw})
    return listed


def _seconds(text: str) -> int:
    if not text[0].isdigit():
        return 0
    days, _, rest = text.rpartition("-")
    hours, minutes, seconds = map(int, rest.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


SHAPES: dict[str, tuple[str | bytes, dict[str, str]]] = {
    "parsable": (delimited(rows(), end="|"), {}),
    "no header, fields named": (delimited(rows(), header=False), {"fields": NAMES}),
    "no header, parsable, fields named with widths": (
        delimited(rows(), header=False, end="|"),
        {"fields": NAMES.replace("AllocTRES", "AllocTRES%80")},
    ),
    "a header, and fields named nevertheless": (PLAIN, {"fields": NAMES}),
    "tab": (delimited(rows(), "\t"), {}),
    "tab, no header": (delimited(rows(), "\t", header=False), {"fields": NAMES, "delimiter": "\\t"}),
    "semicolon": (delimited(rows(), ";"), {}),
    "comma, quoted": (delimited(rows(), ",", quote=True), {}),
    "another delimiter": (delimited(rows(), "^"), {"delimiter": "^"}),
    "a delimiter of two signs": (delimited(rows(), "::#"), {"delimiter": "::#"}),
    "fixed width": (fixed_width(rows(), WIDE), {}),
    "fixed width, another first column": (
        fixed_width([{"State": row["State"], **row} for row in rows()], WIDE),
        {},
    ),
    "JSON of 22.05": (json.dumps(as_json("22.05"), indent=2), {}),
    "JSON of 24.11": (json.dumps(as_json("24.11")), {}),
    "gzip": (gzip.compress(PLAIN.encode()), {}),
    "JSON, gzip": (gzip.compress(json.dumps(as_json("24.11")).encode()), {}),
    "byte order mark and CRLF": (b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode(), {}),
    "fixed width, byte order mark and CRLF": (
        b"\xef\xbb\xbf" + fixed_width(rows(), WIDE).replace("\n", "\r\n").encode(),
        {},
    ),
    "epoch": (delimited(rows("epoch")), {}),
    "offsets": (delimited(rows("offset", "Europe/Berlin")), {}),
    "local times and the zone named": (
        delimited(rows("iso", "Europe/Berlin")),
        {"timezone": "Europe/Berlin"},
    ),
    "short names of zones": (delimited(rows("name", "Europe/Berlin")), {}),
    "short names that several zones have": (
        delimited(rows("name", "Asia/Shanghai")),
        {"timezone": "Asia/Shanghai"},
    ),
    "steps": (delimited(rows(steps=True)), {}),
    "fixed width with steps": (fixed_width(rows(steps=True), WIDE), {}),
    "JobIDRaw and AllocCPUS": (delimited(renamed("NCPUS", "AllocCPUS")), {}),
    "raw run times and limits": (delimited(raw_rows()), {}),
    "AllocGRES of old versions": (delimited(gres_rows()), {}),
    "no Elapsed": (
        delimited([{k: v for k, v in row.items() if k != "Elapsed"} for row in rows()]),
        {},
    ),
    "two outputs joined": (PLAIN + PLAIN, {}),
}


@pytest.fixture
def imported(tmp_path: Path):
    def run(content: str | bytes, **options: str):
        path = tmp_path / "log.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return import_trace([path], **options)

    return run


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_jobs_of_the_plain_one(shape, imported):
    content, options = SHAPES[shape]
    plain, trace = imported(PLAIN), imported(content, **options)
    assert trace.workload.frame.equals(plain.workload.frame)
    assert trace.workload.metadata.epoch_s == EPOCH_S
    assert trace.report.repaired == ()


def test_the_plain_one_reads_as_calculated_by_hand(imported):
    frame = imported(PLAIN, gpu_types="allocated").workload.frame
    assert frame["source_id"].to_list() == ["101", "102_7", "103", "104+0", "104+1", "105", "105"]
    assert frame["gpus"].to_list() == [2, 8, 0, 1, 0, 1, 1]
    assert frame["duration_s"].to_list() == [3600, 176400, 30, 300, 300, 600, 3000]
    assert frame["estimate_s"].to_list() == [7200, 176400, None, 3600, 3600, 3600, 3600]
    assert frame["gpu_types"].to_list()[:2] == [["a100"], ["a100"]]


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_requeued_runs_and_types_of_gpus_are_read_from_json(version, imported):
    options = {"requeued": "merge", "gpu_types": "allocated", "group": "account"}
    plain = imported(PLAIN, **options).workload.frame
    assert imported(json.dumps(as_json(version)), **options).workload.frame.equals(plain)


REFUSED: dict[str, tuple[str, str]] = {
    "commas in values": (delimited(rows(), ","), r"line 2: .*AllocTRES.* hold commas.*--parsable2"),
    "no header": (delimited(rows(), header=False), r"without -n.*option\.fields=JobID"),
    "no header, tab": (delimited(rows(), "\t", header=False), r"without -n.*option\.fields=JobID"),
    "cut off": (
        fixed_width(rows(), WIDE | {"AllocTRES": 10}),
        r"line 3: AllocTRES is 'billing=8\+', which sacct cut off.*--parsable2 \(-P\).*AllocTRES%80",
    ),
    "cut off partitions": (
        fixed_width([{**row, "Partition": "interactive"} for row in rows()], WIDE | {"Partition": 9}),
        r"Partition is 'interact\+'.*--parsable2",
    ),
    "cut off names": (
        fixed_width(rows(), WIDE | {"User": 2}),
        r"the column U\+ is too narrow for its name.*--parsable2",
    ),
    "sacct without options": (
        fixed_width([{name: row[name] for name in ("JobID", "Partition", "State")} for row in rows()], WIDE),
        r"no field Submit, Elapsed; list them with sacct --parsable2",
    ),
    "squeue --json": (
        json.dumps({"jobs": [{"job_state": ["RUNNING"], "submit_time": 5}], "meta": {"slurm": {}}}),
        r"is output of squeue or scontrol show jobs --json.*sacct -a --json",
    ),
    "sinfo --json": (
        json.dumps({"nodes": [{"name": "gn1", "real_memory": 5}], "meta": {"slurm": {}}}),
        r"is output of sinfo or scontrol show nodes --json.*sacct -a --json",
    ),
    "empty JSON": (json.dumps({**as_json("24.11"), "jobs": []}), r"no job is left of 0 rows"),
    "cut off JSON": (json.dumps(as_json("24.11"))[:-3000], r"cut off, fetch it again"),
    "short names of zones that several have": (
        delimited(rows("name", "Asia/Shanghai")),
        r"Submit is not a time.*SLURM_TIME_FORMAT=standard.*CST, give `option.timezone`",
    ),
    "relative times": (
        delimited([{**row, "Submit": "Tomorr 08:00"} for row in rows()]),
        r"Submit is not a time.*SLURM_TIME_FORMAT=standard",
    ),
    "only running jobs": (delimited([rows()[7]]), r"still running or waiting.*-S START -E END"),
}


@pytest.mark.parametrize("shape", REFUSED)
def test_what_cannot_be_read_is_refused_with_what_to_do(shape, imported):
    content, message = REFUSED[shape]
    with pytest.raises(InputError, match=message):
        imported(content)


def test_rows_with_values_that_were_cut_off_are_left_out_if_lenient(imported):
    text = fixed_width(rows(), WIDE | {"AllocTRES": 46})
    trace = imported(text, strict=False)
    assert trace.workload.frame["source_id"].to_list() == ["103", "104+0", "104+1", "105", "105"]
    assert ("AllocTRES is cut off", 2) in [(found.reason, found.rows) for found in trace.report.rejected]
    assert any("cut off at the width" in text for text in trace.report.assumed)


def test_columns_that_are_shifted_are_rejected(imported):
    lines = fixed_width(rows(), WIDE).splitlines()
    lines[2] = lines[2][:75] + "xxxxx" + lines[2][75:]
    trace = imported("\n".join(lines))
    assert "101" not in trace.workload.frame["source_id"]
    assert "columns are not where the line of dashes has them" in [
        found.reason for found in trace.report.rejected
    ]


def test_the_hour_that_a_clock_shows_twice_is_the_first_and_the_missing_one_is_no_time(imported):
    base = {**rows()[0], "Start": "Unknown"}
    del base["Start"], base["End"]
    listed = [{**base, "Submit": text} for text in ("2024-10-27T02:30:00", "2024-03-31T02:30:00")]
    trace = imported(delimited(listed), timezone="Europe/Berlin")
    assert trace.workload.metadata.epoch_s == 1729989000  # 00:30 UTC, still summer time
    assert [found.reason for found in trace.report.rejected] == ["Submit is not a time"]


@pytest.mark.parametrize("option", [{"timezone": "Mars/Base"}, {"delimiter": "ab"}, {"delimiter": '"'}])
def test_options_that_mean_nothing_are_refused(option, imported):
    with pytest.raises(InputError, match=rf"option\.{next(iter(option))}"):
        imported(PLAIN, **option)


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_the_samples_are_these_jobs(version):
    assert json.loads((DATA / "slurm-json" / version / "sacct.json").read_text()) == as_json(version)


@pytest.mark.parametrize("name", ["fixed width", "JSON of 24.11", "JSON of 22.05", "tab", "comma, quoted"])
@given(data=st.data())
def test_damaged_output_is_refused_or_accounted_for(name, data, tmp_path_factory):
    content = SHAPES[name][0]
    path = tmp_path_factory.mktemp("shape") / "damaged"
    path.write_bytes(data.draw(damaged(content.encode() if isinstance(content, str) else content)))
    reader = "slurm-json" if "JSON" in name else "slurm-sacct"
    import_or_refuse([path], reader, strict=False)
