"""gpuyard: train, prove and deploy schedulers for GPU clusters.

The public names are loaded when they are first used, so ``import gpuyard`` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

from gpuyard.registry import loaded_on_use

if TYPE_CHECKING:
    from gpuyard._core import Decision
    from gpuyard.cluster.model import Cluster, parse_cluster
    from gpuyard.config import SimulationConfig
    from gpuyard.errors import InputError
    from gpuyard.evaluate import compare
    from gpuyard.registry import register
    from gpuyard.simulation.run import SimulationResult, simulate
    from gpuyard.workload import (
        Workload,
        make_workload,
        read_workload,
        synthesize,
        write_workload,
    )

    __version__: str

__all__ = [
    "Cluster",
    "Decision",
    "InputError",
    "SimulationConfig",
    "SimulationResult",
    "Workload",
    "__version__",
    "compare",
    "make_workload",
    "parse_cluster",
    "read_workload",
    "register",
    "simulate",
    "synthesize",
    "write_workload",
]

_HOMES = {
    "Cluster": "cluster",
    "Decision": "_core",
    "InputError": "errors",
    "SimulationConfig": "config",
    "SimulationResult": "simulation.run",
    "Workload": "workload",
    "compare": "evaluate",
    "make_workload": "workload",
    "parse_cluster": "cluster",
    "read_workload": "workload",
    "register": "registry",
    "simulate": "simulation.run",
    "synthesize": "workload",
    "write_workload": "workload",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("gpuyard")
    return loaded_on_use(__name__, _HOMES)(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
