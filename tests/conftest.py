"""Which build of the package is tested, how Hypothesis searches, and where shared data lie."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Tests run in as many processes as there are cores; threads of torch on top of these only wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")
PROJECT_ROOT = Path(__file__).resolve().parent.parent


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

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def _shared_directory(name: str) -> Path:
    directory = PROJECT_ROOT.parent / "shared" / name
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
