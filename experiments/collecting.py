"""From comparisons that an experiment left behind to the records that are published."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from experiments import published
from experiments.curves import curve_panels
from experiments.published import Conditions, Cost, Hindsight, Losers, Result, Row, commands_in, finite
from experiments.recipe import Table, Together, commands_of
from experiments.running import Experiment
from experiments.standings import entry_of_run, ranked, resampled_interval_of, standing, standings
from experiments.together import together
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from gpuyard.evaluate.bootstrap import usable_block
from gpuyard.evaluate.findings import by_window, worst_of_each_class
from gpuyard.evaluate.setting import UNFINISHED
from gpuyard.evaluate.wording import MOST_LOSERS, class_words, where_chosen
from gpuyard.policies.base import RECORDED
from gpuyard.registry import suggest

MOST_UNFINISHED = 5


@dataclass(frozen=True)
class Shown:
    """A comparison with the learned policy that stands for it.

    Attributes:
        evaluations: Folders that it comes from.
        comparison: What was found there.
        rows: Its standings.
        best: The learned policy that stands for it; None without one.
        picked: Whether that was picked by these very figures.
    """

    evaluations: tuple[str, ...]
    comparison: Comparison
    rows: tuple[Row, ...]
    best: Row | None = None
    picked: bool = False


def collect(experiment: Experiment) -> Result:
    """All that can be published of what was run here.

    Raises:
        InputError: if results are damaged, have no row of the name that the recipe gives, or cannot be put
            together.
    """
    recipe = experiment.recipe
    found = {one.evaluation: show(experiment, one) for one in recipe.table}
    tables = [one for one in found.values() if one is not None]
    tables += [one for asked in recipe.together if (one := _show_together(experiment, asked, found))]
    return Result(
        steps=tuple(commands_in(recipe)),
        tables=tuple(map(_table, tables)),
        cost=tuple(_costs(experiment)),
        minutes=experiment.minutes(),
        has_curves=bool(curve_panels(experiment)),
    )


def show(experiment: Experiment, table: Table) -> Shown | None:
    """The comparison of a table; None if it is not there yet.

    The policy that stands for it is the one that the recipe names, else the shipped one, else the best.

    Raises:
        InputError: if results are damaged, or have no row of the name that the recipe gives.
    """
    try:
        experiment.check_done(table.evaluation)
    except InputError:
        return None
    comparison = Comparison.read(experiment.here / table.evaluation)
    shown = Shown((table.evaluation,), comparison, tuple(standings(comparison)))
    shipped = [one.run for one in experiment.recipe.model if one.evaluation == table.evaluation]
    if table.learned or shipped:
        label = table.learned or entry_of_run(comparison, shipped[0]).label
        best = _row_of(experiment, shown, label)
        rows = shown.rows if best in shown.rows else tuple(ranked(comparison, (*shown.rows, best)))
        return replace(shown, rows=rows, best=best)
    others = [row for row in shown.rows if comparison.reference not in row.policies]
    learned = [row for row in others if row.kind == "learned"] or [
        row for row in others if row.kind == "tuned"
    ]
    return replace(shown, best=learned[0] if learned else None, picked=len(learned) > 1)


def _row_of(experiment: Experiment, shown: Shown, label: str) -> Row:
    """The row of this label; one of several seeds that share a row has one of its own."""
    found = next((row for row in shown.rows if row.label == label), None)
    if found is not None:
        return found
    alone = {entry.label: entry for entry in shown.comparison.shown}
    if label not in alone:
        known = dict.fromkeys([*alone, *(row.label for row in shown.rows)])
        raise InputError(
            f"{experiment.name}: table {shown.evaluations[0]}: learned = {label!r} is none of its rows"
            f"{suggest(label, known)}"
        )
    return standing(shown.comparison, [alone[label]])


def _show_together(
    experiment: Experiment, asked: Together, tables: Mapping[str, Shown | None]
) -> Shown | None:
    parts = []
    for name, label in zip(asked.tables, asked.learned, strict=True):
        one = tables[name]
        if one is None:
            return None
        parts.append((one.comparison, _row_of(experiment, one, label)))
    try:
        comparison = together(parts)
    except InputError as error:
        raise InputError(f"{experiment.name}: {' and '.join(asked.tables)}: {error}") from None
    rows = tuple(standings(comparison))
    return Shown(asked.tables, comparison, rows, next(row for row in rows if row.kind == "learned"))


# --- One table ---


def _table(shown: Shown) -> published.Table:
    comparison, best = shown.comparison, shown.best
    reference = comparison.reference
    if reference is None:
        chosen = ""
    else:
        by_choice = comparison.chosen_on == "validation"
        given = "chosen in the recipe" if comparison.whole is None else "taken as what runs today"
        today = "what the log recorded" if reference == RECORDED else given
        chosen = f"best on {where_chosen(comparison)}" if by_choice else today
    return published.Table(
        evaluations=shown.evaluations,
        metric=comparison.setting.metric,
        test=_test(comparison),
        chosen=chosen,
        rows=shown.rows,
        learned=None if best is None else best.label,
        is_picked=shown.picked,
        by_window=None if best is None else by_window(comparison, best.policies),
        hindsight=None if best is None else _hindsight(comparison, best),
        resampled=None if best is None else _before_widening(comparison, best),
        losers=None if best is None else _losers(comparison, best),
    )


def _test(comparison: Comparison) -> Conditions:
    setting = comparison.setting
    count = len(setting.windows)
    return Conditions(
        kind=setting.kind,
        part=setting.part,
        workload=setting.workload,
        windows=count,
        jobs=setting.jobs_per_window,
        estimates=setting.estimates_in_words,
        block=usable_block(setting.block, count) if setting.block > 1 else 1,
        disjoint=setting.disjoint,
        is_weak=setting.has_weak_intervals,
        left_out=setting.left_out,
        unfinished=_unfinished(comparison),
        is_cold=setting.is_cold,
        differences="geometric",
    )


def _unfinished(comparison: Comparison) -> dict[str, float]:
    if UNFINISHED not in comparison.windows.columns:
        return {}
    known = [one for one in comparison.shown if comparison.knows(one.name, UNFINISHED)]
    means = {one.label: comparison.mean(one.name, UNFINISHED) for one in known}
    worst = sorted(means.items(), key=lambda one: -one[1])[:MOST_UNFINISHED]
    return dict(worst) if any(means.values()) else {}


def _hindsight(comparison: Comparison, best: Row) -> Hindsight | None:
    if comparison.hindsight in (None, comparison.reference):
        return None
    other = comparison.policy(str(comparison.hindsight))
    entries = [comparison.policy(name) for name in best.policies]
    found = standing(replace(comparison, reference=other.name), entries)
    if found.difference is None:
        return None
    return Hindsight(label=other.label, difference=found.difference, better=found.better)


def _before_widening(comparison: Comparison, best: Row) -> tuple[float, float] | None:
    """Where resampling alone would have called a tie a win: what it says."""
    is_tie = best.difference is not None and best.difference.verdict == "tie"
    ends = resampled_interval_of(comparison, best.policies) if is_tie else None
    return None if ends is None or ends[0] <= 0.0 <= ends[1] else ends


def _losers(comparison: Comparison, best: Row) -> Losers | None:
    if comparison.reference is None or not len(comparison.classes) or len(comparison.setting.windows) < 2:
        return None
    policy = comparison.policy(best.policies[0])
    worst = worst_of_each_class(comparison.who_loses(policy.name))
    return Losers(
        of=policy.label,
        classes=tuple(
            published.Loser(
                jobs=class_words(one.by, one.name),
                metric=one.metric,
                value=one.difference.own,
                reference=one.difference.other,
                change=finite(one.difference.ratio),
            )
            for one in worst[:MOST_LOSERS]
        ),
        more=max(0, len(worst) - MOST_LOSERS),
    )


def _costs(experiment: Experiment) -> list[Cost]:
    costs = []
    for step in experiment.recipe.step:
        if minutes := experiment.minutes(step.name):
            runs = sum(experiment.state(command) != "missing" for command in commands_of(step))
            costs.append(Cost(step=step.name, runs=runs, minutes=minutes))
    return costs
