"""Every policy on some workloads: the tables of docs/guide/policies.md. Takes minutes.

python experiments/policy_survey.py philly.csv@20x8 lublin_256.swf@32x8 --jobs 5000 --into PAGE
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.files import atomic_write
from gpuyard.metrics.catalogue import Value
from gpuyard.native.information import informed
from gpuyard.policies.grammar import parse_policy
from gpuyard.registry import registered
from gpuyard.simulation.run import simulate
from gpuyard.units import metric_text
from gpuyard.workload import Workload, make_workload, read_workload

SHOWN = {
    "mean_wait_s": "mean wait",
    "p99_wait_s": "p99 wait",
    "mean_jct_s": "mean JCT",
    "mean_bounded_slowdown": "mean bounded slowdown",
    "gpu_utilization": "GPU utilisation",
    "fragmentation": "fragmentation",
    "preemptions": "stops",
    "overhead_gpu_h": "overhead GPU-h",
}
BEGIN, END = "<!-- survey:begin -->", "<!-- survey:end -->"


@dataclass(frozen=True)
class Case:
    """A workload on a cluster, as ``PATH@CLUSTER`` names it."""

    name: str
    workload: Workload
    cluster: Cluster


@dataclass(frozen=True)
class Row:
    """A policy's metrics on each case; None where it cannot be run there."""

    kind: str
    policy: str
    metrics: list[dict[str, Value] | None]
    refused: str = ""


def parse_case(text: str, jobs: int | None) -> Case:
    """A case from ``PATH@CLUSTER``; of a longer workload only the first ``jobs`` are taken.

    Raises:
        InputError: for a text of another form, a file that cannot be read or an unknown cluster.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs {jobs}: expected 1 or more")
    path, at, cluster = text.rpartition("@")
    if not at or not path or not cluster:
        raise InputError(f"{text!r}: expected WORKLOAD@CLUSTER, such as jobs.csv@20x8")
    workload = read_workload(path)
    if jobs is not None and len(workload) > jobs:
        metadata = workload.metadata
        workload = make_workload(
            workload.frame.head(jobs),
            name=metadata.name,
            origin_s=metadata.origin_s,
            epoch_s=metadata.epoch_s,
        )
    name = Path(path).name.partition(".")[0]
    return Case(f"{name} on {cluster}", workload, parse_cluster(cluster))


def policies_to_survey() -> list[tuple[str, str]]:
    """Kind of rule and policy: every order, backfill and placement once, the rest as is usual."""
    rows = [
        ("order", f"{rule.usable_name}+{'greedy' if rule.preempts else 'easy'}/consolidate")
        for rule in registered("order").values()
        if hasattr(rule, "preempts")
    ]
    rows += [("backfill", f"fifo+{name}/consolidate") for name in registered("backfill")]
    rows += [
        ("placement", f"fifo+{'strict' if name == 'milp' else 'easy'}/{name}")
        for name in registered("placement")
    ]
    once: dict[str, str] = {}
    for kind, policy in rows:
        once.setdefault(policy, kind)
    return [(kind, policy) for policy, kind in once.items()]


def survey(cases: Sequence[Case]) -> list[Row]:
    """Run every policy on every case. What a case does not allow is left open, with the reason."""
    rows = []
    for kind, policy in policies_to_survey():
        metrics: list[dict[str, Value] | None] = []
        refused = ""
        for case in cases:
            print(f"{policy} on {case.name}", file=sys.stderr, flush=True)
            try:
                result = simulate(case.workload, case.cluster, parse_policy(policy), SimulationConfig())
            except InputError as error:
                metrics.append(None)
                refused = str(error)
            else:
                metrics.append(result.metrics())
        rows.append(Row(kind, policy, metrics, refused))
    return rows


def to_markdown(cases: Sequence[Case], rows: Sequence[Row]) -> str:
    """One table per case, sorted as the rules are listed."""
    parts = []
    for number, case in enumerate(cases):
        parts.append(
            f"### {case.name}: {len(case.workload):,} jobs, estimates {_estimates(case.workload)}\n\n"
            f"| policy | {' | '.join(SHOWN.values())} |\n|---|{'---|' * len(SHOWN)}\n"
            + "\n".join(_line(row.policy, row.metrics[number]) for row in rows)
        )
    refused = {row.policy: row.refused for row in rows if row.refused}
    notes = [f"* `{policy}`: {why}" for policy, why in refused.items()]
    return "\n\n".join(parts + (["Not run:\n\n" + "\n".join(notes)] if notes else []))


def _estimates(workload: Workload) -> str:
    return informed(SimulationConfig(), workload).estimates


def _line(policy: str, metrics: dict[str, Value] | None) -> str:
    values = ["-" if metrics is None else metric_text(name, metrics[name], short=True) for name in SHOWN]
    return f"| `{policy}` | {' | '.join(values)} |"


def write_into(page: Path, markdown: str) -> None:
    """Put the tables between the marks of a Markdown page.

    Raises:
        InputError: if the page has no such marks.
    """
    text = marked_text(page)
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    with atomic_write(page) as temporary:
        temporary.write_text(f"{before}{BEGIN}\n\n{markdown}\n\n{END}{after}", encoding="utf-8")


def marked_text(page: Path) -> str:
    """The text of a page that tables can be put into.

    Raises:
        InputError: if the page cannot be read or has no marks.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{page}: cannot be read ({error})") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise InputError(f"{page}: expected the marks {BEGIN} and {END}, once each, between which tables go")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(description="Run every policy on some workloads.")
    parser.add_argument("cases", nargs="+", help="WORKLOAD@CLUSTER, such as jobs.csv@20x8")
    parser.add_argument("--jobs", type=int, help="take only the first so many jobs of each workload")
    parser.add_argument("--into", type=Path, help="a Markdown page with survey marks, for the tables")
    given = parser.parse_args(arguments)
    try:
        if given.into is not None:
            marked_text(given.into)  # before the long work
        cases = [parse_case(case, given.jobs) for case in given.cases]
        markdown = to_markdown(cases, survey(cases))
        if given.into is None:
            print(markdown)
        else:
            write_into(given.into, markdown)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
