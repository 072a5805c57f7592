"""The page of docs/results that shows how far simulated schedules lie from real ones."""

from collections.abc import Sequence

from experiments.fidelity.comparison import AGAIN, CLOSE_S, Fidelity
from experiments.fidelity.stream import ACCOUNTS, NODES, USERS
from experiments.markdown import table, wrapped

_HEADERS = (
    "load",
    "jobs",
    f"within {CLOSE_S:g} s",
    "of those that waited",
    "rank correlation",
    "mean wait, real",
    "simulated",
    "ratio",
    "same nodes",
)


def fidelity_table(rows: Sequence[Fidelity]) -> list[str]:
    """One row per load, as Markdown."""
    return table(_HEADERS, [_cells(row) for row in rows], numbers=len(_HEADERS))


def _cells(row: Fidelity) -> tuple[str, ...]:
    ratio, waited = row.wait_ratio, row.close_of_waited
    return (
        f"{row.load:g}",
        f"{row.jobs:,}",
        _percent(row.close),
        "-" if waited is None else f"{_percent(waited)} of {row.waited}",
        f"{row.rank_correlation:.4f}",
        f"{row.real_mean_wait_s:.1f} s",
        f"{row.simulated_mean_wait_s:.1f} s",
        "-" if ratio is None else f"{ratio:.3f}",
        _percent(row.same_nodes),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


_INTRODUCTION = """
For everyone who asks whether a replay can be trusted. A real Slurm ({version}) ran streams of jobs on {nodes}
nodes with fake GPUs. gpuyard read its accounting logs and simulated the same jobs with {policies}. The table
compares when each job started.

Made by `make fidelity`, which needs root on Debian or Ubuntu.
"""
_LEGEND = """
*Within {close:g} s*: share of jobs whose simulated start lies that close to the real one. *Of those that
waited*: the same among jobs that really waited longer than {close:g} s; others start at once in almost any
schedule. *Rank correlation*: Spearman's, of the order of starts. *Same nodes*: share of jobs that ran on the
very nodes on which they really ran.
"""
_ITSELF = """
The same streams once more on the same Slurm: how far it lies from itself. Jobs arrive some milliseconds
earlier or later, so that another job comes first now and then, and everything after it moves. No simulator
can be expected to come closer.
"""
_WHAT_RAN = """
- **Jobs** of 1 to 16 GPUs run 2 to 60 s, 9 s on average, and arrive at random. They ask for 1 to 5 minutes,
  because Slurm counts in minutes. They belong to {users} users in {accounts} accounts, and to two QOS.
- **Partitions** share nodes: `batch` has all, `short` the last 4, for jobs of up to 2 minutes, first in line.
- **Scheduler**: `sched/backfill` with a pass per second, and `priority/multifactor` with age, fair share
  (Fair Tree), job size, partition and QOS. Factors are computed every minute; usage halves every 2 minutes.
- **Times** of the log are whole seconds, and Slurm starts new jobs on a tick of a second. A start may differ
  by a second for no reason that a log shows.
"""


def page(rows: Sequence[Fidelity], version: str) -> str:
    """The whole page."""
    simulated = [row for row in rows if row.policy != AGAIN]
    again = [row for row in rows if row.policy == AGAIN]
    policies = " and ".join(sorted({f"`{row.policy}`" for row in simulated}))
    lines = ["# Does the simulator do what Slurm does?", ""]
    lines += wrapped(_INTRODUCTION.format(version=version, nodes=NODES, policies=policies))
    lines += fidelity_table(simulated)
    lines += wrapped(_LEGEND.format(close=CLOSE_S))
    if again:
        lines += ["## Slurm against itself", "", *wrapped(_ITSELF), *fidelity_table(again)]
    lines += ["## What ran", ""]
    lines += wrapped(_WHAT_RAN.format(users=len(USERS), accounts=len(ACCOUNTS)))
    return "\n".join(lines).rstrip("\n") + "\n"
