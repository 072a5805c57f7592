"""The agent on real Slurms of newer versions, whose answers have another shape."""

from collections.abc import Iterator

import pytest

from live.newer_slurm import start_newer_box, why_no_root
from live.proofs import prove_order, prove_shadow, prove_start
from live.served import Served, served

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]
JOBS = 50
VERSIONS = {"trixie": "24.11", "sid": "26.05"}


@pytest.fixture(scope="module", params=VERSIONS)
def running(request: pytest.FixtureRequest) -> Iterator[Served]:
    suite = request.param
    if (reason := why_no_root(suite)) is not None:
        pytest.skip(reason)
    with served(start=lambda settings: start_newer_box(settings, suite)) as cluster:
        said = cluster.box.run("sinfo", "--version")
        if suite == "trixie":  # sid moves on
            assert VERSIONS[suite] in said
        yield cluster


@pytest.fixture
def cluster(running: Served) -> Iterator[Served]:
    yield running
    running.clear()


def test_shadow_writes_nothing(cluster: Served) -> None:
    prove_shadow(cluster, JOBS, runs_s=(3.0, 4.0))


def test_jobs_start_in_the_order_of_the_policy(cluster: Served) -> None:
    assert prove_order(cluster, JOBS, nodes=4) >= 0.95


def test_jobs_run_on_exactly_the_nodes_that_were_decided(cluster: Served) -> None:
    prove_start(cluster, JOBS)
