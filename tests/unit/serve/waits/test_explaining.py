import json

import pytest

from gpuyard.serve.records import Planned, Ranked, RoundRecord, Verdict
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Partition, Share
from gpuyard.serve.waits.explaining import explain_job
from gpuyard.serve.waits.forecast import forecast
from gpuyard.serve.waits.run_times import RunTimes
from gpuyard.simulation.find import find_policy
from support.live_states import NOW_S, node, running, state, waiting


def told(live: ClusterState, job: str, *order: str, **more: object) -> dict[str, object]:
    ranked = tuple(Ranked(one) for one in order)
    record = RoundRecord(1, NOW_S, NOW_S, "shadow", "order", "fifo+easy", order=ranked, **more)  # type: ignore[arg-type]
    return explain_job(live, job, record, ServeSettings())


FULL = (running("1", Share("n1", 8, 8), ran_s=3000.0), running("2", Share("n2", 6, 6), ran_s=100.0))


def test_too_few_gpus_are_free() -> None:
    found = told(state(*FULL, waiting("3", 4)), "3", "3")
    assert found["reason"] == "too-few-free"
    assert found["sentence"] == "Too few GPUs are free: it asks for 4 GPUs, and 2 are free."
    assert found["blocking"] == [{"job": "1", "gpus": 8, "ends_by_s": NOW_S + 600.0}]


def test_too_few_gpus_of_its_type_are_free() -> None:
    nodes = (node("n1", gpu_type="a100"), node("n2", gpu_type="v100"))
    found = told(state(FULL[0], waiting("3", 4, gpu_types=("a100",)), nodes=nodes), "3", "3")
    assert found["sentence"] == "Too few GPUs of type a100 are free: it asks for 4 GPUs, and 0 are free."


def test_free_gpus_lie_on_too_many_nodes() -> None:
    jobs = (running("1", Share("n1", 5, 5)), running("2", Share("n2", 6, 6), ran_s=900.0))
    found = told(state(*jobs, waiting("3", 5)), "3", "3")
    assert found["reason"] == "fragmented"
    assert "5 free GPUs on 2 nodes, at most 3 on one" in str(found["sentence"])
    assert found["free"] == {"gpus": 5, "nodes": 2, "most_on_one_node": 3}
    assert found["blocking"] == [{"job": "2", "gpus": 6, "ends_by_s": NOW_S + 2700.0}]


def test_only_jobs_that_have_to_end_are_in_the_way() -> None:
    small = running("small", Share("n1", 1, 1), ran_s=3500.0)
    rest = running("rest", Share("n1", 7, 7), ran_s=200.0)
    whole = running("whole", Share("n2", 8, 8), ran_s=1000.0)
    found = told(state(small, rest, whole, waiting("3", 8)), "3", "3")
    assert [one["job"] for one in found["blocking"]] == ["whole"]  # type: ignore[attr-defined]


def test_cpus_may_be_what_is_missing() -> None:
    greedy = (running("1", Share("n1", 1, 64)), running("2", Share("n2", 1, 60)))
    assert told(state(*greedy, waiting("3", 4, cpus=16)), "3", "3")["reason"] == "other-limits"
    assert "No nodes have 80 CPUs" not in str(told(state(*greedy, waiting("3", 0, cpus=16)), "3")["sentence"])


def test_a_job_that_fits_waits_for_the_one_that_ranks_first_and_does_not() -> None:
    found = told(state(*FULL, waiting("head", 8), waiting("3", 2)), "3", "head", "3")
    assert found["reason"] == "reservation"
    assert "could delay job head" in str(found["sentence"])
    assert (found["place"], found["queue_length"], found["ahead_gpus"]) == (2, 2, 8)
    assert found["ahead"] == [{"job": "head", "gpus": 8}]


def test_a_job_is_behind_others_that_take_the_room_first() -> None:
    found = told(state(*FULL, waiting("a", 1), waiting("b", 1), waiting("3", 2)), "3", "a", "b", "3")
    assert found["sentence"] == "It is behind 2 jobs that rank before it and take the room first."


@pytest.mark.parametrize(
    ("job", "reason", "words"),
    [
        (waiting("3", held="other"), "held", "held by its user or an administrator"),
        (waiting("3", left="heterogeneous job"), "left", "own scheduler: heterogeneous job"),
        (waiting("3", partition="night"), "partition", "partition night is closed"),
        (waiting("3", partition="none"), "partition", "there is no partition none"),
        (waiting("3", 99), "never", "99 GPUs, more than the nodes"),
        (waiting("3", 8, nodes=3), "never", "8 GPUs on 3 nodes"),
        (running("3", Share("n1", 1)), "running", "It does not wait: it is running since 1 min 40 s"),
    ],
)
def test_other_reasons(job: Job, reason: str, words: str) -> None:
    partitions = (Partition("gpu", ("n1", "n2")), Partition("night", ("n1",), open=False))
    found = told(state(job, partitions=partitions), "3", "3")
    assert found["reason"] == reason
    assert words in str(found["sentence"])


def test_what_the_guard_refused_and_what_starts_now_is_said() -> None:
    live = state(waiting("3"))
    refused = told(
        live, "3", "3", verdicts=(Verdict("1-1", "3", "start", "max-starts", "100 starts in a round"),)
    )
    assert "rule max-starts): 100 starts in a round" in str(refused["sentence"])
    starting = told(live, "3", "3", starts=(Planned("3", (("n1", 1),)),))
    assert starting["reason"] == "starting"
    assert "would start it now" in str(starting["sentence"])
    assert told(live, "3")["reason"] == "not-ranked"
    assert explain_job(live, "3", None, ServeSettings())["reason"] == "no-round"


def test_it_says_when_the_job_will_start_and_names_no_user() -> None:
    live = state(*FULL, waiting("3", 8, user="mallory", group="secret-project"))
    ahead = forecast(live, find_policy("fifo+easy"), ServeSettings(), RunTimes())
    found = explain_job(live, "3", None, ServeSettings(), ahead)
    assert found["forecast"]["eta"]["low_s"] > NOW_S
    assert not [word for word in ("mallory", "ada", "secret") if word in json.dumps(found, allow_nan=False)]


def test_a_job_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LookupError):
        told(state(), "3")


def test_whole_nodes_are_needed_and_taken_by_exclusive_jobs() -> None:
    alone = running("1", Share("n1", 1, 1), exclusive=True)
    assert told(state(alone, waiting("3", 16)), "3", "3")["free"] == {
        "gpus": 8,
        "nodes": 1,
        "most_on_one_node": 8,
    }
    busy = (running("1", Share("n1", 1, 1)), running("2", Share("n2", 1, 1), ran_s=3599.0))
    found = told(state(*busy, waiting("3", 2, exclusive=True)), "3", "3")
    assert [one["job"] for one in found["blocking"]] == ["2"]  # type: ignore[attr-defined]


def test_a_long_queue_is_explained_quickly() -> None:
    import time

    jobs = [waiting(str(number), 8) for number in range(2_000)]
    began = time.monotonic()
    told(state(*FULL, *jobs), "1999", *(job.id for job in jobs))
    assert time.monotonic() - began < 1.0
