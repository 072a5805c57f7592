"""Standard input and pipes are read like files."""

import gzip
import io
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuyard import cli
from gpuyard.errors import InputError
from gpuyard.workload import import_trace, read_workload
from support.paths import DATA

SAMPLES = [
    *(DATA / name for name in ("slurm-sacct/sacct.txt", "slurm-jobcomp/jobcomp.log", "lsf/lsb.acct")),
    *(DATA / name for name in ("pbs/20240301", "sge/accounting", "swf/small.swf", "native/jobs.csv")),
]


class Input(io.BytesIO):
    """Bytes that can be read once only."""

    def seek(self, *_: object) -> int:
        raise io.UnsupportedOperation("seek")


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Input(data)))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_standard_input_gives_the_jobs_of_the_file(sample, compress, monkeypatch):
    feed(monkeypatch, compress(sample.read_bytes()))
    piped, read = import_trace(["-"]), import_trace([sample])
    assert piped.workload.frame.equals(read.workload.frame)
    assert piped.report.files == ("stdin",)
    assert piped.report.format == read.report.format


def test_a_named_pipe_is_read(tmp_path):
    pipe, sample = tmp_path / "sacct.txt", DATA / "slurm-sacct" / "sacct.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(sample.read_bytes()))
    writer.start()
    jobs = read_workload(pipe)
    writer.join()
    assert jobs.frame.equals(read_workload(sample).frame)
    assert jobs.metadata.name == "sacct"


def test_an_error_names_standard_input_and_no_copy(monkeypatch):
    feed(monkeypatch, b"one,two\n1,2\n")
    with pytest.raises(InputError, match=r"^stdin: is of no known format"):
        import_trace(["-"])


def test_a_terminal_is_refused_with_what_to_do(monkeypatch):
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=terminal))
    with pytest.raises(InputError, match=r"sacct \.\.\. \| gpuyard workload import -"):
        import_trace(["-"])


def test_the_command_line_takes_a_hyphen_for_standard_input(tmp_path, capfd):
    reading, writing = os.pipe()
    os.write(writing, (DATA / "slurm-sacct" / "sacct.txt").read_bytes())  # less than a pipe holds
    os.close(writing)
    kept = os.dup(0)
    os.dup2(reading, 0)
    out: Path = tmp_path / "jobs.parquet"
    try:
        code = cli.main(["workload", "import", "-", "--out", str(out)])
    finally:
        os.dup2(kept, 0)
    assert code == 0, capfd.readouterr().err
    assert "format slurm-sacct: stdin" in capfd.readouterr().out
    assert read_workload(out).metadata.source == "stdin"
