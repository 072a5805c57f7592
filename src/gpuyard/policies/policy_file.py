"""Policy files: a policy with settings of its own, such as the weights of a cluster's scheduler.

See docs/formats/policy-file.md. Whatever runs a policy asks it for the settings to run under
(``Policy.configured``), so this is the one place that knows of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpuyard.config import POLICY_SETTINGS, SimulationConfig, refusal
from gpuyard.errors import InputError
from gpuyard.files import read_toml, toml_text
from gpuyard.policies.calibrated import CalibrationFigures
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.registry import suggest

SUFFIX = ".toml"
KEYS = ("policy", "settings", "calibration")
EXPECTED = 'expected policy = "NAME", such as "multifactor+easy", and a table [settings]'


@dataclass(frozen=True)
class TunedPolicy(PolicySpec):
    """A policy made of rules that runs under some settings of its own. Make one with ``read_policy_file``."""

    path: str = ""
    """Of its file, as it was given."""
    states_placement: bool = False
    """Whether its file says where jobs go, rather than leaving that to the policies it is compared with."""
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Those of ``POLICY_SETTINGS`` that its file states, checked."""
    calibration: CalibrationFigures | None = field(default=None, compare=False)
    """How closely it reproduces a log, if its file says so."""

    @property
    def name(self) -> str:
        """The path of its file, by which it is found again."""
        return self.path

    @property
    def title(self) -> str:
        """What a person would call it: the file's name."""
        return Path(self.path).stem

    @property
    def grammar(self) -> str:
        """Its rules as a name without settings."""
        return PolicySpec(self.order, self.backfill, self.admission, self.placement, self.max_wait_s).name

    def configured(self, config: SimulationConfig) -> SimulationConfig:
        """Settings of a simulation with its own in place of those that all share."""
        return config.model_copy(update=dict(self.settings))


def read_policy_file(path: str | Path) -> TunedPolicy:
    """The policy of a file.

    Raises:
        InputError: naming the file, and the key that is wrong.
    """
    document = read_toml(path)
    unknown = next((key for key in document if key not in KEYS), None)
    if unknown is not None:
        hint = "; is it a cluster? Give that as --cluster" if unknown in ("nodes", "gpu_types") else ""
        raise InputError(f"{path}: unknown key {unknown}{hint or f'; {EXPECTED}'}")
    name, settings = document.get("policy"), document.get("settings", {})
    if not isinstance(name, str) or not isinstance(settings, Mapping):
        raise InputError(f"{path}: has no policy, or settings are no table; {EXPECTED}")
    policy = tuned_policy(name, settings, str(path))
    return replace(policy, calibration=_checked_calibration(document.get("calibration"), str(path)))


def tuned_policy(name: str, settings: Mapping[str, Any], path: str) -> TunedPolicy:
    """The policy of a name under some settings of its own.

    Args:
        name: Of a policy that is made of rules.
        settings: Those of ``POLICY_SETTINGS`` that are its own.
        path: The file that states them, by which results call it.

    Raises:
        InputError: naming the file, and the key that is wrong.
    """
    try:
        spec = parse_policy(name)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    checked = _checked_settings(settings, path)
    rules = {part: getattr(spec, part) for part in PolicySpec.__dataclass_fields__}
    return TunedPolicy(**rules, path=path, states_placement="/" in name, settings=checked)


def _checked_calibration(figures: Any, path: str) -> CalibrationFigures | None:
    if figures is None:
        return None
    if not isinstance(figures, Mapping):
        raise InputError(f"{path}: calibration is no table; gpuyard calibrate writes it")
    try:
        return CalibrationFigures.model_validate(dict(figures))
    except ValidationError as error:
        raise refusal(error, path, prefix=("calibration",)) from None


def _checked_settings(settings: Mapping[str, Any], path: str) -> dict[str, Any]:
    for key in settings:
        if key in POLICY_SETTINGS:
            continue
        if key in SimulationConfig.model_fields:
            raise InputError(
                f"{path}: settings.{key} holds for all policies of a comparison; leave it out here, and give "
                f"it on the command line. Policies have {', '.join(POLICY_SETTINGS)}"
            )
        raise InputError(f"{path}: unknown key settings.{key}{suggest(key, dict.fromkeys(POLICY_SETTINGS))}")
    try:
        config = SimulationConfig.model_validate(dict(settings))
    except ValidationError as error:
        raise refusal(error, path, prefix=("settings",)) from None
    return {key: getattr(config, key) for key in settings}


def policy_file_text(
    policy: str, settings: Mapping[str, Any], calibration: CalibrationFigures | None = None
) -> str:
    """The text of a policy file."""
    figures = {} if calibration is None else {"calibration": calibration.model_dump()}
    return toml_text({"policy": policy, "settings": settings, **figures})


def parse_rules(text: str) -> PolicySpec:
    """A policy made of rules: by its name, or by the path of a policy file.

    Raises:
        InputError: as ``parse_policy`` and ``read_policy_file`` do.
    """
    return read_policy_file(text) if text.endswith(SUFFIX) else parse_policy(text)
