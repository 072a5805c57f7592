import io
import json
import threading

import pytest

from gpuyard.serve.process.log import Log


def written(**options: object) -> tuple[Log, io.StringIO]:
    stream = io.StringIO()
    return Log(stream, **options), stream  # type: ignore[arg-type]


def test_an_event_is_one_json_object_on_one_line() -> None:
    log, stream = written()
    log.info("round", number=3, job="a\nb\u2028", wait_s=float("nan"), nodes=("n1", "n2"), more={"x": None})
    assert stream.getvalue().count("\n") == 1
    found = json.loads(stream.getvalue())
    assert found.pop("time").endswith("Z")
    assert found == {"level": "info", "event": "round", "number": 3, "job": "a\nb\u2028", "wait_s": None,
                     "nodes": ["n1", "n2"], "more": {"x": None}}  # fmt: skip


def test_fields_cannot_pass_for_the_event_itself() -> None:
    log, stream = written()
    log.write("error", "real", {"event": "fake", "level": "info", "time": "never"})
    found = json.loads(stream.getvalue())
    assert (found["event"], found["level"]) == ("real", "error")
    assert found["time"] != "never"


@pytest.mark.parametrize("for_people", [False, True])
def test_secrets_are_never_written(for_people: bool) -> None:
    log, stream = written(for_people=for_people)
    log.hide("s3cr3t-value")
    log.hide("  ")
    headers, deep = {"Authorization": "Bearer xyz"}, [{"jwt": "abc"}, "s3cr3t-value"]
    log.error("asked", rest_token="abc", headers=headers, words="it was s3cr3t-value!", deep=deep)
    text = stream.getvalue()
    assert not [word for word in ("abc", "xyz", "s3cr3t") if word in text]
    assert "it was ***!" in text


def test_a_terminal_gets_lines_for_people_that_names_cannot_disturb() -> None:
    log, stream = written(for_people=True)
    log.warning("left", job="7\x1b[2J\nfake line", why="two words", empty="")
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "\x1b" not in line
    assert "warning: left" in line
    assert 'why="two words"' in line


def test_levels_below_the_least_are_not_written() -> None:
    log, stream = written(level="warning")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["c", "d"]


class _Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_stream_that_is_full_or_closed_or_odd_objects_do_no_harm() -> None:
    Log(_Broken()).error("round")
    closed = io.StringIO()
    closed.close()
    Log(closed).error("round")
    log, stream = written()
    loop: list[object] = []
    loop.append(loop)
    log.info("loop", loop=loop)
    log.info("long", text="x" * 100_000, thing=object())
    assert len(stream.getvalue()) < 5_000


def test_lines_of_many_threads_do_not_mix() -> None:
    log, stream = written()

    def write() -> None:
        for number in range(100):
            log.info("x", number=number)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in stream.getvalue().splitlines()]) == 800
