"""Nodes: both shapes, and the states in which no job may start."""

from typing import Any

import pytest

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.slurm.nodes import read_nodes
from gpuyard.serve.state import Node


def node(**fields: Any) -> Node:
    record = {
        "name": "gn1",
        "cpus": 16,
        "real_memory": 64000,
        "state": "idle",
        "gres": "gpu:a100:4",
        **fields,
    }
    return read_nodes([record], {})[0]


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated", ["IDLE"], ["MIXED", "COMPLETING"]])
def test_nodes_that_take_jobs_are_open(state: Any) -> None:
    assert node(state=state, state_flags=[]).closed == ""


@pytest.mark.parametrize(
    ("state", "flags", "why"),
    [
        ("idle", ["DRAIN"], "drained"),
        ("allocated", ["DRAIN"], "drained"),
        ("down", [], "down"),
        ("down", ["NOT_RESPONDING"], "down, does not respond"),
        ("idle", ["MAINTENANCE"], "under maintenance"),
        ("idle", ["RESERVED"], "reserved"),
        ("idle", ["PLANNED"], "planned for another job"),
        ("idle", ["POWERED_DOWN"], "powered down"),
        ("idle", ["POWERING_UP"], "powering up"),
        ("idle", ["REBOOT_REQUESTED"], "reboot requested"),
        ("mixed", ["FAIL"], "failing"),
        ("unknown", [], "unknown"),
        ("future", [], "future"),
        (["IDLE", "SOMETHING_NEW"], [], "something new"),
        ("", [], "of unknown state"),
        (["COMPLETING"], [], "state completing"),
    ],
)
def test_nodes_in_any_other_state_are_closed_with_words(state: Any, flags: list[str], why: str) -> None:
    assert node(state=state, state_flags=flags).closed == why


@pytest.mark.parametrize(
    ("gres", "why"),
    [
        ("gpu:a100:4,shard:16", "slices"),
        ("gpu:a100:4,mps:400", "slices"),
        ("gpu:a100_1g.5gb:7", "MIG"),
        ("gpu:a100:2,gpu:h100:2", "several types"),
        ("gpu:a100:lots", "cannot be read"),
    ],
)
def test_gpus_that_cannot_be_represented_close_their_node(gres: str, why: str) -> None:
    assert why in node(gres=gres).closed


def test_other_resources_do_no_harm() -> None:
    found = node(gres="gpu:a100:4(S:0-1),nvme:2", gres_used="gpu:a100:3(IDX:0-2),nvme:0")
    assert (found.closed, found.gpus, found.gpu_type, found.gpus_used) == ("", 4, "a100", 3)


def test_cpus_and_memory_that_slurm_keeps_for_itself_do_not_count() -> None:
    found = node(effective_cpus=14, specialized_memory=4000)
    assert (found.cpus, found.memory_mib) == (14, 60000)


def test_a_reservation_closes_its_nodes() -> None:
    records = [{"name": name, "cpus": 1, "state": "idle"} for name in ("gn1", "gn2")]
    assert [one.closed for one in read_nodes(records, {"gn2": "m1"})] == ["", "reservation m1"]


def test_a_node_without_a_name_is_an_error() -> None:
    with pytest.raises(AdapterError):
        read_nodes([{"cpus": 4, "state": "idle"}], {})
