"""The host farm: hosts and jobs within their ranges, and every job fits somewhere."""

import numpy as np
import pytest
from pydantic import ValidationError

from gpuyard.simulation.run import simulate
from gpuyard.workload.generators import HostFarmConfig


@pytest.fixture(scope="module")
def farm():
    return HostFarmConfig(seed=42).generate()


def test_hosts_lie_in_their_ranges_and_have_no_gpus(farm):
    hosts = farm.cluster.nodes
    assert 28 <= len(hosts) <= 36
    assert {host.gpus for host in hosts} == {0}
    assert all(8 <= host.cpus <= 128 and 32 <= host.memory_mib / 1024 <= 1024 for host in hosts)
    assert len({host.cpus for host in hosts}) > 10


def test_the_number_of_hosts_varies_over_its_range():
    counts = {len(HostFarmConfig(seed=seed, jobs=1).generate().cluster.nodes) for seed in range(60)}
    assert counts == set(range(28, 37))


def test_jobs_lie_in_their_ranges(farm):
    frame = farm.workload.frame
    assert frame["gpus"].to_list() == [0] * 5_000
    assert set(frame["cpus"]) == set(range(1, 17))
    assert frame["memory_mib"].is_between(1024, 128 * 1024).all()
    assert frame["duration_s"].is_between(60, 3600).all()
    assert frame["cpus"].mean() == pytest.approx(8.5, abs=0.2)


def test_arrivals_come_at_ticks_any_number_up_to_the_most(farm):
    ticks = farm.workload.frame["submit_s"].to_numpy() / 60
    assert np.array_equal(ticks, np.floor(ticks))
    counts = np.bincount(ticks.astype(int))[:-1]  # the last tick is cut off
    assert counts.max() == 12
    assert counts.min() == 0
    assert counts.mean() == pytest.approx(6, abs=0.4)


@pytest.mark.parametrize("wanted", [-0.6, 0.0, 0.8])
def test_memory_goes_with_cores_as_asked(wanted):
    frame = HostFarmConfig(seed=1, jobs=20_000, memory_with_cores=wanted).generate().workload.frame
    assert np.corrcoef(frame["cpus"], frame["memory_mib"])[0, 1] == pytest.approx(wanted, abs=0.06)


@pytest.mark.parametrize("seed", range(5))
def test_every_job_fits_on_some_host_even_if_hosts_are_small(seed):
    config = HostFarmConfig(
        seed=seed, jobs=500, hosts=(2, 4), host_cores=(2, 12), host_memory_gib=(8, 96), cores=(1, 32)
    )
    trace = config.generate()
    hosts = [(host.cpus, host.memory_mib) for host in trace.cluster.nodes]
    for cpus, memory in trace.workload.frame.select("cpus", "memory_mib").iter_rows():
        assert any(cpus <= cores and memory <= mib for cores, mib in hosts)


def test_the_farm_can_be_simulated(farm):
    small = HostFarmConfig(seed=43, jobs=300).generate()
    result = simulate(small.workload, small.cluster, "fifo+greedy/first-fit")
    assert len(result.schedule) == 300


def test_a_range_must_rise():
    with pytest.raises(ValidationError, match="hosts"):
        HostFarmConfig(hosts=(5, 4))
