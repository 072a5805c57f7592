"""Whether windows say what a replay of the whole test part says: many policies on several logs.

``python -m experiments.agreement --traces DIR`` makes ``experiments/agreement.json`` and
``docs/results/agreement.md``.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from experiments.running import run_gpuyard
from gpuyard import SimulationConfig, compare, parse_cluster, read_workload, simulate
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from gpuyard.evaluate.bootstrap import Difference
from gpuyard.evaluate.findings import advice
from gpuyard.evaluate.wording import TERMINAL
from gpuyard.files import atomic_write
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize
from gpuyard.workload.generators.shapes import Diurnal

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "agreement.json", HERE.parent / "docs" / "results" / "agreement.md"
POLICIES = (
    "sjf+easy",
    "saf+easy",
    "saf+strict",
    "wspt+easy",
    "wspt+easy+express:1200:0.05",
    "wfp3+easy",
    "wfp3+easy+age:86400",
    "unicep+easy",
    "f3+easy",
    "f4+easy-sjf",
    "smallest+greedy",
    "lifo+greedy",
)
STORY = SynthConfig(
    name="story",
    seed=7,
    jobs=100_000,
    cluster_gpus=64,
    load=0.92,
    arrivals=Diurnal(),
    duration_median_s=900.0,
    duration_with_gpus=0.3,
    overestimation=3.0,
    round_estimates=True,
    user_habits=0.3,
)
"""A year-like log on 8 nodes of 8 GPUs, scheduled by fifo+easy with what users asked for."""
HEAD = "| policy | windows | 95 % interval | the same jobs in one go | whole part | verdict |"


def recorded_story() -> Workload:
    """The log of the story, its recorded starts those of ``fifo+easy``."""
    jobs = synthesize(STORY)
    found = simulate(jobs, "8x8", "fifo+easy", SimulationConfig(estimates="requested"))
    starts = pl.Series("recorded_start_s", found.schedule.start_us / 1e6)
    return make_workload(jobs.frame.with_columns(starts), name="story")


def _shaped(*arguments: str) -> Callable[[Path], Workload]:
    """Jobs that ``gpuyard workload`` makes from a trace."""

    def make(traces: Path) -> Workload:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "jobs.parquet"
            placed = [one.replace("{traces}", str(traces)) for one in arguments]
            said = run_gpuyard(["workload", *placed, "--out", str(out)], Path(folder) / "log")
            if said is not None:
                raise InputError(f"gpuyard workload {' '.join(placed)}: failed ({said})")
            return read_workload(out)

    return make


LOGS: Mapping[str, tuple[str, Callable[[Path], Workload]]] = {
    "story": ("8x8", lambda _: recorded_story()),
    "Venus": (
        "48x8",
        _shaped(
            "shape",
            "{traces}/helios/venus_gpu_jobs_clamped48h.csv.gz",
            "--load",
            "0.9",
            "--level-days",
            "7",
            "--cluster",
            "48x8",
        ),
    ),
    "Philly": (
        "20x8",
        _shaped(
            "shape",
            "{traces}/philly/philly_pollux.csv.gz",
            "--load",
            "0.9",
            "--level-days",
            "7",
            "--cluster",
            "20x8",
        ),
    ),
    "RICC": (
        "1024x1",
        _shaped("shape", "{traces}/swf/RICC-2010-2.swf.gz", "--gpus", "1-1024", "--thin", "0.125"),
    ),
}
"""Cluster and jobs of each log."""


def compared(name: str, traces: Path) -> dict[str, Any]:
    """All policies on one log."""
    cluster, make = LOGS[name]
    jobs = make(traces)
    size = 1024 if len(jobs) > 40_000 else 512
    config = SimulationConfig(oversize="drop")
    found = compare(POLICIES, jobs, parse_cluster(cluster), config, jobs_per_window=size, keep_jobs=False)
    rows = [_row(found, policy) for policy in POLICIES]
    setting = found.setting
    return {
        "log": name,
        "cluster": cluster,
        "jobs": len(jobs),
        "estimates": setting.estimates,
        "current": found.reference,
        "windows": len(setting.windows),
        "jobs_per_window": setting.jobs_per_window,
        "margins": list(setting.margins),
        "starts_agree": None if setting.starts is None else setting.starts["agrees"],
        "rows": rows,
    }


def _row(found: Comparison, policy: str) -> dict[str, Any]:
    own = found.difference(policy)
    replay, whole = found.in_whole_by_window(policy), found.in_whole(policy)
    assert replay is not None
    assert whole is not None
    return {
        "policy": policy,
        "windows": own.ratio,
        "low": own.low,
        "high": own.high,
        "replay": replay.ratio,
        "whole": whole.ratio,
        "same_sign": _sign(own) * replay.ratio >= 0.0,
        "in_interval": own.low <= replay.ratio <= own.high,
        "advice": advice(found, found.policy(policy).name),
    }


def _sign(difference: Difference) -> float:
    """Of a difference that is one; a tie has none."""
    return 0.0 if difference.verdict == "tie" else difference.ratio


def page(documents: list[dict[str, Any]]) -> str:
    """The table of docs/results."""
    rows = [row for one in documents for row in one["rows"]]
    same, inside = (sum(row[key] for row in rows) for key in ("same_sign", "in_interval"))
    lines = [
        "# Do windows say what a replay of the whole log says?",
        "",
        "Made by `python -m experiments.agreement`. Every policy is compared with what runs today, on busy",
        "windows of the test part and in one replay of the whole test part. *The same jobs in one go* is the",
        "geometric mean of the same windows' ratios, measured in that replay; *whole part* is the change of",
        "the mean bounded slowdown over all jobs.",
        "",
        f"Of {len(rows)} comparisons {same} agree in sign (ties have none), and in {inside} the replay's",
        "value lies in the interval of the windows.",
    ]
    for one in documents:
        told = "" if one["starts_agree"] else "\nTwo starts did not agree: the cluster hardly catches up."
        lines += [
            "",
            f"## {one['log']}, {one['cluster']}",
            "",
            f"{one['jobs']:,} jobs, estimates {one['estimates']}, against `{one['current']}`.",
            f"{one['windows']} windows of {one['jobs_per_window']:,} jobs with {one['margins'][0]:,} before "
            f"and {one['margins'][1]:,} after.{told}",
            "",
            HEAD,
            "|---|---:|---|---:|---:|---|",
        ]
        for row in one["rows"]:
            ends = f"{TERMINAL.change(row['low'])} to {TERMINAL.change(row['high'])}"
            mark = "" if row["in_interval"] else " (outside)"
            cells = (
                f"`{row['policy']}`",
                TERMINAL.change(row["windows"]),
                ends,
                TERMINAL.change(row["replay"]) + mark,
                TERMINAL.change(row["whole"]),
                row["advice"],
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compare on all logs, then write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(LOGS))
    given = parser.parse_args()
    known = {one["log"]: one for one in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    for name in given.only:
        known[name] = compared(name, given.traces)
        documents = [known[one] for one in LOGS if one in known]
        with atomic_write(RESULTS) as temporary:
            temporary.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
        with atomic_write(PAGE) as temporary:
            temporary.write_text(page(documents), encoding="utf-8")
        rows = known[name]["rows"]
        same, inside = (sum(row[key] for row in rows) for key in ("same_sign", "in_interval"))
        print(f"{name}: {same} of {len(rows)} agree in sign, {inside} lie in the interval", flush=True)


if __name__ == "__main__":
    main()
