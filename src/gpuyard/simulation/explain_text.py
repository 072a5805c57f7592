"""The story of a job in words, the cause first, and its wait as a short table."""

from collections.abc import Sequence
from datetime import UTC, datetime

from gpuyard.simulation.explain import JobStory, Span
from gpuyard.units import duration, plural

MOST_NAMED = 5
"""Jobs that are named one by one, at most; the rest are counted."""
MOST_PERIODS = 10
"""Rows of the table of waits, at most."""
STEPS_S = (60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000)
"""Lengths of the periods into which a wait is cut."""
MAINLY = 0.5
"""A reason that holds for more than this share of a wait is its cause."""
REASONS = {
    "too-few-free": "too few GPUs were free",
    "fragmented": "GPUs were free, but in the wrong places",
    "other-limits": "GPUs were free, but not CPUs, memory or power",
    "behind-head": "the queue stood behind a job that did not fit",
    "would-delay-head": "free GPUs were held for a job before it",
    "not-admitted": "the express lane did not admit it",
    "over-quota": "its group held all of its quota",
    "reserved": "its own reservation was for later",
    "no-reservation": "no time could be reserved for it",
}
"""Why a job waits, as a part of a sentence."""
WITHOUT_GPUS = {
    "other-limits": "too few CPUs or too little memory were free",
    "would-delay-head": "what was free was held for a job before it",
}
"""The same of jobs that ask for no GPU, where it differs."""
RULES_OUT = ("over-quota", "not-admitted", "behind-head")
"""Reasons that are causes by themselves, whoever else ran meanwhile."""


def sentences(story: JobStory) -> list[str]:
    """The story in words: what it is, the cause, how long for what, and where it ran."""
    lines = [_what(story)]
    if story.start_s > story.submit_s:
        lines += [_because(story), *_durations(story)]
    if story.overtakers:
        named = ", ".join(str(other.job) for other in story.overtakers[:MOST_NAMED])
        lines.append(f"The first to overtake it: {named}.")
    lines += [_place(story), *_stops(story)]
    if story.epoch_s is not None:
        lines.append("Dates are on the log's clock, taken as UTC.")
    return lines


def reasons(story: JobStory) -> dict[str, str]:
    """Why the job waited, as parts of sentences."""
    return REASONS if story.gpus else REASONS | WITHOUT_GPUS


def moment(story: JobStory, at_s: float) -> str:
    """A moment: a date where the log has a clock, else the time since the first submit."""
    if story.epoch_s is None:
        return duration(at_s)
    return datetime.fromtimestamp(story.epoch_s + at_s, UTC).strftime("%Y-%m-%d %H:%M")


def _what(story: JobStory) -> str:
    size = f"{story.gpus:g} {'GPU' if story.gpus == 1 else 'GPUs'}"
    size += f" on {plural(story.nodes, 'node')}" if story.nodes else ""
    size = size if story.gpus else story.needs
    waited_s = story.start_s - story.submit_s
    when = "at once" if waited_s == 0 else f"{duration(waited_s)} later, at {moment(story, story.start_s)}"
    name = str(story.job)
    begin = f"{name[0].upper()}{name[1:]} asked for {size} at {moment(story, story.submit_s)}"
    return f"{begin} and started {when}, under {story.policy.removesuffix('/consolidate')}."


def _because(story: JobStory) -> str:
    """The cause in one sentence."""
    waited_s = story.start_s - story.submit_s
    return f"It waited {duration(waited_s)}: {_cause(story)}."


def _cause(story: JobStory) -> str:
    cause, totals = story.cause, _totals(story.waits)
    asked_s = sum(totals.values())
    order, _, rest = story.policy.partition("+")
    backfill = rest.partition("/")[0].partition("+")[0]
    main = max(totals, key=lambda reason: totals[reason]) if totals else ""
    if main in RULES_OUT and totals[main] > MAINLY * asked_s:
        return reasons(story)[main]
    if cause.overtakers and cause.shares["overtakers"] >= max(cause.shares.values()):
        over = f"{plural(cause.overtakers, 'later job')} overtook it, because"
        unit = "GPU" if story.gpus else "CPU"
        held = f"; they held {100 * cause.shares['overtakers']:.0f} % of the {unit} time in use meanwhile"
        if cause.by_rank > MAINLY:
            return f"{over} {order} ranks {_them(cause.overtakers)} before it ({story.order}){held}"
        return f"{over} {backfill} let {_them(cause.overtakers)} pass ({story.backfill}){held}"
    also = f"; {plural(cause.overtakers, 'later job')} overtook it too" if cause.overtakers else ""
    if cause.earlier and cause.shares["earlier"] >= cause.shares["running"]:
        return f"{plural(cause.earlier, 'job')} that came before it went first{also}"
    if cause.shares["running"] > 0:
        return f"jobs that ran already when it came held the {'GPUs' if story.gpus else 'nodes'}{also}"
    return reasons(story).get(main, "nodes had to wake") + also


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _totals(spans: Sequence[Span]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for span in spans:
        totals[span.reason] = totals.get(span.reason, 0.0) + span.to_s - span.from_s
    return totals


def _durations(story: JobStory) -> list[str]:
    """How long for which reason, the longest first, and for whom GPUs were held."""
    totals = _totals(story.waits)
    parts = [
        f"for {duration(total_s)} {reasons(story)[reason]}{_heads(story.waits, reason)}"
        for reason, total_s in sorted(totals.items(), key=lambda item: -item[1])
    ]
    if not parts:
        return []
    about = "" if story.every == 1 else f" (asked at one of {story.every:,} decisions)"
    text = ", ".join(parts)
    return [f"{text[0].upper()}{text[1:]}{about}."]


def _heads(spans: Sequence[Span], reason: str) -> str:
    """The jobs that stood in the way longest."""
    lengths: dict[str, float] = {}
    for span in spans:
        if span.reason == reason and span.head is not None:
            name = str(span.head)
            lengths[name] = lengths.get(name, 0.0) + span.to_s - span.from_s
    if reason not in ("behind-head", "would-delay-head") or not lengths:
        return ""
    longest = sorted(lengths, key=lambda name: -lengths[name])
    more = f" and {len(longest) - 2:,} more" if len(longest) > 2 else ""
    return f" ({', '.join(longest[:2])}{more})"


def _place(story: JobStory) -> str:
    nodes = story.runs[0].nodes
    if not story.gpus:
        return f"It ran on {', '.join(f'node {node}' for node, _ in nodes[:MOST_NAMED])}."
    free = dict(story.free_before)
    parts = [
        f"{plural(gpus, 'GPU')} on node {node}, of {free.get(node, 0)} empty ones there"
        for node, gpus in nodes[:MOST_NAMED]
    ]
    more = f" and {len(nodes) - MOST_NAMED} more nodes" if len(nodes) > MOST_NAMED else ""
    rule = "as many nodes as it asked for, GPUs split evenly" if story.nodes else story.placement
    return f"It got {'; '.join(parts)}{more}. The rule: {rule}."


def _stops(story: JobStory) -> list[str]:
    lines = []
    if story.made_room:
        lines.append(f"Stopped to make room for it: {', '.join(map(str, story.made_room))}.")
    for number, run in enumerate(story.runs[:-1], start=1):
        why = f"for {run.stopped_for}" if run.stopped_for is not None else "by a failing node"
        lines.append(f"Run {number} was ended {why} at {moment(story, run.stop_s)}.")
    return lines


def periods(story: JobStory) -> list[Span]:
    """The wait in at most ten parts: the reason that held longest in each, equal neighbours joined."""
    spans = story.waits
    if len(spans) <= MOST_PERIODS:
        return list(spans)
    begin_s, end_s = spans[0].from_s, spans[-1].to_s
    length_s = end_s - begin_s
    step_s = next((step for step in STEPS_S if length_s / step <= MOST_PERIODS), length_s / MOST_PERIODS)
    found: list[Span] = []
    at_s = begin_s
    while at_s < end_s:
        to_s = min(at_s + step_s, end_s)
        main = _mainly(spans, at_s, to_s)
        if main is not None and found and found[-1].reason == main.reason and found[-1].to_s == at_s:
            found[-1] = Span(found[-1].from_s, to_s, main.reason, main.detail, main.head)
        elif main is not None:
            found.append(Span(at_s, to_s, main.reason, main.detail, main.head))
        at_s = to_s
    return found


def _mainly(spans: Sequence[Span], from_s: float, to_s: float) -> Span | None:
    """The longest span, within a period, of the reason that holds longest in it."""
    parts = [
        Span(max(span.from_s, from_s), min(span.to_s, to_s), span.reason, span.detail, span.head)
        for span in spans
        if span.from_s < to_s and span.to_s > from_s
    ]
    if not parts:
        return None
    totals = _totals(parts)
    main = max(totals, key=lambda reason: totals[reason])
    return max((part for part in parts if part.reason == main), key=lambda part: part.to_s - part.from_s)
