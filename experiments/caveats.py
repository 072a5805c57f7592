"""Caveats of an experiment's figures, a sentence or two each."""

from collections.abc import Iterator

from experiments.account import Account
from experiments.markdown import code
from experiments.published import Conditions, Row, Table
from gpuyard.report.words import percent
from gpuyard.units import metric_text

MOST_JCT = 0.02
"""By how much a mean completion time may rise for the sake of another metric."""
METHOD = "../guide/experiments.md#how-figures-are-measured"
INTERVALS = "../guide/evaluate.md#intervals"


def caveats(account: Account) -> Iterator[str]:
    """Those of the whole experiment, then those of its tests, as Markdown."""
    yield from _of_the_experiment(account)
    known = account.known()
    for asked, found in known:
        for text in _of_a_test(found):
            yield f"**{asked.title}.** {text}" if len(known) > 1 else text


def is_longer(row: Row, test: Conditions) -> bool:
    """Whether completion times are clearly longer than a gain may cost."""
    return row.jct is not None and row.jct.low is not None and row.jct.low > MOST_JCT and not test.is_weak


def _of_the_experiment(account: Account) -> Iterator[str]:
    missing = [asked.title for asked, found in account.tables() if found is None]
    if missing:
        yield f"Not complete. Still to be run: {'; '.join(missing)}."
    if account.result is not None and not account.result.is_of(account.recipe):
        yield "The recipe has changed since: its commands are no longer those that gave these figures."
    if account.recipe.changed_after_test:
        yield 'Steps were changed after test figures had been seen. "What did not work" says how.'
    if any(found.test.kind in ("windows", "draws") and found.test.is_cold for _, found in account.known()):
        yield (
            "Every window begins with an empty cluster. In a cluster that never empties, holding GPUs back "
            "costs more ([what became of such rules](withdrawn.md))."
        )
    seeds = any(row.seeds > 1 for _, found in account.known() for row in found.rows)
    others = " How training runs differ is in the range over seeds, not in the intervals." if seeds else ""
    yield f"Intervals show how jobs differ ([how figures are measured]({METHOD})).{others}"


def _of_a_test(found: Table) -> Iterator[str]:
    test, best = found.test, found.best
    if test.is_weak:
        overlap = f" that overlap, worth {test.disjoint:.1f} that do not" if test.disjoint else ""
        yield f"{test.windows} {test.these}{overlap}, are too few for a verdict: it is `unclear`."
    if found.is_picked and best is not None:
        yield f"{code(best.label)} was picked among several by the figures shown here, which flatters it."
    if longer := [code(row.label) for row in found.rows if row.kind != "heuristic" and is_longer(row, test)]:
        yield (
            "Completion times are clearly longer, the whole interval lies above "
            f"+{100 * MOST_JCT:g} %: {', '.join(longer)}."
        )
    if found.resampled is not None and best is not None:
        low, high = map(percent, found.resampled)
        worth = f"windows worth {test.disjoint:.1f} that do not overlap" if test.disjoint else "few windows"
        yield (
            f"Resampling alone gives {code(best.label)} [{low}, {high}], which excludes zero. For {worth} "
            f"that is too narrow ([why]({INTERVALS})), so it is called a tie."
        )
    if test.unfinished:
        most = (f"{code(label)} {metric_text('jobs', mean)}" for label, mean in test.unfinished.items())
        yield (
            "Episodes were cut off before all jobs had ended, and waits count only jobs that had. Jobs left "
            f"unfinished per episode: {', '.join(most)}."
        )
