"""Publishing: figures of what was run here go into their files, and pages are made of these files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.account import Account
from experiments.collecting import collect
from experiments.curves import curve_panels
from experiments.index import PICTURE, front_rows, gains_of, index_page, write_headlines
from experiments.page import experiment_page, picture_of
from experiments.pictures import curves_picture, gains_picture
from experiments.published import Result, read_result, write_result
from experiments.running import Experiment
from gpuyard.errors import InputError
from gpuyard.files import atomic_write


@dataclass(frozen=True)
class Written:
    """What was published, by names of experiments.

    Attributes:
        whole: Those whose tables are all there.
        updated: Those whose figures are now those of what was run here.
        kept: Those whose figures are as they were published before.
        partly_run: Those of ``kept`` of which something was run here, but not every published table.
        missing: Those without figures.
        outdated: Those whose recipe has changed since its figures were computed.
    """

    whole: tuple[str, ...]
    updated: tuple[str, ...]
    kept: tuple[str, ...]
    partly_run: tuple[str, ...]
    missing: tuple[str, ...]
    outdated: tuple[str, ...]


def publish(
    experiments: Sequence[Experiment],
    published: Path,
    out: Path,
    readme: Path | None = None,
    *,
    force: bool = False,
) -> Written:
    """Bring files of results up to date and write all pages and pictures.

    Args:
        experiments: Finished or not. Of which nothing was run, or not all that was published, that keeps its
            figures.
        published: The folder of files of results.
        out: The folder of pages; pictures go to ``images`` beside it.
        readme: A file whose table of headlines is written, too.
        force: Replace published figures even by fewer, and leave out experiments that are not given.

    Raises:
        InputError: if there are no figures at all, results are damaged, published figures would be lost, or
            something cannot be written. But for the last, nothing is written then.
    """
    ordered = sorted(experiments, key=lambda one: (one.recipe.letter, one.name))
    before = {one.name: read_result(published / f"{one.name}.json") for one in ordered}
    found = {one.name: _new_result(one, before[one.name], force=force) for one in ordered}
    results = {name: new or before[name] for name, new in found.items()}
    if not any(results.values()):
        raise InputError(f"none of these experiments has results yet, so {out} stays as it is; run one first")
    if not force:
        _refuse_losses(ordered, results, published)
    accounts = [Account(one.name, one.recipe, results[one.name]) for one in ordered]
    for one in ordered:
        if (new := found[one.name]) is not None:
            write_result(published / f"{one.name}.json", new)
            _write_curves(one, out)
    _write_pages(accounts, out, readme)
    kept = [one for one in ordered if found[one.name] is None and before[one.name] is not None]
    return Written(
        whole=tuple(one.name for one in accounts if one.is_whole),
        updated=tuple(name for name, new in found.items() if new is not None),
        kept=tuple(one.name for one in kept),
        partly_run=tuple(one.name for one in kept if one.has_results),
        missing=tuple(name for name, result in results.items() if result is None),
        outdated=tuple(one.name for one in accounts if one.result and not one.result.is_of(one.recipe)),
    )


def _new_result(experiment: Experiment, before: Result | None, *, force: bool) -> Result | None:
    """What was run here, unless that is nothing, or less than what is published."""
    if not experiment.has_results:
        return None
    result = collect(experiment)
    there = {one.evaluations for one in result.tables}
    lost = before is not None and any(one.evaluations not in there for one in before.tables)
    return result if result.tables and (force or not lost) else None


def _refuse_losses(
    experiments: Sequence[Experiment], results: Mapping[str, Result | None], published: Path
) -> None:
    """Refuse to write pages without figures that are published.

    Raises:
        InputError: naming experiments that would lose theirs.
    """
    names = {one.name for one in experiments}
    lost = [path.stem for path in sorted(published.glob("*.json")) if path.stem not in names]
    for one in experiments:
        result, named = results[one.name], {asked.evaluations for asked in one.recipe.all_tables}
        if result is not None and any(table.evaluations not in named for table in result.tables):
            lost.append(one.name)
    if lost:
        raise InputError(
            f"{published}: pages would lose published figures of {', '.join(lost)}: their recipes are not "
            "among those given, or no longer name these tables. Give all recipes, or leave these figures out "
            "with --force. Nothing was written"
        )


def _write_pages(accounts: Sequence[Account], out: Path, readme: Path | None) -> None:
    for one in accounts:
        _write(out / f"{one.name}.md", experiment_page(one))
    _write(out / "index.md", index_page(accounts))
    if gains := gains_of(accounts):
        _write(_images(out) / PICTURE, gains_picture(gains))
    if readme is not None:
        write_headlines(front_rows(accounts), readme)


def _write_curves(experiment: Experiment, out: Path) -> None:
    if panels := curve_panels(experiment):
        title = f"Learning curves: {experiment.recipe.title}"
        _write(_images(out) / picture_of(experiment.name), curves_picture(title, panels))


def _images(out: Path) -> Path:
    return out.parent / "images"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(text.rstrip() + "\n", encoding="utf-8")
