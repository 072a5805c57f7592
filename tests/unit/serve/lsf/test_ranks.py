"""Places in a queue that stand for priorities."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.serve.lsf.ranks import longest_rising, moves, natural_priority, rank_word, ranked, stated_rank


def moved(listed: list[str], made: list[tuple[str, int]]) -> list[str]:
    """What btop makes of a queue."""
    now = list(listed)
    for job, place in made:
        now.remove(job)
        now.insert(place - 1, job)
    return now


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(0, 2**32))
def test_moves_put_a_queue_into_the_order_of_priorities(priorities: list[int], seed: int) -> None:
    jobs = [str(number) for number in range(len(priorities))]
    random.Random(seed).shuffle(jobs)
    of = dict(zip(jobs, priorities, strict=True))
    after = moved(jobs, moves(jobs, of))
    assert [of[job] for job in after] == sorted(priorities, reverse=True)
    assert moves(after, of) == []


def test_one_job_out_of_place_takes_one_move() -> None:
    jobs = [str(number) for number in range(100)]
    priorities = {job: 1000 - place for place, job in enumerate(jobs)} | {"0": 1}
    assert moves(jobs, priorities) == [("0", 100)]


def test_a_rank_is_read_back_from_the_word() -> None:
    comment = f"site; gpuyard:{rank_word('7-3', 1_500_000_000)}"
    assert stated_rank(comment) == 1_500_000_000
    assert stated_rank("gpuyard:7-3@gpu1.site") is None
    assert stated_rank("") is None


def test_a_ranked_job_that_somebody_moved_counts_as_never_moved() -> None:
    words = {job: f"gpuyard:{rank_word('1-0', rank)}" for job, rank in (("5", 300), ("6", 200), ("7", 100))}
    found = ranked([("5", words["5"]), ("7", words["7"]), ("6", words["6"]), ("8", "")])
    assert found["8"] == natural_priority("8")
    kept = {job for job in words if found[job] != natural_priority(job)}
    assert kept in ({"5", "6"}, {"5", "7"})


def test_earlier_jobs_have_larger_natural_priorities() -> None:
    assert natural_priority("5") > natural_priority("6[2]") == natural_priority("6[9]") >= 1


def test_longest_rising_subsequences_rise_and_none_is_longer() -> None:
    draw = random.Random(0)
    for _ in range(50):
        values = [draw.randrange(20) for _ in range(draw.randrange(1, 9))]
        found = [values[place] for place in sorted(longest_rising(values))]
        assert all(a < b for a, b in itertools.pairwise(found))
        best = 0
        for mask in range(2 ** len(values)):
            some = [value for place, value in enumerate(values) if mask >> place & 1]
            if all(a < b for a, b in itertools.pairwise(some)):
                best = max(best, len(some))
        assert len(found) == best
