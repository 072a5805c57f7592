"""A training run as it goes: a live panel on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from rich.console import Console

from gpuyard.runs.curves import curve_label, short_policy, value_text
from gpuyard.runs.directory import PROGRESS, STATE_TEXTS, Validation, best_score
from gpuyard.runs.progress import ProgressTail, Record, is_being_written
from gpuyard.runs.story import RunStory
from gpuyard.terminal.console import LINE_EVERY_S
from gpuyard.units import duration, plural, rough

if TYPE_CHECKING:
    from gpuyard.learn.config import TrainConfig
    from gpuyard.learn.run import StartedRun

HINT = "Ctrl-C stops and keeps everything; gpuyard train --resume {} resumes it"
LOOK_EVERY_S = 0.2
"""How often the progress log is looked at for new lines."""
IDLE_REFRESH_S = 1.0
"""How often the time left is counted down while nothing is written, as in a long validation."""
LINE_VALUES = ("episode/return", "entropy", "kl")
"""What a plain line tells, where there is any."""


class Process(Protocol):
    """What follows a run needs to know of the process that trains it."""

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""


class WatchedProcess:
    """A process that was started elsewhere: it runs as long as it holds the progress log open."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def poll(self) -> int | None:
        """None while it runs, else 0."""
        return None if is_being_written(self._path) else 0


class TrainingView:
    """Shows a run as its records come in.

    Example:
        with TrainingView(errors(), total_steps=1_000_000, directory=path) as view:
            code = follow(path / "progress.jsonl", process, view)
    """

    def __init__(
        self,
        console: Console,
        total_steps: int | None = None,
        limit_s: float | None = None,
        *,
        directory: str | Path | None = None,
        hint: str = "",
        about: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a view; nothing is shown before it is entered.

        Args:
            console: Where it is shown: as a live panel if that is a terminal, else as plain lines.
            total_steps: Samples after which training ends; None takes what the run says.
            limit_s: Time after which it ends, if there is such a limit.
            directory: The run's.
            hint: A line below the panel, such as what Ctrl-C does.
            about: Lines that are told once the run has begun, such as what it trains on.
            clock: Seconds, for the time between plain lines.
        """
        self._console, self._clock = console, clock
        self._total_steps, self._limit_s = total_steps, limit_s
        self._directory = "" if directory is None else str(directory)
        self.hint = hint
        self._about = tuple(about)
        self._live: Any = None
        self._last_line = self._last_record = self._last_refresh = clock()
        self.restart()

    def restart(self) -> None:
        """Forget all records: they come again from the first on."""
        self.story = RunStory(self._total_steps, self._limit_s)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(
                self.panel(),
                console=self._console,
                auto_refresh=False,
                vertical_overflow="crop",
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(self.panel(), refresh=True)
            self._live.stop()
            self._live = None

    def update(self, records: Sequence[Record]) -> None:
        """Take in records and show what has become of the run."""
        last = {record["event"]: index for index, record in enumerate(records)}
        for index, record in enumerate(records):
            self.story.add(record)
            if record["event"] in ("start", "resume"):
                self._tell_about()
            if not self._console.is_terminal:
                self._print_line(record, is_last=last[record["event"]] == index)
        if self._live is not None:
            self._refresh(records)

    def _tell_about(self) -> None:
        for line in self._about:
            if self._live is None:
                self._print(line)
            else:
                self._console.print(line, soft_wrap=True)
        self._about = ()

    def _refresh(self, records: Sequence[Record]) -> None:
        now = self._clock()
        if records:
            self._last_record = now
        elif now - self._last_refresh < IDLE_REFRESH_S:
            return
        if not self.story.stop_reason:
            self.story.idle_s = now - self._last_record
        self._last_refresh = now
        self._live.update(self.panel(), refresh=True)

    def panel(self) -> Any:
        """The panel as it is now."""
        from gpuyard.terminal.panel import training_panel

        return training_panel(self._console, self.story, self._directory, self.hint)

    def _print_line(self, record: Record, *, is_last: bool) -> None:
        """Of records that come at once, the last validation and the last update are told."""
        event, now = record["event"], self._clock()
        if event == "update" and is_last and now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            self._print(_update_line(self.story))
        elif event == "stage" and is_last and now - self._last_line >= LINE_EVERY_S:
            from gpuyard.terminal.panel import stage_text

            self._last_line = now
            self._print(stage_text(record))
        elif event in ("start", "resume", "stop") or (event == "validation" and is_last):
            self._print(_event_line(record, self.story, self._directory))

    def _print(self, line: str) -> None:
        # Console.print would break lines at 80 columns, which programs that read a log do not expect.
        print(line, file=self._console.file, flush=True)


def _event_line(record: Record, story: RunStory, directory: str) -> str:
    step = f"{record.get('step', 0):,} {story.unit}s"
    if record["event"] == "start":
        return f"{story.algorithm or 'training'} in {directory or story.name}"
    if record["event"] == "resume":
        return f"resumed after {step}"
    if record["event"] == "stop":
        return f"{STATE_TEXTS[record['reason']]} after {step}, {duration(story.elapsed_s)}"
    done = Validation.of(record)
    better = ", the best so far" if done.better else ""
    heuristic = best_score(done.scores, story.higher_is_better)
    beside = f"; {short_policy(heuristic[0])} {value_text('', heuristic[1])}" if heuristic else ""
    return f"validation after {step}: score {value_text('', done.score)}{better}{beside}"


def _update_line(story: RunStory) -> str:
    total = f" of {story.total_steps:,}" if story.total_steps else ""
    parts = [f"{story.step:,}{total} {story.unit}s"]
    if story.rate:
        parts.append(f"{rough(story.rate)} samples/s")
    if story.seconds_left is not None:
        parts.append(f"{duration(story.seconds_left)} left")
    shown = ((name, story.curves[name].last) for name in LINE_VALUES if name in story.curves)
    parts += [f"{curve_label(name)} {value_text(name, value)}" for name, value in shown if value is not None]
    return ", ".join(parts)


def follow(
    path: str | Path,
    process: Process,
    view: TrainingView,
    *,
    on_interrupt: Callable[[], None] | None = None,
    wait_on_interrupt: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Show a run until the process that trains it ends.

    Ctrl-C reaches the process as well, if both belong to the same terminal: it is given the time to write its
    checkpoint. A second Ctrl-C is not waited for.

    Args:
        path: The run's ``progress.jsonl``; it need not exist yet.
        process: What trains it, such as a ``subprocess.Popen``.
        view: Where it is shown; it must have been entered.
        on_interrupt: Called at the first Ctrl-C, such as to pass it on to a process that it does not reach.
        wait_on_interrupt: Whether to wait after the first Ctrl-C until the process has ended.
        sleep: Waits between looks at the file.

    Returns:
        The exit code of the process.

    Raises:
        InputError: if the file is malformed.
        KeyboardInterrupt: at the second Ctrl-C, or at the first if that is not waited for.
    """
    tail, interrupted = ProgressTail(path), False
    while True:
        try:
            code = process.poll()  # before reading, so that nothing written before the end is missed
            records, anew = tail.read()
            if anew:
                view.restart()
            view.update(records)
            if code is not None:
                return code
            sleep(LOOK_EVERY_S)
        except KeyboardInterrupt:
            if interrupted or not wait_on_interrupt:
                raise
            interrupted = True
            view.hint = "stopping: a checkpoint is written first; Ctrl-C again does not wait for it"
            if on_interrupt is not None:
                on_interrupt()


def watch_training(run: "StartedRun", console: Console) -> int:
    """Show a run that was started here until its processes have ended; their exit code."""
    training, warm = run.config.training, run.config.warm_start
    with TrainingView(
        console,
        total_steps=training.steps + (warm.steps if warm else 0),
        limit_s=None if training.minutes is None else 60 * training.minutes,
        directory=run.directory,
        hint=HINT.format(run.directory),
        about=(setup_in_words(run.config), *run.notes),
    ) as view:
        return follow(run.directory / PROGRESS, run.processes, view, on_interrupt=run.processes.interrupt)


def setup_in_words(config: "TrainConfig") -> str:
    """What is trained, on which jobs and machines, and when that ends."""
    from gpuyard.learn.algorithm import find_algorithm

    environment, network, training = config.environment, config.network, config.training
    if environment.workload is not None:
        jobs = f"windows of {environment.workload}"
    elif environment.generator is not None:
        named = environment.generator
        name = named if isinstance(named, str) else named.get("preset", "of its own settings")
        jobs = f"draws of the generator {name}"
    elif environment.preset is not None:
        jobs = f"jobs of the environment {environment.preset}"
    else:
        jobs = "windows of built-in jobs"
    if environment.preset is not None and not jobs.endswith(f" {environment.preset}"):
        jobs += f" in the environment {environment.preset}"
    cluster = "their own cluster" if environment.cluster is None else f"cluster {environment.cluster}"
    start = {"none": "from nothing", "base": "from its base policy", "rule": "from a rule"}[network.residual]
    if config.init_from is not None:
        start = f"from {config.init_from}"
    elif config.rule is not None:
        start = "from a rule"
    algorithm = find_algorithm(config.algorithm)
    limits = plural(training.steps, algorithm.unit)
    limits += "" if training.minutes is None else f" or {duration(60 * training.minutes)}"
    trained = f"network {network.kind} of width {network.width}, {start}; "
    return (
        f"{config.algorithm} on {jobs}, {cluster}; {'' if algorithm.reads else trained}until {limits}; "
        f"{training.processes} process{'' if training.processes == 1 else 'es'}"
    )
