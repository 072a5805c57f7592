"""Which build of the package is tested, how Hypothesis searches, and where shared data lie."""

import os
import random
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from support.paths import SHARED

# Tests run in as many processes as there are cores; threads of torch on top of these only wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def _put_package_first(path: str) -> None:
    """Makes `import gpuyard` find the package in this directory and not the editable installation."""
    assert "gpuyard" not in sys.modules, "gpuyard was imported before GPUYARD_PACKAGE could take effect"

    def is_editable(finder: object) -> bool:
        cls = finder if isinstance(finder, type) else type(finder)
        return "editable" in f"{cls.__module__}.{cls.__name__}".lower()

    sys.meta_path[:] = [finder for finder in sys.meta_path if not is_editable(finder)]
    sys.path.insert(0, path)


if os.environ.get("GPUYARD_PACKAGE"):
    _put_package_first(os.environ["GPUYARD_PACKAGE"])

# The same cases every time, so that a green commit stays green; no test reads what an earlier run has found.
settings.register_profile("fixed", max_examples=50, deadline=None, derandomize=True, database=None)
# Other cases every time (make test-slow); a failure prints the case to put above the test.
settings.register_profile("explore", max_examples=300, deadline=None, database=None, print_blob=True)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--shuffle SEED``."""
    help_text = "run files, and the tests of each file, in an order drawn from SEED"
    parser.addoption("--shuffle", type=int, default=None, metavar="SEED", help=help_text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How to run the same again, where that is not what any run does."""
    again = []
    if (shuffle := config.getoption("--shuffle")) is not None:
        again.append(f"--shuffle {shuffle}")
    seed = config.getoption("--hypothesis-seed", None)
    if config.getoption("--hypothesis-profile", None) == "explore" and seed is not None:
        again.append(f"--hypothesis-profile explore --hypothesis-seed {seed}")
    if again:
        terminalreporter.write_line(f"the same order and random cases again: pytest TEST {' '.join(again)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of a file stay together, as they share what is made once for the file."""
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    draw = random.Random(seed)
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    draw.shuffle(files)
    for tests in files:
        draw.shuffle(tests)
    items[:] = [test for tests in files for test in tests]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What draws from generators that the whole process shares draws the same in any order of tests."""
    random.seed(0)
    np.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


def _shared_directory(name: str) -> Path:
    directory = SHARED / name
    if not directory.is_dir():
        pytest.skip(f"{directory} is not there; it lies beside the project, not in it")
    return directory


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The directory of public traces."""
    return _shared_directory("traces")


@pytest.fixture(scope="session")
def conformance_dir() -> Path:
    """The directory of workloads on which other simulators were run."""
    return _shared_directory("conformance")
