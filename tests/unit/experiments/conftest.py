"""What tests of experiments share."""

import pytest

from experiments.running import Experiment
from support.experiment_cases import finished_experiment


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """An experiment, run once for all tests, which only read it or copy it."""
    return finished_experiment(tmp_path_factory.mktemp("experiments"))
