"""Published figures: kept in files, never lost by accident; pages are made of these files alone."""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.account import Account
from experiments.cards import Figures, read_cards
from experiments.index import BEGIN, END, front_rows, index_page
from experiments.models import models_page
from experiments.page import experiment_page
from experiments.published import (
    Apart,
    Conditions,
    Result,
    Row,
    Table,
    commands_in,
    read_result,
    write_result,
)
from experiments.publishing import publish
from experiments.recipe import Recipe, read_recipe
from experiments.running import DONE, Experiment
from gpuyard.cli import main
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from support.experiment_cases import copy_of, with_seeds, with_two_times
from support.paths import DOCS, ROOT

RECIPES = sorted((ROOT / "experiments" / "recipes").glob("*.toml"))
NASTY = 'a --> b <!-- c --!> -- ---> "\\-->\\" | é'


@pytest.fixture
def three(finished: Experiment, tmp_path: Path) -> list[Experiment]:
    """Experiments with results of their own, in another order than the front page's."""
    results = tmp_path / "results"
    return [
        copy_of(finished, results / "last", letter="d", title=NASTY, conclusion="", did_not_work=""),
        with_two_times(finished, results / "middle", letter="c"),
        with_gains(finished, results / "first"),
    ]


def with_gains(finished: Experiment, here: Path) -> Experiment:
    """A copy whose first table has a headline and seeds that are better than the reference."""
    names = {"headline": "One time", "front": "One time", "learned": "ppo"}
    headed = finished.recipe.table[0].model_copy(update=names)
    copy = copy_of(finished, here, table=(headed, finished.recipe.table[1]))
    shutil.rmtree(here / "test")
    comparison = with_seeds(Comparison.read(finished.here / "test"), (0.9, 0.8, 0.7))
    replace(comparison, classes=comparison.classes.clear()).write(here / "test")
    return copy


class Place:
    """Where a test publishes."""

    def __init__(self, folder: Path) -> None:
        self.figures, self.pages, self.readme = folder / "json", folder / "docs" / "results", folder / "R.md"
        self.readme.write_text(f"before\n\n{BEGIN}\n{END}\nafter\n")
        self.folder = folder

    def publish(self, *experiments: Experiment, force: bool = False):
        return publish(experiments, self.figures, self.pages, self.readme, force=force)

    def page(self, name: str) -> str:
        return (self.pages / f"{name}.md").read_text(encoding="utf-8")

    def files(self) -> dict[str, bytes]:
        found = (*self.folder.glob("json/*"), *self.folder.glob("docs/**/*.*"), self.readme)
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "place").mkdir()
    return Place(tmp_path / "place")


def forget(*experiments: Experiment) -> None:
    """As in a fresh clone."""
    for one in experiments:
        shutil.rmtree(one.here)


def other(experiment: Experiment, **changes: object) -> Experiment:
    """The same with another recipe, of which nothing is done."""
    return replace(experiment, recipe=experiment.recipe.model_copy(update=changes))


# --- What is kept ---


@pytest.mark.parametrize("gone", [("first",), ("middle",), ("last",), ("first", "middle", "last")])
def test_pages_are_the_same_bytes_without_what_was_run(
    three: list[Experiment], place: Place, gone: tuple[str, ...]
) -> None:
    assert place.publish(*three).updated == ("first", "middle", "last")
    before = place.files()
    assert set(before) >= {
        *("json/first.json", "docs/results/index.md", "docs/results/middle.md"),
        *("docs/images/results.svg", "docs/images/results-middle.svg"),
    }
    rows = re.findall(r"^\| (\w+ times?) \|", before["R.md"].decode(), re.MULTILINE)
    assert rows == ["One time", "Two times"]
    assert b">+20." in before["docs/images/results.svg"]
    forget(*(one for one in three if one.name in gone))
    (place.pages.parent / "images" / "results.svg").unlink()
    written = place.publish(*three)
    assert (written.whole, written.kept, written.missing) == (("first", "middle", "last"), gone, ())
    assert written.partly_run == ()
    assert place.files() == before


def test_what_was_run_in_part_does_not_replace_what_is_published(
    three: list[Experiment], place: Place
) -> None:
    place.publish(*three)
    before = place.files()
    (three[1].here / DONE / "test.json").unlink()
    written = place.publish(*three)
    assert (written.kept, written.partly_run) == (("middle",), ("middle",))
    assert place.files() == before
    forced = place.publish(*three, force=True)
    assert (forced.whole, forced.kept) == (("first", "last"), ())
    assert "Not complete. Still to be run: Windows; Both." in " ".join(place.page("middle").split())


def test_a_second_run_replaces_what_is_published(finished: Experiment, tmp_path: Path, place: Place) -> None:
    one = copy_of(finished, tmp_path / "one")
    place.publish(one)
    comparison = Comparison.read(one.here / "test")
    setting = replace(comparison.setting, workload="other_jobs")
    shutil.rmtree(one.here / "test")
    replace(comparison, setting=setting).write(one.here / "test")
    assert place.publish(one).updated == ("one",)
    assert "of the test part of other\\_jobs" in place.page("one")
    assert '"workload": "other_jobs"' in (place.figures / "one.json").read_text()


def test_tables_that_were_never_run_are_named_and_stay_so(
    finished: Experiment, tmp_path: Path, place: Place
) -> None:
    one = copy_of(finished, tmp_path / "one")
    (one.here / DONE / "draws.json").unlink()
    assert place.publish(one).whole == ()
    before = place.files()
    assert "Not complete. Still to be run: Draws." in place.page("one")
    forget(one)
    assert place.publish(one).kept == ("one",)
    assert place.files() == before


@pytest.mark.parametrize("conclusion", ["Other words.", "", "Several.\n\n**Cost** is a word.\n\n- A list.\n"])
def test_prose_is_that_of_the_recipe_as_it_is_now(
    finished: Experiment, tmp_path: Path, place: Place, conclusion: str
) -> None:
    one = copy_of(finished, tmp_path / "one")
    place.publish(one)
    figures = (place.figures / "one.json").read_bytes()
    forget(one)
    words = {"conclusion": conclusion, "did_not_work": "Something else.", "title": "New", "about": "Newer."}
    assert place.publish(other(one, **words)).outdated == ()
    page = place.page("one")
    assert page.startswith("# New\n\nNewer.\n")
    assert "Something else." in page
    assert conclusion.strip() in page
    assert (place.figures / "one.json").read_bytes() == figures


# --- What would be lost, or is no longer true ---


def with_step(recipe: Recipe, number: int, **changes: object) -> dict[str, object]:
    """The change of one step of a recipe."""
    steps = list(recipe.step)
    steps[number] = steps[number].model_copy(update=changes)
    return {"step": tuple(steps)}


@pytest.mark.parametrize("change", ["argument", "seeds"])
def test_figures_of_other_commands_are_kept_and_marked_as_such(
    finished: Experiment, tmp_path: Path, place: Place, change: str
) -> None:
    one = copy_of(finished, tmp_path / "one")
    place.publish(one)
    forget(one)
    recipe = one.recipe
    changes = (
        with_step(recipe, 2, run=(*recipe.step[2].run, "--verbose"))
        if change == "argument"
        else with_step(recipe, 1, each={"seed": (3, 4)})
    )
    caveat = "The recipe has changed since"
    assert caveat not in place.page("one")
    written = place.publish(other(one, **changes))
    assert (written.kept, written.outdated) == (("one",), ("one",))
    assert caveat in place.page("one")


def test_how_many_commands_run_at_once_changes_no_figures(finished: Experiment) -> None:
    recipe = finished.recipe
    steps = tuple(step.model_copy(update={"at_once": 2}) for step in recipe.step)
    assert commands_in(recipe.model_copy(update={"step": steps})) == commands_in(recipe)


def test_published_tables_that_a_recipe_no_longer_names_are_not_dropped(
    finished: Experiment, tmp_path: Path, place: Place
) -> None:
    one = copy_of(finished, tmp_path / "one")
    place.publish(one)
    forget(one)
    changed, before = other(one, table=one.recipe.table[:1]), place.files()
    with pytest.raises(InputError, match=r"would lose published figures of one: .*--force"):
        place.publish(changed)
    assert place.files() == before
    assert place.publish(changed, force=True).whole == ("one",)


def test_figures_of_experiments_that_are_not_given_are_not_dropped(
    finished: Experiment, tmp_path: Path, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.publish(finished, copy_of(finished, tmp_path / "one"))
    before = place.files()
    recipe, results = finished.here.parents[1] / "tiny.toml", finished.here.parent
    command = ["experiments", "page", str(recipe), "--results", str(results), "--out", str(place.pages)]
    command += ["--published", str(place.figures)]
    assert main(command) == 2
    assert "would lose published figures of one" in capsys.readouterr().err
    assert place.files() == before
    assert main([*command, "--force"]) == 0
    assert "one.md" not in place.page("index")
    assert (place.figures / "one.json").is_file(), "figures are only left out, not removed"


# --- The files ---


def test_all_numbers_survive(tmp_path: Path) -> None:
    rows = (
        Row(label=NASTY, kind="learned", value=0.1 / 3, difference=apart(-0.1 / 3, -1e300, None), seeds=5),
        Row(label="b", kind="heuristic", value=1e-17, difference=apart(None, None, None), is_reference=True),
    )
    test = Conditions(kind="draws", part="test", workload=NASTY, windows=3, jobs=7, estimates="exact")
    table = Table(evaluations=("a", "b"), metric="return", test=test, rows=rows, learned=NASTY)
    result = Result(steps=({"name": "a", "run": ["train"]},), tables=(table,), minutes=2.5)
    write_result(tmp_path / "a.json", result)
    assert read_result(tmp_path / "a.json") == result
    assert read_result(tmp_path / "b.json") is None


def apart(ratio: float | None, low: float | None, high: float | None) -> Apart:
    return Apart(ratio=ratio, low=low, high=high, verdict="tie")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"tables": [', '"tables": '),
        ('"format": 1', '"format": 2'),
        ('"metric": ', '"metrik": '),
        ('"value": ', '"value": "x", "values": '),
    ],
)
def test_a_damaged_file_is_refused_and_named(
    finished: Experiment, tmp_path: Path, place: Place, old: str, new: str
) -> None:
    place.publish(finished)
    path = place.figures / "tiny.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    before = place.files()
    with pytest.raises(InputError, match=r"tiny\.json: is damaged .*or run tiny again"):
        place.publish(replace(finished, here=tmp_path / "nothing"))
    assert place.files() == before


# --- The project's own ---


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_projects_pages_are_those_of_its_files(path: Path) -> None:
    account = own_account(path)
    assert account.result is not None
    assert account.result.is_of(account.recipe), "published with other commands than the recipe has now"
    assert account.is_whole
    page = (DOCS / "results" / f"{path.stem}.md").read_text(encoding="utf-8")
    assert page == experiment_page(account), "run gpuyard experiments page"
    prose = [line for line in page.splitlines() if not line.startswith(("|", "!", "    "))]
    assert max(map(len, prose)) <= 100
    assert not set("†‡§◇") & set(page)


def test_the_projects_front_page_is_short_and_its_headlines_are_the_readmes() -> None:
    accounts = sorted(map(own_account, RECIPES), key=lambda one: (one.recipe.letter, one.name))
    page = (DOCS / "results" / "index.md").read_text(encoding="utf-8")
    assert page == index_page(accounts), "run gpuyard experiments page"
    assert len(page.splitlines()) <= 80
    rows = front_rows(accounts)
    assert 2 + 2 <= len(rows) <= 2 + 5
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    inside = readme.partition(BEGIN)[2].partition(END)[0]
    assert inside.strip().splitlines() == rows, "run gpuyard experiments page --readme README.md"


def test_the_projects_page_of_models_is_that_of_their_cards() -> None:
    cards = read_cards(ROOT / "src" / "gpuyard" / "models")
    assert (DOCS / "models.md").read_text(encoding="utf-8") == models_page(cards)


def own_account(path: Path) -> Account:
    result = read_result(ROOT / "experiments" / "results" / f"{path.stem}.json")
    return Account(path.stem, read_recipe(path), result)


# --- The command line ---


def test_the_command_names_what_it_updated_and_what_has_no_figures(
    finished: Experiment, tmp_path: Path, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = finished.here.parents[1] / "tiny.toml"
    kept, missing = (Path(shutil.copy(recipe, tmp_path / f"{name}.toml")) for name in ("kept", "missing"))
    results = Path(shutil.copytree(finished.here.parent, tmp_path / "results"))
    shutil.copytree(results / "tiny", results / "kept")
    command = ["experiments", "page", str(recipe), str(kept)]
    where = ["--results", str(results), "--out", str(place.pages), "--published", str(place.figures)]
    assert main([*command, *where]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{place.pages}: 2 experiments with all tables"
    assert second == "updated from what was run here: kept, tiny"
    shutil.rmtree(results / "kept")
    assert main([*command, str(missing), *where]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "updated from what was run here: tiny",
        "without figures: missing",
    ]
    assert main([*command, str(missing), *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "pages": str(place.pages),
        "whole": ["kept", "tiny"],
        "updated": ["tiny"],
        "kept": ["kept"],
        "partly_run": [],
        "missing": ["missing"],
        "outdated": [],
    }


def test_without_the_source_tree_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuyard.cli import experiments as cli

    monkeypatch.delitem(sys.modules, "experiments")
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "lib" / "gpuyard" / "cli" / "experiments.py"))
    assert main(["experiments", "check"]) == 2
    assert "part of the source tree, not of the installed package" in capsys.readouterr().err


# --- Caveats ---


def test_a_recipe_that_was_changed_after_its_test_has_a_caveat_also_if_kept(
    three: list[Experiment], place: Place
) -> None:
    place.publish(*three)
    forget(*three)
    place.publish(*(other(one, changed_after_test=one.name == "first") for one in three))
    told = {one.name: "changed after test figures had been seen" in place.page(one.name) for one in three}
    assert told == {"first": True, "middle": False, "last": False}


@pytest.mark.parametrize(("disjoint", "weak"), [(4.2, True), (12.0, False)])
def test_weak_intervals_are_unclear_everywhere(
    finished: Experiment, tmp_path: Path, place: Place, disjoint: float, weak: bool
) -> None:
    one = with_gains(finished, tmp_path / "results" / "one")
    comparison = Comparison.read(one.here / "test")
    shutil.rmtree(one.here / "test")
    replace(comparison, setting=replace(comparison.setting, disjoint=disjoint)).write(one.here / "test")
    place.publish(one)
    headline = next(line for line in place.readme.read_text().splitlines() if "One time" in line)
    assert ("], unclear |" in headline) == weak
    picture = (place.pages.parent / "images" / "results.svg").read_text(encoding="utf-8")
    assert ('class="better"' in picture) != weak
    card = Figures.of(Comparison.read(one.here / "test"), comparison.policy("ppo-0"))
    assert card.difference is not None
    assert (card.difference.verdict == "unclear") == weak
    page = " ".join(place.page("one").split())
    assert bool(re.search(r"\*\*Windows\.\*\* 6 windows.{0,50} are too few for a verdict", page)) == weak
    index = " ".join(place.page("index").split())
    # The three draws are too few in any case.
    assert "unclear in 1, where windows are few" in index
