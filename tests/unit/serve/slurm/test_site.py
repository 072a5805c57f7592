"""Configuration, partitions and reservations, as scontrol of 22.05 prints them."""

import time

import pytest

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.slurm.commands import Commands
from gpuyard.serve.slurm.site import partitions_of, read_site, reserved_nodes

PARTITIONS = (
    "PartitionName=batch AllowGroups=ALL Default=YES QoS=N/A DefaultTime=01:00:00 ExclusiveUser=NO "
    "MaxNodes=UNLIMITED MaxTime=2-00:00:00 Nodes=gn[1-4] PriorityTier=3 ReqResv=NO State=UP\n"
    "PartitionName=whole Default=NO DefaultTime=NONE MaxNodes=2 MaxTime=UNLIMITED Nodes=gn1 PriorityTier=1 "
    "OverSubscribe=EXCLUSIVE State=DOWN\n"
    "PartitionName=empty Nodes=(null) State=UP\n"
)
RESERVATIONS = (
    "ReservationName=m1 StartTime=2026-11-18T14:29:47 EndTime=2026-11-18T15:29:47 Nodes=gn[3-4] NodeCnt=2 "
    "Flags=MAINT,IGNORE_JOBS,SPEC_NODES State=ACTIVE\n"
    "ReservationName=m2 StartTime=2027-01-01T00:00:00 Nodes=gn1 State=INACTIVE\n"
)


class Canned(Commands):
    def __init__(self, ahead_s: float = 0.0, **settings: str) -> None:
        self._ahead_s, self._settings = ahead_s, settings

    def text(self, *command: str) -> str:
        if "config" in command:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + self._ahead_s))
            lines = "\n".join(f"{key:<24}= {value}" for key, value in self._settings.items())
            return f"Configuration data as of {stamp}\n{lines}\n"
        return PARTITIONS if "partition" in command else RESERVATIONS


SETTINGS = {
    "PrivateData": "none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "SLURM_VERSION": "22.05.8",
}


def test_partitions_have_their_limits() -> None:
    found, rules = partitions_of(PARTITIONS)
    batch, whole, empty = found
    assert (batch.nodes, batch.default, batch.tier, batch.open) == (
        ("gn1", "gn2", "gn3", "gn4"),
        True,
        3,
        True,
    )
    assert (batch.max_time_s, batch.max_nodes) == (2 * 86400, None)
    assert (whole.open, whole.max_nodes, whole.max_time_s) == (False, 2, None)
    assert empty.nodes == ()
    assert rules["batch"].default_time_s == 3600
    assert rules["whole"].whole_nodes
    assert rules["whole"].closed == "partition is down"


def test_only_active_reservations_close_nodes() -> None:
    reserved, notes = reserved_nodes(RESERVATIONS)
    assert reserved == {"gn3": "m1", "gn4": "m1"}
    assert "m2" in notes[0]
    assert reserved_nodes("No reservations in the system\n") == ({}, [])


@pytest.mark.parametrize("text", ["PartitionName=a Nodes=gn[1-", "PartitionName=a MaxTime=soon Nodes=gn1"])
def test_partitions_that_cannot_be_read_are_errors(text: str) -> None:
    with pytest.raises(AdapterError):
        partitions_of(text)


def test_the_configuration_says_what_slurm_counts() -> None:
    site = read_site(Canned(**SETTINGS))
    assert (site.version, site.counts_memory, site.whole_cores, site.whole_nodes) == (
        "22.05.8",
        True,
        True,
        False,
    )
    assert site.clock_ahead_s == 0
    other = read_site(Canned(**{**SETTINGS, "SelectTypeParameters": "CR_CPU", "SelectType": "select/linear"}))
    assert (other.counts_memory, other.whole_cores, other.whole_nodes) == (False, False, True)


def test_private_data_and_other_clocks_are_noted() -> None:
    site = read_site(Canned(3600.0, **{**SETTINGS, "PrivateData": "jobs,nodes"}))
    assert abs(site.clock_ahead_s - 3600) <= 1
    assert "PrivateData=jobs,nodes" in site.notes[0]
    assert "clock" in site.notes[1]


def test_without_a_version_it_is_no_configuration() -> None:
    with pytest.raises(AdapterError):
        read_site(Canned())
