"""What the page keeps of experiments whose results are not there."""

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments import headlines
from experiments.cards import Figures
from experiments.page import write_page
from experiments.pictures import Gain
from experiments.published import BEGIN, END, Published, Record, Row, fingerprint
from experiments.recipe import Recipe
from experiments.running import DONE, Experiment
from gpuyard.cli import main
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from support.experiment_cases import copy_of, finished_experiment, with_seeds, with_two_times
from support.paths import DOCS, ROOT

NASTY = 'a --> b <!-- c --!> -- ---> "\\-->\\" | é'


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """The experiment, run once for all tests here."""
    return finished_experiment(tmp_path_factory.mktemp("experiments"))


@pytest.fixture
def three(finished: Experiment, tmp_path: Path) -> list[Experiment]:
    """Experiments with results of their own, in another order than the page's."""
    results = tmp_path / "results"
    return [
        copy_of(finished, results / "last", letter="d", title=NASTY, conclusion="", did_not_work=""),
        with_two_times(finished, results / "middle", letter="c"),
        with_gains(finished, results / "first"),
    ]


def with_gains(finished: Experiment, here: Path) -> Experiment:
    """A copy whose first table has a headline and seeds that are better than the reference."""
    headed = finished.recipe.table[0].model_copy(update={"headline": "One time", "learned": "ppo"})
    copy = copy_of(finished, here, table=(headed, finished.recipe.table[1]))
    shutil.rmtree(here / "test")
    comparison = with_seeds(Comparison.read(finished.here / "test"), (0.9, 0.8, 0.7))
    replace(comparison, classes=comparison.classes.clear()).write(here / "test")
    return copy


def written_files(out: Path) -> dict[str, bytes]:
    """All that lies beside a page."""
    return {str(path.relative_to(out.parent)): path.read_bytes() for path in out.parent.rglob("*.*")}


def forget(*experiments: Experiment) -> None:
    """As in a fresh clone."""
    for one in experiments:
        shutil.rmtree(one.here)


def other(experiment: Experiment, **changes: object) -> Experiment:
    """The same with another recipe, of which nothing is done."""
    return replace(experiment, recipe=experiment.recipe.model_copy(update=changes))


# --- What is kept ---


@pytest.mark.parametrize("gone", [("first",), ("middle",), ("last",), ("first", "middle", "last")])
def test_the_pages_are_the_same_bytes_without_results(
    three: list[Experiment], tmp_path: Path, gone: tuple[str, ...]
) -> None:
    out, readme = tmp_path / "docs" / "results.md", tmp_path / "docs" / "README.md"
    out.parent.mkdir()
    readme.write_text(f"before\n\n{headlines.BEGIN}\n{headlines.END}\nafter\n")
    assert write_page(three, out, readme).kept == ()
    before = written_files(out)
    assert set(before) >= {"results.md", "README.md", "images/results.svg", "images/results-middle.svg"}
    assert re.findall(r"^\| (\w+ times?) \|", before["README.md"].decode(), re.MULTILINE) == [
        "One time",
        "Two times",
    ]
    assert b">+20." in before["images/results.svg"]
    forget(*(one for one in three if one.name in gone))
    (tmp_path / "docs" / "images" / "results.svg").unlink()
    written = write_page(three, out, readme)
    assert (written.whole, written.kept, written.missing) == (("first", "middle", "last"), gone, ())
    assert written_files(out) == before


@pytest.mark.parametrize("shown", ["some of its tables", "no learned policy"])
def test_what_is_not_there_stays_so(finished: Experiment, tmp_path: Path, shown: str) -> None:
    if shown == "no learned policy":
        one = copy_of(finished, tmp_path / "one", table=finished.recipe.table[:1], model=())
        shutil.rmtree(one.here / "test")
        with_seeds(Comparison.read(finished.here / "test"), ()).write(one.here / "test")
    else:
        one = copy_of(finished, tmp_path / "one")
        (one.here / DONE / "draws.json").unlink()
    out = tmp_path / "docs" / "results.md"
    whole = write_page([one], out).whole
    assert whole == (("one",) if shown == "no learned policy" else ())
    before = written_files(out)
    forget(one)
    written = write_page([one], out)
    assert (written.whole, written.kept) == (whole, ("one",))
    assert written_files(out) == before


@pytest.mark.parametrize("conclusion", ["Other words.", "", "Several.\n\n**Cost** is a word.\n\n- A list.\n"])
@pytest.mark.parametrize("first", ["Nothing to speak of.", ""])
def test_what_people_say_is_what_the_recipe_says_now(
    finished: Experiment, tmp_path: Path, first: str, conclusion: str
) -> None:
    one = copy_of(finished, tmp_path / "one", conclusion=first)
    later = other(one, conclusion=conclusion, did_not_work="Something else.")
    write_page([later], tmp_path / "expected" / "results.md")
    out = tmp_path / "docs" / "results.md"
    write_page([one], out)
    forget(one)
    assert write_page([later], out).kept == ("one",)
    assert out.read_text() == (tmp_path / "expected" / "results.md").read_text()
    assert "Something else." in out.read_text()


def test_results_that_are_there_are_shown_whatever_the_page_says(
    three: list[Experiment], tmp_path: Path
) -> None:
    out = tmp_path / "results.md"
    write_page(three, out)
    page = out.read_text()
    out.write_text(page.replace("6 windows of 24 jobs", "7 windows of 24 jobs"))
    forget(three[0])
    write_page(three, out)
    assert out.read_text().count("7 windows of 24 jobs") == 1
    (three[1].here / DONE / "test.json").unlink()
    written = write_page(three, out)
    assert (written.whole, written.kept) == (("first", "last"), ("last",))


# --- What is not kept ---


def with_step(recipe: Recipe, number: int, **changes: object) -> dict[str, object]:
    """The change of one step of a recipe."""
    steps = list(recipe.step)
    steps[number] = steps[number].model_copy(update=changes)
    return {"step": tuple(steps)}


CHANGES: dict[str, Callable[[Recipe], dict[str, object]]] = {
    "title": lambda recipe: {"title": "Another"},
    "letter": lambda recipe: {"letter": "z"},
    "about": lambda recipe: {"about": "Other jobs."},
    "argument": lambda recipe: with_step(recipe, 2, run=(*recipe.step[2].run, "--verbose")),
    "seeds": lambda recipe: with_step(recipe, 1, each={"seed": (3, 4)}),
    "headline": lambda recipe: {"table": (recipe.table[0].model_copy(update={"headline": "x"}),)},
    "tables": lambda recipe: {"table": recipe.table[:1]},
    "model": lambda recipe: {"model": recipe.model[:1]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_figures_of_another_recipe_are_not_kept(finished: Experiment, tmp_path: Path, change: str) -> None:
    one = copy_of(finished, tmp_path / "one")
    out = tmp_path / "results.md"
    write_page([finished, one], out)
    forget(one)
    changed, before = other(one, **CHANGES[change](one.recipe)), written_files(out)
    with pytest.raises(InputError, match=r"would lose the published figures of one: .*--force"):
        write_page([finished, changed], out)
    assert written_files(out) == before
    written = write_page([finished, changed], out, force=True)
    assert (written.whole, written.kept, written.missing) == (("tiny",), (), ("one",))
    section = out.read_text().partition('<a id="experiment-one"></a>')[2]
    assert "**Not complete.** Still to be run: jobs, evolve" in section
    assert "(#experiment-one) | not complete |" in out.read_text()


def test_figures_of_experiments_that_are_not_given_are_not_dropped(
    finished: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.md"
    write_page([finished, copy_of(finished, tmp_path / "one")], out)
    before = written_files(out)
    recipe, results = finished.here.parents[1] / "tiny.toml", finished.here.parent
    command = ["experiments", "page", str(recipe), "--results", str(results), "--out", str(out)]
    assert main(command) == 2
    assert "would lose the published figures of one" in capsys.readouterr().err
    assert written_files(out) == before
    assert main([*command, "--force"]) == 0
    assert "experiment-one" not in out.read_text()


def test_prose_and_the_number_of_processes_are_no_part_of_the_fingerprint(finished: Experiment) -> None:
    recipe = finished.recipe
    steps = tuple(step.model_copy(update={"at_once": 2}) for step in recipe.step)
    models = tuple(model.model_copy(update={"why": "x", "limits": "y"}) for model in recipe.model)
    prose = {"conclusion": "x", "did_not_work": "y", "step": steps, "model": models}
    assert fingerprint(recipe.model_copy(update=prose)) == fingerprint(recipe)


def test_a_section_that_does_not_say_what_it_is_of_is_not_kept(finished: Experiment, tmp_path: Path) -> None:
    out = tmp_path / "results.md"
    write_page([finished], out)
    lines = out.read_text().split("\n")
    out.write_text("\n".join(line for line in lines if not line.startswith('<!-- {"recipe"')))
    page = out.read_text()
    with pytest.raises(InputError, match="none of these experiments has results yet"):
        write_page([replace(finished, here=tmp_path / "nothing")], out)
    assert out.read_text() == page


# --- The comment ---


class Comments(HTMLParser):
    """Notes what a page has besides comments."""

    def __init__(self) -> None:
        super().__init__()
        self.comments: list[str] = []
        self.rest: list[str] = []

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        self.rest.append(data)


def test_nothing_ends_the_comment_and_all_numbers_survive(finished: Experiment, tmp_path: Path) -> None:
    rows = tuple(
        Row(overview=NASTY, headline=headline, gain=Gain(NASTY, "-", gain, low, high, "tie"))
        for headline, gain, low, high in (
            (NASTY, -0.1 / 3, -math.inf, math.inf),
            (None, math.inf, None, 1e-17),
            ("", -math.inf, -1e300, None),
        )
    )
    without = Row(overview="-->", headline=None, gain=None)
    record = Record(recipe=fingerprint(finished.recipe), shown=2, state="--", rows=(*rows, without))
    reader = Comments()
    reader.feed(record.comment() + "after")
    reader.close()
    assert (len(reader.comments), reader.rest) == (1, ["after"])
    assert "--" not in reader.comments[0]
    assert ">" not in reader.comments[0]
    json.loads(reader.comments[0], parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    out = tmp_path / "results.md"
    out.write_text(f'<a id="experiment-tiny"></a>\n{record.comment()}\n\n{BEGIN}\n{END}\n')
    account = Published.read(out).account(finished)
    assert account is not None
    assert account.record == record


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('<!-- {"recipe":', '<!-- {"recipe"'),
        ('<!-- {"recipe":', '{"recipe":'),
        ('"shown":2', '"shown":2,"more":1'),
        ('"shown":2', '"shown":"two"'),
        ('"overview":', '"overvew":'),
        ('"gain":{"title":', '"gain":{"titel":'),
        ("]} -->\n", "]}\n"),
        (END, ""),
    ],
)
def test_a_damaged_section_is_refused_and_named(
    finished: Experiment, tmp_path: Path, old: str, new: str
) -> None:
    out = tmp_path / "results.md"
    write_page([finished], out)
    assert old in out.read_text()
    out.write_text(out.read_text().replace(old, new))
    before = written_files(out)
    with pytest.raises(
        InputError, match=r"results\.md: the section experiment-tiny is damaged .*run tiny again"
    ):
        write_page([replace(finished, here=tmp_path / "nothing")], out)
    assert written_files(out) == before
    assert write_page([finished], out).whole == ("tiny",), "with results there is nothing to read"


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_no_section_of_the_projects_page_is_damaged(path: Path, tmp_path: Path) -> None:
    published, experiment = Published.read(DOCS / "results.md"), Experiment.of(path, tmp_path)
    account = published.account(experiment)
    assert account is None or account.is_whole


# --- The command line ---


def test_the_command_says_what_it_kept_and_what_it_could_not(
    finished: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = finished.here.parents[1] / "tiny.toml"
    kept, missing = (Path(shutil.copy(recipe, tmp_path / f"{name}.toml")) for name in ("kept", "missing"))
    results = Path(shutil.copytree(finished.here.parent, tmp_path / "results"))
    shutil.copytree(results / "tiny", results / "kept")
    out = tmp_path / "results.md"
    command = ["experiments", "page", str(recipe), str(kept)]
    where = ["--results", str(results), "--out", str(out)]
    assert main([*command, *where]) == 0
    assert capsys.readouterr().out == f"{out}: 2 experiments with all tables\n"
    shutil.rmtree(results / "kept")
    assert main([*command, str(missing), *where]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{out}: 2 experiments with all tables, 1 of them as published before"
    assert second.startswith("not complete, as nothing was run here")
    assert second.endswith(": missing")
    assert main([*command, str(missing), *where, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "page": str(out),
        "experiments": ["kept", "tiny"],
        "kept": ["kept"],
        "missing": ["missing"],
    }


# --- Marks ---


def test_rows_of_recipes_that_were_changed_after_their_test_are_marked_also_if_kept(
    three: list[Experiment], tmp_path: Path
) -> None:
    out, readme = tmp_path / "docs" / "results.md", tmp_path / "docs" / "README.md"
    out.parent.mkdir()
    readme.write_text(f"{headlines.BEGIN}\n{headlines.END}\n", encoding="utf-8")
    write_page(three, out, readme)
    assert "§ |" not in readme.read_text(encoding="utf-8")
    forget(*three)
    marked = [other(one, changed_after_test=one.name == "first") for one in three]
    write_page(marked, out, readme)
    assert "| One time § |" in readme.read_text(encoding="utf-8")
    rows = [line for line in out.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert {("(#experiment-first)" in line) for line in rows if " § | " in line} == {True}
    assert sum(" § | " in line for line in rows) == sum("(#experiment-first)" in line for line in rows)


@pytest.mark.parametrize(("disjoint", "mark"), [(4.2, " ◇"), (12.0, "")])
def test_weak_intervals_are_marked_in_the_overview_and_the_readme(
    finished: Experiment, tmp_path: Path, disjoint: float, mark: str
) -> None:
    one = with_gains(finished, tmp_path / "results" / "one")
    comparison = Comparison.read(one.here / "test")
    shutil.rmtree(one.here / "test")
    replace(comparison, setting=replace(comparison.setting, disjoint=disjoint)).write(one.here / "test")
    out, readme = tmp_path / "docs" / "results.md", tmp_path / "docs" / "README.md"
    out.parent.mkdir()
    readme.write_text(f"{headlines.BEGIN}\n{headlines.END}\n", encoding="utf-8")
    write_page([one], out, readme)
    headline = next(line for line in readme.read_text(encoding="utf-8").splitlines() if "One time" in line)
    assert f"]{mark}" in headline
    assert (" ◇" in headline) == bool(mark)
    assert (": unclear |" in headline) == bool(mark)
    picture = (out.parent / "images" / "results.svg").read_text(encoding="utf-8")
    assert ('class="better"' in picture) != bool(mark)
    card = Figures.of(Comparison.read(one.here / "test"), comparison.policy("ppo-0"))
    assert card.difference is not None
    assert (card.difference.verdict == "unclear") == bool(mark)
    page = out.read_text(encoding="utf-8")
    assert ("| unclear" in page) == bool(mark)
    assert ("unclear, as windows are few, in 1" in page) == bool(mark)
