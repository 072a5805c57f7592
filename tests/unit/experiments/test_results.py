"""What becomes of results: pages, pictures, headlines."""

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from experiments.caveats import is_longer
from experiments.collecting import collect, show
from experiments.curves import curve_panels
from experiments.index import BEGIN, END
from experiments.markdown import apart_text, plain, wrapped
from experiments.models import ship_models
from experiments.pictures import CurveGroup, Gain, Panel, curves_picture, gains_picture, shown_range
from experiments.published import Apart, Conditions, Row
from experiments.publishing import publish
from experiments.recipe import Together
from experiments.running import Experiment
from experiments.standings import standings
from experiments.together import together
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, Difference
from gpuyard.evaluate.bootstrap import paired_difference
from gpuyard.units import metric_text
from support.experiment_cases import with_seeds

# --- The pages ---


def published_page(experiment: Experiment, folder: Path) -> str:
    """The page of an experiment, in one line."""
    publish([experiment], folder / "json", folder / "results")
    return " ".join((folder / "results" / f"{experiment.name}.md").read_text(encoding="utf-8").split())


def test_pages_are_the_same_bytes_every_time(finished: Experiment, tmp_path: Path) -> None:
    pages = []
    for name in ("first", "second"):
        folder = tmp_path / name
        assert publish([finished], folder / "json", folder / "results").whole == ("tiny",)
        pages.append({path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert pages[0] == pages[1]
    assert set(pages[0]) == {"tiny.json", "index.md", "tiny.md", "results.svg", "results-tiny.svg"}


def test_the_page_has_the_figures_of_the_comparison(finished: Experiment, tmp_path: Path) -> None:
    page = published_page(finished, tmp_path)
    comparison = Comparison.read(finished.here / "test")
    reference = comparison.policy(comparison.reference or "")
    mean = metric_text(comparison.setting.metric, comparison.mean(reference.name))
    whole = metric_text(
        comparison.setting.metric, comparison.whole_rows()[reference.name]["mean_bounded_slowdown"]
    )
    reference_row = rf"\| `{re.escape(reference.label)}` \| reference[^|]* \| \| {mean} \| \| {whole} \|"
    assert re.search(reference_row, page)
    rival = comparison.policy(comparison.rival or "")
    assert re.search(rf"\| `{re.escape(rival.label)}` \| best on earlier windows", page)
    assert "Windows begin on a busy cluster." in page
    assert "geometric means of the ratios" in page
    assert "begins with an empty cluster" not in page
    found = comparison.difference("evolve-3")
    row = re.search(
        r"\| `evolve-3` \| learned \| ([^|]+) \| (\S+) \| (\S+) % \[[^|]*\] \| (\S+) \((\S+) %", page
    )
    assert row is not None
    in_whole = comparison.in_whole("evolve-3")
    assert in_whole is not None
    assert row[1].startswith(("recommended", "not recommended", "unclear", "worse", "no gain"))
    assert row[4] == metric_text(comparison.setting.metric, in_whole.own)
    assert row[5].lstrip("+−") == f"{100 * abs(in_whole.ratio):.1f}"
    assert row[2] == metric_text(comparison.setting.metric, comparison.mean("evolve-3"))
    assert row[3].lstrip("+−") == f"{100 * abs(found.ratio):.1f}"
    for text in (
        *("Nothing to speak of.", "All of it.", "6 windows of 24 jobs of the test part"),
        *("3 fresh draws of demo with 24 jobs each", "# A rule | evolved <here>", "`model:by-windows`"),
        *("Minutes per step: jobs", "gpuyard experiments run experiments/recipes/tiny.toml"),
    ):
        assert text in page
    assert "[A rule \\| evolved <here>](tiny.md)" in (tmp_path / "results" / "index.md").read_text()


def test_jobs_that_are_worse_off_are_those_of_the_comparison(finished: Experiment) -> None:
    comparison = Comparison.read(finished.here / "test")
    losers = collect(finished).tables[0].losers
    assert losers is not None
    worse = comparison.who_loses("evolve-3")
    assert losers.of == "evolve-3"
    assert {one.change for one in losers.classes} <= {one.difference.ratio for one in worse}
    assert len(losers.classes) + losers.more == len({(one.by, one.name) for one in worse})


def test_prose_is_wrapped_and_a_number_stays_with_its_percent_sign() -> None:
    lines = wrapped(f"{'a' * 97} 7 % of it\n\n- {'word ' * 30}\n- two\n\n| a | b |\n|---|---|\n")
    assert lines[0] == "a" * 97
    assert lines[1:3] == ["7 % of it", ""]
    assert lines[3].startswith("- word")
    assert lines[4].startswith("  word")
    assert lines[-5:] == ["- two", "", "| a | b |", "|---|---|", ""]
    assert max(map(len, lines)) <= 100


# --- Tests of several times as one ---


def two_times(finished: Experiment) -> tuple[Comparison, Comparison]:
    """Two comparisons of like windows with three seeds each, of which the second is harder."""
    first = with_seeds(Comparison.read(finished.here / "test"), (0.9, 0.8, 0.7))
    harder = first.windows.with_columns(pl.col(first.setting.metric) * 3.0)
    return first, replace(first, windows=harder)


def test_tests_together_are_those_of_all_windows(finished: Experiment) -> None:
    parts = [(one, standings(one)[0]) for one in two_times(finished)]
    found = together(parts)
    own = [np.mean([one.values(name) for name in best.policies], axis=0) for one, best in parts]
    other = [one.values(str(one.reference)) for one, _ in parts]
    assert found.values("learned") == pytest.approx(np.concatenate(own), rel=1e-12)
    assert found.values("reference").tolist() == np.concatenate(other).tolist()
    setting = parts[0][0].setting
    assert found.setting.disjoint == 2 * setting.disjoint
    expected = paired_difference(
        found.values("learned"),
        np.concatenate(other),
        block=setting.block,
        disjoint=2 * setting.disjoint,
        lower_is_better=setting.lower_is_better,
        offset=0.0,
    )
    assert found.difference("learned") == expected


def test_tests_of_different_things_are_not_put_together(finished: Experiment) -> None:
    first, second = two_times(finished)
    other = replace(second, setting=replace(second.setting, information={"estimates": "none"}))
    with pytest.raises(InputError, match="same information"):
        together([(first, standings(first)[0]), (other, standings(other)[0])])
    alone = replace(second, reference=None)
    with pytest.raises(InputError, match="have a reference"):
        together([(first, standings(first)[0]), (alone, standings(second)[0])])


def test_the_page_shows_tests_together(finished: Experiment, tmp_path: Path) -> None:
    recipe = finished.recipe
    here = tmp_path / finished.name
    shutil.copytree(finished.here, here)
    shutil.copytree(here / "test", here / "again")
    asked = Together(tables=("test", "again"), learned=("evolve-3", "evolve-3"), title="Both", headline="Two")
    tables = (recipe.table[0], recipe.table[0].model_copy(update={"evaluation": "again"}))
    two = replace(
        finished, recipe=recipe.model_copy(update={"table": tables, "together": (asked,)}), here=here
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Experiment, "check_done", lambda self, name: None)
        page = published_page(two, tmp_path / "published")
    part = page[page.index("## Both") :]
    assert "12 windows of 24 jobs" in part
    assert "its own reference" in part
    mean = Comparison.read(finished.here / "test").mean("evolve-3")
    assert re.search(rf"\| `evolve-3` \| learned \| \w+ \| {mean:.2f} \|", part)


def test_links_and_pictures_of_pages_exist(finished: Experiment, tmp_path: Path) -> None:
    for name in ("models", "guide/experiments", "guide/evaluate", "results/venus-exact"):
        (tmp_path / f"{name}.md").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.md").write_text(f"# {name}")
    publish([finished], tmp_path / "json", tmp_path / "results")
    for name in ("index", "tiny"):
        page = (tmp_path / "results" / f"{name}.md").read_text()
        targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page)
        assert {"../models.md", "../guide/experiments.md"} <= set(targets)
        for target in targets:
            assert (tmp_path / "results" / target).exists()


def test_what_has_not_been_run_is_named(finished: Experiment, tmp_path: Path) -> None:
    elsewhere = replace(finished, name="later", here=tmp_path / "nowhere")
    written = publish([finished, elsewhere], tmp_path / "json", tmp_path / "results")
    assert (written.whole, written.missing) == (("tiny",), ("later",))
    assert "Not complete. Still to be run: Windows; Draws." in (tmp_path / "results" / "later.md").read_text()
    assert "(later.md) | - | - | not complete |" in (tmp_path / "results" / "index.md").read_text()


def test_results_of_other_arguments_are_not_published(finished: Experiment, tmp_path: Path) -> None:
    here = Path(shutil.copytree(finished.here, tmp_path / "tiny"))
    record = json.loads((here / "done" / "evolve-3.json").read_text())
    (here / "done" / "evolve-3.json").write_text(json.dumps({**record, "arguments": ["train", "ppo"]}))
    changed = replace(finished, here=here)
    with pytest.raises(InputError, match="none of these experiments has results yet"):
        publish([changed], tmp_path / "json", tmp_path / "results")
    with pytest.raises(InputError, match="evolve-3 was run with other arguments"):
        ship_models([changed], tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_pages_are_not_replaced_by_ones_without_results(finished: Experiment, tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("figures")
    with pytest.raises(InputError, match="none of these experiments has results yet"):
        publish([replace(finished, here=tmp_path / "nothing")], tmp_path / "json", tmp_path)
    assert (tmp_path / "index.md").read_text() == "figures"


def test_an_interval_may_be_open(finished: Experiment) -> None:
    setting = Comparison.read(finished.here / "test").setting
    open_end = Difference(-0.3, -0.9, float("inf"), "tie", 1.0, 1.4)
    assert apart_text(Apart.of(open_end, setting)) == "−30.0 % [−90.0 %, ∞]"
    one_window = Difference(-0.3, float("nan"), float("nan"), "tie", 1.0, 1.4)
    assert apart_text(Apart.of(one_window, setting)) == "−30.0 %"


def test_a_seed_that_stands_for_a_table_has_a_row(finished: Experiment) -> None:
    comparison = with_seeds(Comparison.read(finished.here / "test"), (0.9, 0.8))
    table = finished.recipe.table[0].model_copy(update={"learned": "ppo-1"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Comparison, "read", lambda _: comparison)
        shown = show(finished, table)
    assert shown is not None
    assert [row.label for row in shown.rows if row.kind == "learned"] == ["ppo-1", "ppo"]


def test_pictures_are_whole_and_escape_what_they_say(finished: Experiment, tmp_path: Path) -> None:
    publish([finished], tmp_path / "json", tmp_path / "results")
    for name in ("results.svg", "results-tiny.svg"):
        root = ElementTree.fromstring((tmp_path / "images" / name).read_text())
        assert "A rule | evolved <here>" in "".join(root.itertext())
    assert len(curve_panels(finished)[0].groups[0].curves[0]) >= 3


def test_completion_times_are_clearly_longer_if_all_of_the_interval_is() -> None:
    many = Conditions(kind="windows", part="test", workload="a", windows=40, jobs=9, estimates="exact")
    few = many.model_copy(update={"is_weak": True})
    longer = Row(label="a", kind="learned", value=1.0, jct=apart(0.05, 0.021, 0.08))
    assert is_longer(longer, many)
    assert not is_longer(longer, few)
    assert not is_longer(longer.model_copy(update={"jct": apart(0.05, 0.019, 0.08)}), many)
    assert not is_longer(longer.model_copy(update={"jct": None}), many)


def apart(ratio: float, low: float, high: float) -> Apart:
    return Apart(ratio=ratio, low=low, high=high, verdict="worse")


def test_names_from_logs_are_text_and_nothing_else() -> None:
    assert plain("<b>*a*|[b](c)`") == "&lt;b&gt;\\*a\\*\\|\\[b\\](c)\\`"


def test_gains_beyond_the_plot_are_drawn_at_its_edge() -> None:
    gains = [
        Gain("one", "a against b", 0.2, 0.1, 0.3, "better"),
        Gain("two", "a against b", -4.0, -9.0, -0.5, "worse"),
        Gain("three", "a against b", 0.0, None, None, "tie"),
    ]
    picture = gains_picture(gains)
    root = ElementTree.fromstring(picture)
    marks = {element.get("class"): element for element in root.iter() if element.get("class") is not None}
    assert {"better", "worse", "tie"} <= set(marks)
    assert 0 < float(marks["worse"].get("x", "nan")) < 1000
    assert "+20.0% [+10.0%, +30.0%]" in picture


def test_very_bad_scores_do_not_flatten_a_curve() -> None:
    curve = tuple((float(i), -1e6 if i == 0 else -10.0 - 1 / i) for i in range(30))
    panel = Panel("ppo", (CurveGroup("ppo", (curve,)),), (("sjf+easy", -10.5),))
    low, high = shown_range(panel)
    assert -12 < low <= -10.5
    assert high == pytest.approx(-10.0, abs=0.1)
    ElementTree.fromstring(curves_picture("Curves", [panel]))


# --- Seeds ---


def test_seeds_of_one_kind_are_one_row(finished: Experiment) -> None:
    comparison = with_seeds(Comparison.read(finished.here / "test"), (0.5, 0.8, 1.2))
    row = next(row for row in standings(comparison) if row.kind == "learned")
    values = [comparison.values(f"ppo-{number}") for number in range(3)]
    reference = comparison.values(comparison.reference or "")
    setting = comparison.setting
    how = {"block": setting.block, "disjoint": setting.disjoint, "lower_is_better": True, "offset": 0.0}
    expected = paired_difference(np.mean(values, axis=0), reference, **how)
    assert (row.label, len(row.policies), row.better) == ("ppo", 3, 2)
    assert row.difference is not None
    assert row.difference.ratio == pytest.approx(expected.ratio)
    assert (row.difference.low, row.difference.high) == pytest.approx((expected.low, expected.high))
    means = [value.mean() for value in values]
    assert (row.seeds, row.lowest, row.highest) == (3, pytest.approx(min(means)), pytest.approx(max(means)))
    assert row.value == pytest.approx(np.mean(values))


@pytest.mark.parametrize("evaluation", ["test", "episodes", "draws"])
def test_a_single_policy_has_the_figures_of_the_comparison(finished: Experiment, evaluation: str) -> None:
    comparison = Comparison.read(finished.here / evaluation)
    rows = {row.label: row for row in standings(comparison)}
    assert len(rows) == len(comparison.shown), "one numbered run keeps its name, too"
    for label, row in rows.items():
        assert row.value == comparison.mean(label)
        if row.policies[0] != comparison.reference:
            jct = comparison.difference(label, metric="mean_jct_s")
            assert row.difference == Apart.of(comparison.difference(label), comparison.setting)
            assert row.jct == Apart.of(jct, comparison.setting)


def test_of_returns_more_is_better(finished: Experiment) -> None:
    comparison = Comparison.read(finished.here / "episodes")
    assert comparison.setting.metric == "return"
    rows = standings(comparison)
    assert [row.value for row in rows] == sorted((row.value for row in rows), reverse=True)


# --- Headlines ---


def test_headlines_go_between_their_marks_and_nowhere_else(finished: Experiment, tmp_path: Path) -> None:
    table = finished.recipe.table[0].model_copy(update={"front": "A | b", "learned": "evolve-3"})
    recipe = finished.recipe.model_copy(update={"table": (table, *finished.recipe.table[1:])})
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    places = (tmp_path / "json", tmp_path / "results", readme)
    for _ in range(2):
        publish([replace(finished, recipe=recipe)], *places)
    before, _, rest = readme.read_text().partition(BEGIN)
    inside, _, after = rest.partition(END)
    assert (before, after) == ("before\n\n", "\n\nafter\n")
    lines = inside.strip().splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("| A \\| b | ")
    assert "(`evolve-3`)" in lines[2]
    readme.write_text("no marks\n")
    with pytest.raises(InputError, match="between which the table goes"):
        publish([finished], *places)
    assert readme.read_text() == "no marks\n"


def test_a_row_that_is_not_there_cannot_stand_for_a_table(finished: Experiment, tmp_path: Path) -> None:
    table = finished.recipe.table[0].model_copy(update={"learned": "evolv"})
    recipe = finished.recipe.model_copy(update={"table": (table,)})
    with pytest.raises(InputError, match="'evolv' is none of its rows; did you mean 'evolve-3'"):
        publish([replace(finished, recipe=recipe)], tmp_path / "json", tmp_path / "results")
