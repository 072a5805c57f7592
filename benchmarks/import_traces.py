"""Reading traces against pandas.read_csv of the same file, and the memory it takes.

pandas only splits the fields and guesses types; an import also converts times, checks every row, accounts for
it and sorts. Both run as they come, with as many threads as they like. RICC's log is taken from
../shared/traces if that folder is there, else a log like it is made.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpuyard.registry import register
from harness import BenchResult, measure_apart, peak_memory_gb

HELIOS_ROWS = 3_000_000
RICC_ROWS = 447_794
WHO = ("gpuyard", "pandas")
RICC = Path(__file__).resolve().parents[2] / "shared" / "traces" / "swf" / "RICC-2010-2.swf.gz"


@register("benchmark", "import")
def import_traces() -> Iterator[BenchResult]:
    """Time and memory to import a Helios log of 3 million rows and RICC's SWF log, against pandas."""
    with tempfile.TemporaryDirectory() as folder:
        helios = Path(folder) / "cluster_log.csv"
        write_helios(helios, HELIOS_ROWS)
        swf = RICC
        if not swf.exists():
            swf = Path(folder) / "ricc-like.swf"
            write_swf(swf, RICC_ROWS)
        yield from _compare("import Helios, 3M rows", helios, target=1.5, memory_target=2.0)
        yield from _compare(f"import {swf.name}", swf, target=None, memory_target=2.0)


def _compare(name: str, path: Path, target: float | None, memory_target: float) -> Iterator[BenchResult]:
    rounds = [[measure_apart(__file__, who, str(path), one_thread=False) for who in WHO] for _ in range(3)]
    ours, peer = (min(r[side]["seconds"] for r in rounds) for side in (0, 1))
    yield BenchResult(name, ours, "s", "pandas.read_csv", peer, target, lower_is_better=True)
    memory_gb = max(r[0]["memory_gb"] for r in rounds)
    yield BenchResult(f"{name}, memory", memory_gb, "GB", "1 GB", 1.0, memory_target, lower_is_better=True)


def write_helios(path: Path, rows: int) -> None:
    """A log in the form of Helios' cluster_log.csv."""
    import polars as pl

    from gpuyard.workload import SynthConfig, synthesize

    frame = synthesize(SynthConfig(jobs=rows, cluster_gpus=1080, load=0.8, whole_seconds=True)).frame
    epoch_us = 1_585_699_200_000_000  # 2020-04-01
    submit_us = (pl.col("submit_s") * 1e6).cast(pl.Int64) + epoch_us
    duration_us = (pl.col("duration_s") * 1e6).cast(pl.Int64)
    state = pl.Series(["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"])

    def stamp(us: pl.Expr) -> pl.Expr:
        return pl.from_epoch(us, time_unit="us").dt.strftime("%Y-%m-%d %H:%M:%S")

    frame.select(
        job_id=pl.int_range(pl.len()) + 1_000_000,
        user="user",
        vc=pl.lit("vc") + pl.col("group"),
        gpu_num="gpus",
        cpu_num=pl.col("gpus") * 6,
        node_num=(pl.col("gpus") - 1) // 8 + 1,
        state=state.gather(pl.Series(range(rows)) % len(state)),
        submit_time=stamp(submit_us),
        start_time=stamp(submit_us + 60_000_000),
        end_time=stamp(submit_us + 60_000_000 + duration_us),
        duration=pl.col("duration_s").cast(pl.Int64),
        queue=pl.lit(60),
    ).write_csv(path)


def write_swf(path: Path, rows: int) -> None:
    """A log in the Standard Workload Format."""
    from gpuyard.workload import SynthConfig, synthesize

    frame = synthesize(SynthConfig(jobs=rows, cluster_gpus=8192, load=0.8, whole_seconds=True)).frame
    with path.open("w") as file:
        file.write("; MaxNodes: 1024\n; MaxProcs: 8192\n; UnixStartTime: 1272639895\n")
        for number, (submit, run, procs) in enumerate(
            frame.select("submit_s", "duration_s", "gpus").iter_rows(), start=1
        ):
            file.write(
                f"{number} {submit:.0f} 0 {run:.0f} {procs} -1 -1 {procs} 14400 -1 1 1 1 -1 1 -1 -1 -1\n"
            )


def measure_gpuyard(path: Path) -> dict[str, float]:
    from gpuyard.workload import import_trace

    began = time.perf_counter()
    import_trace([path])
    return {"seconds": time.perf_counter() - began, "memory_gb": peak_memory_gb()}


def measure_pandas(path: Path) -> dict[str, float]:
    import pandas  # type: ignore[import-untyped]

    swf = ".swf" in path.name
    options = {"sep": r"\s+", "comment": ";", "header": None} if swf else {}
    began = time.perf_counter()
    pandas.read_csv(path, **options)
    return {"seconds": time.perf_counter() - began, "memory_gb": peak_memory_gb()}


if __name__ == "__main__":
    measure = {"gpuyard": measure_gpuyard, "pandas": measure_pandas}[sys.argv[1]]
    print(json.dumps(measure(Path(sys.argv[2]))))
