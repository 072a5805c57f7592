"""The environments that a configuration asks for: those to train in, and those that are held out."""

from typing import Any

import numpy as np

from gpuyard.config import AUTO, USUAL_CURRENT
from gpuyard.env.registration import checked_kind
from gpuyard.env.vector import SchedulingVectorEnv, make_model
from gpuyard.errors import InputError, setting
from gpuyard.learn.config import EnvironmentSection, ValidationSection
from gpuyard.native.information import why_chosen
from gpuyard.observation.config import HOST_KINDS
from gpuyard.observation.episodes import WindowedJobs
from gpuyard.observation.spec import EnvModel, acting_policy
from gpuyard.units import plural
from gpuyard.workload import Workload, read_workload
from gpuyard.workload.shaping.slices import window

COLD = {"warmup_jobs": 0, "cooldown_jobs": 0}
"""Episodes that begin with an empty cluster."""


class Environments:
    """What a configuration asks for, with its workload read once.

    Attributes:
        kind: Of environment.
        draws: Whether a generator draws the jobs.
        around: Jobs of warm-up and of cool-down, which all parts of a workload share.
    """

    def __init__(self, section: EnvironmentSection) -> None:
        self.section = section
        self.kind = checked_kind(section.id)
        given: dict[str, Any] = {"generator": section.generator, "cluster": section.cluster}
        given |= {"preset": section.preset, **section.settings}
        workload: Workload | str | None = section.workload
        if section.workload is not None and section.workload not in _built_in():
            workload = read_workload(section.workload)
        self._arguments = {**given, "workload": workload}
        self.draws = self._model(COLD).draws
        self._training = self._model(self._part("train"))
        self.around = before, after = self._training.config.around
        self._arguments |= {"warmup_jobs": before, "cooldown_jobs": after}

    def _model(self, changes: dict[str, Any]) -> EnvModel:
        arguments = {**self._arguments, **changes}
        sources = {name: arguments.pop(name) for name in ("workload", "generator", "cluster", "preset")}
        return make_model(self.kind, **sources, settings=arguments)

    def _part(self, split: str) -> dict[str, Any]:
        """Settings of one part of the jobs, unless a generator draws them."""
        return {} if self.draws else {"split": split}

    def model(self, split: str, **changes: Any) -> EnvModel:
        """The environment on one part of the jobs, some of its settings changed."""
        return self._model({**self._part(split), **changes})

    def training(self, envs: int, **changes: Any) -> SchedulingVectorEnv:
        """Environments of one process; ``changes`` are settings of their own."""
        return SchedulingVectorEnv(
            self.kind, envs, threads=1, **{**self._arguments, **self._part("train"), **changes}
        )

    def one_window(self, envs: int) -> SchedulingVectorEnv:
        """Environments that all play one and the same episode of training, again and again."""
        if self.draws:
            return self.training(envs, generator_seeds=(0,))
        source = self._training.source
        assert isinstance(source, WindowedJobs)
        jobs = window(source.workload, source.begin, source.jobs)
        return self.training(
            envs, workload=jobs, cluster=source.cluster, split="all", jobs_per_episode=source.jobs
        )

    def written_down(self) -> EnvironmentSection:
        """The section with warm-up and cool-down as numbers, so that a run can be repeated."""
        before, after = self.around
        found = {"warmup_jobs": before, "cooldown_jobs": after}
        return self.section.model_copy(update={"settings": {**self.section.settings, **found}})

    def remarks(self) -> list[str]:
        """What policies know of run times and how episodes begin, in a line each."""
        lines = [why_chosen(self._training.asked, self._training.source.sample()[0])]
        if any(self.around):
            before, after = self.around
            none = [setting(f"environment.{name}", 0) for name in COLD]
            lines.append(
                f"Episodes begin on a busy cluster: {plural(before, 'job')} before, {after:,} after "
                f"({' and '.join(none)} give an empty one)."
            )
        return [line for line in lines if line]

    def held_out(self, section: ValidationSection, split: str = "validation") -> tuple[EnvModel, list[int]]:
        """The environment to validate (or test) in, and its episodes by name."""
        model = self._model(self._part(split))
        if self.draws:
            return model, [section.first_draw + i for i in range(section.windows)]
        rows = model.episode_rows
        count = min(section.windows, len(rows))
        return model, [int(row) for row in np.linspace(rows[0], rows[-1], count).round()]

    @property
    def is_guarded(self) -> bool:
        """Whether limits on waits hold: jobs of a workload are selected, in step mode ``instant``."""
        config = self._training.config
        return not self.draws and self.kind not in HOST_KINDS and config.step_mode == "instant"

    def today(self, asked: str) -> str:
        """What runs today where it has to act in the environment: as asked for if it can, else what is usual.

        Args:
            asked: A policy's name, or ``auto``.
        """
        usual = "fifo+greedy" if self._training.config.simulated.estimates == "none" else USUAL_CURRENT
        try:
            return acting_policy(usual if asked == AUTO else asked, self.kind).name
        except InputError:
            return acting_policy(usual, self.kind).name

    def usual_heuristics(self) -> tuple[str, ...]:
        """What a learned policy is expected to beat here."""
        model = self._training
        if self.kind in HOST_KINDS:
            order = model.policy.order
            return tuple(f"{order}+greedy/{rule}" for rule in ("first-available", "best-fit", "worst-fit"))
        if model.config.step_mode in ("event", "tick"):
            return ("fifo+greedy", "sjf+greedy", "largest+greedy")
        if model.config.step_mode == "blocking":
            return ("fifo", "sjf", "f1", "saf")
        if model.config.simulated.estimates == "none":
            return ("fifo+easy", "lifo+greedy", "smallest+greedy")
        return ("fifo+easy", "sjf+easy", "saf+strict", "wspt+easy")


def _built_in() -> Any:
    from gpuyard.workload.generators import preset_workloads

    return preset_workloads()
