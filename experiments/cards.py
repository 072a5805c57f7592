"""Cards of models that come with gpuyard: what each was trained on, what it reached, how to repeat that."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from experiments.published import Apart, Differences
from experiments.standings import standing
from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, PolicyEntry
from gpuyard.evaluate.setting import Kind
from gpuyard.network.model_file import SUFFIX

FORMAT = 1
Arguments = tuple[str, ...]
"""Of a command of gpuyard, with ``{here}`` and ``{traces}`` in them."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


class Figures(_Table):
    """What a model reached on the test, beside the reference."""

    metric: str
    windows: int
    jobs_per_window: int
    value: float
    reference: str
    """Name of the heuristic that it is measured against."""
    reference_value: float
    difference: Apart | None
    mean_jct: Apart | None
    mean_wait_s: float | None
    p99_wait_s: float | None
    max_wait_s: float | None
    reference_mean_wait_s: float | None
    reference_p99_wait_s: float | None
    reference_max_wait_s: float | None

    @classmethod
    def of(cls, comparison: Comparison, entry: PolicyEntry, differences: Differences = "geometric") -> Self:
        """Those of a policy of a comparison."""
        own = standing(comparison, [entry], differences)
        other = comparison.policy(comparison.reference or "")
        reference = standing(comparison, [other])
        return cls(
            metric=comparison.setting.metric,
            windows=len(comparison.setting.windows),
            jobs_per_window=comparison.setting.jobs_per_window,
            value=own.value,
            reference=other.name,
            reference_value=reference.value,
            difference=own.difference,
            mean_jct=own.jct,
            mean_wait_s=own.mean_wait_s,
            p99_wait_s=own.p99_wait_s,
            max_wait_s=own.max_wait_s,
            reference_mean_wait_s=reference.mean_wait_s,
            reference_p99_wait_s=reference.p99_wait_s,
            reference_max_wait_s=reference.max_wait_s,
        )


class TrainedOn(_Table):
    """What a model learned from."""

    source: str
    """The jobs: a file of the experiment, or the name of a built-in workload, generator or preset."""
    workload: str
    """What these jobs call themselves."""
    jobs: int
    """Of the workload; 0 if they are drawn."""
    cluster: str
    nodes: int
    gpus: int
    estimates: str


class Repetition(_Table):
    """All that is needed to get the figures again."""

    kind: Kind
    prepare: tuple[Arguments, ...]
    """Commands that make the jobs."""
    on: str | None
    """The jobs, unless they are those of the environment."""
    cluster: Mapping[str, Any]
    simulation: Mapping[str, Any]
    """Of ``SimulationConfig``."""
    part: str
    transfer: bool
    """Whether the model may run with other information, or elsewhere, than it was trained with."""
    noise_draws: int = 1
    """Of noisy estimates."""
    environment: Mapping[str, Any] | None
    """Of episodes: the table of settings."""
    first: int
    """Name of the first window: its first row, or its seed."""
    last: int
    fingerprint: str
    """Of the jobs."""
    is_cold: bool = True
    """Whether windows begin with an empty cluster, as all did before November 2026."""
    differences: Differences = "arithmetic"


class Card(_Table):
    """What is to be known of a model."""

    format: int = FORMAT
    name: str
    experiment: str
    title: str
    trained_on: TrainedOn
    training: tuple[Arguments, ...]
    test: Figures
    repeat: Repetition
    why: str
    limits: str
    sha256: str
    """Of the model's file."""
    bytes: int
    gpuyard_version: str

    def text(self) -> str:
        """As JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def read_card(path: Path) -> Card:
    """A card from its file.

    Raises:
        InputError: if it is not there, or is damaged.
    """
    try:
        return Card.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: the model's card cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise InputError(f"{refusal(error, f'{path}: is not a card')}; ship the model again") from None


def read_cards(folder: Path) -> list[Card]:
    """The cards of all models of a folder, by name.

    Raises:
        InputError: if a model has none, or one is damaged.
    """
    return [read_card(model.with_suffix(".json")) for model in sorted(folder.glob(f"*{SUFFIX}"))]
