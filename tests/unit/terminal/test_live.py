"""A training run as it is shown while it goes: the panel at any size, plain lines away from a terminal."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuyard.runs.curves import Curve, by_importance, compared_text, curve_label, short_number
from gpuyard.runs.progress import ProgressWriter
from gpuyard.terminal.curves import draw_curve
from gpuyard.terminal.live import TrainingView, WatchedProcess, follow
from gpuyard.terminal.panel import stage_text
from support.sample_runs import sample_records

RECORDS = list(sample_records(60, stop=None))


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class ScriptedProcess:
    """A process that does something at each look and ends after the last."""

    def __init__(self, *actions: Any, code: int = 0) -> None:
        self._actions, self._code = list(actions), code

    def poll(self) -> int | None:
        if not self._actions:
            return self._code
        self._actions.pop(0)()
        return None


def console(width: int = 80, height: int = 24, *, terminal: bool = True, ascii_only: bool = False) -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii" if ascii_only else "utf-8")
    return Console(
        file=file,
        width=width,
        height=height,
        force_terminal=terminal,
        markup=False,
        emoji=False,
        highlight=False,
    )


def shown(records: Sequence[dict[str, Any]], screen: Console, **options: Any) -> list[str]:
    """The lines of the panel after these records."""
    view = TrainingView(screen, **options)
    for record in records:
        view.story.add(record)
    plain = Console(
        file=screen.file, width=screen.width, height=screen.height, force_terminal=True, color_system=None
    )
    with plain.capture() as capture:
        plain.print(view.panel())
    return capture.get().splitlines()


# The panel


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [8, 16, 24, 50])
def test_the_panel_is_never_wider_than_the_terminal_nor_higher_if_that_has_room(
    width: int, height: int
) -> None:
    lines = shown(RECORDS, console(width, height), directory="runs/ppo-1", hint="Ctrl-C stops it")
    assert max(map(len, lines)) <= width
    assert len(lines) < max(height, 14)


def test_a_usual_terminal_shows_progress_curves_and_heuristics() -> None:
    text = "\n".join(shown(RECORDS, console(80, 24), directory="runs/ppo-1", hint="Ctrl-C stops it"))
    for part in (
        *("ppo", "runs/ppo-1", "491,520 of 491,520 samples", "100 %", "/s", "left", "Ctrl-C stops it"),
        *("episode return", "validation", "entropy", "policy loss", "value loss", "KL", "learning rate"),
        *("sjf+easy 0.529", "% better than sjf+easy", "mean bounded slowdown", "*"),
    ):
        assert part in text


def test_a_run_that_has_said_nothing_yet_has_a_panel() -> None:
    text = "\n".join(shown([], console(), directory="runs/ppo-1"))
    assert "runs/ppo-1" in text
    assert "0 samples" in text


def test_a_terminal_without_unicode_gets_curves_in_ascii() -> None:
    body = "\n".join(shown(RECORDS, console(ascii_only=True), directory="runs/ppo-1"))
    assert body.isascii()
    assert "'" in body
    assert "_" in body


def test_the_end_of_a_run_replaces_the_time_left_and_the_hint() -> None:
    stop = {"event": "stop", "reason": "interrupted", "step": 491_520}
    text = "\n".join(shown([*RECORDS, stop], console(), hint="Ctrl-C stops it"))
    assert "was interrupted" in text
    assert " left" not in text
    assert "Ctrl-C" not in text


def test_time_left_is_that_of_the_limit_that_comes_first() -> None:
    half = [record for record in RECORDS if record.get("step", 0) <= 30 * 8192]
    view = TrainingView(console(), limit_s=20.0)
    for record in half:
        view.story.add(record)
    assert view.story.seconds_left == pytest.approx(20 - 30 * 8192 / 21_000, abs=0.01)
    assert view.story.share_done == pytest.approx(30 * 8192 / 21_000 / 20, abs=0.001)
    view = TrainingView(console(), total_steps=31 * 8192, limit_s=1e6)
    for record in half:
        view.story.add(record)
    assert view.story.seconds_left == pytest.approx(8192 / 21_000, rel=0.1)
    assert view.story.share_done == pytest.approx(30 / 31)


def test_the_time_left_counts_down_while_nothing_is_written() -> None:
    clock, screen = Clock(), console()
    with TrainingView(screen, total_steps=10**9, limit_s=100.0, clock=clock) as view:
        view.update(RECORDS[:5])
        before = view.story.seconds_left
        clock.sleep(30)
        view.update([])
        assert before is not None
        assert view.story.seconds_left == pytest.approx(before - 30)


def test_a_policy_behind_the_heuristics_is_called_worse() -> None:
    early = [record for record in RECORDS if record.get("step", 0) <= 10 * 8192]
    assert "% worse than sjf+easy" in "\n".join(shown(early, console()))


@pytest.mark.parametrize(
    ("score", "reference", "higher", "text"),
    [
        (0.55, 0.5, True, "10.0 % better than sjf"),
        (-4.5, -5.0, True, "10.0 % better than sjf"),
        (4.5, 5.0, False, "10.0 % better than sjf"),
        (5.5, 5.0, False, "10.0 % worse than sjf"),
        (1.0, -1.0, True, "2 better than sjf"),
        (1.0, 1.0, True, "as good as sjf"),
    ],
)
def test_scores_are_compared_whatever_their_sign(
    score: float, reference: float, higher: bool, text: str
) -> None:
    assert compared_text(score, "sjf", reference, higher) == text


# Plain lines


def lines_of(screen: Console) -> list[str]:
    screen.file.seek(0)
    return screen.file.read().splitlines()


def test_away_from_a_terminal_lines_come_every_ten_seconds_without_control_codes() -> None:
    clock, screen = Clock(), console(terminal=False)
    with TrainingView(screen, directory="runs/ppo-1", clock=clock) as view:
        for record in [record for record in RECORDS if record["event"] in ("start", "update")]:
            view.update([record])
            clock.sleep(1.0)
    lines = lines_of(screen)
    assert lines[0] == "ppo in runs/ppo-1"
    assert len(lines) == 1 + 6
    assert all("samples/s" in line and "left" in line and "episode return" in line for line in lines[1:])
    assert "\x1b" not in "".join(lines)


def test_away_from_a_terminal_validations_and_the_end_are_told_at_once() -> None:
    screen = console(terminal=False, width=40)
    records = [*RECORDS, {"event": "stop", "reason": "early", "step": 491_520}]
    with TrainingView(screen, clock=Clock()) as view:
        for record in records:
            view.update([record])
    lines = lines_of(screen)
    told = [line for line in lines if line.startswith("validation after")]
    assert len(told) == 6
    assert "the best so far" in told[0]
    assert "; sjf+easy 0.529" in told[0]
    assert lines[-1].startswith("stopped early")


def test_a_policy_that_is_held_against_limits_is_not_called_the_best() -> None:
    stage = {"done": 17, "total": 21, "best": "sjf+easy+age:86400"}
    assert stage_text({"stage": "limits", **stage}) == "limits on waits: 17 of 21, now sjf+easy+age:86400"
    assert stage_text({"stage": "grid", **stage}).endswith("17 of 21, best so far sjf+easy+age:86400")


def test_lines_that_come_at_once_are_told_in_the_order_in_which_things_happened() -> None:
    clock, screen = Clock(), console(terminal=False)
    with TrainingView(screen, directory="runs/ppo-1", about=["trains on demo"], clock=clock) as view:
        clock.sleep(60)
        view.update([*RECORDS, {"event": "stop", "reason": "finished", "step": 491_520}])
    begins = [line.split()[0] for line in lines_of(screen)]
    assert begins == ["trains", "ppo", "491,520", "validation", "finished"]


def test_what_a_run_is_about_is_told_once_it_has_begun_and_not_again() -> None:
    for terminal in (True, False):
        screen = console(terminal=terminal)
        with TrainingView(screen, about=["trains on demo"], clock=Clock()) as view:
            view.update([])
            assert "trains on demo" not in "".join(lines_of(screen))
            screen.file.seek(0, 2)
            view.update(RECORDS[:3])
            view.update([{"event": "resume", "step": 0}])
        assert "".join(lines_of(screen)).count("trains on demo") == 1


# Following


def test_following_shows_everything_up_to_the_end_and_returns_the_exit_code(tmp_path: Path) -> None:
    log, screen, clock = tmp_path / "progress.jsonl", console(terminal=False), Clock()
    writers: list[ProgressWriter] = []

    def begin() -> None:
        writers.append(ProgressWriter(log))

    def write(*records: dict[str, Any]) -> None:
        for record in records:
            writers[0].write(record)

    last = {"event": "stop", "reason": "finished", "step": 491_520}
    process = ScriptedProcess(
        lambda: None, begin, lambda: write(*RECORDS), lambda: write(last), lambda: writers[0].close(), code=3
    )
    with TrainingView(screen, clock=clock) as view:
        assert follow(log, process, view, sleep=clock.sleep) == 3
    assert view.story.step == 491_520
    assert lines_of(screen)[-1].startswith("finished after 491,520 samples")


def test_following_forgets_what_a_resumed_run_drops(tmp_path: Path) -> None:
    log = tmp_path / "progress.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in RECORDS), encoding="utf-8")
    with TrainingView(console(terminal=False)) as view:
        process = ScriptedProcess(lambda: None, lambda: ProgressWriter.resume(log, 8192).close())
        follow(log, process, view, sleep=lambda _: None)
    assert view.story.step == 8192
    assert len(view.story.validations) == 0


def test_the_first_interrupt_waits_for_the_process_and_the_second_does_not(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    passed_on: list[str] = []
    with TrainingView(console(terminal=False)) as view:
        process = ScriptedProcess(interrupt, lambda: None, code=130)
        code = follow(
            tmp_path / "none",
            process,
            view,
            on_interrupt=lambda: passed_on.append("int"),
            sleep=lambda _: None,
        )
        assert (code, passed_on) == (130, ["int"])
        with pytest.raises(KeyboardInterrupt):
            follow(tmp_path / "none", ScriptedProcess(interrupt, interrupt), view, sleep=lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            follow(tmp_path / "none", ScriptedProcess(interrupt), view, wait_on_interrupt=False)


def test_a_process_elsewhere_is_there_as_long_as_it_holds_the_log(tmp_path: Path) -> None:
    log = tmp_path / "progress.jsonl"
    with ProgressWriter(log):
        assert WatchedProcess(log).poll() is None
    assert WatchedProcess(log).poll() == 0


# Curves


def test_a_rising_curve_rises_from_the_lower_left_to_the_upper_right() -> None:
    top, bottom = (line.plain for line in draw_curve(range(100), range(100), 10, 2).lines)
    assert (top[0], bottom[-1]) == (" ", " ")
    assert (top[-1], bottom[0]) != (" ", " ")
    assert len(top) == len(bottom) == 10


@pytest.mark.parametrize("values", [[3.0], [3.0] * 5, [0.0, 0.0], [1e300, -1e300]])
def test_any_values_can_be_drawn(values: list[float]) -> None:
    drawing = draw_curve(range(len(values)), values, 12, 3, level=1.0)
    assert [line.cell_len for line in drawing.lines] == [12, 12, 12]
    assert drawing.low < drawing.high


def test_a_long_curve_is_thinned_and_keeps_its_last_value() -> None:
    curve = Curve()
    for step in range(100_000):
        curve.append(step, step, float(step))
    assert len(curve.values) < 5000
    assert curve.last == 99_999
    assert curve.values == sorted(curve.values)
    curve.append(1, 1, None)
    curve.append(1, 1, float("nan"))
    assert curve.last == 99_999


def test_what_tells_most_comes_first() -> None:
    names = ["zeta", "episode/mean_wait_s", "kl", "loss/temperature", "loss/policy", "episode/return"]
    assert by_importance(names) == [
        *("episode/return", "loss/policy", "kl", "loss/temperature", "zeta", "episode/mean_wait_s")
    ]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("loss/policy", "policy loss"),
        ("episode/return", "episode return"),
        ("episode/mean_jct_s", "mean JCT"),
        ("episode/length", "episode length"),
        ("kl", "KL"),
        ("gradient_norm", "gradient norm"),
        ("q/mean", "q mean"),
    ],
)
def test_curves_have_names_for_people(name: str, label: str) -> None:
    assert curve_label(name) == label


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3e-4, "3e-4"),
        (0.5291, "0.529"),
        (-12.345, "-12.35"),
        (45_123.4, "45,123"),
        (2.5e6, "2.5M"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text
    assert short_number(None) == "-"
