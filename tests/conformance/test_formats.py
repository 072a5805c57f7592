"""Every registered format has a sample in tests/data/<name>/, is recognised, and accounts for every row.

The files that lie directly in a format's folder are one trace; each folder inside it is another one.
"""

import random
from pathlib import Path

import pytest

from gpuyard.errors import InputError
from gpuyard.registry import registered
from gpuyard.workload import import_trace, workload_formats
from gpuyard.workload.chunks import read_head
from gpuyard.workload.formats import JOBS
from support.paths import DATA

FORMATS = sorted(workload_formats())


def traces_of(name: str) -> list[list[Path]]:
    folders = [DATA / name, *sorted(path for path in (DATA / name).glob("*") if path.is_dir())]
    traces = [sorted(path for path in folder.glob("*") if path.is_file()) for folder in folders]
    return [files for files in traces if files]


TRACES = [
    pytest.param(name, files, id=f"{name}-{files[0].parent.name}")
    for name in FORMATS
    for files in traces_of(name)
]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_sample(name):
    assert traces_of(name), f"put a small file of the format into tests/data/{name}/"


@pytest.mark.parametrize(("name", "files"), TRACES)
def test_a_sample_is_recognised_and_every_row_is_accounted_for(name, files):
    trace = import_trace(files)
    report = trace.report
    assert report.format == name
    assert report.jobs == len(trace.workload) > 0
    assert report.rows_read == report.jobs + report.merged + sum(found.rows for found in report.rejected)
    if name != "native":
        step = trace.workload.metadata.history[0]
        assert (step.name, step.settings["format"]) == ("import", name)


@pytest.mark.parametrize(("name", "files"), TRACES)
def test_no_other_format_takes_a_sample_for_a_log_of_jobs(name, files):
    heads = [(read_head(path), path.name) for path in files]
    for other, candidate in registered("workload-format").items():
        roles = [candidate.role_of(head, file) for head, file in heads]
        assert (JOBS in roles and None not in roles) == (other == name), other


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_another_kind_is_refused_and_named(name, tmp_path):
    path = tmp_path / "jobs.dat"
    draw = random.Random(name)
    for content in (b"\0", b"{}", b"[]", b"a,b\n1,2\n", b'"', draw.randbytes(500), draw.randbytes(70_000)):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"jobs\.dat"):
            import_trace([path], name)
