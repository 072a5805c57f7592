"""What tests of experiments share."""

from collections.abc import Iterator

import pytest

from experiments.running import Experiment
from support.experiment_cases import finished_experiment


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    """An experiment, run once for all tests, which only read it or copy it."""
    experiment = finished_experiment(tmp_path_factory.mktemp("experiments"))
    files = sorted(experiment.here.rglob("*"))
    yield experiment
    assert sorted(experiment.here.rglob("*")) == files, "a test wrote into what all tests share"
