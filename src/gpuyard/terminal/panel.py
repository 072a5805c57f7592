"""The panel of a training run: progress, curves, and how the policy does beside heuristics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gpuyard.runs.curves import (
    Curve,
    by_importance,
    compared_text,
    curve_label,
    short_number,
    short_policy,
    value_text,
)
from gpuyard.runs.directory import POLICY, SCORE, STATE_TEXTS, Validation, best_score
from gpuyard.runs.progress import Record, printable
from gpuyard.runs.story import RunStory
from gpuyard.terminal.curves import Drawing, draw_curve
from gpuyard.terminal.tables import BEST, COMPARED, MARK, plain_table
from gpuyard.units import duration, metric_label, metric_text, rough

FRAME_COLUMNS, FRAME_LINES = 4, 2
CURVE_COLUMNS = 34
"""A curve narrower than this says little: fewer stand side by side."""
LARGE, SMALL = 3, 2
"""Lines of a curve's picture, in the first row of curves and in the others."""
MOST_HEURISTICS = 3
FACTS = ("learning_rate", "kl", "clip_share", "gradient_norm", "explained_variance")
STAGES = {
    "heuristics": "fixed heuristics",
    "grid": "grid of orders, backfilling and admission",
    "limits": "limits on waits",
}
GAP = 3
LONGEST_NAME = 18
NARROWEST_TABLE = 30


@dataclass(frozen=True)
class _Block:
    """Something to show, and the lines that it takes."""

    content: RenderableType
    lines: int


def training_panel(console: Console, story: RunStory, directory: str, hint: str) -> Panel:
    """The panel, no larger than the terminal; the hint is for as long as the run is under way."""
    hint = "" if story.stop_reason else hint
    width = max(console.width - FRAME_COLUMNS, 20)
    room = max(console.height - 1, 8) - FRAME_LINES
    drawn = _drawn_curves(story)
    columns = max(min((width + GAP) // (CURVE_COLUMNS + GAP), 4), 1)
    pen = _Pen((width - GAP * (columns - 1)) // columns, console.options.ascii_only)
    blocks = [_head(story, width), *_curve_row(drawn[:columns], pen, LARGE)]
    table = _validation_block(story, width)
    spare = room - sum(block.lines for block in (*blocks, *table)) - 2 - bool(hint)
    if spare < 0:
        table, spare = [], spare + sum(block.lines for block in table)
    rows = [drawn[first : first + columns] for first in range(columns, len(drawn), columns)]
    shown = len(drawn)
    if len(rows) * (SMALL + 2) <= spare:
        blocks += [block for row in rows for block in _curve_row(row, pen, SMALL)]
    elif rows[: spare - 1] and spare > 1:
        blocks.append(_one_line_curves(rows[: spare - 1], pen))
        shown = min(len(drawn), columns * spare)
    blocks += [*table, *_foot(story, {one.name for one in drawn[:shown]}, hint, width)]
    return Panel(
        Group(*(block.content for block in blocks)),
        title=Text.assemble((story.algorithm or "training", "bold"), f"  {directory or story.name}"),
        title_align="left",
        box=box.ROUNDED,
        border_style="dim",
        width=min(console.width, width + FRAME_COLUMNS),
    )


def _head(story: RunStory, width: int) -> _Block:
    share = story.share_done
    total = f" of {story.total_steps:,}" if story.total_steps else ""
    parts = [f"{story.step:,}{total} {story.unit}s" if story.stage is None else stage_text(story.stage)]
    parts += [f"{rough(story.rate)}/s"] if story.rate else []
    parts += [duration(story.elapsed_s + story.idle_s)] if story.elapsed_s else []
    if story.stop_reason:
        parts.append(STATE_TEXTS[story.stop_reason].partition(":")[0].partition(" (")[0])
    elif story.seconds_left is not None:
        parts.append(f"{duration(story.seconds_left)} left")
    words = Text(", ".join(parts), overflow="ellipsis", no_wrap=True)
    if share is None:
        return _Block(words, 1)
    bar = Table.grid(padding=(0, 1, 0, 0))
    length = ProgressBar(
        total=1.0, completed=share, width=width - 6, complete_style="cyan", finished_style="green"
    )
    bar.add_row(length, f"{100 * share:3.0f} %")
    return _Block(Group(bar, words), 2)


def stage_text(record: Record) -> str:
    """How far a stage before the first update is, such as the grid of a search."""
    stage = STAGES.get(str(record.get("stage")), printable(record.get("stage")))
    about = "now" if record.get("stage") == "limits" else "best so far"
    best = f", {about} {printable(record['best'])}" if record.get("best") else ""
    return f"{stage}: {record.get('done')} of {record.get('total')}{best}"


@dataclass(frozen=True)
class _Drawn:
    """A curve to draw, the level to mark in it and what that is called."""

    name: str
    label: str
    curve: Curve
    level: float | None = None
    level_label: str = ""

    @property
    def style(self) -> str:
        return "green" if self.name == SCORE else "cyan"


@dataclass(frozen=True)
class _Pen:
    """Room across for each curve, and what it may be drawn with."""

    width: int
    ascii_only: bool

    def draw(self, one: _Drawn, width: int, height: int) -> Drawing:
        return draw_curve(
            one.curve.steps,
            one.curve.values,
            max(width, 4),
            height,
            level=one.level,
            style=one.style,
            ascii_only=self.ascii_only,
        )


def _drawn_curves(story: RunStory) -> list[_Drawn]:
    """Those that matter most first: the return, and validation beside the best heuristic."""
    drawn = [_Drawn(name, curve_label(name), story.curves[name]) for name in by_importance(story.curves)]
    heuristic = story.best_heuristic()
    level = heuristic[1] if heuristic else None
    label = f"{short_policy(heuristic[0])} {short_number(level)}" if heuristic else ""
    drawn.insert(min(1, len(drawn)), _Drawn(SCORE, "validation", story.scores, level, label))
    return [one for one in drawn if one.curve.values]


def _curve_row(drawn: Sequence[_Drawn], pen: _Pen, height: int) -> list[_Block]:
    cells = [_curve_cell(one, pen, height) for one in drawn]
    lines = [_side_by_side([cell[index] for cell in cells], pen.width) for index in range(height + 1)]
    return [_Block(Group(Text(""), *lines), height + 2)] if drawn else []


def _curve_cell(one: _Drawn, pen: _Pen, height: int) -> list[Text]:
    """A curve below its name and last value, its range on the right."""
    texts = [value_text(one.name, edge) for edge in (max(one.curve.values), min(one.curve.values))]
    margin = max(7, *(len(text) for text in texts)) + 1
    drawing = pen.draw(one, pen.width - margin, height)
    title = Text.assemble((one.label, "bold"), "  ", (value_text(one.name, one.curve.last), one.style))
    if one.level_label:
        dots = ".." if pen.ascii_only else "⠂⠂"
        title.append(f"  {dots} {one.level_label}", style="dim")
    title.truncate(pen.width, overflow="ellipsis")
    edges = {0: drawing.high, height - 1: drawing.low}
    lines = [title]
    for index, line in enumerate(drawing.lines):
        shown = value_text(one.name, edges[index]) if index in edges else ""
        lines.append(Text.assemble(line, " ", (shown, "dim")))
    return lines


def _one_line_curves(rows: Sequence[Sequence[_Drawn]], pen: _Pen) -> _Block:
    """Curves of one line each, their names before them and their last values behind."""
    every = [one for row in rows for one in row]
    names = min(max(len(one.label) for one in every), LONGEST_NAME)
    values = max(len(value_text(one.name, one.curve.last)) for one in every)
    lines = []
    for row in rows:
        cells = []
        for one in row:
            label = Text(one.label, style="bold")
            label.truncate(names, overflow="ellipsis", pad=True)
            curve = pen.draw(one, pen.width - names - values - 2, 1).lines[0]
            cells.append(
                Text.assemble(label, " ", curve, " ", (value_text(one.name, one.curve.last), one.style))
            )
        lines.append(_side_by_side(cells, pen.width))
    return _Block(Group(Text(""), *lines), 1 + len(lines))


def _side_by_side(cells: Sequence[Text], width: int) -> Text:
    """A line of cells, each padded to its width."""
    row = Text(no_wrap=True, overflow="crop")
    for cell in cells:
        part = cell.copy()
        part.truncate(width, overflow="crop", pad=True)
        row.append_text(part)
        row.append(" " * GAP)
    row.rstrip()
    return row


def _validation_block(story: RunStory, width: int) -> list[_Block]:
    if not story.validations or width < NARROWEST_TABLE:
        return []
    last = story.validations[-1]
    higher = story.higher_is_better
    names = [POLICY, *_best_heuristics(last, higher)]
    table = validation_table(last, names, story.metric, width)
    title = Text.assemble(
        ("validation", "bold"), f" after {last.step:,} {story.unit}s{_verdict(last, higher)}"
    )
    title.truncate(width, overflow="ellipsis")
    header = max(str(column.header).count("\n") for column in table.columns) + 1
    return [_Block(Group(Text(""), title, table), 2 + header + len(names))]


def _best_heuristics(done: Validation, higher: bool) -> list[str]:
    others = [name for name in done.metrics if name != POLICY]
    worst = float("-inf") if higher else float("inf")
    others.sort(key=lambda name: done.scores.get(name, worst), reverse=higher)
    return others[:MOST_HEURISTICS]


def _verdict(done: Validation, higher: bool) -> str:
    best = best_score(done.scores, higher)
    if best is None or done.score is None:
        return ""
    return f": {compared_text(done.score, best[0], best[1], higher)}"


def validation_table(done: Validation, names: Sequence[str], metric: str, width: int) -> Table:
    """The policy and heuristics, one row each, as many metrics as there is room for.

    Args:
        done: The validation.
        names: Policies to show.
        metric: The metric behind the score, which is shown next to it.
        width: Columns of the terminal.
    """
    shown = _shown_metrics(done, metric)
    directions = _directions(shown)
    columns = {
        name: _cells(name, directions[name], [done.metrics[policy].get(name) for policy in names])
        for name in shown
    }
    room = width - max(map(len, names))
    headers = {metric: metric_label(metric) for metric in shown}
    if sum(_column_width(headers[metric], columns[metric]) for metric in shown) > room:
        headers = {metric: label.replace(" ", "\n") for metric, label in headers.items()}
    widths = accumulate(_column_width(headers[metric], columns[metric]) for metric in shown)
    kept = [metric for metric, total in zip(shown, widths, strict=True) if total <= room] or shown[:1]
    table = plain_table("", *(headers[metric] for metric in kept), right=range(1, len(kept) + 1))
    table.box, table.padding = None, (0, GAP, 0, 0)
    table.columns[0].no_wrap = True
    for index, name in enumerate(names):
        label = Text(short_policy(name), style="bold" if name == POLICY else "")
        table.add_row(label, *(columns[metric][index] for metric in kept))
    return table


def _column_width(header: str, cells: Sequence[Text]) -> int:
    return max(*(cell.cell_len for cell in cells), *map(len, header.split("\n"))) + GAP


def _cells(metric: str, direction: str, values: Sequence[float | None]) -> list[Text]:
    """Values as texts, those that read as the best one does marked."""
    texts = [short_number(one) if metric == SCORE else metric_text(metric, one, short=True) for one in values]
    known = [(value, text) for value, text in zip(values, texts, strict=True) if value is not None]
    best = ""
    if direction != "neutral" and len(set(texts)) > 1 and known:
        best = (min if direction == "lower" else max)(known)[1]
    return [Text(f"{MARK}{text}", style=BEST) if text == best else Text(text) for text in texts]


def _shown_metrics(done: Validation, decides: str) -> list[str]:
    """Metrics of a validation: score and the one behind it, those that matter most, then the others."""
    every = list(dict.fromkeys(metric for values in done.metrics.values() for metric in values))
    first = [metric for metric in (SCORE, decides, *COMPARED) if metric in every]
    return list(dict.fromkeys((*first, *every)))


def _directions(names: Iterable[str]) -> Mapping[str, str]:
    from gpuyard.metrics.catalogue import metrics

    known: Mapping[str, Any] = metrics()
    return {
        name: known[name].direction if name in known else "higher" if name in (SCORE, "return") else "neutral"
        for name in names
    }


def _foot(story: RunStory, drawn: set[str], hint: str, width: int) -> list[_Block]:
    """What no curve shows, as far as it fits, and the hint."""
    facts = [] if story.update is None else [f"update {story.update:,}"]
    facts += [
        f"{curve_label(name)} {short_number(story.curves[name].last)}"
        for name in FACTS
        if name in story.curves and name not in drawn
    ]
    while facts and len(", ".join(facts)) > width:
        facts.pop()
    lines = [text for text in (", ".join(facts), hint) if text]
    shown = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines]
    return [_Block(Group(Text(""), *shown), 1 + len(shown))] if shown else []
