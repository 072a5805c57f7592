"""The front page of results, ``docs/results/index.md``, and the README's table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.account import Account
from experiments.caveats import METHOD
from experiments.markdown import apart_text, cell, code, table, verdict_text, wrapped
from experiments.page import IMAGES
from experiments.pictures import Gain
from experiments.published import Row, Table
from experiments.recipe import Table as Asked
from experiments.recipe import Together
from gpuyard.errors import InputError
from gpuyard.evaluate.setting import lower_is_better
from gpuyard.files import atomic_write
from gpuyard.report.words import percent
from gpuyard.units import metric_text, plural

BEGIN = "<!-- The next table is written by gpuyard experiments page. -->"
END = "<!-- End of the table. -->"
PICTURE = "results.svg"

OPENING = """
For everyone who asks whether another policy, or a trained one, is worth it. Two kinds of experiments:

- **Logs of clusters.** A rule is searched for on a cluster's past and compared on its future with what runs
  today (`fifo+easy`), with the information that a scheduler really has, on windows that begin on a busy
  cluster, and in a replay of the whole later part. It is recommended only if it also keeps
  [limits on waits](../guide/evaluate.md#limits-on-waits).
- **Benchmarks of the literature**, for trained networks and rules: episodes that begin empty, by their
  definition, with run times that are known exactly. They say how well training works. They are no advice for
  a cluster.
"""
UNDER_THE_TABLE = """
Means of the bounded slowdown over 40 windows of 1,024 jobs. In one go: the same in a replay of the whole
later part. Every page also has the best fixed heuristic, chosen beforehand and in hindsight, and what exact
run times would be worth.
"""
LIMITS = """
- **One log of four gets a recommendation**: an order with ageing, so that no job waits without end. Elsewhere
  what gains breaks the limits, or nothing gains.
- **No trained model is recommended for a log.** [Those of earlier versions](withdrawn.md) starve jobs on a
  busy cluster, or lose to what runs today, and are withdrawn.
- **What it costs.** Long jobs pay for short ones within the limits: the 99th percentile of no class of jobs
  rises by more than a quarter, and the longest wait by no more than half.
- **Do windows say what a replay says?** [Nearly always](agreement.md).
- **Does a live agent hold on a real Slurm?** [10,000 jobs while it is killed again and again](serve.md).
- **Does a simulated "today" wait as the real one did?** [Fairly on a real Slurm, poorly on most
  public logs](calibration.md). [Job by job](fidelity.md) a simulated Slurm is about as far from the real one
  as that is from itself.
- **Chance.** Intervals show how jobs differ. One experiment takes {minutes} on two cores.
"""

ALL_EXPERIMENTS = f"""
The first test of each. Every page has all tests, caveats, costs and what did not work. See also
[how figures are measured]({METHOD}) and [the models that come with gpuyard](../models.md).
"""


def index_page(accounts: Sequence[Account]) -> str:
    """The front page: the headlines, what they are worth, and where the rest is."""
    lines = ["# Results", "", *wrapped(OPENING)]
    if front := front_rows(accounts):
        lines += [*front, "", *wrapped(UNDER_THE_TABLE), *wrapped(LIMITS.format(minutes=_minutes(accounts)))]
    lines += [
        *_tally(accounts),
        "## All experiments",
        "",
        *wrapped(ALL_EXPERIMENTS),
    ]
    headers = ("experiment", "difference [95 %]", "in one go", "advice or verdict")
    lines += table(headers, [_line(one) for one in accounts])
    if gains_of(accounts):
        lines += [f"![Gains over the reference, with intervals]({IMAGES}/{PICTURE})", ""]
    return "\n".join(lines).rstrip() + "\n"


def _minutes(accounts: Sequence[Account]) -> str:
    known = [one.result.minutes for one in accounts if one.result]
    return f"{min(known):.0f} to {max(known):.0f} minutes"


def _line(account: Account) -> tuple[str, str, str, str]:
    link = f"[{cell(account.recipe.title)}]({account.name}.md)"
    best = next((found.best for _, found in account.known() if found.best), None)
    if best is None:
        return link, "-", "-", "not complete"
    whole = "-" if best.whole_change is None else percent(best.whole_change)
    return link, apart_text(best.difference), whole, cell(best.advice) or verdict_text(best)


def _tally(accounts: Sequence[Account]) -> list[str]:
    """How often the learned policy is better, and how often not."""
    told = Counter(
        best.difference.verdict
        for _, _, found, best in _learned(accounts)
        if best.difference and found.test.kind in ("draws", "episodes")
    )
    words = {
        "better": "better in {}",
        "tie": "tied in {}",
        "worse": "worse in {}",
        "unclear": "unclear in {}, where windows are few",
        "": "without a verdict in {} of one window each",
    }
    parts = [text.format(told[verdict]) for verdict, text in words.items() if told[verdict]]
    if not parts:
        return []
    tests = plural(sum(told.values()), "test")
    return wrapped(
        f"Of {tests} on benchmarks of the literature the trained policy is {', '.join(parts)}. Tests are not "
        "independent: several are of the same jobs."
    )


def _learned(accounts: Sequence[Account]) -> Iterator[tuple[Account, Asked | Together, Table, Row]]:
    for account in accounts:
        for asked, found in account.known():
            if found.best is not None:
                yield account, asked, found, found.best


# --- The README's table ---


def front_rows(accounts: Sequence[Account]) -> list[str]:
    """The lines of the table of headlines; none if no recipe has one."""
    rows = []
    for _, asked, found, best in _learned(accounts):
        if asked.front:
            reference = found.reference
            other = "-" if reference is None else _mean(found, reference)
            doubt = {"tie": ", a tie", "unclear": ", unclear"}
            told = doubt.get(best.difference.verdict, "") if best.difference else ""
            difference = apart_text(best.difference) + told
            whole, said = percent(best.whole_change), cell(best.advice) or "-"
            rows.append((cell(asked.front), other, _mean(found, best), difference, whole, said))
    headers = ("", "today", "rule", "difference [95 %]", "in one go", "advice")
    return table(headers, rows)[:-1] if rows else []


def _mean(found: Table, row: Row) -> str:
    return f"{metric_text(found.metric, row.value)} ({code(row.label)})"


def write_headlines(lines: Sequence[str], readme: Path) -> None:
    """Put a table between two marks in a file.

    Args:
        lines: Those of ``front_rows``.
        readme: The file; everything outside the marks stays.

    Raises:
        InputError: if the file cannot be read or does not have the marks.
    """
    try:
        text = readme.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{readme}: {error.strerror}") from None
    begin, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise InputError(f"{readme}: expected the lines {BEGIN} and {END}, between which the table goes")
    with atomic_write(readme) as temporary:
        temporary.write_text("\n\n".join([begin + BEGIN, "\n".join(lines), END + after]), encoding="utf-8")


# --- The picture ---


def gains_of(accounts: Sequence[Account]) -> list[Gain]:
    """What the picture of gains shows: tables with a headline, or all if none has one."""
    known = [(asked, gain) for one in _learned(accounts) if (gain := _gain(*one)) for asked in one[1:2]]
    return [gain for asked, gain in known if asked.headline] or [gain for _, gain in known]


def _gain(account: Account, asked: Asked | Together, found: Table, best: Row) -> Gain | None:
    apart = best.difference
    if apart is None or apart.ratio is None:
        return None
    lower = lower_is_better(found.metric, (found.metric,))
    sign = -1.0 if lower else 1.0
    ends = [None if end is None else sign * end for end in (apart.low, apart.high)]
    low, high = ends[::-1] if lower else ends
    who = f"{best.label} against {found.reference.label if found.reference else '?'}"
    several = len(account.recipe.table) > 1
    return Gain(
        asked.headline or f"({account.recipe.letter}) {account.recipe.title}",
        f"{asked.title}: {who}" if several and not asked.headline else who,
        sign * apart.ratio,
        low,
        high,
        apart.verdict,
    )
