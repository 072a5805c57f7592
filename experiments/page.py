"""The page of results, docs/results/index.md: every figure comes from what experiments left behind."""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.cells import (
    cell,
    code,
    difference_text,
    plain,
    result_table,
    verdict_text,
    where_text,
)
from experiments.curves import curve_panels
from experiments.headlines import write_headlines
from experiments.overview import gains_of, headlines_of, link_to, overview, record_of
from experiments.pictures import curves_picture, gains_picture
from experiments.published import DID_NOT_WORK, Account, Published, Record, anchor_line, what_it_says
from experiments.recipe import TRACES, Together, commands_of
from experiments.running import Experiment
from experiments.shown import IN_HINDSIGHT, Shown, show_all
from experiments.standings import resampled_interval_of, standing
from gpuyard.errors import InputError
from gpuyard.evaluate.wording import by_window_in_words, who_loses_in_words
from gpuyard.files import atomic_write
from gpuyard.report.words import percent

IMAGES = "images"
MODELS_PAGE = "models.md"

EACH_TIME = "Each time has its own training and its own reference, both from what lies before it."

OPENING = """# Results

Written by `gpuyard experiments page` from the files that experiments left behind: tables, pictures and
sentences with intervals are made of these alone; "What it says" and "What did not work" are written by
people.
[Experiments](experiments.md) says how to repeat all of it.

## What was asked

Can a policy that was trained on a cluster's past beat every fixed heuristic on its future, with the same
information and the same placement, and what does it cost? On traces and on Lublin's model training is
held to mean completion times at most 2 % above those of a good heuristic; what became of that on the test
stands beside every gain.

## How it was measured

- **Held-out time.** A workload is cut by time: training sees its first 60 %, choices are made on the next
  20 %, figures are of the last 20 %. Generators draw test jobs from seeds that neither training nor
  validation ever uses.
- **Paired windows.** All policies run the same windows, each from an empty cluster, so differences are of
  policies and not of jobs.
- **Intervals.** 95 %, of the relative difference of means, by a paired circular block bootstrap over windows
  ({resamples:,} resamples): neighbouring windows overlap and are resampled together, and intervals are wider
  where windows are few ([how](evaluation.md#intervals)). An interval that includes zero is called a tie.
  Intervals are of the jobs: how training runs differ is in the range over seeds, not in them.
- **The reference** is, unless a table says otherwise, the best of all fixed heuristics: every order that does
  not preempt and goes by the same information, with `strict`, `greedy` and `easy` backfill, and the two
  best orders with `easy-sjf` and `conservative` ([which](evaluation.md#what-is-compared)). It is chosen on
  validation windows, or on other draws than those shown. The heuristic that turned out best on the test
  itself stands beside it.
- **The test comes last**: models and settings are chosen on validation. Where a recipe was changed after its
  test figures were seen, "What did not work" says so. {mark} marks a policy that was picked among several by
  the very figures shown, which flatters it.
- **Repeatable.** The same command gives the same figures on the same machine. Simulation, search and
  evolution of rules have given the same ones on every machine so far, as episodes are run natively. Networks
  trained by gradient (`ppo`, `d3qn`, `sac`) depend on the kind of processor: others round sums differently,
  and after some thousand samples a run is another one, as if its seed were
  ([more](experiments.md#repeating-figures)).
- **What a gain may have been bought with** stands beside it: mean completion time (JCT) with its interval,
  the 99th percentile and the maximum of waiting, and which jobs fare worse.

"""


@dataclass(frozen=True)
class Written:
    """What a page has, by names of experiments.

    Attributes:
        whole: Those whose tables are all there.
        kept: Those of which nothing was run here, and which stand as they were published before.
        missing: Those of which nothing was run here, and nothing could be kept.
    """

    whole: tuple[str, ...]
    kept: tuple[str, ...]
    missing: tuple[str, ...]


def write_page(
    experiments: Sequence[Experiment], out: Path, readme: Path | None = None, *, force: bool = False
) -> Written:
    """Write the page of results and its pictures.

    Args:
        experiments: Finished or not: what is not is said. Of which nothing was run, that keeps what the page
            said of it before, if its recipe is still the same.
        out: The page; pictures go to ``images`` beside it.
        readme: A file whose table of headlines is written too.
        force: Also if figures of an experiment that the page has would be lost.

    Returns:
        What it has.

    Raises:
        InputError: if there are neither results nor anything to keep, or damaged ones, if published figures
            would be lost, or if something cannot be written.
    """
    ordered = sorted(experiments, key=lambda one: (one.recipe.letter, one.name))
    published, idle = Published.read(out), [one for one in ordered if not one.has_results]
    kept = {one.name: account for one in idle if (account := published.account(one)) is not None}
    if not kept and len(idle) == len(ordered):
        raise InputError(f"none of these experiments has results yet, so {out} stays as it is; run one first")
    tables = {one.name: show_all(one) for one in ordered if one.name not in kept}
    if not force:
        _refuse_losses(published, {*kept, *(name for name, shown in tables.items() if _has_figures(shown))})
    accounts = [kept.get(one.name) or _account(one, tables[one.name], out) for one in ordered]
    rows = [row for one in accounts for row in one.record.rows]
    picture = f"{IMAGES}/{out.stem}.svg"
    if gains := gains_of(rows):
        _write(out.parent / picture, gains_picture(gains))
    parts = [_opening(), overview(accounts, picture), *(one.section for one in accounts)]
    _write(out, "\n".join([*parts, _what_did_not_work(ordered)]))
    if readme is not None:
        write_headlines(headlines_of(accounts), readme)
    return Written(
        whole=tuple(one.experiment.name for one in accounts if one.is_whole),
        kept=tuple(kept),
        missing=tuple(one.name for one in idle if one.name not in kept),
    )


def _has_figures(tables: Sequence[Shown]) -> bool:
    return any(table.comparison is not None for table in tables)


def _refuse_losses(published: Published, there: AbstractSet[str]) -> None:
    """Refuse to write a page without figures that it has now.

    Args:
        published: The page as it is.
        there: Experiments that have figures.

    Raises:
        InputError: naming experiments that would lose theirs.
    """
    if lost := [name for name in published.with_figures() if name not in there]:
        raise InputError(
            f"{published.path}: would lose the published figures of {', '.join(lost)}: there are no results "
            "of them here, and their recipes have changed or are not among those given; run them, give all "
            "recipes as they were, or drop the figures with --force. Nothing was written"
        )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(text.rstrip() + "\n", encoding="utf-8")


def _opening() -> str:
    from gpuyard.evaluate.bootstrap import RESAMPLES

    return OPENING.format(resamples=RESAMPLES, mark=IN_HINDSIGHT)


# --- One experiment ---


def _account(experiment: Experiment, tables: Sequence[Shown], out: Path) -> Account:
    record = record_of(experiment, tables)
    return Account(experiment, _section(experiment, tables, record, out), record)


def _section(experiment: Experiment, tables: Sequence[Shown], record: Record, out: Path) -> str:
    recipe = experiment.recipe
    lines = [anchor_line(experiment), *([record.comment()] if record.shown else []), ""]
    lines += [f"## ({recipe.letter}) {recipe.title}", "", recipe.about.strip(), ""]
    lines += _what_is_missing(experiment)
    for table in tables:
        lines += _table_part(table)
    lines += _curves(experiment, out)
    lines += what_it_says(recipe)
    for table in tables:
        lines += _losers(table, several=len(tables) > 1)
    lines += [*_models(experiment, out), *_cost(experiment)]
    needs = any(TRACES in argument for command in recipe.commands() for argument in command.arguments)
    traces = " --traces TRACES" if needs else ""
    lines += ["Again:", "", f"    gpuyard experiments run experiments/{experiment.name}.toml{traces}", ""]
    return "\n".join(lines)


def _what_is_missing(experiment: Experiment) -> list[str]:
    states: dict[str, list[str]] = {"missing": [], "changed": []}
    for step in experiment.recipe.step:
        commands = commands_of(step)
        for state, names in states.items():
            count = sum(experiment.state(command) == state for command in commands)
            if count:
                names.append(
                    step.name if count == len(commands) else f"{step.name} ({count} of {len(commands)})"
                )
    words = {"missing": "still to be run", "changed": "run with other arguments than the recipe has now"}
    told = [f"{words[state]}: {', '.join(names)}" for state, names in states.items() if names]
    return [f"**Not complete.** {'; '.join(told).capitalize()}.", ""] if told else []


def _table_part(shown: Shown) -> list[str]:
    lines = [f"### {shown.table.title}", ""]
    if shown.table.note.strip():
        lines += [shown.table.note.strip(), ""]
    if shown.comparison is None:
        return [*lines, "Not run yet, or run with other arguments than the recipe has now.", ""]
    each = f" {EACH_TIME}" if isinstance(shown.table, Together) else ""
    lines += [where_text(shown.comparison) + each, "", *result_table(shown.comparison, shown.rows), ""]
    return [*lines, *_by_window(shown), *_against_hindsight(shown), *_before_widening(shown)]


def _by_window(shown: Shown) -> list[str]:
    """Whether a few windows carry the difference."""
    comparison, best = shown.comparison, shown.best
    told = by_window_in_words(comparison, best.policies) if comparison and best else ""
    return [f"{code(best.label)} is {re.sub(r'-(?=[0-9])', '−', told)}.", ""] if told and best else []


def _against_hindsight(shown: Shown) -> list[str]:
    """How the learned policy stands against the heuristic that nobody could have known to be the best."""
    comparison, best = shown.comparison, shown.best
    if comparison is None or best is None or comparison.hindsight in (None, comparison.reference):
        return []
    hindsight = comparison.policy(str(comparison.hindsight))
    entries = [comparison.policy(name) for name in best.policies]
    found = standing(replace(comparison, reference=hindsight.name), entries)
    if found.difference is None:
        return []
    return [
        f"Against {code(hindsight.label)}, the fixed heuristic that was best on these very windows, "
        f"{code(best.label)} is at {difference_text(found.difference)}: {verdict_text(found)}.",
        "",
    ]


def _before_widening(shown: Shown) -> list[str]:
    """Where the plain bootstrap would have called a tie a win: what it says, and that it is too narrow."""
    comparison, best = shown.comparison, shown.best
    if comparison is None or best is None or best.verdict != "tie":
        return []
    ends = resampled_interval_of(comparison, best.policies)
    if ends is None or ends[0] <= 0.0 <= ends[1]:
        return []
    return [
        f"Of {code(best.label)} resampling alone gives [{percent(ends[0])}, {percent(ends[1])}], which "
        f"excludes zero; for the {comparison.setting.disjoint:.1f} windows side by side that these amount to "
        "it is too narrow ([why](evaluation.md#intervals)), so we call it a tie.",
        "",
    ]


def _losers(shown: Shown, *, several: bool) -> list[str]:
    comparison, best = shown.comparison, shown.best
    if comparison is None or best is None or comparison.reference is None or not len(comparison.classes):
        return []
    entries = (comparison.policy(best.policies[0]), comparison.policy(comparison.reference))
    words = who_loses_in_words(replace(comparison, policies=entries))
    title = f"Who loses ({shown.table.title})" if several else "Who loses"
    return [f"**{title}.** {plain(' '.join(words))}", ""] if words else []


def _models(experiment: Experiment, out: Path) -> list[str]:
    names = [code(f"model:{one.name}") for one in experiment.recipe.model]
    if not names:
        return []
    page = "[its card]" if len(names) == 1 else "[their cards]"
    cards = f" ({page}({MODELS_PAGE}))" if (out.parent / MODELS_PAGE).is_file() else ""
    return [f"**Comes with gpuyard** as {', '.join(names)}{cards}.", ""]


def _curves(experiment: Experiment, out: Path) -> list[str]:
    panels = curve_panels(experiment)
    if not panels:
        return []
    title, name = f"Learning curves: {experiment.recipe.title}", f"{out.stem}-{experiment.name}.svg"
    _write(out.parent / IMAGES / name, curves_picture(title, panels))
    return [f"![{cell(title)}]({IMAGES}/{name})", ""]


def _cost(experiment: Experiment) -> list[str]:
    parts = []
    for step in experiment.recipe.step:
        minutes = experiment.minutes(step.name)
        count = sum(experiment.state(command) != "missing" for command in commands_of(step))
        if minutes:
            runs = f" ({count} runs)" if count > 1 else ""
            parts.append(f"{step.name}{runs} {minutes:.1f}")
    if not parts:
        return []
    return [f"**Cost** in minutes of commands: {', '.join(parts)}; {experiment.minutes():.1f} in all.", ""]


def _what_did_not_work(experiments: Sequence[Experiment]) -> str:
    told = [one for one in experiments if one.recipe.did_not_work.strip()]
    if not told:
        return ""
    lines = [DID_NOT_WORK, ""]
    for one in told:
        lines += [f"**({one.recipe.letter})** {link_to(one)}:", "", one.recipe.did_not_work.strip(), ""]
    return "\n".join(lines)
