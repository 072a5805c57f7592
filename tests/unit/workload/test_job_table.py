"""Native CSV and parquet: exact round trips, and clear refusals of everything else."""

import contextlib
import gzip
import os
import re
import resource

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.files import atomic_write, check_directory, check_target
from gpuyard.workload import (
    Step,
    import_trace,
    make_workload,
    read_workload,
    workload_formats,
    write_workload,
)

HEADER = "submit_s,duration_s,gpus"
SUFFIXES = ("csv", "csv.gz", "parquet")

names = st.text(st.characters(codec="utf-8"), max_size=12)
type_names = st.text(st.characters(codec="utf-8", exclude_characters="|"), min_size=1, max_size=8).filter(
    str.strip
)
# Below 2^32 s (136 years): from there on float64 seconds do not always lead back to the same microsecond.
times = st.floats(0, 4.29e9)
lengths = st.floats(1e-6, 4.29e9)


@st.composite
def jobs(draw):
    gpus = draw(st.integers(0, 2**31 - 1) | st.just(1))
    return {
        "submit_s": draw(times),
        "duration_s": draw(lengths),
        "gpus": gpus,
        "gpu_milli": draw(st.integers(1, 1000)) if gpus == 1 else 1000,
        "cpus": draw(st.integers(0, 2**31 - 1)),
        "memory_mib": draw(st.integers(0, 2**40)),
        "estimate_s": draw(st.none() | lengths),
        "gpu_types": draw(st.none() | st.lists(type_names, min_size=1, max_size=3)),
        "priority": draw(st.floats(allow_nan=False, allow_infinity=False)),
        "user": draw(names),
        "group": draw(names),
        "status": draw(st.sampled_from(["completed", "failed", "cancelled", "timeout", "unknown"])),
        "deadline_s": draw(st.none() | times),
        "source_id": draw(names),
        "row": draw(st.integers(0, 2**63 - 1)),
    }


def frame_of(rows):
    types = {
        "estimate_s": pl.Float64,
        "deadline_s": pl.Float64,
        "gpu_types": pl.List(pl.String),
        "row": pl.Int64,
    }
    return pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None)


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="jobs.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def refusal(path, **options):
    with pytest.raises(InputError) as caught:
        read_workload(path, **options)
    message = str(caught.value)
    assert message.startswith(str(path))
    return message


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(rows=st.lists(jobs(), min_size=1, max_size=5))
def test_files_keep_every_value_exactly(tmp_path_factory, suffix, rows):
    path = tmp_path_factory.mktemp("round") / f"jobs.{suffix}"
    written = make_workload(frame_of(rows))
    write_workload(written, path)
    read = read_workload(path)
    assert read.frame.equals(written.frame), (read.frame, written.frame)


def test_parquet_keeps_the_metadata(tmp_path):
    step = Step(name="slice", settings={"from_s": 5.0, "tags": ["a", None]})
    written = make_workload(
        frame_of([{"submit_s": 7.0, "duration_s": 1.0, "gpus": 1}]),
        name="lab",
        origin_s=100.0,
        epoch_s=1.6e9,
        source="here",
        history=(step,),
    )
    write_workload(written, tmp_path / "other.parquet")
    assert read_workload(tmp_path / "other.parquet").metadata == written.metadata


def test_csv_leaves_out_columns_that_say_nothing(tmp_path):
    written = make_workload(frame_of([{"submit_s": 0.0, "duration_s": 1.5, "gpus": 2, "user": "ann"}]))
    write_workload(written, tmp_path / "jobs.csv")
    assert (tmp_path / "jobs.csv").read_text() == "submit_s,duration_s,gpus,user\n0.0,1.5,2,ann\n"


def test_a_csv_file_names_its_workload_and_its_source(write):
    jobs = read_workload(write(gzip.compress(f"{HEADER}\n5,1,1\n".encode()), "week-7.csv.gz"))
    assert jobs.metadata.name == "week-7"
    assert jobs.metadata.source.endswith("week-7.csv.gz")
    assert (jobs.metadata.origin_s, jobs.metadata.epoch_s) == (0.0, 5.0)


@pytest.mark.parametrize(
    "text", [f"\ufeff{HEADER}\n1,2,3\n", f"{HEADER}\r\n1,2,3\r\n", '"submit_s",duration_s,gpus\n"1",2,"3"']
)
def test_common_dialects_of_csv_are_read(write, text):
    assert read_workload(write(text)).frame["gpus"].to_list() == [3]


def test_content_decides_about_the_format_and_not_the_name(write, tmp_path):
    jobs = read_workload(write(f"{HEADER}\n1,2,3\n"))
    write_workload(jobs, tmp_path / "jobs.parquet")
    (tmp_path / "jobs.parquet").rename(tmp_path / "renamed.csv")
    assert read_workload(tmp_path / "renamed.csv").frame.equals(jobs.frame)


def test_gpu_types_are_written_with_bars(write):
    jobs = read_workload(write(f"{HEADER},gpu_types\n1,2,3,v100|a100\n1,2,3,\n"))
    assert jobs.frame["gpu_types"].to_list() == [["v100", "a100"], None]


@pytest.mark.parametrize(
    ("body", "line", "column"),
    [
        ("1,2,3\n1,2,x\n", 3, "gpus"),
        ("1,2,3\n\n\n1,0,1\n", 5, "duration_s"),
        ("1,2,\n", 2, "gpus"),
    ],
)
def test_the_line_of_the_file_is_named(write, body, line, column):
    assert f", line {line}, column {column}: " in refusal(write(f"{HEADER}\n{body}"))


def test_line_breaks_inside_quotes_count_as_lines(write):
    message = refusal(write(f'{HEADER},user\n1,2,3,"a\nb"\n1,2,-3,c\n'))
    assert ", line 4, column gpus: is '-3'" in message


@pytest.mark.parametrize(("row", "fields"), [("1,2,3,4", 4), ("1,2", 2)])
def test_lines_of_another_width_are_refused(write, row, fields):
    assert f"line 3: has {fields} fields, expected 3" in refusal(write(f"{HEADER}\n1,2,3\n{row}\n"))


def test_a_file_cut_off_inside_an_optional_column_is_noticed(write):
    assert "line 3: has 4 fields, expected 5" in refusal(
        write(f"{HEADER},user,estimate_s\n1,2,3,a,\n1,2,3,b")
    )


def test_a_column_given_twice_is_refused(write):
    assert "column 'gpus' appears twice" in refusal(write(f"{HEADER},gpus\n1,2,3,3\n"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (f"{HEADER}\n".encode(), "has no jobs"),
        (b"\x00\x01\xfe\xff" * 50, "binary file"),
        (b"hello world\n", "'hello world'"),
        (b"submit_s;duration_s;gpus\n1;2;3\n", "separated by commas"),
        (f"{HEADER},user\n1,2,3,\xff\n".encode("latin-1"), "UTF-8"),
        (f'{HEADER}\n1,2,"3\n'.encode(), "quotes"),
        (b"PAR1", "parquet"),
        (b"\x1f\x8b\x08garbage", "gzip"),
    ],
)
def test_what_is_no_workload_is_refused_with_the_reason(write, content, words):
    assert words in refusal(write(content))


def test_missing_files_and_directories_are_refused(tmp_path):
    assert "no such file" in refusal(tmp_path / "none.csv")
    assert "is a directory" in refusal(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(write):
    path = write(f"{HEADER}\n1,2,3\n")
    path.chmod(0)
    assert "cannot be read" in refusal(path)


def test_an_unknown_format_names_the_known_ones(write):
    with pytest.raises(InputError, match="did you mean 'native'"):
        read_workload(write(f"{HEADER}\n1,2,3\n"), format="nativ")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_truncation_is_read_as_whole_rows_or_refused(write, tmp_path, suffix):
    rows = [{"submit_s": float(i), "duration_s": 60.0, "gpus": 1, "user": f"user{i}"} for i in range(20)]
    whole = tmp_path / f"whole.{suffix}"
    write_workload(make_workload(frame_of(rows)), whole)
    data = whole.read_bytes()
    for size in range(0, len(data), max(1, len(data) // 60)):
        cut = write(data[:size], f"cut.{suffix}")
        try:
            assert 1 <= len(read_workload(cut)) <= 20
        except InputError:
            continue


@given(
    data=st.binary(max_size=300),
    start=st.sampled_from([b"", b"PAR1", b"\x1f\x8b", HEADER.encode(), f"{HEADER}\n1,2,3\n".encode()]),
)
def test_random_bytes_never_raise_anything_but_input_errors(tmp_path_factory, data, start):
    path = tmp_path_factory.mktemp("fuzz") / "file"
    path.write_bytes(start + data)
    for format in (None, "native"):
        with contextlib.suppress(InputError):
            assert len(read_workload(path, format=format)) > 0


def test_parquet_whose_numbers_are_not_those_written_is_refused(tmp_path):
    """Parquet has no checksum of its own: without ours, other jobs would be simulated."""
    path = tmp_path / "jobs.parquet"
    write_workload(make_workload(frame_of([{"submit_s": 0.0, "duration_s": 1.0, "gpus": 1}])), path)
    metadata = pl.read_parquet_metadata(path)
    changed = pl.read_parquet(path).with_columns(pl.col("duration_s") + 0.5)
    changed.write_parquet(path, metadata=metadata)
    with pytest.raises(InputError, match=r"jobs\.parquet: is damaged: its jobs are not those"):
        read_workload(path)
    kept = {name: text for name, text in metadata.items() if name != "gpuyard-checksum"}
    changed.write_parquet(path, metadata=kept)
    assert read_workload(path).frame["duration_s"].to_list() == [1.5]


def test_damaged_parquet_metadata_is_refused(tmp_path):
    path = tmp_path / "jobs.parquet"
    frame = make_workload(frame_of([{"submit_s": 0.0, "duration_s": 1.0, "gpus": 1}])).frame
    frame.write_parquet(path, metadata={"gpuyard": '{"origin_s": "soon"}'})
    assert "origin_s" in refusal(path)


def test_writing_refuses_unknown_suffixes_and_missing_directories(tmp_path):
    jobs = make_workload(frame_of([{"submit_s": 0.0, "duration_s": 1.0, "gpus": 1}]))
    with pytest.raises(InputError, match=r"\.csv or \.csv\.gz or \.parquet"):
        write_workload(jobs, tmp_path / "jobs.xlsx")
    with pytest.raises(InputError, match="there is no directory"):
        write_workload(jobs, tmp_path / "none" / "jobs.csv")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("old")

    def fail_halfway():
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.csv.gz", "jobs.parquet"])
def test_a_write_that_the_system_refuses_names_the_file_and_the_reason(tmp_path, name):
    frame = frame_of([{"submit_s": float(k), "duration_s": 1.0 + k % 977, "gpus": 1} for k in range(50_000)])
    jobs, path = make_workload(frame), tmp_path / name
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(InputError, match="cannot be written") as caught:
            write_workload(jobs, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value).startswith(f"{path}: cannot be written (")
    assert "large" in str(caught.value)
    assert ".tmp" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_directories_that_may_not_be_written_to_are_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    for check in (check_target, check_directory):
        with pytest.raises(InputError, match=rf"out\.csv: cannot be written \(no permission.*{tmp_path}"):
            check(tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_finished_write_replaces_the_file_at_once(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("old")
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_every_registered_format_describes_itself():
    assert "native" in workload_formats()
    assert all(entry.__doc__ for entry in workload_formats().values())


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("submit,duration,gpus", "Rename submit -> submit_s, duration -> duration_s"),
        ("Arrival,runtime,num_gpus", "Rename arrival -> submit_s, runtime -> duration_s, num_gpus -> gpus"),
        ("submit_s;duration_s;gpus", "Fields stand between ';' here: put commas"),
        ("submit\tduration\tgpus", "Fields stand between tabs here: put commas"),
    ],
)
def test_a_header_that_is_nearly_ours_is_refused_with_what_to_change(header, words, tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(f"{header}\n0 10 1\n")
    with pytest.raises(InputError, match=re.escape(words)):
        read_workload(path)


def test_a_header_of_something_else_gets_no_such_advice(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("name,colour\n")
    with pytest.raises(InputError) as error:
        read_workload(path)
    assert "Rename" not in str(error.value)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_of_others_are_refused_unless_they_are_to_be_ignored(suffix, tmp_path):
    path = tmp_path / f"jobs.{suffix}"
    frame = pl.DataFrame({"submit_s": [0.0], "duration_s": [9.0], "gpus": [1], "walltime": [8], "color": [1]})
    frame.write_parquet(path) if suffix == "parquet" else frame.write_csv(path)
    with pytest.raises(InputError, match=r"unknown column 'walltime'.*`option\.ignore=walltime,color`"):
        read_workload(path)
    for options in ({"ignore": "walltime,color"}, {"ignore": "*"}):
        assert read_workload(path, **options).frame["duration_s"].to_list() == [9.0]
    with pytest.raises(InputError, match="unknown column 'color'"):
        read_workload(path, ignore="walltime")
    lenient = import_trace([path], strict=False)
    assert len(lenient.workload) == 1
    assert "walltime" in lenient.report.assumed[0]


def test_json_of_no_known_format_is_refused_with_the_command_for_slurm(tmp_path):
    path = tmp_path / "log.json"
    path.write_text('{"statistics": {}}')
    with pytest.raises(InputError, match="sacct -a --json"):
        read_workload(path)
