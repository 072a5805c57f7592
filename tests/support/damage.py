"""Damaged copies of files, for tests that no content whatever can break a reader."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.formats import ImportedTrace

_SPLICES = (
    b"", b"\0", b"\n", b"\r\n", b",", b'"', b"None", b"null", b"nan", b"inf", b"-1", b"0", b"1e309",
    b"9" * 30, b"2147483648", b"\xff\xfe", b"\xef\xbb\xbf", b"\\ud800", b"[", b"]", b"{", b"}", b":", b" ",
    b"9999-12-31 23:59:59", b"0001-01-01 00:00:00", b"2017-13-45 99:99:99", b"2020-01-01 00:00:00+99:99",
    b"[" * 5000,
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with pieces replaced, repeated or cut out, lines shuffled, or the end cut off."""
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("splice", "shuffle", "truncate", "repeat")))
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 40)))
        if kind == "splice":
            piece = draw(st.sampled_from(_SPLICES) | st.binary(max_size=20))
            data = data[:at] + piece + data[end:]
        elif kind == "repeat":
            data = data[:end] + data[at:]
        elif kind == "truncate":
            data = data[:at]
        else:
            data = b"\n".join(draw(st.permutations(data.split(b"\n"))))
    return data


def import_or_refuse(paths: Sequence[Path], name: str, **options: Any) -> ImportedTrace | None:
    """The import, sound and balanced, or None if the files were refused; anything else is an error."""
    try:
        trace = import_trace(paths, name, **options)
    except InputError:
        return None
    report, jobs = trace.report, trace.workload.frame
    assert report.rows_read == report.jobs + report.merged + sum(found.rows for found in report.rejected)
    assert report.jobs == jobs.height > 0
    assert jobs["duration_s"].min() > 0
    assert jobs["submit_s"][0] == 0
    return trace
