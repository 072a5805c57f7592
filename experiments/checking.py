"""Evaluating shipped models again, and comparing with the figures on their cards."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, cast

from experiments.cards import Arguments, Card, Figures, read_card
from experiments.recipe import TRACES, Command
from experiments.running import run_gpuyard
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, EvaluationConfig, compare, evaluate_windows
from gpuyard.evaluate.config import read_evaluation
from gpuyard.network import model_file
from gpuyard.network.model_file import HERE, SUFFIX
from gpuyard.registry import suggest
from gpuyard.report.words import percent
from gpuyard.simulation.windows import Part
from gpuyard.units import metric_label, metric_text
from gpuyard.workload import Workload

TOLERANCE = 1e-9
"""Relative. Simulations are exact on every machine; sums of floating-point numbers are not quite."""


@dataclass(frozen=True)
class Check:
    """What came of evaluating a model again.

    Attributes:
        name: Of the model.
        agrees: Whether all figures are as published; None if they could not be computed.
        card: Of the model.
        found: What was computed; None if nothing was.
        problems: What differs, or what is missing.
    """

    name: str
    agrees: bool | None
    card: Card
    found: Figures | None = None
    problems: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "model": self.name,
            "agrees": self.agrees,
            "problems": list(self.problems),
            "published": self.card.test.model_dump(mode="json"),
            "found": self.found.model_dump(mode="json") if self.found else None,
        }

    def in_words(self) -> str:
        """One line."""
        if self.agrees is None:
            return f"{self.name}: skipped: {'; '.join(self.problems)}"
        if not self.agrees:
            return f"{self.name}: DIFFERS: {'; '.join(self.problems)}"
        test = self.card.test
        change = "" if test.difference is None else f" ({percent(test.difference.ratio)})"
        return (
            f"{self.name}: as published: {metric_label(test.metric)} {metric_text(test.metric, test.value)} "
            f"against {metric_text(test.metric, test.reference_value)} of {test.reference}{change}"
        )


def check_models(
    traces: Path | None, names: Sequence[str] | None = None, models: Path | None = None
) -> list[Check]:
    """Evaluate models again as their cards say.

    Args:
        traces: Folder of traces; None: models that need one are skipped.
        names: Which models, with or without ``model:`` in front; None: all.
        models: The folder of models; None: that of the package.

    Raises:
        InputError: for a model that is not there, or a card that cannot be read.
    """
    folder = models or model_file.SHIPPED_IN
    known = {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}
    wanted = [name.removeprefix("model:") for name in names] if names else list(known)
    for name in wanted:
        if name not in known:
            raise InputError(f"model:{name}: no such model comes with gpuyard{suggest(name, known)}")
    cards = [read_card(known[name].with_suffix(".json")) for name in wanted]
    with TemporaryDirectory(prefix="gpuyard-check-") as temporary:
        return [_check(card, known[card.name], traces, Path(temporary)) for card in cards]


def _check(card: Card, model: Path, traces: Path | None, folder: Path) -> Check:
    if hashlib.sha256(model.read_bytes()).hexdigest() != card.sha256:
        return Check(card.name, False, card, None, (f"{model.name} is not the file that the card is of",))
    if missing := _missing(card, traces):
        return Check(card.name, None, card, None, (missing,))
    try:
        here = _prepared(card.repeat.prepare, traces, folder)
        comparison = _repeated(card, model, here, traces)
    except InputError as error:
        return Check(card.name, False, card, None, (str(error),))
    setting, told = comparison.setting, card.repeat
    if setting.fingerprint != told.fingerprint:
        return Check(card.name, False, card, None, ("the jobs are not those that the card is of",))
    if (setting.windows[0], setting.windows[-1]) != (told.first, told.last):
        return Check(card.name, False, card, None, ("the windows are not those that the card is of",))
    entry = next(one for one in comparison.policies if one.source is not None)
    found = Figures.of(comparison, entry, told.differences)
    problems = differing(card.test.model_dump(mode="json"), found.model_dump(mode="json"))
    return Check(card.name, not problems, card, found, tuple(problems))


def _missing(card: Card, traces: Path | None) -> str:
    """What of the traces is needed and not there; empty if nothing is."""
    places = [argument for arguments in card.repeat.prepare for argument in arguments]
    places += [card.repeat.on or "", *map(str, (card.repeat.environment or {}).values())]
    for place in places:
        if TRACES not in place:
            continue
        if traces is None:
            return f"needs traces: {place.replace(TRACES, 'TRACES')} (--traces FOLDER)"
        if not Path(place.replace(TRACES, str(traces))).exists():
            return f"needs traces: there is no {place.replace(TRACES, str(traces))}"
    return ""


def _prepared(commands: Sequence[Arguments], traces: Path | None, folder: Path) -> Path:
    """A folder with the jobs that commands make; models with the same commands share it."""
    here = folder / hashlib.sha256(json.dumps(commands).encode()).hexdigest()[:16]
    if here.exists():
        return here
    here.mkdir()
    for number, arguments in enumerate(commands):
        placed = Command(str(number), arguments).placed(here, traces)
        if (said := run_gpuyard(placed, here / f"{number}.log")) is not None:
            rmtree(here)  # so that no other model takes what is half done for jobs
            raise InputError(f"gpuyard {' '.join(placed)}: failed ({said})")
    return here


def _repeated(card: Card, model: Path, here: Path, traces: Path | None) -> Comparison:
    told, test = card.repeat, card.test

    def place(text: str) -> str:
        return text.replace(HERE, str(here)).replace(TRACES, str(traces))

    if told.environment is not None:
        return _episodes(
            card, model, {n: place(v) if isinstance(v, str) else v for n, v in told.environment.items()}
        )
    settings: dict[str, Any] = {
        "windows": test.windows,
        "jobs_per_window": test.jobs_per_window,
        "part": told.part,
        "draws": told.kind == "draws",
        "metric": test.metric,
        "current": test.reference,
        "all_heuristics": False,
        "transfer": told.transfer,
        "keep_jobs": False,
        "cold": told.is_cold,
        "whole": False,
        "noise_draws": told.noise_draws,
    }
    cluster, simulation = (
        Cluster.model_validate(told.cluster),
        SimulationConfig.model_validate(told.simulation),
    )
    on = place(told.on or "")
    if told.kind == "draws":
        return compare([str(model)], on, cluster, simulation, **settings)
    config: EvaluationConfig = read_evaluation(settings)
    return evaluate_windows(_jobs(on), cluster, [str(model)], config, simulation)


def _jobs(source: str) -> Workload:
    from gpuyard.workload.formats import import_trace
    from gpuyard.workload.generators import preset_workload, preset_workloads

    return (
        preset_workload(source).workload if source in preset_workloads() else import_trace([source]).workload
    )


def _episodes(card: Card, model: Path, environment: Mapping[str, Any]) -> Comparison:
    from gpuyard.evaluate.episodes import evaluate_episodes

    test = card.test
    if card.repeat.differences == "arithmetic":  # in those days estimates were exact unless somebody asked
        environment = {"estimates": "exact", **environment}
    return evaluate_episodes(
        environment,
        [str(model)],
        test.windows,
        split=cast(Part, card.repeat.part),
        first_draw=card.repeat.first,
        metric=test.metric,
        current=test.reference,
        all_heuristics=False,
    )


def differing(published: Any, found: Any, place: str = "") -> list[str]:
    """What differs between two documents by more than rounding, with its place."""
    if isinstance(published, Mapping) and isinstance(found, Mapping):
        return [
            problem
            for name in published
            if name != "verdict"  # It follows from the ends of the interval.
            for problem in differing(published[name], found.get(name), f"{place}.{name}".lstrip("."))
        ]
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (published, found))
    same = math.isclose(published, found, rel_tol=TOLERANCE, abs_tol=1e-12) if numbers else published == found
    return [] if same else [f"{place} is {found}, but {published} was published"]
