"""Options of the command line that stand for settings: all there, stated truly, and passed on."""

import json
import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest

from gpuyard.cli.parameters import SynthOptions, option_name
from gpuyard.cli.simulation_options import SimulationOptions
from gpuyard.config import SimulationConfig
from gpuyard.workload import SynthConfig
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
    assert settings_of(run, *GIVEN[ALONE][0]) == SimulationConfig(defragment=True).model_dump(mode="json")


@pytest.mark.parametrize(
    ("text", "seed"), [("1e3", 1000), ("1_000", 1000), ("9007199254740993", 2**53 + 1), ("30.0", 30)]
)
def test_whole_numbers_are_taken_as_they_are(run: Run, text: str, seed: int) -> None:
    assert settings_of(run, "--seed", text)["seed"] == seed


def test_what_is_not_given_is_as_the_model_says(run: Run) -> None:
    assert settings_of(run) == SimulationConfig().model_dump(mode="json")


def test_borrowing_can_be_allowed_in_so_many_words(run: Run) -> None:
    assert settings_of(run, "--quota-borrowing")["quota_borrowing"] is True


@pytest.mark.parametrize(
    ("options", "model"), [(SimulationOptions, SimulationConfig), (SynthOptions, SynthConfig)]
)
def test_every_setting_has_an_option_that_says_what_holds_without_it(options: type, model: Any) -> None:
    hints = get_type_hints(options, include_extras=True)
    assert set(hints) == set(model.model_fields) - {"cluster_gpus"}
    for name, hint in hints.items():
        assert re.search(r"\(default: .+\)$", hint.__metadata__[0].help), name


@pytest.mark.parametrize(
    ("options", "model"), [(SimulationOptions, SimulationConfig), (SynthOptions, SynthConfig)]
)
def test_help_states_the_models_defaults(options: type, model: Any) -> None:
    in_words = set()
    for name, hint in get_type_hints(options, include_extras=True).items():
        stated = re.search(r"\(default: (.+)\)$", hint.__metadata__[0].help)
        default = model.model_fields[name].default
        assert stated, name
        if default is None or isinstance(default, Mapping):
            in_words.add(name)
        else:
            assert stated[1] == _text(default), name
    assert len(in_words) < 12


def _text(default: object) -> str:
    """A default as the help must state it."""
    if not isinstance(default, tuple):
        return str(default)
    return ",".join(
        ":".join(f"{part:g}" for part in value) if isinstance(value, tuple) else f"{value:g}"
        for value in default
    )


def test_defaults_that_depend_on_other_settings_are_those_that_the_help_states() -> None:
    helps = {
        name: hint.__metadata__[0].help
        for name, hint in get_type_hints(SimulationOptions, include_extras=True).items()
    }
    failing, sleeping = SimulationConfig(node_mtbf_s=1e6), SimulationConfig(sleep_after_s=1.0)
    assert helps["node_mttr_s"].endswith(f"(default: {failing.repair_s:g})")
    assert helps["wake_s"].endswith(f"(default: {sleeping.waking_s:g})")


def test_every_option_is_spelt_as_messages_spell_it(run: Run) -> None:
    code, out, _ = run("simulate", "--help")
    assert code == 0
    for name in SimulationConfig.model_fields:
        assert re.search(rf"(?<![\w-]){option_name(name)}(?![\w-])", out), name
