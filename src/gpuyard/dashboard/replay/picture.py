"""Pictures of stretches of a schedule: time across, GPUs down, a key and a share of use for each cell."""

import struct
import zlib
from dataclasses import dataclass

from gpuyard.dashboard.replay.colours import Colouring
from gpuyard.dashboard.replay.index import ReplayIndex
from gpuyard.errors import InputError

MOST_COLUMNS, MOST_ROWS = 2400, 1200
FASTEST = 1
"""Of deflate: a picture is made anew at each step, and sent over a loopback or a tunnel."""


@dataclass(frozen=True)
class Stretch:
    """What part of a schedule is shown, in how many cells at most.

    Attributes:
        from_s: When it begins.
        to_s: When it ends.
        first_node: The first node.
        last_node: The first node behind it.
        columns: Cells across.
        rows: Cells down, at most: there are no more than GPUs.
    """

    from_s: float
    to_s: float
    first_node: int
    last_node: int
    columns: int
    rows: int


def picture(index: ReplayIndex, colours: Colouring, stretch: Stretch) -> bytes:
    """Deflated: numbers of columns and of rows (32 bits each), keys row by row, shares (0 to 255) row by row.

    Raises:
        InputError: if there is no such stretch.
    """
    nodes = len(index.node_gpus)
    if not (0 <= stretch.first_node < stretch.last_node <= nodes and stretch.from_s < stretch.to_s):
        raise InputError(f"expected a stretch of time, and nodes within 0 to {nodes}")
    if abs(stretch.from_s) > 1e12 or abs(stretch.to_s) > 1e12:
        raise InputError("that is beyond all times of schedules")
    lanes = index.bars.first_lanes
    columns = min(max(stretch.columns, 1), MOST_COLUMNS)
    rows = min(max(stretch.rows, 1), MOST_ROWS, int(lanes[stretch.last_node] - lanes[stretch.first_node]))
    from_us, to_us = (round(at_s * 1e6) for at_s in (stretch.from_s, stretch.to_s))
    keys, shares = index.bars.draw(
        colours.keys, from_us, max(to_us, from_us + 1), stretch.first_node, stretch.last_node, columns, rows
    )
    return zlib.compress(struct.pack("<II", columns, rows) + keys.tobytes() + shares.tobytes(), FASTEST)
