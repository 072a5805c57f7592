"""The loop of ``gpuyard train search``: the grid first, then a generation at a time. Needs no torch."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.files import atomic_write
from gpuyard.learn.algorithms.search import jobs_of
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.process.checkpoint import Checkpoint
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.learn.process.loop import Judged, TrainingLoop
from gpuyard.learn.rules.cma import Generation
from gpuyard.learn.rules.config import SearchConfig
from gpuyard.learn.rules.result import SearchResult
from gpuyard.learn.rules.search import RuleSearch, SearchProgress
from gpuyard.network.model_file import ModelFile
from gpuyard.observation.config import EnvConfig, read_settings
from gpuyard.runs.directory import SUMMARY


class _StopAskedError(Exception):
    """The search was asked to stop in the middle of the grid."""


class SearchLoop(TrainingLoop):
    """A search in the middle of a run; a step is a generation of CMA-ES."""

    def __init__(self, directory: Path, config: TrainConfig, group: ProcessGroup | None = None) -> None:
        super().__init__(directory, config, group)
        self.settings: SearchConfig = config.settings
        self._workload, self._cluster = jobs_of(config.environment)
        simulation = EnvConfig.model_validate(read_settings(config.environment.settings)).simulated
        self._search = RuleSearch(self._workload, self._cluster, self.settings, simulation, self._tell)
        self._is_prepared = False
        self._repeated: tuple[list[list[float]], list[Generation]] | None = None
        self._unwritten: list[Generation] = []

    @property
    def metric(self) -> str:
        """What the search makes small."""
        return self.settings.metric

    @property
    def is_over(self) -> bool:
        """Whether the grid, and CMA-ES if it is wanted, are done."""
        return self._search.is_over

    @property
    def validates_every(self) -> None:
        """Once, at the end: all windows are looked at on the way."""
        return

    def open(self) -> None:
        """Time counts from here."""
        self._opened, self._earlier_s = time.monotonic(), self.elapsed_s

    def advance(self) -> None:
        """The grid, which a resumed search goes through again, or a generation."""
        if self._is_prepared:
            self._search.advance()
        else:
            try:
                self._search.prepare()
            except _StopAskedError:
                return
            self._is_prepared = True
            if self._repeated is not None and self._search.tuning is not None:
                self._search.tuning.repeat(*self._repeated)
                self._unwritten = []
        self.step = 0 if self._search.tuning is None else self._search.tuning.generation

    def _tell(self, said: SearchProgress) -> None:
        if said.generation is not None:
            self._unwritten.append(said.generation)
            return
        record = {"event": "stage", "step": self.step, "elapsed_s": self._now()}
        self.write({**record, **{name: getattr(said, name) for name in STAGE}})
        if self.is_to_stop:
            raise _StopAskedError

    def _now(self) -> float:
        return self._earlier_s + time.monotonic() - self._opened

    def note(self, reports: Sequence[Any]) -> None:
        """A record of every generation."""
        for generation in self._unwritten:
            step = generation.number
            record = {"event": "update", "step": step, "update": step, "elapsed_s": self.elapsed_s}
            self.write({**record, "values": _values(generation)})
        self._unwritten = []

    def judge(self) -> Judged:
        """What was found, on the validation windows."""
        result = self._search.result()
        with atomic_write(self.directory / SUMMARY) as temporary:
            temporary.write_text(json.dumps(result.summary(), indent=2) + "\n", encoding="utf-8")
        chosen = result.judged[result.chosen]
        values = {"policy/score": -chosen.validation_loss}
        values |= {f"policy/{metric}": value for metric, value in chosen.validation.items()}
        for one in result.judged.values():
            if one.name not in ("rule", "recorded"):
                values[f"{one.name}/score"] = -one.validation_loss
                values |= {f"{one.name}/{metric}": value for metric, value in one.validation.items()}
        return Judged(-chosen.validation_loss, values, self._model(result))

    def _model(self, result: SearchResult) -> ModelFile:
        """The rule as a model that acts, and that networks can start from."""
        rule, given = result.best_rule, self.config.environment
        settings = rule.environment.model_dump(mode="json", exclude_defaults=True)
        environment = {"id": "gpuyard/SelectJob-v0", "workload": given.workload, **settings}
        if given.cluster is not None:
            environment["cluster"] = given.cluster
        training = {
            "algorithm": "search",
            "environment": environment,
            "chosen": result.chosen,
            "reference": result.reference,
            "grid_policy": result.grid_policy,
            "validation": {one.name: one.validation for one in result.judged.values()},
        }
        return ModelFile(
            "select-job", rule.environment, self._cluster, rule.network, rule.sizes, rule.tensors, training
        )

    def state(self) -> Checkpoint:
        """Losses and history: everything else follows from them and the seed."""
        losses, history = self._repeated or ([], [])
        tuning = self._search.tuning if self._is_prepared else None
        if tuning is not None:
            losses, history = tuning.losses, tuning.history
        checkpoint = Checkpoint({"history": [asdict(generation) for generation in history]})
        checkpoint.add("search", {"losses": np.asarray(losses, dtype=np.float64)})
        return checkpoint

    def restore(self, checkpoint: Checkpoint) -> None:
        """Remember the generations; the grid, which comes before them, is run again."""
        history = [Generation(**generation) for generation in checkpoint.document["history"]]
        if history:
            self._repeated = checkpoint.arrays["search/losses"].tolist(), history


STAGE = ("stage", "done", "total", "best", "loss")
"""What a record of the stages before CMA-ES has of a search's progress."""


def _values(generation: Generation) -> dict[str, float]:
    values = {"loss/best": generation.loss, "loss/median": generation.median_loss, "sigma": generation.sigma}
    if generation.train_loss is not None:
        values["loss/train"] = generation.train_loss
    if generation.validation_loss is not None:
        values["loss/validation"] = generation.validation_loss
    return values
