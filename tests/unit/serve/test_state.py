"""States are read back from their text to the last bit, and what is no state is refused."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.serve.state import ClusterState, Ended, Job, Node, Partition, Share
from support.live_states import node, running, state, waiting

RICH = replace(
    state(
        running("7_2", Share("n1", 2, 3, 4), Share("n2", 1), ran_s=0.1, exclusive=True, qos="high"),
        waiting("8", 4, waited_s=1 / 3, gpu_types=("a100", "h100"), limit_s=None, held="agent", left="x"),
        waiting("9", 0, deadline_s=1e9, row=2**40, fair_factor=0.1, site_priority=-3.5, mark="4-1"),
        nodes=(node("n1", closed="drained", gpus_used=3, cpus_used=7), node("n2", gpu_type="a100")),
        partitions=(Partition("gpu", ("n1", "n2"), True, 3, False, 3600.0, 2), Partition("empty")),
    ),
    ended=(Ended("3", 12.5, 0.1 + 0.2, 1.0, True), Ended("4", 13.0, None)),
    notes=("node n3: äöü \u2028 \U0001f600 could not be read",),
    epoch_s=1.5,
    backfill_due=False,
    nodes_changed=True,
    instant=3,
)


def test_a_state_is_read_back_to_the_last_bit() -> None:
    again = ClusterState.from_json(RICH.json_text)
    assert again == RICH
    assert again.json_text == RICH.json_text
    assert again.hash == RICH.hash
    assert isinstance(again.jobs[0].shares[0], Share)
    assert hash(again.jobs[1]) == hash(RICH.jobs[1])


times = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=8)


@given(times, texts, texts, st.none() | times, st.integers(0, 2**53))
def test_any_number_and_name_survives(
    at: float, id: str, user: str, limit_s: float | None, gpus: int
) -> None:
    one = ClusterState("any", at, (Job(id, "waiting", at, user, gpus=gpus, limit_s=limit_s),), (Node(user),))
    assert ClusterState.from_json(one.json_text) == one


@pytest.mark.parametrize("changed", [{"now_s": 1.0}, {"instant": 4}, {"notes": ()}, {"jobs": RICH.jobs[:2]}])
def test_another_state_has_another_hash(changed: dict[str, object]) -> None:
    assert replace(RICH, **changed).hash != RICH.hash  # type: ignore[arg-type]


def test_a_state_of_another_version_is_refused() -> None:
    text = json.dumps(json.loads(RICH.json_text) | {"version": 2})
    with pytest.raises(InputError, match="version 2, but this gpuyard reads version 1"):
        ClusterState.from_json(text)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", "{}", '"version"', RICH.json_text[:-20]])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no state of a cluster"):
        ClusterState.from_json(text)


@pytest.mark.parametrize(
    "changed",
    [
        {"jobs": [{"id": "1"}]},
        {"jobs": [{"id": "1", "phase": "waiting", "submit_s": 0, "colour": "red"}]},
        {"jobs": 7},
        {"jobs": [7]},
        {"nodes": None},
        {"surprise": 1},
        {"jobs": [{"id": "1", "phase": "running", "submit_s": 0, "shares": [{"gpus": 1}]}]},
    ],
)
def test_a_state_with_wrong_parts_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        ClusterState.from_json(json.dumps(json.loads(RICH.json_text) | changed))


def test_a_state_without_a_table_is_refused() -> None:
    values = json.loads(RICH.json_text)
    del values["ended"]
    with pytest.raises(InputError, match="cannot be read"):
        ClusterState.from_json(json.dumps(values))


@pytest.mark.parametrize(
    ("twice", "words"),
    [
        (state(waiting("1"), waiting("1")), "job '1'"),
        (state(nodes=(node("n1"), node("n1"))), "node 'n1'"),
        (state(partitions=(Partition("p"), Partition("p"))), "partition 'p'"),
    ],
)
def test_what_is_listed_twice_is_refused(twice: ClusterState, words: str) -> None:
    with pytest.raises(InputError, match=f"{words} is listed twice"):
        twice.check()


def test_jobs_wait_or_hold_nodes() -> None:
    assert [job.id for job in RICH.waiting] == ["8", "9"]
    assert [job.id for job in RICH.running] == ["7_2"]
    assert RICH.by_id["8"] is RICH.jobs[1]
    assert RICH.at(5.0).now_s == 5.0
    assert RICH.at(5.0).jobs is RICH.jobs
