"""What becomes of results: models with their cards, and the command line."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.cards import read_card
from experiments.checking import check_models, differing
from experiments.models import ship_models
from experiments.running import Experiment
from gpuyard.cli import main
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from gpuyard.network import model_file
from support.experiment_cases import MODELS, with_seeds


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
    drawn = read_card(shipped / "by-draws.json")
    assert drawn.trained_on == card.trained_on, "what it was tested on is another matter"
    page = (shipped / "models.md").read_text()
    assert "## by-windows" in page
    assert "**Tested on** 3 fresh draws of 24 jobs." in page
    assert card.sha256 in page
    for path in shipped.iterdir():
        assert str(finished.here).encode() not in path.read_bytes(), "paths of this machine stay here"


def test_shipped_models_have_names(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuyard.simulation.find import find_policy

    monkeypatch.setattr(model_file, "SHIPPED_IN", shipped)
    assert find_policy("model:by-windows").name == "model:by-windows"
    with pytest.raises(InputError, match="known: by-draws, by-episodes, by-windows"):
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
    assert differing({"low": 0.1, "verdict": "better"}, {"low": 0.1, "verdict": "unclear"}) == []
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


def test_models_of_experiments_that_were_not_run_here_stay_as_they_are(
    finished: Experiment, models: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in models.iterdir()}
    nothing = replace(finished, name="nothing", here=tmp_path / "nothing")
    with pytest.raises(InputError, match=r"none of these experiments has results yet, so .*models stays"):
        ship_models([nothing], models, models / "models.md")
    added = finished.recipe.model[0].model_copy(update={"name": "added"})
    run = replace(finished, recipe=finished.recipe.model_copy(update={"model": (added,)}))
    assert ship_models([nothing, run], models, models / "models.md") == ["added"]
    after = {path.name: path.read_bytes() for path in models.iterdir()}
    assert set(after) - set(before) == {"added.json", "added.safetensors"}
    assert {name for name in before if before[name] != after[name]} == {"models.md"}
    page = after["models.md"].decode()
    assert "## added" in page
    _, begin, of_another = before["models.md"].decode().partition("## by-draws\n")
    assert begin + of_another in page


def test_a_name_is_refused_for_two_models_though_one_was_not_run(
    finished: Experiment, tmp_path: Path
) -> None:
    nothing = replace(finished, name="nothing", here=tmp_path / "nothing")
    with pytest.raises(InputError, match="two recipes ship a model called by-windows"):
        ship_models([finished, nothing], tmp_path / "models")
    assert not (tmp_path / "models").exists()


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
    assert json.loads(capsys.readouterr().out) == {"models": list(MODELS), "left": []}
    where = ["--out", str(tmp_path / "pages"), "--published", str(tmp_path / "published")]
    assert main([*common[:1], "page", recipe, *where, *common[1:]]) == 0
    assert json.loads(capsys.readouterr().out)["whole"] == ["tiny"]
    assert "([cards](../models.md))" in (tmp_path / "pages" / "tiny.md").read_text()
    assert main(["experiments", "check", "--model", "by-draws", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checks"][0]["agrees"] is True
    assert main(["experiments", "check", "by-draws", "--model", "by-draws", "--json"]) == 0
    assert [one["model"] for one in json.loads(capsys.readouterr().out)["checks"]] == ["by-draws"]
    (tmp_path / "by-draws.safetensors").write_bytes(b"spoilt")
    assert main(["experiments", "check", "--model", "by-draws"]) == 1
    assert "by-draws: DIFFERS" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "page", "ship", "check"])
def test_the_help_has_no_options_that_empty_lists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", command, "--help"]) == 0
    assert "--empty" not in capsys.readouterr().out


def test_ship_says_which_models_it_left_as_they_are(
    finished: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = finished.here.parents[1] / "tiny.toml"
    later = tmp_path / "later.toml"
    later.write_text(recipe.read_text().replace('name = "by-', 'name = "later-by-'))
    where = ["--results", str(finished.here.parent), "--out", str(tmp_path / "models")]
    command = ["experiments", "ship", str(recipe), str(later), *where, "--page", str(tmp_path / "models.md")]
    assert main(command) == 0
    *shipped, left = capsys.readouterr().out.splitlines()
    assert [Path(line).stem for line in shipped] == list(MODELS)
    names = [f"later-{name}" for name in MODELS]
    assert left == f"left as they are, as nothing was run here: {', '.join(names)}"
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"models": list(MODELS), "left": names}


def test_without_recipes_one_is_told_to_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["experiments", "page"]) == 2
    assert "there are no recipes in experiments/" in capsys.readouterr().err
