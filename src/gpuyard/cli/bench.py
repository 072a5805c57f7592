"""``gpuyard bench``: speed and memory beside a peer measured in the same run; opens ``benchmarks/``."""

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from gpuyard.cli.inputs import open_console, print_json
from gpuyard.cli.parameters import Json
from gpuyard.errors import InputError
from gpuyard.registry import lookup, registered
from gpuyard.terminal.tables import bench_table

Progress = Callable[[str], None]


def bench(
    names: Annotated[list[str] | None, Parameter(negative=(), help="Benchmarks to run; all if none.")] = None,
    /,
    *,
    traces: Annotated[
        Path | None,
        Parameter(
            help="A folder of public logs to measure on. (default: ../shared/traces; made logs without it)"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure speed, each figure with that of a peer measured in the same run.

    Example: gpuyard bench simulate
    """
    if traces is not None:
        if not traces.is_dir():
            raise InputError(f"--traces {traces} is not a folder")
        os.environ["GPUYARD_TRACES"] = str(traces.resolve())  # benchmarks run in processes of their own
    results = run(names or (), lambda line: print(line, file=sys.stderr, flush=True))
    if json:
        keys = ("name", "value", "unit", "peer", "peer_value", "ratio", "target", "met")
        print_json({"results": [{key: getattr(result, key) for key in keys} for result in results]})
        return
    open_console().print(bench_table(results))


def run(names: Sequence[str], progress: Progress) -> list[Any]:
    """Run some benchmarks, or all of them if none is named.

    Args:
        names: Of benchmarks.
        progress: Told of every result as it comes, in words.

    Raises:
        InputError: for an unknown name, or where the source tree with the benchmarks is not at hand.
    """
    _load()
    benchmarks = [lookup("benchmark", name) for name in names or registered("benchmark")]
    results = []
    for benchmark in benchmarks:
        for result in benchmark():
            results.append(result)
            progress(f"{result.name}: {result.ratio:.3g}x {result.peer}")
    return results


def _load() -> None:
    """Import every file of ``benchmarks/``; each registers what it measures."""
    if registered("benchmark"):
        return
    folder = Path(__file__).resolve().parents[3] / "benchmarks"
    files = sorted(folder.glob("*.py"))
    if not files:
        raise InputError(
            "benchmarks are part of the source tree, not of the installed package; run make bench in a clone"
        )
    sys.path.insert(0, str(folder))  # they import their harness
    for path in files:
        spec = importlib.util.spec_from_file_location(f"gpuyard_benchmarks.{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {path}")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
