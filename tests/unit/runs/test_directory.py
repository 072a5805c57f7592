"""The progress log of a training run: what survives a kill, what resuming drops, and what became of a run."""

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import InputError
from gpuyard.runs import progress
from gpuyard.runs.directory import Validation, find_runs, open_run
from gpuyard.runs.progress import ProgressTail, ProgressWriter, is_being_written, read_progress
from gpuyard.runs.summary import comparison_rows
from gpuyard.terminal.runs import outcome_in_words
from support.sample_runs import sample_records, write_run

LINE = '{"event":"update","step":1,"values":{}}\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "progress.jsonl"


def write(log: Path, *records: dict[str, Any]) -> None:
    log.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def validation(step: int, score: float, better: bool, **values: float) -> dict[str, Any]:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return {"event": "validation", "step": step, "score": score, "better": better, "values": named}


# Reading


def test_reading_returns_what_was_written(log: Path) -> None:
    records = list(sample_records(20))
    with ProgressWriter(log) as writer:
        for record in records:
            writer.write(record)
    found = read_progress(log)
    assert list(found.records) == records
    assert not found.torn
    assert found.last_step == 20 * 8192


@pytest.mark.parametrize("kept", range(1, len(LINE)))
def test_a_last_line_cut_anywhere_is_left_out(log: Path, kept: int) -> None:
    log.write_text(LINE + LINE[:kept], encoding="utf-8")
    found = read_progress(log)
    assert len(found.records) == 1
    assert found.torn


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (LINE[:20], "is not JSON"),
        ('{"event":"update","step":1,"values":{"kl":NaN}}', "is not JSON"),
        ("[1, 2]", 'expected an object with an "event"'),
        ('{"step": 3}', 'expected an object with an "event"'),
        ('{"event":"update","step":-1,"values":{}}', "step is -1"),
        ('{"event":"update","step":1.5,"values":{}}', "step is 1.5"),
        ('{"event":"update","step":1}', "needs a step and values"),
        ('{"event":"update","step":1,"values":{"kl":"high"}}', "kl is 'high'"),
        ('{"event":"update","step":1,"values":[]}', "expected an object of names"),
        ('{"event":"validation","step":1,"score":"good","values":{}}', "score is 'good'"),
        ('{"event":"stop","step":1,"reason":"bored"}', "reason is 'bored'"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_anything_else_malformed_is_refused_by_file_and_line(log: Path, line: str, said: str) -> None:
    log.write_text(f"{LINE}{line}\n{LINE}", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_progress(log)
    assert f"{log}, line 2: " in str(error.value)
    assert said in str(error.value)


def test_events_that_are_not_known_are_kept(log: Path) -> None:
    write(log, {"event": "remark", "text": "later versions say more"})
    assert read_progress(log).records[0]["text"] == "later versions say more"


# Writing


def test_what_is_not_finite_becomes_null_and_numpy_numbers_become_plain(log: Path) -> None:
    values = {
        "a": float("nan"),
        "b": np.float32("inf"),
        "c": np.float32(0.5),
        "d": np.arange(2),
        "e": [np.nan],
    }
    with ProgressWriter(log) as writer:
        writer.write({"event": "actions", "step": np.int64(3), "values": values})
    assert "NaN" not in log.read_text(encoding="utf-8")
    record = read_progress(log).records[0]
    assert record["step"] == 3
    assert record["values"] == {"a": None, "b": None, "c": 0.5, "d": [0, 1], "e": [None]}


def test_resuming_drops_the_torn_line_and_every_record_after_the_checkpoint(log: Path) -> None:
    records = list(sample_records(20, stop=None))
    write(log, *records)
    with log.open("a", encoding="utf-8") as file:
        file.write('{"event":"upd')
    step = 12 * 8192
    with ProgressWriter.resume(log, step) as writer:
        writer.write({"event": "update", "step": step + 1, "values": {}})
    kept = [record for record in records if record.get("step", 0) <= step]
    found = read_progress(log)
    assert list(found.records[:-2]) == kept
    assert found.records[-2] == {"event": "resume", "step": step}
    assert found.records[-1]["step"] == step + 1
    assert not found.torn


def test_resuming_a_malformed_log_leaves_it_as_it_is(log: Path) -> None:
    log.write_text(LINE + "nonsense\n" + LINE.replace("1", "9"), encoding="utf-8")
    before = log.read_bytes()
    with pytest.raises(InputError, match="line 2"):
        ProgressWriter.resume(log, 5)
    assert log.read_bytes() == before
    assert not is_being_written(log)


def test_resuming_without_a_log_begins_one(log: Path) -> None:
    ProgressWriter.resume(log, 7).close()
    assert read_progress(log).records == ({"event": "resume", "step": 7},)


def test_a_second_writer_is_refused_as_long_as_the_first_is_there(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOCK_WITHIN_S", 0.05)
    with ProgressWriter(log) as writer:
        writer.write({"event": "start"})
        with pytest.raises(InputError, match="another process is training this run"):
            ProgressWriter(log)
    ProgressWriter(log).close()
    assert len(read_progress(log).records) == 1


def test_a_full_disk_is_told_and_leaves_whole_lines(log: Path) -> None:
    with ProgressWriter(log) as writer:
        writer.write({"event": "start"})
        size = log.stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, before[1]))
        try:
            with pytest.raises(InputError, match=r"cannot be written .* resume"):
                writer.write({"event": "start", "name": "too long for what is left"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        assert log.stat().st_size == size
        writer.write({"event": "resume", "step": 0})
    assert [record["event"] for record in read_progress(log).records] == ["start", "resume"]


def test_an_unwritable_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        ProgressWriter(tmp_path / "missing" / "progress.jsonl")


def test_a_killed_writer_leaves_a_readable_log_and_no_lock(log: Path) -> None:
    code = (
        "import sys, itertools; from gpuyard.runs.progress import ProgressWriter\n"
        "writer = ProgressWriter(sys.argv[1])\n"
        "for step in itertools.count():\n"
        "    writer.write({'event': 'update', 'step': step, 'values': {'x' * 100: 1.0}})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(log)])
    while not (log.exists() and log.stat().st_size > 20_000):
        time.sleep(0.01)
    assert is_being_written(log)
    process.kill()
    process.wait()
    assert not is_being_written(log)
    found = read_progress(log)
    assert [record["step"] for record in found.records] == list(range(len(found.records)))


# Following


def test_a_tail_reads_each_record_once_and_waits_for_the_rest_of_a_line(log: Path) -> None:
    tail = ProgressTail(log)
    assert tail.read() == ([], False)
    log.write_text(LINE + LINE[:10], encoding="utf-8")
    assert [len(part) for part in (tail.read()[0], tail.read()[0])] == [1, 0]
    log.write_text(LINE + LINE, encoding="utf-8")
    records, anew = tail.read()
    assert (len(records), anew) == (1, False)


def test_a_tail_begins_anew_when_a_resumed_run_drops_what_it_has_read(log: Path) -> None:
    write(log, *sample_records(20, stop=None))
    tail = ProgressTail(log)
    tail.read()
    with ProgressWriter.resume(log, 8192) as writer:
        for step in range(2, 40):
            writer.write({"event": "update", "step": 8192 * step, "values": {}})
    records, anew = tail.read()
    assert anew
    assert records == list(read_progress(log).records)


# Runs


@pytest.mark.parametrize("reason", ["finished", "early", "interrupted", "nan"])
def test_a_run_is_in_the_state_that_it_says(tmp_path: Path, reason: str) -> None:
    assert open_run(write_run(tmp_path / "run", updates=3, stop=reason)).state == reason


def test_a_run_without_a_last_word_is_running_only_while_somebody_writes_it(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", updates=3, stop=None)
    assert open_run(directory).state == "killed"
    with ProgressWriter(directory / "progress.jsonl"):
        assert open_run(directory).state == "running"
    assert open_run(directory).state == "killed"


def test_a_resumed_run_is_running_again(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", updates=3, stop="interrupted")
    with ProgressWriter.resume(directory / "progress.jsonl", 3 * 8192):
        assert open_run(directory).state == "running"
    assert open_run(directory).state == "killed"


def test_a_run_killed_before_its_first_line_is_still_a_run(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('algorithm = "sac"\n', encoding="utf-8")
    run = open_run(tmp_path)
    assert (run.state, run.algorithm, run.last_step, run.best) == ("killed", "sac", 0, None)
    (tmp_path / "progress.jsonl").touch()
    assert open_run(tmp_path).state == "killed"


def test_the_best_model_is_preferred_to_the_last(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", updates=3)
    assert open_run(directory).model == directory / "best.safetensors"
    (directory / "best.safetensors").unlink()
    assert open_run(directory).model == directory / "last.safetensors"
    (directory / "last.safetensors").unlink()
    assert open_run(directory).model is None


def test_the_best_validation_is_the_last_that_was_called_better(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    scores = [(1, 0.5, True), (2, 0.7, True), (3, 0.6, False)]
    write(
        directory / "progress.jsonl",
        {"event": "start", "metric": "return", "higher_is_better": True},
        *(validation(*one, policy__score=one[1], sjf__score=0.65) for one in scores),
    )
    run = open_run(directory)
    assert run.best is not None
    assert (run.best.step, run.best.score) == (2, 0.7)
    assert run.best_heuristic() == ("sjf", 0.65)
    assert run.higher_is_better


@pytest.mark.parametrize("higher", [True, False])
def test_metric_and_direction_are_those_of_the_start_record(tmp_path: Path, higher: bool) -> None:
    start = {"event": "start", "metric": "mean_wait_s", "higher_is_better": higher}
    scores = {"policy__score": 4.0, "sjf__score": 5.0, "fifo__score": 6.0}
    write(tmp_path / "progress.jsonl", start, validation(1, 4.0, True, **scores))
    run = open_run(tmp_path)
    assert (run.metric, run.higher_is_better) == ("mean_wait_s", higher)
    assert run.best_heuristic() == (("fifo", 6.0) if higher else ("sjf", 5.0))


@pytest.mark.parametrize(
    "start",
    [
        {"event": "start", "algorithm": "ppo", "name": "ppo-1", "total_steps": 10},
        {"event": "start", "metric": "return"},
        {"event": "start", "metric": "return", "higher_is_better": "yes"},
        {"event": "resume", "step": 0},
    ],
)
def test_a_log_that_does_not_state_its_metric_is_refused_with_what_to_do(
    tmp_path: Path, start: dict[str, Any]
) -> None:
    write(tmp_path / "progress.jsonl", start, validation(1, 4.0, True, policy__mean_wait_s=4.0))
    before = (tmp_path / "progress.jsonl").read_bytes()
    with pytest.raises(
        InputError, match=r"gpuyard 0\.1\.0; read it with that version, or train it again: gpuyard train"
    ):
        open_run(tmp_path)
    assert (tmp_path / "progress.jsonl").read_bytes() == before


def test_names_of_heuristics_may_hold_a_slash() -> None:
    done = Validation.of(
        validation(1, 0.5, True, **{"sjf+easy/consolidate__score": 0.4, "policy__score": 0.5})
    )
    assert dict(done.scores) == {"sjf+easy/consolidate": 0.4}


# Finding


def test_runs_are_found_by_name_in_the_folder_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("runs/ppo-1"), updates=3)
    write_run(Path("runs/sweep/ppo-2"), updates=3)
    Path("runs/notes").mkdir()
    assert [run.name for run in find_runs()] == ["ppo-1", "ppo-2"]
    assert open_run("ppo-1").directory == Path("runs/ppo-1")
    with pytest.raises(InputError, match="did you mean 'ppo-1'"):
        open_run("ppo-11")
    with pytest.raises(InputError, match=r"looked for other and runs/other\); runs there are: ppo-1, ppo-2"):
        open_run("other")
    for number in range(20):
        write_run(Path(f"runs/search-{number}"), updates=1)
    with pytest.raises(InputError, match="gpuyard runs list runs shows the 22 runs"):
        open_run("other")


def test_a_run_that_is_not_there_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"looked for x and runs/x\); there are no runs in {tmp_path}/runs"):
        open_run("x")


def test_an_empty_folder_has_no_runs(tmp_path: Path) -> None:
    assert find_runs(tmp_path) == []


def test_a_missing_folder_and_a_folder_without_a_run_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder; gpuyard train makes it"):
        find_runs(tmp_path / "missing")
    with pytest.raises(
        InputError, match=r"is not a run, there is no progress\.jsonl in it; give the directory"
    ):
        open_run(tmp_path)
    with pytest.raises(InputError, match="there is no such directory"):
        open_run(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file; give the directory of a run"):
        open_run(tmp_path / "file")


def test_settings_that_are_no_toml_are_refused(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", updates=1, config="seed = = 1\n")
    with pytest.raises(InputError, match=r"config\.toml: is not valid TOML"):
        open_run(directory)


def test_names_cannot_move_the_cursor(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", updates=1, name="a\x1b[2Jb", algorithm="p\npo", config=""))
    assert (run.name, run.algorithm) == ("a[2Jb", "ppo")


# What did not move


@pytest.mark.parametrize(
    ("scores", "unmoved"), [([0.687, 0.687, 0.687], True), ([0.687, 0.688], False), ([0.687], False)]
)
def test_a_run_whose_score_never_changes_says_so(tmp_path: Path, scores: list[float], unmoved: bool) -> None:
    start = {"event": "start", "metric": "return", "higher_is_better": True}
    done = [validation(100 * i, score, i == 0, fifo__score=0.5) for i, score in enumerate(scores)]
    write(tmp_path / "progress.jsonl", start, *done, {"event": "stop", "reason": "finished"})
    run = open_run(tmp_path)
    assert run.is_unmoved == unmoved
    assert ("still the one that it started from" in outcome_in_words(run)) == unmoved
    assert ("as it started" in comparison_rows([run], ["run"])[0][-1]) == unmoved


@pytest.mark.parametrize("broken", [3, [{"by": "all"}], ["p99"]])
def test_limits_that_are_none_are_refused(log: Path, broken: Any) -> None:
    write(log, {**validation(0, 1.0, True), "broken": broken})
    with pytest.raises(InputError, match=r"line 1: broken is .* expected a list of limits"):
        read_progress(log)
