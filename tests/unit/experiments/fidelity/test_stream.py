import math

import pytest

from experiments.fidelity.stream import GPUS_PER_NODE, NODES, SHORT_MAX_MINUTES, USERS, draw_stream


@pytest.mark.parametrize("load", [0.8, 1.0, 1.2])
def test_a_stream_offers_the_load_that_it_is_asked_for(load: float) -> None:
    jobs = draw_stream(load, 600, seed=1)
    work = sum(job.gpus * job.run_s for job in jobs)
    assert work / (NODES * GPUS_PER_NODE * jobs[-1].submit_s) == pytest.approx(load, rel=1e-3)


def test_the_same_seed_draws_the_same_jobs_and_another_load_only_moves_arrivals() -> None:
    first, again, denser = (draw_stream(load, 50, seed=7) for load in (1.0, 1.0, 2.0))
    assert first == again
    assert [job.options() for job in first] == [job.options() for job in denser]
    assert denser[-1].submit_s == pytest.approx(first[-1].submit_s / 2, abs=1e-3)
    assert first != draw_stream(1.0, 50, seed=8)


def test_every_job_fits_the_cluster_its_partition_and_its_limit() -> None:
    for job in draw_stream(1.0, 2000, seed=3):
        assert 1 <= job.gpus <= 16
        assert job.gpus % job.nodes == 0
        assert job.gpus // job.nodes <= GPUS_PER_NODE
        assert 2 <= job.run_s <= 60
        assert math.ceil(job.run_s / 60) <= job.limit_minutes <= 5
        assert job.partition == "batch" or job.limit_minutes <= SHORT_MAX_MINUTES
        assert job.account == USERS[job.user]


def test_all_users_partitions_qos_and_sizes_occur() -> None:
    jobs = draw_stream(1.0, 600, seed=21)
    assert {job.user for job in jobs} == set(USERS)
    assert {job.partition for job in jobs} == {"batch", "short"}
    assert {job.qos for job in jobs} == {"normal", "high"}
    assert {job.nodes for job in jobs} == {1, 2}
