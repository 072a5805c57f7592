"""Settings of training runs: what is refused, and how the refusal reads."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.train import parse_options
from gpuyard.errors import InputError
from gpuyard.files import read_toml
from gpuyard.learn.config import merged, read_config
from gpuyard.learn.presets import preset_tables, train_presets
from gpuyard.learn.settings import assemble, replaced_in_words
from gpuyard.terminal.live import setup_in_words


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"ppo": {"clipp": 0.1}}, r"unknown key ppo\.clipp; did you mean 'clip'\?"),
        ({"ppo": {"learning_rate": 0.1}}, r"learning_rate is a table of its own: .*learning_rate\.start"),
        ({"trainning": {}}, r"unknown key trainning; did you mean 'training'"),
        ({"training": {"step": 10}}, r"unknown key training\.step; did you mean 'steps'"),
        ({"environment": {"windw": 3}}, r"unknown key environment\.windw; did you mean 'window'"),
        ({"network": {"kind": "lstm"}}, r"network\.kind: .*job-scorer.* \(is 'lstm'\)"),
        ({"network": {"widht": 3}}, r"unknown key network\.widht; did you mean 'width'"),
        ({"ppo": {"clip": -1}}, r"ppo\.clip: expected more than 0 \(is -1\)"),
        ({"ppo": {"discount": 1.5}}, r"ppo\.discount: .* \(is 1\.5\)"),
        ({"training": {"steps": 0}}, r"training\.steps: .* \(is 0\)"),
        (
            {"learning_rate": {"schedule": "stepwise", "start": 1}},
            r"schedule: .* \(is 'stepwise'\)",
        ),
        (
            {"environment": {"window": 0}},
            r"environment\.window: expected 1 or more \(is 0\)",
        ),
        ({"environment": {"window": "x"}}, r"environment\.window: .* \(is 'x'\)"),
        ({"environment": {"rewards": {"wait": "x"}}}, r"environment\.rewards\.wait: .* \(is 'x'\)"),
        ({"environment": {"flatten": True}}, r"flatten"),
        ({"d3qn": {}}, r"table d3qn in a run of ppo"),
        (
            {"environment": {"envs": 7}, "training": {"processes": 2}},
            r"`environment\.envs=6 or 8`, or `training\.processes=1 or 7`",
        ),
        (
            {"environment": {"envs": 64}, "training": {"processes": 3}},
            r"envs 64 cannot be shared evenly by training\.processes 3; .*63 or 66`, or `.*=2 or 4`",
        ),
        (
            {"environment": {"envs": 2}, "training": {"processes": 3}},
            r"`environment\.envs=3`, or `training\.processes=2`$",
        ),
        ({"network": {"kind": "cross-attention", "width": 30, "heads": 4}}, r"multiple of heads"),
        ({"network": {"kind": "rule", "residual": "base"}}, r"rule starts from itself"),
    ],
)
def test_wrong_settings_are_refused_with_their_place(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_config({"algorithm": "ppo", **tables})


def test_default_number_of_processes_shares_the_environments_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(3)))
    assert read_config({"algorithm": "ppo", "environment": {"envs": 64}}).training.processes == 2
    assert read_config({"algorithm": "ppo", "environment": {"envs": 66}}).training.processes == 3


def test_columns_of_globals_can_be_given_as_options() -> None:
    tokens = ["--rule.score.estimate", "-1", "--rule.gate.globals.free", "2", "--rule.gate.estimate", "-3"]
    config = assemble("ppo", {**parse_options(tokens), "network": {"residual": "rule"}})
    assert config.rule is not None
    assert dict(config.rule.gate) == {"globals.free": 2.0, "estimate": -3.0}


def test_unknown_algorithm_is_refused_with_what_is_close() -> None:
    with pytest.raises(InputError, match="did you mean 'ppo'"):
        assemble("pppo", {})


@pytest.mark.parametrize("algorithm", ["ppo", "d3qn", "sac", "clone"])
def test_settings_read_back_equal_from_their_file(algorithm: str, tmp_path: Path) -> None:
    environment = {"window": 16, "rewards": {"wait": 1.0, "completed_work": 0.5}, "job_features": ["wait"]}
    config = read_config({"algorithm": algorithm, "environment": environment})
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml())
    assert read_config(read_toml(file), str(file)) == config


@pytest.mark.parametrize("name", list(train_presets()))
def test_presets_are_valid(name: str) -> None:
    config = assemble("ppo", {}, preset=name)
    assert config.training.steps > 0
    assert preset_tables(name, "d3qn").get("ppo") is None


def test_options_go_before_the_file_and_the_file_before_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[ppo]\nclip = 0.3\nepochs = 7\n[environment]\nrewards = {wait = 1.0}\n")
    config = assemble("ppo", {"ppo": {"epochs": 2}}, preset="bursty", file=file)
    assert (config.settings.clip, config.settings.epochs, config.settings.discount) == (0.3, 2, 0.999)
    assert config.environment.settings["rewards"] == {"wait": 1.0}


def test_options_that_replace_parts_of_a_preset_are_told_in_one_line(tmp_path: Path) -> None:
    options = {"environment": {"workload": "demo", "window": 16}, "training": {"minutes": 1, "seed": 3}}
    assert replaced_in_words("bursty", "ppo", options) == (
        "preset bursty with workload demo instead of its jobs; training.minutes 1 instead of 4.5; "
        "all else is the preset's"
    )
    assert replaced_in_words("bursty", "ppo", {"training": {"seed": 3}}) == ""
    file = tmp_path / "mine.toml"
    file.write_text("[environment]\nenvs = 8\n")
    assert "environment.envs 8 instead of 64" in replaced_in_words("bursty", "ppo", {}, file)


def test_jobs_that_are_given_take_the_place_of_those_of_a_preset() -> None:
    config = assemble("ppo", {"environment": {"workload": "demo"}}, preset="demo")
    assert (config.environment.workload, config.environment.generator) == ("demo", None)
    config = assemble("ppo", {"network": {"residual": "base"}}, preset="bursty")
    assert config.rule is None
    with pytest.raises(InputError, match="rule has no effect"):
        assemble("ppo", {"network": {"residual": "base"}, "rule": {"score": {"gpus": 1}}})


@pytest.mark.parametrize(
    ("tables", "preset", "words"),
    [
        ({}, "bursty", ["ppo on jobs of the environment bursty-8gpu", "800,000 samples or 4 min 30 s"]),
        ({}, "demo", ["draws of the generator demo", "their own cluster", "job-scorer of width 32"]),
        (
            {"environment": {"workload": "jobs.csv", "cluster": "64x8"}},
            "bursty",
            ["windows of jobs.csv in the environment bursty-8gpu, cluster 64x8", "from a rule"],
        ),
        (
            {"training": {"processes": 1}, "init_from": "runs/a"},
            None,
            ["from runs/a", "1,000,000 samples; 1 process"],
        ),
    ],
)
def test_what_is_trained_is_told_in_one_line(
    tables: dict[str, Any], preset: str | None, words: list[str]
) -> None:
    said = setup_in_words(assemble("ppo", tables, preset=preset))
    for word in words:
        assert word in said


def test_mistakes_in_a_file_are_told_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[ppo]\nclipp = 0.3\n")
    with pytest.raises(InputError, match=r"mine\.toml: unknown key ppo\.clipp"):
        assemble("ppo", {}, file=file)
    file.write_text("[ppo\n")
    with pytest.raises(InputError, match=r"mine\.toml: is not valid TOML.*line 1"):
        assemble("ppo", {}, file=file)
    with pytest.raises(InputError, match=r"none\.toml: cannot be read"):
        assemble("ppo", {}, file=tmp_path / "none.toml")


def test_tables_are_merged_key_by_key() -> None:
    assert merged({"ppo": {"clip": 1, "epochs": 2}}, {"ppo": {"clip": 3}}) == {
        "ppo": {"clip": 3, "epochs": 2}
    }


def test_options_are_read_as_numbers_lists_and_text() -> None:
    tokens = ["--ppo.clip", "0.1", '--environment.rewards={"wait": 1}', "--network.kind", "mlp"]
    assert parse_options(tokens) == {
        "ppo": {"clip": 0.1},
        "environment": {"rewards": {"wait": 1}},
        "network": {"kind": "mlp"},
    }


@pytest.mark.parametrize(
    ("token", "spelling"),
    [
        ("--estimates", "--environment.estimates VALUE"),
        ("--warmup-jobs=0", "--environment.warmup_jobs VALUE"),
        ("--oversize", "--environment.simulation.oversize VALUE"),
        ("--current", "--validation.current VALUE"),
        ("--width", "--network.width VALUE"),
    ],
)
def test_a_setting_without_its_table_is_answered_with_its_spelling(token: str, spelling: str) -> None:
    with pytest.raises(InputError, match=f"is written {spelling}"):
        parse_options([token, "exact"])


@pytest.mark.parametrize("tokens", [["clip"], ["--clip", "3"], ["--ppo.clip"]])
def test_options_that_cannot_be_read_are_refused(tokens: list[str]) -> None:
    with pytest.raises(InputError, match=r"ppo\.clip"):
        parse_options(tokens)


def test_settings_that_are_switched_off_stay_off_in_the_file(tmp_path: Path) -> None:
    config = read_config({"algorithm": "ppo", "ppo": {"target_kl": None, "value_clip": None}})
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml())
    assert read_config(read_toml(file), str(file)) == config
