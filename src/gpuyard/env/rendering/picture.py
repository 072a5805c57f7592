"""An environment as a picture: nodes with a square for each GPU, and bars for jobs that run or wait."""

import colorsys
import math

import numpy as np
from numpy.typing import NDArray

from gpuyard.env.rendering.font import HEIGHT, text_mask, text_width
from gpuyard.env.rendering.layout import Box, ClusterLayout, lay_out
from gpuyard.env.rendering.scene import LONGEST_S, Holders, RunningJob, Scene, WaitingJob, log_share
from gpuyard.units import duration, number, plural

Colour = tuple[int, int, int]

WIDTH, HEIGHT_PX = 1280, 720
MARGIN = 20
TOP = 92
QUEUE_LEFT, QUEUE_WIDTH = 820, 440
CLUSTER: Box = (MARGIN, TOP, QUEUE_LEFT - 2 * MARGIN - 10, HEIGHT_PX - TOP - MARGIN)
ENOUGH_FOR_CLUSTER = 380
"""Height after which the rest goes to the jobs that run, if nodes are easy to see."""
ROW = 24
LEAST_ROWS = 3

PAPER: Colour = (24, 26, 31)
FREE: Colour = (52, 56, 66)
INK: Colour = (226, 228, 233)
FAINT: Colour = (150, 155, 166)
ON_JOB: Colour = (16, 17, 20)
CPUS: Colour = (91, 156, 240)
MEMORY: Colour = (176, 132, 232)
IN_USE: Colour = (86, 190, 140)

GOLDEN = 0.6180339887498949


def job_colour(job: int) -> Colour:
    """A job's colour: always the same, and unlike those of jobs that came shortly before or after it."""
    saturation, brightness = ((0.55, 0.95), (0.75, 0.85), (0.35, 0.9))[job % 3]
    red, green, blue = colorsys.hsv_to_rgb(job * GOLDEN % 1.0, saturation, brightness)
    return round(255 * red), round(255 * green), round(255 * blue)


def _ink_on(colour: Colour) -> Colour:
    """Dark on light colours, light on dark ones (by ITU-R BT.601's weights)."""
    red, green, blue = colour
    return ON_JOB if 0.299 * red + 0.587 * green + 0.114 * blue > 110 else (255, 255, 255)


class _Canvas:
    """Pixels to draw on; what lies outside is cut off."""

    def __init__(self) -> None:
        self.pixels = np.empty((HEIGHT_PX, WIDTH, 3), dtype=np.uint8)
        self.pixels[:] = PAPER

    def fill(self, left: float, top: float, width: float, height: float, colour: Colour) -> None:
        """A rectangle."""
        x, y = max(round(left), 0), max(round(top), 0)
        self.pixels[y : max(round(top + height), 0), x : max(round(left + width), 0)] = colour

    def write(self, left: int, top: int, text: str, scale: int = 2, colour: Colour = INK) -> None:
        """A line of text."""
        mask = text_mask(text, scale)
        part = self.pixels[top : top + mask.shape[0], left : left + mask.shape[1]]
        part[mask[: part.shape[0], : part.shape[1]]] = colour

    def write_across(self, left: int, top: int, text: str, edge: float) -> None:
        """A small line of text, dark as far as ``edge``, where a bar behind it ends, then light."""
        mask = text_mask(text)
        dark = np.arange(left, left + mask.shape[1]) < edge
        part = self.pixels[top : top + mask.shape[0], left : left + mask.shape[1]]
        part[mask & dark] = ON_JOB
        part[mask & ~dark] = INK

    def write_right(self, right: int, top: int, text: str, scale: int = 2, colour: Colour = INK) -> None:
        """A line of text that ends at ``right``."""
        self.write(right - text_width(text, scale), top, text, scale, colour)


def paint_scene(scene: Scene) -> NDArray[np.uint8]:
    """The picture, height x width x RGB."""
    canvas = _Canvas()
    _paint_heading(canvas, scene)
    layout = lay_out(scene.gpus, scene.pools, CLUSTER, ENOUGH_FOR_CLUSTER)
    if layout is None:
        _paint_crowd(canvas, scene)
    else:
        _paint_nodes(canvas, scene, layout)
        _paint_running(canvas, scene, layout.bottom + MARGIN)
    _paint_queue(canvas, scene)
    return canvas.pixels


def _paint_heading(canvas: _Canvas, scene: Scene) -> None:
    canvas.write(MARGIN, MARGIN, duration(scene.clock_s), 3)
    jobs = f"{len(scene.running):,} running   {scene.waiting:,} waiting"
    what = scene.use_text if scene.total_gpus else plural(len(scene.gpus), "host")
    canvas.write_right(WIDTH - MARGIN, MARGIN + 4, f"{what}   {jobs}", 2)
    share = scene.gpus_in_use / scene.total_gpus if scene.total_gpus else _cpu_share(scene)
    if share is not None:
        canvas.fill(MARGIN, MARGIN + 36, WIDTH - 2 * MARGIN, 8, FREE)
        canvas.fill(MARGIN, MARGIN + 36, (WIDTH - 2 * MARGIN) * share, 8, IN_USE)


def _cpu_share(scene: Scene) -> float | None:
    """CPUs in use, of all; None if nobody stated how many there are."""
    uses = [scene.cpus(node) for node in range(len(scene.gpus))]
    total = sum(use.capacity or 0 for use in uses)
    return sum(use.share * (use.capacity or 0) for use in uses) / total if total else None


# --- The cluster ---


def _paint_nodes(canvas: _Canvas, scene: Scene, layout: ClusterLayout) -> None:
    for pool, top in layout.headings:
        nodes = scene.pools[pool]
        kind = plural(int(scene.gpus[nodes[0]]), "GPU") if scene.gpus[nodes[0]] else "CPUs"
        canvas.write(CLUSTER[0], top + 6, f"pool {pool}: {len(nodes):,} x {kind}", 2, FAINT)
    for node in layout.labels:
        text, top = str(node), int(layout.top[node])
        below = (layout.cell - layout.gap - HEIGHT * layout.label_scale) // 2 + layout.label_scale // 2
        canvas.write_right(int(layout.left[node]) - 4, top + max(below, 0), text, layout.label_scale, FAINT)
    for node, holders in enumerate(scene.holders):
        if scene.gpus[node]:
            _paint_gpus(canvas, layout, node, holders)
        else:
            _paint_host(canvas, scene, layout, node)


def _paint_gpus(canvas: _Canvas, layout: ClusterLayout, node: int, holders: list[Holders]) -> None:
    """Squares; those of one job beside each other are one bar with its number."""
    first = 0
    for i in range(1, len(holders) + 1):
        line_ends = i == len(holders) or i % layout.wrap == 0
        if not line_ends and holders[i] and holders[i] == holders[first]:
            continue
        line, place = divmod(first, layout.wrap)
        left = int(layout.left[node]) + place * layout.wide
        top = int(layout.top[node]) + line * layout.cell
        width = (i - first) * layout.wide - layout.gap
        _paint_cell(canvas, (left, top, width, layout.cell - layout.gap), holders[first])
        first = i


def _paint_cell(canvas: _Canvas, box: Box, holders: Holders) -> None:
    left, top, width, height = box
    if not holders:
        canvas.fill(left, top, width, height, FREE)
        return
    strip = width / len(holders)
    for i, job in enumerate(holders):
        canvas.fill(left + i * strip, top, strip, height, job_colour(job))
    text = str(holders[0])
    scale = next((s for s in (2, 1) if text_width(text, s) <= width - 2 and HEIGHT * s <= height), 0)
    if scale and len(holders) == 1:
        offset = (width - text_width(text, scale) + scale) // 2
        canvas.write(
            left + offset, top + (height - 7 * scale) // 2, text, scale, _ink_on(job_colour(holders[0]))
        )


def _paint_host(canvas: _Canvas, scene: Scene, layout: ClusterLayout, node: int) -> None:
    """CPUs above, memory below; used and of how much, where there is room to say so."""
    left, top = int(layout.left[node]), int(layout.top[node])
    width, height = layout.wrap * layout.wide - layout.gap, layout.cell - layout.gap
    upper = height // 2
    halves = ((scene.cpus(node), CPUS, "CPUs", 0), (scene.memory_gib(node), MEMORY, "GiB", height - upper))
    for use, colour, unit, below in halves:
        tall = upper - (1 if upper > 3 and not below else 0)
        canvas.fill(left, top + below, width, tall, FREE)
        canvas.fill(left, top + below, width * use.share, tall, colour)
        known = f"{use.capacity - use.free:,} / {use.capacity:,}" if use.capacity else f"{use.free:,}"
        text = f"{known} {unit}" if use.capacity else f"{known} {unit} free"
        if tall >= HEIGHT and text_width(text) + 4 < width:
            canvas.write_across(left + 4, top + below + (tall - 7) // 2, text, left + width * use.share)


def _paint_crowd(canvas: _Canvas, scene: Scene) -> None:
    """More nodes than there is room for: squares that stand for several, brighter the more is in use."""
    left, top, width, height = CLUSTER
    cell = 6
    columns, rows = width // cell, (height - HEIGHT * 4) // cell
    bunch = math.ceil(len(scene.gpus) / (columns * rows))
    starts = np.arange(0, len(scene.gpus), bunch)
    in_use, all_there_is, what = scene.occupancy()
    shares = np.add.reduceat(in_use, starts) / np.maximum(np.add.reduceat(all_there_is, starts), 1)
    ramp = np.array(FREE) + shares[:, None] * (np.array(IN_USE) - np.array(FREE))
    squares = np.full((rows * columns, 3), PAPER, dtype=np.uint8)
    squares[: len(starts)] = ramp.round().astype(np.uint8)
    area = squares.reshape(rows, columns, 3).repeat(cell, axis=0).repeat(cell, axis=1)
    area[::cell], area[:, ::cell] = PAPER, PAPER
    canvas.pixels[top : top + rows * cell, left : left + columns * cell] = area
    canvas.write(left, top + rows * cell + 8, f"a square is {plural(bunch, 'node')}, green {what}", 2, FAINT)


# --- Jobs ---


def _paint_running(canvas: _Canvas, scene: Scene, top: int) -> None:
    """Jobs that run, those that end first at the top, with the time that is left."""
    rows = (HEIGHT_PX - MARGIN - top) // ROW - 1
    if rows < LEAST_ROWS:
        return
    width = (CLUSTER[2] - MARGIN) // 2
    ordered = sorted(scene.running, key=lambda job: (math.isnan(job.left_s), job.left_s, job.job))
    canvas.write(CLUSTER[0], top, "running", 2, INK)
    for right in (CLUSTER[0] + width, CLUSTER[0] + CLUSTER[2])[: 1 + (len(ordered) > rows)]:
        canvas.write_right(right, top, "ends in", 2, FAINT)
    shown = ordered[: 2 * rows]
    if len(ordered) > len(shown):
        more = f"and {len(ordered) - len(shown) + 1:,} more"
        shown = shown[:-1]
        last = CLUSTER[0] + width + MARGIN
        canvas.write(last, top + ROW * rows, more, 2, FAINT)
    for i, job in enumerate(shown):
        column, row = divmod(i, rows)
        left = CLUSTER[0] + column * (width + MARGIN)
        _paint_running_row(canvas, scene, job, (left, top + ROW * (row + 1), width, ROW))


def _paint_running_row(canvas: _Canvas, scene: Scene, job: RunningJob, box: Box) -> None:
    left, top, width, _ = box
    canvas.write_right(left + 60, top, str(job.job))
    thickness = _thickness(job.gpus, scene.total_gpus) if job.gpus else 8
    room = width - 70 - 100
    _paint_bar(canvas, (left + 70, top, room, 14), job.job, job.left_s, thickness)
    canvas.write_right(left + width, top, _brief(job.left_s), 2, FAINT)


def _paint_queue(canvas: _Canvas, scene: Scene) -> None:
    """The first rows of the window: number, demand, a bar as long as the estimate, estimate and wait."""
    left, right = QUEUE_LEFT, QUEUE_LEFT + QUEUE_WIDTH
    canvas.fill(left - 16, TOP, 1, HEIGHT_PX - TOP - MARGIN, FREE)
    columns = "GPUs" if scene.total_gpus else "CPUs"
    canvas.write(left, TOP, "waiting", 2, INK)
    for text, end in ((columns, left + 144), ("takes", right - 100), ("waited", right)):
        canvas.write_right(end, TOP, text, 2, FAINT)
    rows = (HEIGHT_PX - MARGIN - TOP) // ROW - 1
    crowded = scene.waiting > min(rows, len(scene.window))
    shown = scene.window[: rows - 1 if crowded else rows]
    for i, job in enumerate(shown):
        _paint_queue_row(canvas, scene, job, TOP + ROW * (i + 1))
    if scene.waiting > len(shown):
        more = f"and {scene.waiting - len(shown):,} more"
        canvas.write(left, TOP + ROW * (len(shown) + 1), more, 2, FAINT)


def _paint_queue_row(canvas: _Canvas, scene: Scene, job: WaitingJob, top: int) -> None:
    left, right = QUEUE_LEFT, QUEUE_LEFT + QUEUE_WIDTH
    canvas.write_right(left + 72, top, str(job.job))
    in_gpus = number(job.gpus) if 0 < job.gpus < 1 else f"{job.gpus:.0f}"
    asked = in_gpus if job.gpus or scene.total_gpus == 0 == job.cpus else f"{job.cpus}"
    unit = "c" if scene.total_gpus and not job.gpus and job.cpus else ""
    canvas.write_right(left + 144, top, asked + unit)
    size, most = (job.gpus, scene.total_gpus) if job.gpus else (job.cpus, 128)
    _paint_bar(canvas, (left + 156, top, 84, 14), job.job, job.estimate_s, _thickness(size, most))
    canvas.write_right(right - 100, top, _brief(job.estimate_s))
    canvas.write_right(right, top, _brief(job.wait_s), 2, FAINT)


def _thickness(size: float, most: float) -> int:
    """Of a job's bar: the logarithm of what it asks for, of all there is."""
    return 3 + round(15 * log_share(size, most))


def _paint_bar(canvas: _Canvas, box: Box, job: int, length_s: float, thickness: int) -> None:
    """Colour, length by the logarithm of a time, thickness by size, in the middle of a line of text."""
    left, top, width, height = box
    length = max(width * log_share(length_s, LONGEST_S), 3)
    canvas.fill(left, top + (height - thickness) / 2, length, thickness, job_colour(job))


def _brief(seconds: float) -> str:
    """A length of time, short; a job that is late has none left."""
    if math.isnan(seconds):
        return "?"
    return duration(max(seconds, 0.0), short=True)
