"""Hosts for schedulers that ask about one job at a time."""

from typing import Any

import pytest

from gpuyard.serve.decision.select_host import select_host
from gpuyard.serve.records import Planned, RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Node

NODES = ("n1", "n2", "n3")


def chosen(
    candidates: tuple[str, ...] = NODES,
    stops: tuple[str, ...] = (),
    **more: Any,
) -> tuple[str, ...]:
    known = Job("7", "waiting", 0.0, gpus=2, user="ada")
    state = ClusterState("lsf", 10.0, (known,), tuple(Node(name, 4) for name in NODES))
    starts = (Planned("8", (("n1", 1),)), Planned("7", (("n2", 1), ("n3", 1)), stops))
    record = RoundRecord(1, 10.0, 10.0, "active", "order", "fifo", starts=starts)
    return select_host("7", candidates, state, record, ServeSettings(**({"mode": "active"} | more)))


def test_the_nodes_of_the_last_round_are_chosen() -> None:
    assert chosen() == ("n2", "n3")


@pytest.mark.parametrize(
    "job", [{"held": "other"}, {"held": "agent"}, {"left": "dependency"}, {"phase": "running"}, {"id": "9"}]
)
def test_a_job_that_is_not_the_agents_has_no_opinion_on_it(job: dict[str, Any]) -> None:
    known = {"id": "7", "phase": "waiting", "submit_s": 0.0, "gpus": 2} | job
    state = ClusterState("lsf", 10.0, (Job(**known),), ())
    record = RoundRecord(1, 10.0, 10.0, "active", "order", "fifo", starts=(Planned("7", (("n2", 2),)),))
    assert select_host("7", NODES, state, record, ServeSettings(mode="active")) == ()


@pytest.mark.parametrize("mode", ["shadow", "advise"])
def test_who_only_watches_chooses_nothing(mode: str) -> None:
    assert chosen(mode=mode) == ()


def test_a_canary_chooses_for_its_own_jobs_only() -> None:
    assert chosen(mode="canary", canary_users=("ada",)) == ("n2", "n3")
    assert chosen(mode="canary", canary_users=("bo",)) == ()


def test_part_of_a_gang_is_nothing() -> None:
    assert chosen(candidates=("n1", "n2")) == ()


def test_hosts_that_must_first_be_emptied_are_no_choice() -> None:
    assert chosen(stops=("3",)) == ()
