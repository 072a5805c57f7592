"""A live scheduler on a terminal: how the agent is, why a job waits, replays, and the shadow report.

Names come from the cluster, so nothing of them may move the cursor or be read as markup.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gpuyard.runs.progress import printable
from gpuyard.serve.journal.replay import Difference, ReplayReport
from gpuyard.serve.records import PHASES
from gpuyard.terminal.tables import plain_table
from gpuyard.units import duration, plural

MOST_ROWS = 10
MOST_NAMES = 6
MOST_RANKED = 30
STALE_ROUNDS = 5
"""A last round older than this many intervals is alarming."""
GOOD, WARNING, BAD = "green", "yellow", "bold red"
MODES = {"shadow": "cyan", "advise": "cyan", "canary": "yellow", "active": "green"}
MODES |= dict.fromkeys(("halted", "dead"), BAD)

Fact = tuple[str, Text | str]


def show_status(console: Console, status: Mapping[str, Any]) -> None:
    """Print how the agent is; see ``status_panel``."""
    console.print(status_panel(status))


def watch_status(console: Console, ask: Callable[[], Mapping[str, Any]], every_s: float = 1.0) -> None:
    """Show how the agent is, again and again, until Ctrl-C."""
    from rich.live import Live

    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(status_panel(ask()), refresh=True)
            time.sleep(every_s)


def status_panel(status: Mapping[str, Any]) -> Panel:
    """How the agent is; a live display may be updated with it.

    Args:
        status: As ``/v1/status`` answers. All keys may be missing: ``mode``, ``control``, ``policy``,
            ``model``, ``source``; ``decider``, ``cause`` and ``words`` of the last round; its ``round``
            (number), ``age_s`` and ``interval_s``; ``pending``, ``left``, ``held``, ``running`` jobs,
            ``oldest_wait_s``; ``gpus`` and ``gpus_in_use``, ``closed_nodes``; ``agreement`` with the
            scheduler's starts and ``baseline_agreement``, shares; ``fallbacks`` (rounds); ``would_start`` and
            ``refused`` (numbers); ``timings_s`` by phase, each a number or a table with ``p50`` and ``p99``.
            Sentences that alarm: ``alarms``, ``errors``, ``why_not``, ``journal``.
    """
    alarms = _alarms(status)
    parts: list[RenderableType] = [_facts(_status_facts(status))]
    parts += [Text(f"! {printable(alarm)}", style=BAD) for alarm in alarms]
    if timings := _timings(status.get("timings_s") or {}):
        parts += ["", timings]
    mode = printable(status.get("mode", "unknown"))
    title = Text.assemble(("gpuyard serve  ", "bold"), (mode, MODES.get(mode, "")))
    style = BAD if alarms else "dim"
    return Panel(Group(*parts), title=title, title_align="left", box=box.ROUNDED, border_style=style)


def _alarms(status: Mapping[str, Any]) -> list[str]:
    said = [status.get("why_not"), *(status.get("errors") or ()), *(status.get("alarms") or ())]
    halted = "halted: every job is the scheduler's" if status.get("halted") else ""
    return list(dict.fromkeys(printable(one) for one in (*said, status.get("journal"), halted) if one))


def _status_facts(status: Mapping[str, Any]) -> Iterable[Fact]:
    model = printable(status.get("model"))[:12]
    served = f"{printable(status.get('policy'))}{f' ({model})' if model else ''}"
    yield "policy", f"{served}, control {printable(status.get('control', 'order'))}"
    yield "cluster", printable(status.get("source")) or "not observed yet"
    yield "decided by", _decider(status)
    yield "last round", _last_round(status)
    yield "queue", _queue(status)
    if status.get("held") is not None:
        yield "held by the agent", plural(status["held"], "job")
    if status.get("acts_on") is not None:
        yield "acts on", f"{status['acts_on']:,} of {plural(status.get('pending') or 0, 'waiting job')}"
    if status.get("gpus"):
        used = status.get("gpus_in_use") or 0
        yield "GPUs in use", f"{used:,} of {status['gpus']:,} ({_percent(used / status['gpus'], 0)})"
    if status.get("closed_nodes"):
        yield "closed", plural(status["closed_nodes"], "node")
    if status.get("agreement") is not None:
        yield "agrees with starts", _agreement(status["agreement"], status.get("baseline_agreement"))
    if status.get("would_start") is not None:
        refused = plural(status.get("refused") or 0, "action")
        guarded = f", {refused} refused by the guard" if status.get("refused") else ""
        yield "would start now", f"{plural(status['would_start'], 'job')}{guarded}"


def _decider(status: Mapping[str, Any]) -> Text:
    decider = printable(status.get("decider", "nobody"))
    style = {"policy": GOOD, "fallback": WARNING}.get(decider, "")
    words = printable(status.get("words")) or printable(status.get("cause"))
    text = Text.assemble((f"the {decider}" if decider != "nobody" else "nobody", style))
    text.append(f": {words}" if words else "")
    if status.get("fallbacks"):
        text.append(f"; the fallback in {plural(status['fallbacks'], 'round')} so far", style="dim")
    return text


def _last_round(status: Mapping[str, Any]) -> Text:
    if status.get("age_s") is None:
        return Text("none yet", style=WARNING)
    stale = status["age_s"] > STALE_ROUNDS * (status.get("interval_s") or 1.0)
    number = f"number {status['round']:,}, " if status.get("round") else ""
    return Text(f"{number}{duration(status['age_s'])} ago", style=BAD if stale else "")


def _queue(status: Mapping[str, Any]) -> str:
    parts = [f"{plural(status.get('pending') or 0, 'job')} waiting"]
    if status.get("left"):
        parts.append(f"{status['left']:,} of them left to the scheduler")
    if status.get("running") is not None:
        parts.append(f"{status['running']:,} running")
    if status.get("oldest_wait_s") is not None:
        parts.append(f"the oldest for {duration(status['oldest_wait_s'])}")
    return ", ".join(parts)


def _agreement(policy: float, baseline: float | None) -> str:
    return _percent(policy) + ("" if baseline is None else f" (the fallback: {_percent(baseline)})")


def _timings(timings: Mapping[str, Any]) -> Table | None:
    """Times of the phases of a round, side by side."""
    phases = [name for name in PHASES if name in timings]
    if not phases:
        return None
    split = any(isinstance(timings[name], Mapping) for name in phases)
    table = plain_table("time per round", *phases, right=range(1, len(phases) + 1))
    for row in ("p50", "p99") if split else ("last",):
        table.add_row(row, *(_timing(timings[name], row) for name in phases))
    return table


def _timing(value: Any, row: str) -> str:
    seconds = value.get(row) if isinstance(value, Mapping) else value
    return "-" if seconds is None else duration(seconds)


def show_replay(console: Console, report: ReplayReport) -> None:
    """Print what a replay found."""
    console.print(Text(_replay_headline(report), style=GOOD if report.agrees else WARNING))
    if report.policy:
        console.print(_facts(_shift_facts(report)))
    if report.differences:
        console.print("", _difference_table(report.differences[:MOST_ROWS]), sep="\n")
        if report.differing > MOST_ROWS:
            console.print(f"and {plural(report.differing - MOST_ROWS, 'round')} more")
    for note in report.notes:
        console.print(printable(note), style="dim")


def _replay_headline(report: ReplayReport) -> str:
    if not report.rounds:
        return "No round to decide again."
    rounds = plural(report.rounds, "round")
    failed = f"; {report.failed:,} could not be decided" if report.failed else ""
    if report.policy:
        share = _percent(report.same_share or 0.0)
        return f"{printable(report.policy)} starts the same jobs in {share} of {rounds}{failed}."
    if report.agrees:
        return f"All of {rounds} are decided as recorded, to the last bit."
    return f"{report.differing:,} of {rounds} differ from what is recorded{failed}."


def _shift_facts(report: ReplayReport) -> Iterable[Fact]:
    changes = [one.change_s for one in report.shifts if one.change_s is not None]
    yield from _change_facts(changes)
    never = sum(one.wanted_s is None for one in report.shifts)
    waiting = sum(one.started_s is None for one in report.shifts)
    yield "not wanted before", f"{plural(never, 'job')} started that it wanted in no round"
    yield "not started", f"{plural(waiting, 'job')} that it would have started did not start in the journal"


def _change_facts(changes: Sequence[float]) -> Iterable[Fact]:
    earlier = sorted(-change for change in changes if change < 0)
    later = sorted(change for change in changes if change > 0)
    for name, found in (("earlier", earlier), ("later", later)):
        typical = f", median {duration(found[len(found) // 2])}" if found else ""
        yield f"wanted {name}", f"{plural(len(found), 'job')}{typical}"


def _difference_table(differences: Sequence[Difference]) -> Table:
    table = plain_table("round", "time, s", "by", "only recorded", "only replayed", "besides", right=(0, 1))
    for one in differences:
        besides = [
            *(["order or scores"] if one.order_differs else []),
            *([f"other nodes: {names(one.moved)}"] if one.moved else []),
            *([printable(one.error)] if one.error else []),
        ]
        table.add_row(
            f"{one.number:,}",
            f"{one.at_s:,.1f}",
            one.decider,
            Text(names(one.recorded)),
            Text(names(one.replayed)),
            Text("; ".join(besides)),
        )
    return table


def show_order(console: Console, order: Mapping[str, Any]) -> None:
    """Print the waiting jobs as the policy ranks them, as ``/v1/order`` answers."""
    if order.get("round") is None:
        console.print("No round yet.")
        return
    starts = {one["job"] for one in order["starts"]}
    ranked = order["order"]
    by = f"{printable(order['policy'])}, decided by the {printable(order['decider'])}"
    console.print(f"Round {order['round']:,}: {plural(len(ranked), 'job')} ranked by {by}")
    table = plain_table("place", "job", "GPUs", "has waited", "score", "", right=(0, 2, 3, 4))
    for one in ranked[:MOST_RANKED]:
        score = "-" if one["score"] is None else f"{one['score']:.6g}"
        now = "would start now" if one["job"] in starts else ""
        job = Text(printable(one["job"]))
        table.add_row(f"{one['place']:,}", job, f"{one['gpus']:,}", duration(one["waited_s"]), score, now)
    if ranked:
        console.print(table)
    if len(ranked) > MOST_RANKED:
        console.print(f"and {plural(len(ranked) - MOST_RANKED, 'job')} more")
    reasons: dict[str, list[str]] = {}
    for one in order["left"]:
        reasons.setdefault(printable(one["why"]), []).append(printable(one["job"]))
    for why, jobs in reasons.items():
        more = f" and {len(jobs) - MOST_ROWS:,} more" if len(jobs) > MOST_ROWS else ""
        console.print(f"left to the scheduler ({why}): {', '.join(jobs[:MOST_ROWS])}{more}", style="dim")


def show_explanation(console: Console, explanation: Mapping[str, Any]) -> None:
    """Print why a job waits, behind whom, and when it will start, as ``explain_job`` has it."""
    job = printable(explanation.get("job"))
    console.print(Text.assemble((f"Job {job}: ", "bold"), printable(explanation.get("sentence"))))
    console.print(_facts(_explanation_facts(explanation)))
    blocking = explanation.get("blocking") or []
    if blocking:
        console.print("", _blocking_table(blocking[:MOST_ROWS], explanation.get("at_s")), sep="\n")


def _explanation_facts(explanation: Mapping[str, Any]) -> Iterable[Fact]:
    asks = explanation.get("asks") or {}
    if asks:
        nodes = f" on {plural(asks['nodes'], 'node')}" if asks.get("nodes") else ""
        yield "asks for", f"{plural(asks.get('gpus') or 0, 'GPU')}{nodes}"
    if explanation.get("decided_by"):
        yield "decided by", printable(explanation["decided_by"])
    free = explanation.get("free")
    if free:
        on_nodes = plural(free["nodes"], "node")
        yield (
            "free for it",
            f"{free['gpus']:,} GPUs on {on_nodes}, at most {free['most_on_one_node']:,} on one",
        )
    if explanation.get("waited_s") is not None:
        yield "has waited", duration(explanation["waited_s"])
    if explanation.get("place") is not None:
        yield "place", f"{explanation['place']:,} of {explanation['queue_length']:,}"
    ahead = explanation.get("ahead") or []
    if ahead:
        listed = names([one["job"] for one in ahead], total=(explanation.get("place") or 1) - 1)
        yield "behind", f"{listed} ({explanation.get('ahead_gpus', 0):,} GPUs)"
    yield "will start", _start_text(explanation.get("forecast"), explanation.get("at_s"))


def _start_text(forecast: Mapping[str, Any] | None, now_s: float | None) -> str:
    """In how long; times of day would need to know where the reader is."""
    eta = forecast.get("eta") if forecast else None
    if not eta or now_s is None or eta.get("mid_s") is None:
        reason = printable(forecast.get("reason")) if forecast else ""
        return f"unknown: {reason}" if reason else "unknown"
    low, mid, high = (
        None if eta.get(name) is None else duration(max(0.0, eta[name] - now_s))
        for name in ("low_s", "mid_s", "high_s")
    )
    between = f" (between {low} and {high})" if low and high else f" (not before {low})" if low else ""
    return f"in {mid}{between}"


def _blocking_table(blocking: Sequence[Mapping[str, Any]], now_s: float | None) -> Table:
    table = plain_table("waits for", "GPUs", "ends in at most", right=(1, 2))
    for one in blocking:
        ends_s = one.get("ends_by_s")
        table.add_row(
            Text(printable(one.get("job"))),
            f"{one.get('gpus', 0):,}",
            "unknown" if ends_s is None or now_s is None else duration(max(ends_s - now_s, 0.0)),
        )
    return table


def show_shadow(console: Console, report: Mapping[str, Any]) -> None:
    """Print what the policy wanted and what the scheduler did, as ``ShadowReport.to_json`` has it."""
    console.print(_facts(_shadow_facts(report)))
    times = [one for one in report["times"] if one["change_s"]]
    largest = sorted(times, key=lambda one: -abs(one["change_s"]))[:MOST_ROWS]
    if largest:
        console.print("", _times_table(largest, len(times)), sep="\n")
    if report["predictions"]:
        console.print("", _prediction_table(report["predictions"]), sep="\n")
    if report["missing"]:
        console.print("", Text("What this cannot tell", style="bold"), sep="\n")
        for sentence in report["missing"]:
            console.print(f"- {printable(sentence)}")


def _shadow_facts(report: Mapping[str, Any]) -> Iterable[Fact]:
    yield "policy", names(report["policies"]) or "none"
    span = "" if report["first_s"] is None else f" over {duration(report['last_s'] - report['first_s'])}"
    decided = f"{report['decided']:,} decided by the policy"
    yield "rounds", f"{report['rounds']:,}{span}, {decided}"
    yield "jobs", f"{report['jobs']:,}, of which the scheduler started {report['starts']:,}"
    if report["agreement"] is None:
        yield "agreement", "nothing to compare"
    else:
        of = f"of {plural(report['compared'], 'start')}"
        yield "wanted by the policy", f"{_percent(report['agreement'])} {of}"
        yield "wanted by the fallback", f"{_percent(report['baseline_agreement'])} {of}"
    yield (
        "the policy wanted",
        (
            f"{plural(report['wanted'], 'job')}: {report['wanted_soon']:,} started soon, "
            f"{report['wanted_later']:,} later, {report['wanted_never']:,} not yet"
        ),
    )
    for name, key in (("start order", "order"), ("at equal size", "order_same_size")):
        pairs = report[key]
        if pairs["correlation"] is not None:
            count = plural(pairs["agree"] + pairs["disagree"], "pair")
            yield name, f"rank correlation {pairs['correlation']:.3f} ({count})"
    yield from _change_facts([one["change_s"] for one in report["times"] if one["change_s"] is not None])


def _times_table(times: Sequence[Mapping[str, Any]], total: int) -> Table:
    title = f"largest of {plural(total, 'change')}"
    table = plain_table(title, "the policy would have started it", right=())
    for one in times:
        change = one["change_s"]
        words = f"{duration(abs(change))} {'later' if change > 0 else 'earlier'}"
        table.add_row(Text(printable(one["job"])), words)
    return table


def _prediction_table(predictions: Mapping[str, Mapping[str, Any]]) -> Table:
    table = plain_table(
        "start predicted under", "jobs", "median error", "p90", "bias", "inside", right=range(1, 6)
    )
    for by, error in predictions.items():
        inside = "-" if error["inside"] is None else _percent(error["inside"], 0)
        errors = (duration(error[name]) for name in ("median_s", "p90_s", "bias_s"))
        table.add_row(
            {"policy": "the policy", "current": "today's"}.get(by, by), f"{error['jobs']:,}", *errors, inside
        )
    return table


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def names(jobs: Sequence[Any], total: int | None = None) -> str:
    """Some names, and how many more there are."""
    shown = [printable(job) for job in jobs[:MOST_NAMES]]
    more = (len(jobs) if total is None else total) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _facts(rows: Iterable[Fact]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows:
        table.add_row(Text(name, style="bold"), value if isinstance(value, Text) else Text(value))
    return table
