"""From a tiny experiment to its page, its models and their check."""

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gpuyard.cli import main
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, Difference, PolicyEntry
from gpuyard.evaluate.bootstrap import paired_difference
from gpuyard.experiments import running
from gpuyard.experiments.cards import read_card
from gpuyard.experiments.cells import jct_text, plain
from gpuyard.experiments.checking import check_models, differing
from gpuyard.experiments.curves import curve_panels
from gpuyard.experiments.headlines import BEGIN, END
from gpuyard.experiments.models import ship_models
from gpuyard.experiments.page import write_page
from gpuyard.experiments.pictures import CurveGroup, Gain, Panel, curves_picture, gains_picture, shown_range
from gpuyard.experiments.running import Experiment, run_experiment
from gpuyard.experiments.standings import standings
from gpuyard.network import model_file

RECIPE = """
title = "A rule | evolved <here>"
letter = "b"
about = "Some jobs of the demo."
conclusion = "Nothing to speak of."
did_not_work = "All of it."

[[step]]
name = "jobs"
run = ["workload", "synth", "--preset", "demo", "--set", "jobs=400", "--out", "{here}/jobs.parquet"]

[[step]]
name = "evolve"
run = ["train", "evolve", "--workload", "{here}/jobs.parquet", "--cluster", "4x8", "--processes", "1",
  "--environment.jobs_per_episode", "16", "--environment.window", "8", "--environment.envs", "4",
  "--validation.windows", "2", "--validation.heuristics", "[\\"sjf+easy\\"]", "--evolve.generations", "3",
  "--evolve.population", "4", "--rule.score", "{\\"estimate\\": -1.0}",
  "--evolve.episodes", "2", "--evolve.check_every", "1", "--seed", "{seed}",
  "--out", "{here}/evolve-{seed}"]
each = { seed = [3] }

[[step]]
name = "test"
run = ["evaluate", "{here}/evolve-*", "--on", "{here}/jobs.parquet", "--cluster", "4x8", "--windows", "6",
  "--jobs-per-window", "24", "--out", "{here}/test"]

[[step]]
name = "episodes"
run = ["evaluate", "{here}/evolve-3", "--episodes", "5", "--against", "fifo+easy", "--out", "{here}/episodes"]

[[step]]
name = "draws"
run = ["evaluate", "{here}/evolve-3", "--on", "demo", "--cluster", "4x8", "--draws", "--windows", "3",
  "--jobs-per-window", "24", "--against", "sjf+easy", "--out", "{here}/draws"]

[[table]]
evaluation = "test"
title = "Windows"

[[table]]
evaluation = "draws"
title = "Draws"
"""
MODEL = """
[[model]]
name = "{name}"
run = "evolve-3"
evaluation = "{evaluation}"
why = "There is no other."
limits = "Anything."
"""
MODELS = {"by-windows": "test", "by-episodes": "episodes", "by-draws": "draws"}


def run_in_this_process(arguments: Sequence[str], log: Path) -> str | None:
    """To start Python for every command would take most of the time of these tests."""
    with log.open("w") as output, redirect_stdout(output), redirect_stderr(output):
        code = main(arguments)
    return log.read_text() if code else None


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """The experiment, run once for all tests here."""
    folder = tmp_path_factory.mktemp("experiments")
    models = "".join(MODEL.format(name=name, evaluation=folder) for name, folder in MODELS.items())
    (folder / "tiny.toml").write_text(RECIPE + models)
    experiment = Experiment.of(folder / "tiny.toml", folder / "results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "run_gpuyard", run_in_this_process)
        run_experiment(experiment, None, lambda line: None)
    return experiment


@pytest.fixture(scope="module")
def shipped(finished: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its models."""
    folder = tmp_path_factory.mktemp("models")
    assert ship_models([finished], folder, folder / "models.md") == list(MODELS)
    return folder


@pytest.fixture
def models(shipped: Path, tmp_path: Path) -> Path:
    """A copy of the models, to be spoilt."""
    return Path(shutil.copytree(shipped, tmp_path / "models"))


# --- The page ---


def test_the_page_is_the_same_bytes_every_time(finished: Experiment, tmp_path: Path) -> None:
    pages = []
    for name in ("first", "second"):
        folder = tmp_path / name
        assert write_page([finished], folder / "results.md") == ["tiny"]
        pages.append({path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert pages[0] == pages[1]
    assert set(pages[0]) == {"results.md", "results.svg", "results-tiny.svg"}


def test_the_page_has_the_figures_of_the_comparison(finished: Experiment, tmp_path: Path) -> None:
    write_page([finished], tmp_path / "results.md")
    page = (tmp_path / "results.md").read_text()
    comparison = Comparison.read(finished.here / "test")
    reference = comparison.policy(comparison.reference or "")
    assert comparison.hindsight == reference.name
    told = (
        f"| `{reference.label}`, the reference, best in hindsight | {comparison.mean(reference.name):.2f} |"
    )
    assert told in page
    row = next(line for line in page.splitlines() if line.startswith("| **`evolve-3`**"))
    found = comparison.difference("evolve-3")
    assert f"| {comparison.mean('evolve-3'):.2f} |" in row
    assert f"{100 * abs(found.ratio):.1f} %" in row
    assert f"| {found.verdict} |" in row
    for text in (
        *(
            "Nothing to speak of.",
            "All of it.",
            "6 windows of 24 jobs of the test part",
            "Who loses (Windows)",
        ),
        *(
            "3 fresh draws of demo, 24 jobs each",
            "A rule \\| evolved <here>",
            "`model:by-windows`",
            "**Cost**",
        ),
        "gpuyard experiments run experiments/tiny.toml\n",
    ):
        assert text in page


def test_links_and_pictures_of_the_page_exist(finished: Experiment, tmp_path: Path) -> None:
    (tmp_path / "models.md").write_text("# Models")
    for name in ("experiments", "evaluation"):
        (tmp_path / f"{name}.md").write_text(f"# {name}")
    write_page([finished], tmp_path / "results.md")
    page = (tmp_path / "results.md").read_text()
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page)
    assert {"models.md", "experiments.md", "images/results.svg", "images/results-tiny.svg"} <= set(targets)
    for target in targets:
        assert (tmp_path / target).exists()
    for anchor in re.findall(r"\]\(#([^)]+)\)", page):
        assert f'<a id="{anchor}"></a>' in page


def test_what_has_not_been_run_is_said(finished: Experiment, tmp_path: Path) -> None:
    elsewhere = replace(finished, name="later", here=tmp_path / "nowhere")
    assert write_page([finished, elsewhere], tmp_path / "results.md") == ["tiny"]
    page = (tmp_path / "results.md").read_text()
    section = page[page.index('<a id="experiment-later">') :]
    assert "**Not complete.** Still to be run: jobs, evolve, test, episodes, draws." in section
    assert "(#experiment-later) | not complete |" in page


def test_results_of_other_arguments_are_not_shown(finished: Experiment, tmp_path: Path) -> None:
    here = Path(shutil.copytree(finished.here, tmp_path / "tiny"))
    record = json.loads((here / "done" / "evolve-3.json").read_text())
    (here / "done" / "evolve-3.json").write_text(json.dumps({**record, "arguments": ["train", "ppo"]}))
    changed = replace(finished, here=here)
    assert write_page([changed], tmp_path / "results.md") == []
    page = (tmp_path / "results.md").read_text()
    assert "**Not complete.** Run with other arguments than the recipe has now: evolve." in page
    assert "| **`evolve-3`**" not in page
    with pytest.raises(InputError, match="evolve-3 was run with other arguments"):
        ship_models([changed], tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_pictures_are_whole_and_escape_what_they_say(finished: Experiment, tmp_path: Path) -> None:
    write_page([finished], tmp_path / "results.md")
    for name in ("results.svg", "results-tiny.svg"):
        root = ElementTree.fromstring((tmp_path / "images" / name).read_text())
        assert "A rule | evolved <here>" in "".join(root.itertext())
    assert len(curve_panels(finished)[0].groups[0].curves[0]) >= 3


def test_completion_times_that_are_clearly_longer_are_marked() -> None:
    assert jct_text(Difference(0.05, 0.021, 0.08, "worse", 1.05, 1.0)) == "+5.0 % [+2.1 %, +8.0 %] ‡"
    assert jct_text(Difference(0.05, 0.019, 0.08, "worse", 1.05, 1.0)) == "+5.0 % [+1.9 %, +8.0 %]"
    assert jct_text(None) == ""


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


def with_seeds(comparison: Comparison, shifts: tuple[float, ...]) -> Comparison:
    """The same with learned policies ``ppo-0`` and on, each a multiple of the reference."""
    metric, reference = comparison.setting.metric, comparison.reference
    rows = comparison.windows.filter(pl.col("policy") == reference)
    frames, entries = [rows], [comparison.policy(reference or "")]
    for number, shift in enumerate(shifts):
        entries.append(
            PolicyEntry(f"runs/ppo-{number}", f"ppo-{number}", "learned", f"runs/ppo-{number}", "-")
        )
        noise = pl.Series(np.random.default_rng(number).normal(0.0, 0.001, rows.height))
        own = rows.with_columns(pl.lit(f"runs/ppo-{number}").alias("policy"), pl.col(metric) * shift + noise)
        frames.append(own)
    return replace(comparison, policies=tuple(entries), windows=pl.concat(frames))


def test_seeds_of_one_kind_are_one_row(finished: Experiment) -> None:
    comparison = with_seeds(Comparison.read(finished.here / "test"), (0.5, 0.8, 1.2))
    row = next(row for row in standings(comparison) if row.learned)
    values = [comparison.values(f"ppo-{number}") for number in range(3)]
    reference = comparison.values(comparison.reference or "")
    setting = comparison.setting
    how = {"block": setting.block, "disjoint": setting.disjoint, "lower_is_better": True}
    expected = paired_difference(np.mean(values, axis=0), reference, **how)
    assert (row.label, len(row.policies), row.better) == ("ppo", 3, 2)
    assert row.difference is not None
    assert row.difference.ratio == pytest.approx(expected.ratio)
    assert (row.difference.low, row.difference.high) == pytest.approx((expected.low, expected.high))
    assert row.seeds == pytest.approx([value.mean() for value in values])
    assert row.value == pytest.approx(np.mean(values))


@pytest.mark.parametrize("evaluation", ["test", "episodes", "draws"])
def test_a_single_policy_has_the_figures_of_the_comparison(finished: Experiment, evaluation: str) -> None:
    comparison = Comparison.read(finished.here / evaluation)
    rows = {row.label: row for row in standings(comparison)}
    assert len(rows) == len(comparison.shown), "one numbered run keeps its name, too"
    for label, row in rows.items():
        assert row.value == comparison.mean(label)
        if row.policies[0] != comparison.reference:
            assert row.difference == comparison.difference(label)
            assert row.jct == comparison.difference(label, metric="mean_jct_s")


def test_of_returns_more_is_better(finished: Experiment) -> None:
    comparison = Comparison.read(finished.here / "episodes")
    assert comparison.setting.metric == "return"
    rows = standings(comparison)
    assert [row.value for row in rows] == sorted((row.value for row in rows), reverse=True)


# --- Models ---


def test_a_card_says_what_the_model_is(finished: Experiment, shipped: Path) -> None:
    card = read_card(shipped / "by-windows.json")
    comparison = Comparison.read(finished.here / "test")
    assert card.test.value == comparison.mean("evolve-3")
    assert card.test.reference == comparison.reference
    assert card.training[0][:2] == ("workload", "synth")
    assert card.training[1][:2] == ("train", "evolve")
    assert (card.trained_on.source, card.trained_on.cluster) == ("{here}/jobs.parquet", "4x8")
    assert (card.trained_on.jobs, card.trained_on.gpus) == (400, 32)
    page = (shipped / "models.md").read_text()
    assert "## by-windows" in page
    assert card.sha256 in page
    for path in shipped.iterdir():
        assert str(finished.here).encode() not in path.read_bytes(), "paths of this machine stay here"


def test_shipped_models_have_names(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuyard.policies.named import find_policy

    monkeypatch.setattr(model_file, "SHIPPED_IN", shipped)
    assert find_policy("model:by-windows").name == "model:by-windows"
    with pytest.raises(InputError, match="there are: model:by-draws, model:by-episodes, model:by-windows"):
        find_policy("model:nonsense")


def test_models_agree_with_their_cards(shipped: Path) -> None:
    checks = check_models(None, None, shipped)
    assert [one.name for one in checks] == sorted(MODELS)
    for one in checks:
        assert one.agrees is True, one.in_words()
        assert "as published" in one.in_words()
        assert one.document()["found"] == one.document()["published"]


def test_a_changed_figure_is_noticed(models: Path) -> None:
    path = models / "by-draws.json"
    card = json.loads(path.read_text())
    card["test"]["difference"]["low"] += 1e-6
    path.write_text(json.dumps(card))
    (one,) = check_models(None, ["model:by-draws"], models)
    assert one.agrees is False
    assert "DIFFERS: difference.low is " in one.in_words()


def test_a_changed_model_is_noticed(models: Path) -> None:
    shutil.copy(models / "by-draws.safetensors", models / "other.safetensors")
    data = bytearray((models / "by-draws.safetensors").read_bytes())
    data[-1] ^= 1
    (models / "by-draws.safetensors").write_bytes(data)
    (one,) = check_models(None, ["by-draws"], models)
    assert one.agrees is False
    assert "by-draws.safetensors is not the file that the card is of" in one.in_words()
    with pytest.raises(InputError, match=r"other\.json: the model's card cannot be read"):
        check_models(None, None, models)


def test_other_jobs_are_noticed(models: Path) -> None:
    path = models / "by-draws.json"
    card = json.loads(path.read_text())
    card["repeat"]["fingerprint"] = "0" * 32
    path.write_text(json.dumps(card))
    (one,) = check_models(None, ["by-draws"], models)
    assert one.agrees is False
    assert "the jobs are not those" in one.in_words()


def test_models_whose_traces_are_absent_are_skipped(models: Path, tmp_path: Path) -> None:
    path = models / "by-windows.json"
    path.write_text(path.read_text().replace('"--preset"', '"{traces}/log.swf"'))
    (one,) = check_models(None, ["by-windows"], models)
    assert one.agrees is None
    assert one.in_words() == "by-windows: skipped: needs traces: TRACES/log.swf (--traces FOLDER)"
    (one,) = check_models(tmp_path, ["by-windows"], models)
    assert one.agrees is None
    assert f"there is no {tmp_path}/log.swf" in one.in_words()


def test_jobs_that_cannot_be_made_are_one_models_problem(models: Path) -> None:
    path = models / "by-windows.json"
    path.write_text(path.read_text().replace('"--preset"', '"--no-such-option"'))
    broken, other = check_models(None, ["by-windows", "by-draws"], models)
    assert broken.agrees is False
    assert "failed" in broken.in_words()
    assert other.agrees is True


def test_unknown_models_are_refused_with_those_there_are(models: Path) -> None:
    with pytest.raises(InputError, match="model:by-window: no such model comes with gpuyard; did you mean"):
        check_models(None, ["by-window"], models)


def test_figures_differ_beyond_rounding_only() -> None:
    published = {"a": 1.0, "b": {"c": 2.0, "d": None}, "e": "x"}
    assert differing(published, {"a": 1.0 + 1e-12, "b": {"c": 2.0, "d": None}, "e": "x"}) == []
    found = differing(published, {"a": 1.0 + 1e-6, "b": {"c": 2.0, "d": 1.0}, "e": "y"})
    assert [one.split()[0] for one in found] == ["a", "b.d", "e"]


def test_a_model_that_was_not_compared_is_not_shipped(finished: Experiment, tmp_path: Path) -> None:
    here = Path(shutil.copytree(finished.here, tmp_path / "tiny"))
    shutil.rmtree(here / "test")
    comparison = with_seeds(Comparison.read(finished.here / "test"), (0.5,))
    comparison.write(here / "test")
    with pytest.raises(
        InputError, match="the run evolve-3 was not compared; learned policies that were: ppo-0"
    ):
        ship_models([replace(finished, here=here)], tmp_path / "models")


# --- The command line ---


def test_the_verbs_write_and_print_json(
    finished: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, results = str(finished.here.parents[1] / "tiny.toml"), str(finished.here.parent)
    monkeypatch.setattr(model_file, "SHIPPED_IN", tmp_path)
    common = ["experiments", "--results", results, "--json"]
    assert main([*common[:1], "run", recipe, *common[1:]]) == 0
    assert json.loads(capsys.readouterr().out)["experiments"][0]["complete"] is True
    models_page = str(tmp_path / "models.md")
    assert (
        main([*common[:1], "ship", recipe, "--out", str(tmp_path), "--page", models_page, *common[1:]]) == 0
    )
    assert json.loads(capsys.readouterr().out) == {"models": list(MODELS)}
    assert main([*common[:1], "page", recipe, "--out", str(tmp_path / "results.md"), *common[1:]]) == 0
    assert json.loads(capsys.readouterr().out)["experiments"] == ["tiny"]
    assert "[their cards](models.md)" in (tmp_path / "results.md").read_text()
    assert main(["experiments", "check", "--model", "by-draws", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checks"][0]["agrees"] is True
    (tmp_path / "by-draws.safetensors").write_bytes(b"spoilt")
    assert main(["experiments", "check", "--model", "by-draws"]) == 1
    assert "by-draws: DIFFERS" in capsys.readouterr().out


def test_without_recipes_one_is_told_to_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["experiments", "page"]) == 2
    assert "there are no recipes in experiments/" in capsys.readouterr().err


def test_headlines_go_between_their_marks_and_nowhere_else(finished: Experiment, tmp_path: Path) -> None:
    table = finished.recipe.table[0].model_copy(update={"headline": "A | b", "learned": "evolve-3"})
    recipe = finished.recipe.model_copy(update={"table": (table, *finished.recipe.table[1:])})
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    for _ in range(2):
        write_page([replace(finished, recipe=recipe)], tmp_path / "results.md", readme)
    before, _, rest = readme.read_text().partition(BEGIN)
    inside, _, after = rest.partition(END)
    assert (before, after) == ("before\n\n", "\n\nafter\n")
    lines = inside.strip().splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("| A \\| b | ")
    assert "(`evolve-3`)" in lines[2]
    readme.write_text("no marks\n")
    with pytest.raises(InputError, match="between which the table goes"):
        write_page([finished], tmp_path / "results.md", readme)
    assert readme.read_text() == "no marks\n"


def test_a_row_that_is_not_there_cannot_stand_for_a_table(finished: Experiment, tmp_path: Path) -> None:
    table = finished.recipe.table[0].model_copy(update={"learned": "evolv"})
    recipe = finished.recipe.model_copy(update={"table": (table,)})
    with pytest.raises(InputError, match="'evolv' is none of its rows; did you mean 'evolve-3'"):
        write_page([replace(finished, recipe=recipe)], tmp_path / "results.md")
