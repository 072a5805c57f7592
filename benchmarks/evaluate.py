"""What busy windows cost: ``evaluate`` with all heuristics on busy windows, and on those that begin empty.

40 windows of 1,024 jobs of Helios' Venus on 48 nodes of 8 GPUs at load 0.9, with every fixed heuristic and
the whole part in one go, on all cores. The trace is taken from ../shared/traces if that folder is there, else
a log of as many jobs is made. Beside it stands the same comparison on windows that begin empty, in the same
process, and the limit that a reader's patience sets. Short windows also try ``conservative`` backfilling.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.registry import register
from harness import BenchResult, measure_apart

VENUS = (
    Path(__file__).resolve().parents[2] / "shared" / "traces" / "helios" / "venus_gpu_jobs_clamped48h.csv.gz"
)
CLUSTER, LOAD = "48x8", 0.9
JOBS_LIKE_IT = 125_000
LIMIT_S = 30.0


@register("benchmark", "evaluate")
def evaluations() -> Iterator[BenchResult]:
    """Seconds to compare all heuristics on 40 busy windows of Venus, against cold ones."""
    found = measure_apart(__file__, one_thread=False)
    log = "Venus" if VENUS.exists() else "a log like Venus"
    name = f"all heuristics on 40 windows of 1,024 jobs of {log}"
    yield BenchResult(
        name, found["busy_s"], "s", f"the limit of {LIMIT_S:g} s", LIMIT_S, 1.0, lower_is_better=True
    )
    yield BenchResult(name, found["busy_s"], "s", "windows that begin empty", found["cold_s"])
    yield BenchResult(
        f"{name}: jobs run", found["busy_jobs"], "jobs", "own jobs of windows", found["own_jobs"]
    )


def measure() -> dict[str, float]:
    """Seconds of both comparisons, and how many jobs a policy runs on busy windows."""
    from gpuyard import compare, parse_cluster, read_workload
    from gpuyard.workload import SynthConfig, synthesize
    from gpuyard.workload.shaping.rescale import level_load

    cluster = parse_cluster(CLUSTER)
    if VENUS.exists():
        jobs = level_load(read_workload(VENUS), cluster, LOAD, days=7.0)
    else:
        jobs = synthesize(SynthConfig(jobs=JOBS_LIKE_IT, cluster_gpus=cluster.total_gpus, load=LOAD))
    seconds: dict[str, float] = {}
    cold: dict[str, Any] = {"cold": True, "whole": False}
    for name, settings in (("busy", dict[str, Any]()), ("cold", cold)):
        began = time.perf_counter()
        found = compare("saf+easy", jobs, cluster, all_heuristics=True, **settings)
        seconds[f"{name}_s"] = time.perf_counter() - began
        if name == "busy":
            around = sum(found.setting.margins)
    return seconds | {"busy_jobs": 40.0 * (1024 + around), "own_jobs": 40.0 * 1024}


if __name__ == "__main__":
    print(json.dumps(measure()))
