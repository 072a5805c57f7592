"""Where the nodes of a cluster go in a picture: it depends on the cluster alone, so videos stand still."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuyard.env.rendering.font import HEIGHT, text_width

LARGEST_CELL, SMALLEST_CELL = 32, 3
"""Pixels from one GPU to the one below."""
WIDEST_CELL = 2.5
"""Where there is room, GPUs are so many times as wide as high, for longer numbers in them."""
EASY_TO_SEE = 12
"""With cells of this size, the rest of the height is better spent on other things."""
WIDEST_NODE = 16
"""GPUs side by side; those of larger nodes go on several lines."""
HOST_CELLS = 8
"""A node without GPUs is as wide as so many."""
HEADED_POOLS = 6
"""With more pools than this, or with one, pools have no headings."""
HEADING = 28

Box = tuple[int, int, int, int]
"""Left, top, width, height."""
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class ClusterLayout:
    """Places of nodes.

    Attributes:
        cell: Pixels from one GPU to the one below.
        wide: Pixels from one GPU to the next.
        wrap: GPUs on a line.
        left: Where the GPUs of each node begin.
        top: The same, from above.
        headings: Pools that have one, and its top.
        labels: Nodes whose number is shown to the left of them.
        label_scale: Of their letters; 0: there are none.
        bottom: One past the last pixel.
    """

    cell: int
    wide: int
    wrap: int
    left: Integers
    top: Integers
    headings: tuple[tuple[int, int], ...]
    labels: tuple[int, ...]
    label_scale: int
    bottom: int

    @property
    def gap(self) -> int:
        """Pixels between GPUs."""
        return 2 if self.cell >= 10 else 1


@dataclass(frozen=True)
class _Measures:
    """Of a cluster drawn with cells of one size."""

    cell: int
    wrap: int
    lines: int
    label_scale: int
    label: int
    label_each: bool
    hosts: bool

    @property
    def beside(self) -> int:
        """Between the GPUs of a node and those of the one to its right."""
        between = max(self.cell // 2, 3) if self.wrap > 1 else 0
        return between + (self.label if self.label_each else 0)

    @property
    def block(self) -> int:
        """From one node to the one to its right, at least."""
        return self.wrap * self.cell + self.beside

    def wide(self, columns: int, width: int) -> int:
        """From one GPU to the next, if so many nodes fill a width."""
        room = (width - self.label - columns * self.beside) // (columns * self.wrap)
        return max(self.cell, min(room, int(WIDEST_CELL * self.cell)))

    @property
    def step(self) -> int:
        """From one node to the one below."""
        between = self.cell // 3 + 1 if self.lines > 1 else self.cell // 6 if self.hosts else 0
        return self.lines * self.cell + between


def lay_out(gpus: NDArray[np.int32], pools: list[Integers], box: Box, low: int) -> ClusterLayout | None:
    """Places of all nodes, as large as the box allows; None if they are too many.

    Args:
        gpus: Of each node.
        pools: The nodes of each.
        box: What to fill.
        low: A height that is enough if nodes are easy to see in it.
    """
    for height, smallest in ((low, EASY_TO_SEE), (box[3], SMALLEST_CELL)):
        for cell in range(LARGEST_CELL, smallest - 1, -1):
            measures = _measure(gpus, cell)
            for columns in range(1, max((box[2] - measures.label) // measures.block, 0) + 1):
                if _height(measures, pools, columns) <= height:
                    return _place(measures, pools, columns, box, len(gpus))
    return None


def _measure(gpus: NDArray[np.int32], cell: int) -> _Measures:
    hosts = bool((gpus == 0).any())
    largest = max(int(gpus.max()), HOST_CELLS if hosts else 1)
    wrap = min(largest, WIDEST_NODE)
    label_scale = 2 if cell >= 2 * HEIGHT + 2 else 1 if cell >= HEIGHT else 0
    label = text_width(str(len(gpus) - 1), label_scale) + 6 if label_scale else 0
    return _Measures(cell, wrap, math.ceil(largest / wrap), label_scale, label, wrap >= 4, hosts)


def _has_headings(measures: _Measures, pools: list[Integers]) -> bool:
    return 1 < len(pools) <= HEADED_POOLS and measures.label_scale > 0


def _height(measures: _Measures, pools: list[Integers], columns: int) -> int:
    rows = sum(math.ceil(len(nodes) / columns) for nodes in pools)
    return rows * measures.step + (HEADING * len(pools) if _has_headings(measures, pools) else 0)


def _place(measures: _Measures, pools: list[Integers], columns: int, box: Box, count: int) -> ClusterLayout:
    left, top = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    headings, labels = [], []
    wide = measures.wide(columns, box[2])
    block = measures.wrap * wide + measures.beside
    y = box[1]
    for pool, nodes in enumerate(pools):
        if _has_headings(measures, pools):
            headings.append((pool, y))
            y += HEADING
        place = np.arange(len(nodes))
        left[nodes] = box[0] + measures.label + place % columns * block
        top[nodes] = y + place // columns * measures.step
        if measures.label_scale:
            labels += (nodes if measures.label_each else nodes[::columns]).tolist()
        y += math.ceil(len(nodes) / columns) * measures.step
    return ClusterLayout(
        measures.cell,
        wide,
        measures.wrap,
        left,
        top,
        tuple(headings),
        tuple(labels),
        measures.label_scale,
        y,
    )
