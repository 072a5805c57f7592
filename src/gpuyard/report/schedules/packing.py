"""Columns of whole numbers as short text that a browser unpacks in milliseconds.

A column becomes differences (if that is asked for), then unsigned ones (zigzag: 0, -1, 1, -2 are 0, 1, 2, 3),
then planes of bytes: the lowest byte of every number, the next one of every number, and so on. Planes of like
bytes deflate well, and ``DecompressionStream("deflate")`` and a loop undo it all.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 6
"""Of deflate: higher ones take several times as long and save a few percent."""
LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Column:
    """Numbers to pack.

    Attributes:
        values: Whole numbers, each and (if ``differences``) each difference within 32 bits.
        differences: Whether neighbours are alike, as in sorted columns.
    """

    values: NDArray[Any]
    differences: bool = False


def pack_columns(columns: Mapping[str, Column]) -> dict[str, Any]:
    """As JSON: ``columns``, a list of [name, count, bytes a number, differences], and ``data`` (base64)."""
    layout, planes = [], []
    for name, column in columns.items():
        values = np.asarray(column.values).astype(np.int64)
        values = np.diff(values, prepend=np.int64(0)) if column.differences else values
        folded = ((values << 1) ^ (values >> 63)).astype("<u4")
        largest = int(folded.max()) if len(folded) else 0
        width = max((largest.bit_length() + 7) // 8, 1)
        layout.append([name, len(folded), width, int(column.differences)])
        planes.append(np.ascontiguousarray(folded.view(np.uint8).reshape(-1, 4).T[:width]).tobytes())
    return {"columns": layout, "data": _text(b"".join(planes))}


def pack_json(document: Any) -> str:
    """A JSON document, deflated, as base64."""
    return _text(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())


def _text(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, LEVEL)).decode("ascii")
