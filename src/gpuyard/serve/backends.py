"""The schedulers that can be served, by name. An adapter is loaded when it is asked for."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.errors import InputError
from gpuyard.serve.adapter import Adapter
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs


@dataclass(frozen=True)
class Backend:
    """A scheduler.

    Attributes:
        title: Its name as people write it.
        make: Makes its adapter.
    """

    title: str
    make: Callable[[ServeSettings], Adapter]


def _slurm(settings: ServeSettings) -> Adapter:
    from gpuyard.serve.slurm import SlurmAdapter

    return SlurmAdapter(settings)


def _lsf(settings: ServeSettings) -> Adapter:
    from gpuyard.serve.lsf import LsfAdapter

    return LsfAdapter(settings)


def _kubernetes(settings: ServeSettings) -> Adapter:
    from gpuyard.serve.kubernetes.service import make_adapter

    return make_adapter(settings)


def _posted(settings: ServeSettings) -> Adapter:
    from gpuyard.serve.remote.posted import PostedCluster

    return PostedCluster()


BACKENDS = {
    "slurm": Backend("Slurm", _slurm),
    "lsf": Backend("LSF", _lsf),
    "kubernetes": Backend("Kubernetes", _kubernetes),
    "http": Backend("the scheduler that asks", _posted),
}


def backend_of(settings: ServeSettings) -> Backend:
    """The scheduler of an agent that serves or served: what its directory says, or else its settings.

    Raises:
        InputError: if the directory names one that there is not.
    """
    name = Signs(settings.state_dir).scheduler or settings.scheduler
    if name not in BACKENDS:
        raise InputError(
            f"{settings.state_dir}: its agent serves {name!r}, which this gpuyard does not know; use the "
            "gpuyard that wrote it"
        )
    return BACKENDS[name]
