import threading

import numpy as np
import pytest

from gpuyard.errors import InputError
from gpuyard.serve.waits import run_times
from gpuyard.serve.waits.run_times import RunTimes

WHERE = np.array([0.0, 0.25, 0.5, 0.75, 0.999])


def filled(user: str, run_s: float, limit_s: float | None, count: int = 20) -> RunTimes:
    times = RunTimes()
    for _ in range(count):
        times.add(user, run_s, limit_s)
    return times


def test_run_times_are_shares_of_the_limit_like_those_of_the_users_finished_jobs() -> None:
    assert filled("ada", 300.0, 3000.0).run_s("ada", 7200.0, 0.0, WHERE).tolist() == [720.0] * 5


def test_users_without_finished_jobs_are_taken_to_be_like_all() -> None:
    assert filled("ada", 300.0, 3000.0).run_s("new", 100.0, 0.0, WHERE).tolist() == [10.0] * 5


def test_a_few_jobs_of_a_user_do_not_count_more_than_all() -> None:
    times = filled("ada", 300.0, 3000.0)
    times.add("bo", 1.0, 1.0)
    assert times.run_s("bo", 100.0, 0.0, np.array([0.5])).tolist() == [10.0]


def test_without_any_finished_job_every_share_of_the_limit_is_as_likely() -> None:
    found = RunTimes().run_s("ada", 1000.0, 0.0, WHERE)
    assert found == pytest.approx(np.maximum(WHERE, 1e-3) * 1000.0)


@pytest.mark.parametrize("limit_s", [1000.0, 500.0, None, float("nan")])
@pytest.mark.parametrize("times", [RunTimes(), filled("ada", 300.0, 3000.0), filled("ada", 900.0, None)])
def test_a_job_runs_longer_than_it_already_has(times: RunTimes, limit_s: float | None) -> None:
    assert (times.run_s("ada", limit_s, 600.0, WHERE[1:]) > 600.0).all()


def test_jobs_without_a_limit_run_like_others_did() -> None:
    assert filled("ada", 900.0, None).run_s("ada", None, 0.0, WHERE).tolist() == [900.0] * 5


@pytest.mark.parametrize("run_s", [0.0, -1.0, float("nan"), float("inf")])
def test_run_times_that_make_no_sense_are_passed_over(run_s: float) -> None:
    assert len(filled("ada", run_s, 10.0)) == 0


def test_they_are_bounded_and_forget_who_finished_nothing_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_times, "MOST_USERS", 3)
    times = RunTimes()
    for number in range(5_000):
        times.add(f"u{number % 2}", 10.0, 100.0)
    for number in range(3):
        times.add(f"late{number}", 10.0, 100.0)
    text = times.to_json()
    assert len(times) == run_times.KEPT_OF_ALL
    assert "late0" in text
    assert '"u0"' not in text


def test_text_is_read_back() -> None:
    times = filled("ada", 300.0, 3000.0)
    times.add("bo\n\"'", 5.0, None)
    read = RunTimes.from_json(times.to_json())
    assert read.to_json() == times.to_json()
    read.add("ada", 1.0, 2.0)
    assert len(read) == len(times) + 1


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"users": {"a": [1]}, "all": []}', '{"users": [], "all": []}']
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no run times"):
        RunTimes.from_json(text)


def test_one_thread_may_add_while_another_draws() -> None:
    times, ends, failures = filled("ada", 300.0, 3000.0), threading.Event(), []

    def draw() -> None:
        try:
            while not ends.is_set():
                times.run_s("ada", 100.0, 0.0, WHERE)
                times.to_json()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=draw)
    thread.start()
    for number in range(5_000):
        times.add("ada", 1.0 + number, 3000.0)
    ends.set()
    thread.join()
    assert failures == []
