"""Consoles and progress. Results go to standard output, everything else to standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, Self

from rich.console import Console

from gpuyard.files import atomic_write
from gpuyard.units import duration, kept_together, rough

BAR_AFTER_S = 0.3
"""Work shorter than this shows no progress bar: it would only flicker."""
LINE_EVERY_S = 10.0
"""Away from a terminal, a plain line is printed this often."""

VERBOSE_LINE_EVERY_S = 1.0
"""The same with ``--verbose``."""

_quiet = False
_verbose = False


def set_quiet(quiet: bool) -> None:
    """Whether progress and notes are left out (``--quiet``); results and errors are always shown."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Whether progress and notes are left out."""
    return _quiet


def set_verbose(verbose: bool) -> None:
    """Whether progress is shown more often away from a terminal, and what a command took at its end."""
    global _verbose
    _verbose = verbose


def is_verbose() -> bool:
    """Whether more is shown than usual (``--verbose``)."""
    return _verbose


def _line_every_s() -> float:
    return VERBOSE_LINE_EVERY_S if _verbose else LINE_EVERY_S


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to ``gpuyard.cli.main``; rich would end the process."""
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; texts are broken into lines between words, but never between a number and its unit."""
        if not options.get("soft_wrap"):
            objects = tuple(in_lines(one, self.width) if isinstance(one, str) else one for one in objects)
        super().print(*objects, **options)


def in_lines(text: str, width: int) -> str:
    """A text on lines of at most so many columns, where words allow it."""
    lines = [
        wrap(line, width, break_long_words=False, break_on_hyphens=False, replace_whitespace=False) or [""]
        for line in kept_together(text).split("\n")
    ]
    return "\n".join(part for line in lines for part in line).replace("\u00a0", " ")


def output(**options: Any) -> Console:
    """The console for results. Nothing in the text is read as markup or an emoji."""
    return _Console(markup=False, emoji=False, highlight=False, **options)


def errors() -> Console:
    """The console for everything that is not a result."""
    return _Console(stderr=True, markup=False, emoji=False, highlight=False, quiet=_quiet)


class Progress:
    """Progress through a known number of jobs, made of several policies' runs."""

    def __init__(self, jobs_per_run: int, runs: int) -> None:
        self._per_run = jobs_per_run
        self._total = jobs_per_run * runs
        self._before = -jobs_per_run
        self._label = ""
        self._began = self._last_line = time.monotonic()
        self._console = errors()
        self._bar: Any = None

    def start_run(self, label: str) -> Callable[[int], None]:
        """Begin the next policy's run; the function returned takes its number of finished jobs."""
        self._label = label
        self._before += self._per_run
        self.update(0)
        return self.update

    def update(self, finished: int) -> None:
        """Show that so many jobs of this run have finished."""
        now = time.monotonic()
        if _quiet or now - self._began < BAR_AFTER_S:
            return
        done = self._before + finished
        if self._console.is_terminal:
            self._bar = self._bar or _start_bar(self._console, self._total)
            rate = f"{rough(done / (now - self._began))} jobs/s"
            self._bar.update(self._bar.task_ids[0], completed=done, description=self._label, rate=rate)
        elif now - self._last_line >= _line_every_s():
            self._last_line = now
            print(_line(self._label, done, self._total, now - self._began), file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


class StageProgress:
    """Progress through stages: a bar each on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._console = errors()
        self._bar: Any = None
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich import progress

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(bar_width=24),
                progress.MofNCompleteColumn(),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.fields[remark]}"),
                console=self._console,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, stage: str, done: int, total: int, remark: str = "") -> None:
        """Show that so much of a stage is done."""
        if self._bar is not None:
            tasks = {task.description: task.id for task in self._bar.tasks}
            if stage not in tasks:
                tasks[stage] = self._bar.add_task(stage, total=total, remark="")
            self._bar.update(tasks[stage], completed=done, total=total, remark=remark)
        elif not _quiet and time.monotonic() - self._last_line >= _line_every_s():
            self._last_line = time.monotonic()
            line = f"{stage}: {done:,} of {total:,}" + (f"; {remark}" if remark else "")
            print(line, file=sys.stderr, flush=True)


def _start_bar(console: Console, total: int) -> Any:
    from rich import progress

    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=24),
        progress.TextColumn("{task.percentage:>3.0f} %"),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    bar.add_task("", total=total, rate="")
    bar.start()
    return bar


def _line(label: str, done: int, total: int, elapsed_s: float) -> str:
    left = f", {duration(elapsed_s * (total - done) / done)} left" if done else ""
    return f"{label}: {done:,} of {total:,} jobs, {rough(done / elapsed_s)} jobs/s{left}"


@contextmanager
def show_progress(jobs_per_run: int, runs: int) -> Iterator[Progress]:
    """Progress that is gone when the work is done, however it ends."""
    progress = Progress(jobs_per_run, runs)
    try:
        yield progress
    finally:
        progress.stop()


# Rich's own picture names fonts on the network and draws a window around the text; this one does neither.
_PICTURE = """\
<svg xml:space="preserve" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="{width}" height="{height}" rx="8" fill="#292929"/>
<g transform="translate({terminal_x}, 24)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def save_picture(console: Console, path: Path) -> None:
    """Save what a recording console has shown as an SVG file."""
    picture = console.export_svg(code_format=_PICTURE, unique_id="gpuyard")
    with atomic_write(path) as temporary:
        temporary.write_text(picture, encoding="utf-8")
