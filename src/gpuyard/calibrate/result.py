"""What a calibration found, as JSON, as a policy file and as a cluster."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gpuyard
from gpuyard.calibrate.candidates import MULTIFACTOR, WEIGHTS, YARDSTICK, Candidate
from gpuyard.calibrate.closeness import BOUNDS, Closeness
from gpuyard.calibrate.config import CalibrationConfig
from gpuyard.calibrate.search import Trial
from gpuyard.cluster.model import Cluster
from gpuyard.config import POLICY_SETTINGS, SimulationConfig
from gpuyard.errors import InputError
from gpuyard.files import atomic_write, check_directory
from gpuyard.policies.calibrated import CalibrationFigures
from gpuyard.policies.grammar import DEFAULT_PLACEMENT, PolicySpec
from gpuyard.policies.policy_file import policy_file_text
from gpuyard.units import json_text

DOCUMENT = "calibration.json"
POLICY = "calibrated.toml"
CLUSTER = "cluster.toml"
PAGE = "calibration.html"
FILES = (DOCUMENT, POLICY, CLUSTER, PAGE)
FORMAT = 1


@dataclass(frozen=True)
class Curves:
    """Mean waits over time in the second half.

    Attributes:
        step_s: Over which means are taken.
        begin_s: When each span begins, on the workload's clock; those without jobs are left out.
        recorded_s: Mean recorded wait of the jobs submitted in it.
        simulated_s: The same under the calibrated policy.
        yardstick_s: The same under the yardstick.
    """

    step_s: float
    begin_s: tuple[float, ...]
    recorded_s: tuple[float, ...]
    simulated_s: tuple[float, ...]
    yardstick_s: tuple[float, ...]


@dataclass(frozen=True)
class Calibration:
    """The policy, settings and nodes that best reproduce a log, and how closely.

    Attributes:
        log: What the log is called.
        given: The cluster as it was given.
        cluster: The one that fits best.
        candidate: The policy that fits best.
        config: Settings that all policies shared.
        limits: How long and for what was searched.
        misfit: On the first half.
        closeness: On the second half.
        others: The same of the yardstick and of the user's own policies, on the given cluster, by label.
        start: How the second half began: with what was ``recorded``, or by the ``replay`` of the first.
        curves: Mean waits over time.
        epoch_s: What the log's clock showed at time 0; None if the log has no dates.
        jobs: In both halves.
        left_out: Jobs of the log that are in neither.
        notes: What to know about the record, in whole sentences.
        trials: What was tried.
        skipped: Why policies were not, by label.
        elapsed_s: How long it took.
    """

    log: str
    given: Cluster
    cluster: Cluster
    candidate: Candidate
    config: SimulationConfig
    limits: CalibrationConfig
    misfit: float
    closeness: Closeness
    others: Mapping[str, Closeness]
    start: str
    curves: Curves
    epoch_s: float | None
    jobs: int
    left_out: int
    notes: tuple[str, ...]
    trials: tuple[Trial, ...]
    skipped: Mapping[str, str]
    elapsed_s: float

    @property
    def yardstick(self) -> Closeness:
        """How close the yardstick comes."""
        return self.others[YARDSTICK]

    @property
    def is_scaled(self) -> bool:
        """Whether another number of nodes fits better than the given one."""
        return self.cluster.node_count != self.given.node_count

    @property
    def rules(self) -> str:
        """The policy's name without settings, and without the placement that all take anyway."""
        spec = self.candidate.policy
        parts = {name: getattr(spec, name) for name in PolicySpec.__dataclass_fields__}
        name = PolicySpec(**parts).name
        return name.removesuffix(f"/{DEFAULT_PLACEMENT}")

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that its policy file states: its own, and those that are not as they are by default."""
        now, usual = self.candidate.policy.configured(self.config), SimulationConfig()
        stated = set(self.candidate.settings)
        stated |= {name for name in POLICY_SETTINGS if getattr(now, name) != getattr(usual, name)}
        stated |= {*WEIGHTS} if self.candidate.policy.order == MULTIFACTOR else set()
        return {name: getattr(now, name) for name in POLICY_SETTINGS if name in stated}

    @property
    def figures(self) -> CalibrationFigures:
        """What its policy file says of how closely it reproduces the log."""
        found = self.closeness
        return CalibrationFigures(
            log=self.log,
            nodes=self.cluster.node_count,
            jobs=found.jobs,
            verdict=found.verdict,
            median_error_s=found.median_error_s,
            p90_error_s=found.p90_error_s,
            correlation=found.correlation,
            share_within=found.share_within,
            wait_ratio=found.wait_ratio,
            least_difference=found.least_difference,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "format": FORMAT,
            "gpuyard_version": gpuyard.__version__,
            "log": self.log,
            "jobs": self.jobs,
            "left_out": self.left_out,
            "policy": self.rules,
            "label": self.candidate.label,
            "settings": self.settings,
            "cluster": self.cluster.model_dump(mode="json", exclude_none=True),
            "nodes": self.cluster.node_count,
            "given_nodes": self.given.node_count,
            "verdict": self.closeness.verdict,
            "second_half": self.closeness.to_json(),
            "others": {name: one.to_json() for name, one in self.others.items()},
            "start": self.start,
            "first_half_misfit": self.misfit,
            "bounds": {name: asdict(bounds) for name, bounds in BOUNDS.items()},
            "notes": list(self.notes),
            "simulation": self.config.model_dump(mode="json"),
            "search": self.limits.model_dump(mode="json"),
            "trials": [trial.to_json() for trial in self.trials],
            "skipped": dict(self.skipped),
            "curves": asdict(self.curves),
            "elapsed_s": self.elapsed_s,
        }

    def policy_text(self) -> str:
        """The text of its policy file."""
        return policy_file_text(self.rules, self.settings, self.figures)

    def write(self, directory: Path) -> list[str]:
        """Write the policy, the cluster if another size fits better, and everything as JSON, that last.

        Returns:
            Names of the files.

        Raises:
            InputError: if a file cannot be written.
        """
        files = {POLICY: self.policy_text()}
        files |= {CLUSTER: self.cluster.to_toml()} if self.is_scaled else {}
        files |= {DOCUMENT: json_text(self.to_json()) + "\n"}
        clear(directory)
        for name, text in files.items():
            with atomic_write(directory / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return list(files)


def check_free(directory: Path) -> None:
    """Refuse a directory that could not be written, or that holds something other than a calibration.

    Raises:
        InputError: naming it and the reason.
    """
    check_directory(directory)
    if not directory.is_dir() or (directory / DOCUMENT).is_file():
        return
    if any(path.name not in FILES for path in directory.iterdir()):
        raise InputError(
            f"{directory}: is not empty and holds no calibration; give a new directory, or one of a "
            "calibration to write over"
        )


def clear(directory: Path) -> None:
    """Make the directory, and remove the files of the calibration that it held.

    Raises:
        InputError: naming it and the reason.
    """
    check_free(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written ({error.strerror})") from None
