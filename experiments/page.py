"""The page of one experiment, ``docs/results/NAME.md``: figures first, then what they are worth."""

from collections.abc import Iterable
from dataclasses import replace

from experiments.account import Account
from experiments.caveats import caveats
from experiments.markdown import (
    apart_text,
    cell,
    code,
    plain,
    table,
    value_text,
    verdict_text,
    wait_text,
    whole_text,
    wrapped,
)
from experiments.published import Row, Table
from experiments.recipe import TRACES, Together
from experiments.recipe import Table as Asked
from gpuyard.evaluate.wording import TERMINAL
from gpuyard.units import metric_label, metric_text, plural

IMAGES = "../images"
NOTATION = replace(TERMINAL, times="×", minus="−")


def experiment_page(account: Account) -> str:
    """All that is published of an experiment, as Markdown."""
    recipe = account.recipe
    lines = [f"# {recipe.title}", "", *wrapped(recipe.about)]
    lines += ["## Figures", "", *_overview(account)]
    if recipe.conclusion.strip():
        lines += ["## What they say", "", *wrapped(recipe.conclusion)]
    lines += ["## Caveats", "", *_bullets(caveats(account))]
    for asked, found in account.tables():
        lines += _table_part(asked, found)
    if account.result and account.result.has_curves:
        title = f"Learning curves: {recipe.title}"
        lines += ["## Learning curves", "", f"![{cell(title)}]({IMAGES}/{picture_of(account.name)})", ""]
    if recipe.did_not_work.strip():
        lines += ["## What did not work", "", *wrapped(recipe.did_not_work)]
    return "\n".join([*lines, *_repeat(account)]).rstrip() + "\n"


def picture_of(name: str) -> str:
    """The file of an experiment's learning curves."""
    return f"results-{name}.svg"


# --- All tests at a glance ---


def _overview(account: Account) -> list[str]:
    headers = ["test", "metric", "today", "learned", "difference [95 %]", "in one go", "advice"]
    headers += ["completion time [95 %]"]
    rows = []
    for asked, found in account.known():
        if (best := found.best) is None:
            continue
        reference = found.reference
        rows.append(
            [
                cell(asked.title),
                metric_label(found.metric),
                "-" if reference is None else _named(reference, found.metric),
                _named(best, found.metric),
                apart_text(best.difference),
                whole_text(best, found.metric),
                cell(best.advice) or verdict_text(best),
                apart_text(best.jct) or "-",
            ]
        )
    if not rows:
        return wrapped("There are no figures of a learned policy yet.")
    told = (
        "Differences are relative to what runs today. In one go: the whole part replayed. Completion time is "
        "its mean, compared in the same way."
    )
    if any(found.test.differences == "geometric" for _, found in account.known()):
        told += " They are geometric means of the ratios of windows."
    return [*table(headers, rows), *wrapped(told)]


def _named(row: Row, metric: str) -> str:
    return f"{code(row.label)} {metric_text(metric, row.value)}"


def _bullets(texts: Iterable[str]) -> list[str]:
    return [*(line for text in texts for line in wrapped(f"- {text}")[:-1]), ""]


# --- One test ---


def _table_part(asked: Asked | Together, found: Table | None) -> list[str]:
    lines = [f"## {asked.title}", "", *(wrapped(asked.note) if asked.note.strip() else [])]
    if found is None:
        return [*lines, *wrapped("Not run yet, or run with other arguments than the recipe has now.")]
    lines += wrapped(_where(found, is_together=isinstance(asked, Together)))
    return [*lines, *_rows(found), *wrapped(_sentences(found)), *_losers(found)]


def _where(found: Table, *, is_together: bool) -> str:
    test, workload = found.test, plain(found.test.workload)
    jobs = plural(test.jobs, "job")
    places = {
        "windows": f"{plural(test.windows, 'window')} of {jobs} of the {test.part} part of {workload}",
        "whole": f"The {test.part} part of {workload} as one window of {jobs}",
        "draws": f"{test.windows:,} fresh draws of {workload} with {jobs} each",
        "episodes": f"{test.windows:,} episodes of {workload} with {jobs} each",
    }
    parts = [f"{places[test.kind]}; estimates: {test.estimates}."]
    if found.reference is not None:
        parts.append(f"Reference: {code(found.reference.label)}, {found.chosen}.")
    if is_together:
        parts.append("Each time has its own training and its own reference, both from the time before it.")
    if test.kind in ("windows", "draws") and not test.is_cold:
        parts.append("Windows begin on a busy cluster.")
    if test.block > 1:
        parts.append(f"Windows overlap and are resampled in blocks of {test.block}.")
    if test.left_out:
        parts.append(f"{plural(test.left_out, 'job')} that can never run on the cluster are left out.")
    return " ".join(parts)


def _rows(found: Table) -> list[str]:
    beside = {"whole": "in one go", "jct": "completion time [95 %]", "mean_wait_s": "mean wait"}
    beside |= {"p99_wait_s": "p99 wait", "max_wait_s": "max wait"}
    beside = {
        name: header
        for name, header in beside.items()
        if any(getattr(row, name) is not None for row in found.rows)
    }
    headers = ["policy", "role", "advice", metric_label(found.metric), "difference [95 %]", *beside.values()]
    rows = [
        [
            code(row.label),
            _role(row),
            cell(row.advice) or verdict_text(row),
            value_text(row, found.metric),
            apart_text(row.difference),
            *(_beside(row, name, found.metric) for name in beside),
        ]
        for row in found.rows
    ]
    return table(headers, rows, numbers=2 + len(beside))


def _beside(row: Row, name: str, metric: str) -> str:
    if name == "whole":
        return whole_text(row, metric)
    return apart_text(row.jct) if name == "jct" else wait_text(getattr(row, name))


def _role(row: Row) -> str:
    kinds = {"learned": "learned", "tuned": "tuned rule", "heuristic": ""}
    parts = ["reference" if row.is_reference else kinds[row.kind]]
    parts += ["best that preempts"] if row.preempts else []
    parts += [f"{row.seeds} seeds"] if row.seeds > 1 else []
    parts += ["best on earlier windows"] if row.is_best_beforehand else []
    parts += ["best in hindsight"] if row.is_best_in_hindsight else []
    return ", ".join(filter(None, parts))


def _sentences(found: Table) -> str:
    best, count, these = found.best, found.test.windows, found.test.these
    parts = []
    if best is not None and (window := found.by_window) is not None:
        parts.append(
            f"{code(best.label)} is ahead in {window.ahead:,} of {count:,} {these} and behind in "
            f"{window.behind:,}. In the median one the difference is {_change(window.median)}. Without the "
            f"one that favours it most, the means are {_change(window.without_best)} apart."
        )
    if best is not None and (other := found.hindsight) is not None:
        against = Row(
            label=best.label,
            kind=best.kind,
            seeds=best.seeds,
            value=best.value,
            difference=other.difference,
            better=other.better,
        )
        parts.append(
            f"Compared with {code(other.label)}, the heuristic that turned out best on these {these}, "
            f"{code(best.label)} is at {apart_text(other.difference)}: {verdict_text(against)}."
        )
    return "\n\n".join(parts)


def _change(ratio: float | None) -> str:
    return "-" if ratio is None else NOTATION.change(ratio)


def _losers(found: Table) -> list[str]:
    losers, reference = found.losers, found.reference
    if losers is None or reference is None:
        return []
    if not losers.classes:
        return wrapped(
            f"No class of jobs is clearly worse off with {code(losers.of)} than with {code(reference.label)}."
        )
    rows = [
        [
            plain(one.jobs),
            metric_label(one.metric),
            metric_text(one.metric, one.value),
            metric_text(one.metric, one.reference),
            _change(one.change),
        ]
        for one in losers.classes
    ]
    more = f" {losers.more} more classes are worse off." if losers.more else ""
    weak = ", by weak intervals" if found.test.is_weak else ""
    told = f"Jobs that are clearly worse off with {code(losers.of)} than with the reference{weak}.{more}"
    headers = ["jobs", "metric", code(losers.of), code(reference.label), "difference"]
    return [*wrapped(told), *table(headers, rows, numbers=3)]


# --- What it takes to repeat it ---


def _repeat(account: Account) -> list[str]:
    recipe, result = account.recipe, account.result
    lines = ["## Cost, and how to repeat it", ""]
    if result and result.cost:
        steps = [
            f"{one.step}{f' ({one.runs} runs)' if one.runs > 1 else ''} {one.minutes:.1f}"
            for one in result.cost
        ]
        lines += wrapped(f"Minutes per step: {', '.join(steps)}; {result.minutes:.1f} in all.")
    needs = any(TRACES in argument for command in recipe.commands() for argument in command.arguments)
    traces = " --traces TRACES" if needs else ""
    lines += [f"    gpuyard experiments run experiments/recipes/{account.name}.toml{traces}", ""]
    names = [code(f"model:{one.name}") for one in recipe.model]
    if names:
        lines += wrapped(f"Comes with gpuyard: {', '.join(names)} ([cards](../models.md)).")
    return lines
