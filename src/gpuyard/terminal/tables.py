"""Results as tables for people, as wide as the terminal and no wider."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuyard.policies.base import RECORDED
from gpuyard.units import duration, metric_label, metric_text, number, plural, relative_change, rough

COMPARED = (
    "mean_wait_s",
    "p99_wait_s",
    "max_wait_s",
    "mean_jct_s",
    "mean_bounded_slowdown",
    "gpu_utilization",
)
"""Metrics that are asked for first."""
WITHOUT_GPUS = {"gpu_utilization": "cpu_utilization"}
"""What is shown in their place of clusters that have no GPUs."""
LEAST_MISSED = "mean_jct_s"
"""What gives way to the worst class in a narrow terminal."""
OF_ONE_POLICY = (
    *("mean_wait_s", "p50_wait_s", "p99_wait_s", "max_wait_s", "mean_jct_s", "mean_bounded_slowdown"),
    *("makespan_s", "gpu_utilization", "fragmentation", "mean_queue_length", "throughput_jobs_per_h"),
    *("completed_jobs", "backfilled_jobs", "starved_jobs"),
)
"""Metrics of a single policy, for which there is more room."""
OF_CLASSES = ("mean_wait_s", "p99_wait_s", "max_wait_s", "mean_bounded_slowdown")
"""Metrics of a class of jobs."""

WIDEST = 10_000
"""Columns enough to measure any table at its natural width."""
NARROWEST = len("+express:600:0.1")
"""Columns that a policy's name needs at least, on several lines."""
MARK = "*"
BEST = "bold green"
ALARM = "!"
ALARMED = ("p99_wait_s", "max_wait_s")
"""Metrics that are marked where they are far above those of what runs today."""
FAR = "bold red"

Values = Mapping[str, Any]


def plain_table(*columns: str, right: Sequence[int] = ()) -> Table:
    """A table with these column names; those numbered in ``right`` are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for index, name in enumerate(columns):
        aligned_right = index in right
        table.add_column(name, justify="right" if aligned_right else "left", no_wrap=aligned_right)
    return table


def best_entries(name: str, direction: str, values: Sequence[float | None]) -> list[bool]:
    """Which values are best: those that read the same as the best one. None is if all read the same."""
    texts = [metric_text(name, value) for value in values]
    known = [value for value in values if value is not None]
    if direction == "neutral" or not known or len(set(texts)) == 1:
        return [False] * len(values)
    best = metric_text(name, min(known) if direction == "lower" else max(known))
    return [text == best for text in texts]


def comparison_table(
    console: Console,
    policies: Sequence[str],
    values: Sequence[Values],
    metrics: Mapping[str, Any],
    worst: Sequence[Any] = (),
    unranked: Collection[int] = (),
    *,
    reference: int = 0,
) -> Table:
    """One row a policy, one column a metric, the best value of each marked, and waits far above today's.

    Args:
        console: Where it will be shown; units and names are shortened if they would not fit.
        policies: Names.
        values: Each policy's values by metric.
        metrics: The metrics to show by name, each with a ``direction``.
        worst: Each policy's class with the longest waits (``gpuyard.metrics.classes.ClassWait``).
        unranked: Rows that are best of nothing, because they cannot be so.
        reference: The row of what runs today.
    """

    def build(short: bool, room: int, names: Sequence[str] = tuple(metrics), narrow: bool = False) -> Table:
        heads = [*_headers(names), *(["worst class,\np99 wait"] if worst else [])]
        table = plain_table("policy", *heads, right=range(1, len(heads) + 1))
        columns = [
            _metric_column(name, metrics[name].direction, values, short, unranked, reference)
            for name in names
        ]
        columns += [[_worst_cell(one, short, narrow) for one in worst]] if worst else []
        for index, policy in enumerate(policies):
            table.add_row(folded(policy, room), *(column[index] for column in columns))
        return table

    def build_narrow(short: bool, room: int) -> Table:
        return build(short, room, [name for name in metrics if name != LEAST_MISSED], narrow=True)

    table = first_that_fits(console, build) or (first_that_fits(console, build_narrow) if worst else None)
    return table or _stacked_table(console, policies, values, metrics, unranked, reference)


def _stacked_table(
    console: Console,
    policies: Sequence[str],
    values: Sequence[Values],
    metrics: Mapping[str, Any],
    unranked: Collection[int],
    reference: int,
) -> Table:
    """One row a metric and policy, for many metrics or narrow terminals."""

    def build(room: int) -> Table:
        table = plain_table("metric", "policy", "value", right=(2,))
        table.columns[1].overflow = "fold"
        for name, metric in metrics.items():
            table.add_section()
            cells = _metric_column(name, metric.direction, values, True, unranked, reference)
            for index, (policy, cell) in enumerate(zip(policies, cells, strict=True)):
                table.add_row("" if index else metric_label(name), folded(policy, room), cell)
        return table

    return build(max(NARROWEST, _room(console, build(0))))


def _worst_cell(worst: Any, short: bool, narrow: bool) -> Text:
    if worst is None:
        return Text("-")
    text = f"{worst.short}:{chr(10) if narrow else ' '}{duration(worst.p99_wait_s, short=short)}"
    return Text(f"{ALARM}{text}", style=FAR) if worst.is_far_above else Text(text)


def class_table(
    console: Console,
    by: str,
    runs: Mapping[str, Sequence[Values]],
    metrics: Mapping[str, Any],
    *,
    reference: int = 0,
) -> Table:
    """For each class of jobs one row a policy, the best value in the class marked.

    Of several policies the last column has the change of the first metric, against what runs today.

    Args:
        console: Where it will be shown.
        by: What the classes are.
        runs: Each policy's rows of ``SimulationResult.breakdown``, all with the same classes.
        metrics: The metrics to show by name.
        reference: The number of the policy that runs today.
    """
    classes = list(zip(*runs.values(), strict=True))

    def build(short: bool, room: int) -> Table:
        changed = [f"{_headers(metrics)[0]}\nchange"] if len(runs) > 1 and metrics else []
        headers = (by, "jobs", "policy", *_headers(metrics), *changed)
        table = plain_table(*headers, right=(1, *range(3, len(headers))))
        for rows in classes:
            table.add_section()
            columns = [
                _metric_column(name, metrics[name].direction, rows, short, reference=reference)
                for name in metrics
            ]
            columns += [_changes(next(iter(metrics)), rows, reference)] if changed else []
            for index, policy in enumerate(runs):
                label = (rows[0]["class"] or "(none)", f"{rows[0]['jobs']:,}") if index == 0 else ("", "")
                table.add_row(*label, folded(policy, room), *(column[index] for column in columns))
        return table

    return first_that_fits(console, build) or build(True, NARROWEST)


def _changes(name: str, rows: Sequence[Values], reference: int) -> list[Text]:
    """How a metric differs from that of what runs today."""
    today = rows[reference][name]
    return [Text("" if index == reference else _change(row[name], today)) for index, row in enumerate(rows)]


def _change(value: float | None, first: float | None) -> str:
    ratio = relative_change(value, first)
    if ratio is None:
        return "-"
    if ratio == 0:
        return "0 %"
    return f"x {number(1 + ratio)}" if ratio >= 1 else f"{100 * ratio:+.0f} %"


def first_that_fits(console: Console, build: Callable[[bool, int], Table]) -> Table | None:
    """Long units if they fit, else short ones, else policies' names on several lines too, else nothing.

    Args:
        console: Where it will be shown.
        build: Makes the table, given whether units are short, and the room for a policy's name.
    """
    for short in (False, True):
        table = build(short, WIDEST)
        if _width(console, table) <= console.width:
            return table
    room = _room(console, build(True, 0))
    return build(True, room) if room >= NARROWEST else None


def _width(console: Console, table: Table) -> int:
    return console.measure(table, options=console.options.update(width=WIDEST)).maximum


def _room(console: Console, nameless: Table) -> int:
    """Columns that a table built without policies' names leaves for them."""
    return console.width - _width(console, nameless) + len("policy")


def folded(policy: str, room: int) -> Text:
    """The name on lines of at most so many columns, broken before + and /; lines after the first are dim."""
    lines = [""]
    for part in re.split("(?=[+/])", policy) if room else []:
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return Text.assemble(lines[0], *((f"\n{line}", "dim") for line in lines[1:]))


def _headers(metrics: Iterable[str]) -> list[str]:
    return [metric_label(name).replace(" ", "\n") for name in metrics]


def _metric_column(
    name: str,
    direction: str,
    rows: Sequence[Values],
    short: bool,
    unranked: Collection[int] = (),
    reference: int = 0,
) -> list[Text]:
    values = [row[name] for row in rows]
    texts = [metric_text(name, value, short=short) for value in values]
    ranked = [None if index in unranked else value for index, value in enumerate(values)]
    return [
        Text(f"{MARK}{text}", style=BEST)
        if is_best
        else Text(f"{ALARM}{text}", style=FAR)
        if name in ALARMED and _far_above(value, values[reference])
        else Text(text)
        for text, value, is_best in zip(texts, values, best_entries(name, direction, ranked), strict=True)
    ]


def _far_above(value: float | None, first: float | None) -> bool:
    from gpuyard.metrics.classes import is_far_above

    return is_far_above(value, first)


def assumption_note(policy: str) -> str:
    """That a reference was chosen because nobody said what runs today."""
    return (
        f"{policy} stands for what runs today, an assumption: these jobs have no recorded starts. "
        "--current POLICY names yours; --current none compares with the first policy."
    )


def comparison_notes(source: str, results: Sequence[Any], *, far_from: str = "") -> tuple[str, list[str]]:
    """A line above the table that says what was simulated, and lines below it.

    Args:
        source: The workload as the user named it.
        results: A ``SimulationResult`` for each policy.
        far_from: What runs today, if a wait is marked that is far above its own.
    """
    first = results[0]
    cluster, config = first.cluster, first.config
    known = {
        "exact": "exact (policies know true run times)",
        "requested": "as users requested",
        "noisy": f"noisy (sigma {config.noise_sigma:g}, seed {config.seed})",
        "history": "predicted from finished jobs",
        "none": "none",
    }
    machines = f"{plural(cluster.node_count, 'node')}, {plural(cluster.total_gpus, 'GPU')}"
    policy = f", policy {first.policy}" if len(results) == 1 else ""
    heading = (
        f"{source}: {plural(len(first.workload), 'job')} on {cluster.name} ({machines}){policy}; "
        f"estimates {known[config.estimates]}"
    )
    jobs, elapsed_s = sum(len(result.schedule) for result in results), sum(r.elapsed_s for r in results)
    speed = f"{plural(jobs, 'job')} simulated in {duration(elapsed_s)} ({rough(jobs / elapsed_s)} jobs/s)."
    far = f" {ALARM} wait far above that of {far_from}." if far_from else ""
    best = [f"{MARK} best of the column.{far} {speed}"] if len(results) > 1 else [speed]
    return heading, [*_dropped_notes(results), *_counter_notes(results), *best]


def _counter_notes(results: Sequence[Any]) -> list[str]:
    """What policies counted that are not native, such as fallbacks of a solver."""
    return [
        f"{result.policy}: " + ", ".join(f"{name} {count:,}" for name, count in result.counters.items()) + "."
        for result in results
        if result.counters
    ]


def _dropped_notes(results: Sequence[Any]) -> list[str]:
    """Jobs that can never run; of those that a log does not say enough of, ``recorded`` has a note itself."""
    from gpuyard.workload.identity import name_of  # brings polars, which help must not load

    results = [result for result in results if result.policy != RECORDED]
    counts = {result.policy: len(result.dropped) for result in results}
    if not any(counts.values()):
        return []
    result = max(results, key=lambda result: len(result.dropped))
    gpus = result.workload.frame["gpus"]
    some = [
        f"{name_of(result.workload, job)}, {plural(gpus[job], 'GPU')}" for job in result.dropped[:3].tolist()
    ]
    more = "; ..." if len(result.dropped) > 3 else ""
    note = f"left out because they can never run on the cluster: {'; '.join(some)}{more}"
    if len(set(counts.values())) == 1:
        return [f"{plural(len(result.dropped), 'job')} {note}."]
    each = ", ".join(f"{policy} {count:,}" for policy, count in counts.items())
    return [f"Jobs {note}. Beware, policies left out different numbers: {each}."]


def single_table(values: Values, metrics: Mapping[str, Any]) -> Table:
    """One policy's metrics, one row each, with what they mean."""
    table = plain_table("metric", "value", "what it is", right=(1,))
    table.columns[2].style = "dim"
    for name, metric in metrics.items():
        table.add_row(name, metric_text(name, values[name]), metric.description)
    return table


def named_table(kind: str, entries: Iterable[tuple[str, str]]) -> Table:
    """Names and what they are."""
    table = plain_table(kind, "what it is")
    table.columns[0].no_wrap = True
    for name, what in entries:
        table.add_row(Text(name, style="bold"), Text(what))
    return table


def rule_table(kind: str, rules: Iterable[Any]) -> Table:
    """Rules of a kind (``gpuyard.policies.heuristics.Heuristic``), and what they need."""
    table = plain_table(kind, "what it is", "needs", "source")
    table.columns[0].no_wrap = True
    table.columns[0].min_width = 16
    table.columns[1].ratio, table.columns[3].ratio = 5, 3
    table.columns[3].overflow = "fold"
    table.columns[2].no_wrap = True
    table.columns[3].style = "dim"
    table.expand = True
    for rule in rules:
        needs = [
            word
            for word, field in (("estimates", "uses_estimates"), ("preemption", "preempts"))
            if getattr(rule, field)
        ]
        name = Text(rule.form or rule.name, style="bold")
        table.add_row(name, Text(rule.summary), Text("\n".join(needs)), Text(rule.source))
    return table


def wait_table(
    waits: Iterable[Any], reasons: Mapping[str, str], moment: Callable[[float], str], *, mostly: bool
) -> Table:
    """Why a job waited, in order of time.

    Args:
        waits: Parts of the wait (``gpuyard.simulation.explain.Span``).
        reasons: Words for reasons.
        moment: A time as text.
        mostly: Whether a part stands for several reasons, of which the longest is named.
    """
    table = plain_table("from", "for", "mostly because" if mostly else "because", "for example", right=(0, 1))
    for span in waits:
        table.add_row(
            moment(span.from_s),
            duration(span.to_s - span.from_s),
            Text(reasons[span.reason], style="bold"),
            Text(span.detail),
        )
    return table


def doctor_table(checks: Iterable[Any]) -> Table:
    """Checks of the installation (``gpuyard.cli.doctor.Check``)."""
    styles = {"ok": "green", "missing": "yellow", "broken": "bold red"}
    table = plain_table("check", "status", "found", "what to do")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for check in checks:
        table.add_row(check.name, Text(check.status, style=styles[check.status]), check.found, check.advice)
    return table


def bench_table(results: Iterable[Any]) -> Table:
    """Benchmarks, each beside its peer (``BenchResult`` of ``benchmarks/harness.py``)."""
    table = plain_table("benchmark", "value", "unit", "ratio", "target", "met", "peer", right=(1, 3, 4))
    table.columns[0].overflow = "fold"
    verdicts = {None: Text("-"), True: Text("yes", style="green"), False: Text("no", style="bold red")}
    for result in results:
        bound = "<=" if result.lower_is_better else ">="
        target = "-" if result.target is None else f"{bound} {result.target:g}"
        peer = f"{result.peer}: {rough(result.peer_value)}"
        table.add_row(
            result.name,
            rough(result.value),
            result.unit,
            number(result.ratio),
            target,
            verdicts[result.met],
            peer,
        )
    return table
