"""The page of docs/results that shows how far simulated schedules lie from real ones."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from experiments.fidelity.comparison import CLOSE_S, Fidelity
from experiments.fidelity.forecast import Forecast
from experiments.fidelity.stream import ACCOUNTS, NODES, USERS
from experiments.markdown import table, wrapped

_WHOLE_HEADERS = (
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
_AHEAD_HEADERS = ("load", "ahead", "starts", f"within {CLOSE_S:g} s", "of those that were waiting")


class Findings(BaseModel):
    """All that was measured."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    slurm: str
    """Its version."""
    exact_times: bool
    """Whether times are those of slurmctld's log, in milliseconds, or those of sacct, in seconds."""
    whole: list[Fidelity] = []
    """Simulations of whole logs, by load."""
    again: list[Fidelity] = []
    """The same streams once more on the real scheduler, by load."""
    ahead: list[Forecast] = []
    """Simulations from the real state, by load and how far they look ahead."""


def whole_table(rows: Sequence[Fidelity]) -> list[str]:
    """One row per load, as Markdown."""
    return table(_WHOLE_HEADERS, [_whole_cells(row) for row in rows], numbers=len(_WHOLE_HEADERS))


def _whole_cells(row: Fidelity) -> tuple[str, ...]:
    ratio = row.wait_ratio
    return (
        f"{row.load:g}",
        f"{row.jobs:,}",
        _percent(row.close),
        _percent_of(row.close_of_waited, row.waited),
        f"{row.rank_correlation:.4f}",
        f"{row.real_mean_wait_s:.1f} s",
        f"{row.simulated_mean_wait_s:.1f} s",
        "-" if ratio is None else f"{ratio:.3f}",
        _percent(row.same_nodes),
    )


def ahead_table(rows: Sequence[Forecast]) -> list[str]:
    """One row per load and time ahead, as Markdown."""
    cells = [
        (
            f"{row.load:g}",
            f"{row.ahead_s} s",
            f"{row.starts:,}",
            _percent(row.close),
            _percent_of(row.close_of_waiting, row.waiting),
        )
        for row in rows
    ]
    return table(_AHEAD_HEADERS, cells, numbers=len(_AHEAD_HEADERS))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _percent_of(share: float | None, count: int) -> str:
    return "-" if share is None else f"{_percent(share)} of {count}"


_INTRODUCTION = """
For everyone who asks whether a replay can be trusted. A real Slurm ({version}) ran streams of jobs on {nodes}
nodes with fake GPUs. gpuyard read its accounting logs and simulated the same jobs with {policies}. The tables
compare when each job started.

Made by `make fidelity`, which needs root on Debian or Ubuntu.
"""
_WHOLE = """
Simulated from the first job to the last. *Within {close:g} s*: share of jobs whose simulated start lies that
close to the real one. *Of those that waited*: the same among jobs that really waited longer than {close:g} s;
others start at once in almost any schedule. *Rank correlation*: Spearman's, of the order of starts. *Same
nodes*: share of jobs that ran on the very nodes on which they really ran.
"""
_AGAIN = """
The same streams once more on the same Slurm. Its passes come at other fractions of a second, so that now and
then another job comes first, and all that follows moves. Over a whole log no simulator can be expected to
come closer to Slurm than Slurm does.
"""
_AHEAD = """
Simulated from the real state: what ran and what waited, at regular moments. Compared are the real starts up
to the next moment. This measures the rules, before small differences grow.
"""
_WHAT_RAN = """
- **Jobs** of 1 to 16 GPUs run 2 to 60 s, 9 s on average, and arrive at random. They ask for 1 to 5 minutes,
  because Slurm counts in minutes. They belong to {users} users in {accounts} accounts, and to two QOS.
- **Partitions** share nodes: `batch` has all, `short` the last 4, for jobs of up to 2 minutes, first in line.
- **Scheduler**: `sched/backfill` with a pass per second, and `priority/multifactor` with age, fair share
  (Fair Tree), job size, partition and QOS. Factors are computed every minute; usage halves every 2 minutes.
- **Times** {times}
"""
_DIFFERS = """
The aim was 90 % of starts within 3 s at load 0.8, 75 % at load 1.2, and mean waits within 10 %. The second
table shows that this Slurm does not come that close to itself, so the aim says more about the stream than
about a simulator. What the simulator leaves out:

- **Turnaround.** A real start comes 0.1 to 1 s after the end that made room for it, or after the submission:
  the scheduler wakes once per second. The simulator starts jobs at once. With jobs of 9 s that is much: in an
  earlier recording, 0.3 s more per job raised the simulated mean wait by 53 % at load 0.8, by 23 % at 1.0 and
  by 20 % at 1.2. With jobs of hours it is nothing.
- **Planned starts.** Slurm tests ends of running jobs in groups of 30 s, then 60, 120 and so on, and plans a
  job for the end of a group. The simulator tests every end, so it plans earlier.
- **Nodes.** Slurm prefers the shortest run of neighbouring nodes with room. `first-fit` takes the first node.
- **Fair share.** The root account counts as one more user, so that factors are n/6 and not n/5.
"""
_EXACT = """of submissions, starts and ends are those of slurmctld's own log, in milliseconds; all else is
from sacct. Whole seconds, which is all that sacct has, hide who came first and how long GPUs stayed idle."""
_WHOLE_SECONDS = (
    """are those of sacct: whole seconds, which hide who came first and how long GPUs stayed idle."""
)


def tables(found: Findings) -> list[str]:
    """The tables with their headings."""
    close = _WHOLE.format(close=CLOSE_S)
    return [
        *("## Whole logs", "", *wrapped(close), *whole_table(found.whole)),
        *("## Slurm against itself", "", *wrapped(_AGAIN), *whole_table(found.again)),
        *("## Some seconds ahead", "", *wrapped(_AHEAD), *ahead_table(found.ahead)),
    ]


def page(found: Findings) -> str:
    """The whole page."""
    policies = " and ".join(sorted({f"`{row.policy}`" for row in found.whole}))
    lines = ["# Does the simulator do what Slurm does?", ""]
    lines += wrapped(_INTRODUCTION.format(version=found.slurm, nodes=NODES, policies=policies))
    lines += [*tables(found), "## What differs", "", *wrapped(_DIFFERS), "## What ran", ""]
    times = _EXACT if found.exact_times else _WHOLE_SECONDS
    lines += wrapped(_WHAT_RAN.format(users=len(USERS), accounts=len(ACCOUNTS), times=times))
    return "\n".join(lines).rstrip("\n") + "\n"
