"""Options of the command line that stand for settings: all there, stated truly, and passed on."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from cyclopts import App
from pydantic import BaseModel

from gpuyard import cli
from gpuyard.cli import parameters
from gpuyard.cli.inputs import flag
from gpuyard.config import SimulationConfig
from gpuyard.evaluate.config import EvaluationConfig
from gpuyard.learn.config import TrainingSection
from gpuyard.workload import SynthConfig
from gpuyard.workload.shaping.config import ShapeConfig
from support.command_line import Run

# What is typed for each setting, and what the simulator must get.
GIVEN: dict[str, tuple[list[str], object]] = {
    "estimates": (["--estimates", "noisy"], "noisy"),
    "noise_sigma": (["--noise-sigma", "0.5"], 0.5),
    "seed": (["--seed", "7"], 7),
    "kill_at_estimate": (["--kill-at-estimate"], True),
    "locality_penalty": (["--locality-penalty", "0.5"], 0.5),
    "oversize": (["--oversize", "drop"], "drop"),
    "usage_half_life_s": (["--usage-half-life", "60"], 60.0),
    "user_shares": (["--user-shares", "u0:2,a:b:0.5"], {"u0": 2.0, "a:b": 0.5}),
    "group_shares": (["--group-shares", "g0:3"], {"g0": 3.0}),
    "age_weight": (["--age-weight", "1"], 1.0),
    "size_weight": (["--size-weight", "2"], 2.0),
    "fair_share_weight": (["--fair-share-weight", "3"], 3.0),
    "priority_weight": (["--priority-weight", "4"], 4.0),
    "max_age_s": (["--max-age", "5"], 5.0),
    "partition_weight": (["--partition-weight", "6"], 6.0),
    "qos_weight": (["--qos-weight", "7"], 7.0),
    "gpu_weight": (["--gpu-weight", "8"], 8.0),
    "cpu_weight": (["--cpu-weight", "9"], 9.0),
    "memory_weight": (["--memory-weight", "10"], 10.0),
    "favor_small": (["--favor-small"], True),
    "fair_share": (["--fair-share", "classic"], "classic"),
    "priority_calc_s": (["--priority-calc", "60"], 60.0),
    "bf_interval_s": (["--bf-interval", "15"], 15.0),
    "bf_max_job_test": (["--bf-max-job-test", "100"], 100),
    "bf_max_job_part": (["--bf-max-job-part", "50"], 50),
    "bf_max_job_user": (["--bf-max-job-user", "10"], 10),
    "bf_window_s": (["--bf-window", "3600"], 3600.0),
    "bf_resolution_s": (["--bf-resolution", "30"], 30.0),
    "group_quotas": (["--group-quotas", "g0:16,g1:8"], {"g0": 16, "g1": 8}),
    "quota_borrowing": (["--no-quota-borrowing"], False),
    "reschedule_s": (["--reschedule", "61"], 61.0),
    "min_run_s": (["--min-run", "0"], 0.0),
    "checkpoint_s": (["--checkpoint", "1.5"], 1.5),
    "restore_s": (["--restore", "2.5"], 2.5),
    "defragment": (["--defragment"], True),
    "tiresias_levels_gpu_s": (["--tiresias-levels", "10,20.5,300"], [10.0, 20.5, 300.0]),
    "starvation_s": (["--starvation", "99"], 99.0),
    "node_mtbf_s": (["--node-mtbf", "1e7"], 1e7),
    "node_mttr_s": (["--node-mttr", "600"], 600.0),
    "checkpoint_every_s": (["--checkpoint-every", "900"], 900.0),
    "sleep_after_s": (["--sleep-after", "0"], 0.0),
    "wake_s": (["--wake", "20"], 20.0),
    "power_cap_w": (["--power-cap", "20000"], 20000.0),
}
ALONE = "defragment"  # it goes with neither quotas nor a power cap


CHOSEN = "requested"
"""What ``estimates = auto`` is for these jobs."""


def settings_of(run: Run, *options: str) -> dict[str, Any]:
    code, out, err = run("simulate", "demo", "--cluster", "8x8:v100", *options, "--json")
    assert code == 0, err
    settings: dict[str, Any] = json.loads(out)["settings"]
    return settings


def test_every_setting_is_tried_with_another_value_than_its_default() -> None:
    defaults = SimulationConfig().model_dump(mode="json")
    assert set(GIVEN) == set(defaults)
    for name, (_, value) in GIVEN.items():
        assert value != defaults[name], name


def test_settings_reach_the_simulation(run: Run) -> None:
    together = {name: given for name, given in GIVEN.items() if name != ALONE}
    options = [word for words, _ in together.values() for word in words]
    wanted = {name: value for name, (_, value) in together.items()}
    assert settings_of(run, *options) == wanted | {ALONE: SimulationConfig().defragment}
    alone = SimulationConfig(defragment=True, estimates=CHOSEN)
    assert settings_of(run, *GIVEN[ALONE][0]) == alone.model_dump(mode="json")


@pytest.mark.parametrize(
    ("text", "seed"), [("1e3", 1000), ("1_000", 1000), ("9007199254740993", 2**53 + 1), ("30.0", 30)]
)
def test_whole_numbers_are_taken_as_they_are(run: Run, text: str, seed: int) -> None:
    assert settings_of(run, "--seed", text)["seed"] == seed


def test_what_is_not_given_is_as_the_model_says(run: Run) -> None:
    assert settings_of(run) == SimulationConfig(estimates=CHOSEN).model_dump(mode="json")


def test_borrowing_can_be_allowed_in_so_many_words(run: Run) -> None:
    assert settings_of(run, "--quota-borrowing")["quota_borrowing"] is True


def verbs(app: App = cli.app, group: str = "") -> Iterator[tuple[str, App]]:
    """Every verb and its name, those of groups too."""
    for name in (name for name in app if not name.startswith("-")):
        verb = app[name]
        if verb.default_command is not None:
            yield group + name, verb
        yield from verbs(verb, f"{group}{name} ")


def parameters_declared_twice(app: App) -> list[str]:
    """Parameters that a verb declares itself though a model that it takes has a field of that name."""
    arguments = [argument for argument in app.assemble_argument_collection() if argument.parse]
    own = {argument.field_info.name for argument in arguments if not argument.keys and not argument.children}
    fields = {argument.keys[0] for argument in arguments if argument.keys}
    flags = [name for argument in arguments for name in argument.parameter.name or ()]
    return sorted(own & fields) + sorted({flag for flag in flags if flags.count(flag) > 1 and flag != "*"})


def test_no_parameter_is_declared_twice() -> None:
    found = {name: parameters_declared_twice(verb) for name, verb in verbs()}
    assert len(found) >= 30
    assert {name: twice for name, twice in found.items() if twice} == {}


def test_a_parameter_that_is_declared_twice_is_found() -> None:
    app = App()

    @app.default
    def verb(*, seed: int = 0, simulation: parameters.Simulation = parameters.SIMULATION) -> None: ...

    assert "seed" in parameters_declared_twice(app)


@pytest.mark.parametrize(
    ("verb", "model", "without"),
    [
        ("simulate", SimulationConfig, set()),
        ("evaluate", SimulationConfig, set()),
        ("evaluate", EvaluationConfig, set()),
        ("explain", SimulationConfig, set()),
        ("workload synth", SynthConfig, {"cluster_gpus"}),
        ("workload shape", ShapeConfig, set()),
        ("train", TrainingSection, set()),
    ],
)
def test_every_setting_has_a_flag_with_the_models_help_and_default(
    verb: str, model: type[BaseModel], without: set[str]
) -> None:
    arguments = dict(verbs())[verb].assemble_argument_collection(parse_docstring=True)
    shown = {argument.keys[0]: argument for argument in arguments if argument.keys and argument.parse}
    for name, field in model.model_fields.items():
        if name in without:
            assert name not in shown
            continue
        assert shown[name].parameter.help, name
        assert shown[name].field_info.default == field.default, name


def test_summaries_of_the_list_are_what_the_verbs_say_of_themselves(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for name, (home, summary) in cli.VERBS.items():
        assert name in out
        if not home.endswith("_app"):
            assert cli.app[name].help.startswith(summary), name


def test_defaults_that_depend_on_other_settings_are_those_that_the_help_states() -> None:
    arguments = dict(verbs())["simulate"].assemble_argument_collection(parse_docstring=True)
    helps = {argument.keys[0]: argument.parameter.help or "" for argument in arguments if argument.keys}
    failing, sleeping = SimulationConfig(node_mtbf_s=1e6), SimulationConfig(sleep_after_s=1.0)
    assert f"Not given: {failing.repair_s:g}" in helps["node_mttr_s"]
    assert f"Not given: {sleeping.waking_s:g}" in helps["wake_s"]


def test_every_option_is_spelt_as_messages_spell_it(run: Run) -> None:
    code, out, _ = run("simulate", "--help-all")
    assert code == 0
    for name in SimulationConfig.model_fields:
        assert re.search(rf"(?<![\w-]){flag(name)}(?![\w-])", out), name
