"""Shipping models: copied from experiments to where the package has its models, with a card each."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import gpuyard
from experiments.cards import Arguments, Card, Figures, Repetition, TrainedOn, read_cards
from experiments.markdown import apart_text, code, plain, table, wait_text, wrapped
from experiments.recipe import Shipped, option
from experiments.running import Experiment
from experiments.standings import entry_of_run
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from gpuyard.evaluate.setting import Kind
from gpuyard.files import atomic_write, read_toml
from gpuyard.network.model_file import HERE, SUFFIX, model_bytes, read_model
from gpuyard.runs.directory import BEST, CONFIG
from gpuyard.units import metric_label, metric_text, plural
from gpuyard.workload import read_workload

SOURCES = ("workload", "generator", "preset")
"""Settings of an environment that say where its jobs come from."""

TESTED_ON: Mapping[Kind, str] = {
    "windows": "window",
    "whole": "window",
    "draws": "fresh draw",
    "episodes": "episode",
}

OPENING = """
For everyone who wants to use, or check, a trained policy. These models come with gpuyard. Use one by its
name, as any policy:

    gpuyard evaluate model:{name} --episodes 100

Each model was trained for one benchmark of the literature: episodes that begin empty, with run times that
are known exactly. Its figures hold there and nowhere else; "Limits" says for what. No model for a
cluster's log comes with gpuyard: [those of earlier versions](results/withdrawn.md) starved jobs on a busy
cluster. `gpuyard train search` finds a rule for yours in minutes.

`gpuyard experiments check --traces TRACES` evaluates all of them again and compares with the figures below.
[Results](results/index.md) has the experiments that they come from.
"""


def ship_models(experiments: Sequence[Experiment], out: Path, page: Path | None = None) -> list[str]:
    """Copy the models that recipes name, and write a card for each.

    Args:
        experiments: Whose models. Of an experiment either all that belongs to its models has been run, or
            nothing: then these stay as they are.
        out: The folder of models.
        page: Where a page with the cards of all models there goes; None: nowhere.

    Returns:
        Names of the models that were copied.

    Raises:
        InputError: if no experiment was run, or results are missing, or of other arguments than the recipe
            has now. Nothing is written then.
    """
    everything = [shipped.name for one in experiments for shipped in one.recipe.model]
    for name in everything:
        if everything.count(name) > 1:
            raise InputError(f"two recipes ship a model called {name}; rename one")
    if not any(one.has_results for one in experiments):
        raise InputError(f"none of these experiments has results yet, so {out} stays as it is; run one first")
    ready = [_card(one, shipped) for one in experiments if one.has_results for shipped in one.recipe.model]
    out.mkdir(parents=True, exist_ok=True)
    for card, data in ready:
        with atomic_write(out / f"{card.name}{SUFFIX}") as temporary:
            temporary.write_bytes(data)
        with atomic_write(out / f"{card.name}.json") as temporary:
            temporary.write_text(card.text(), encoding="utf-8")
    if page is not None and (cards := read_cards(out)):
        with atomic_write(page) as temporary:
            temporary.write_text(models_page(cards), encoding="utf-8")
    return [card.name for card, _ in ready]


def _card(experiment: Experiment, shipped: Shipped) -> tuple[Card, bytes]:
    """A model's card and its file."""
    for folder in (shipped.run, shipped.evaluation):
        experiment.check_done(folder)
    model = read_model(experiment.here / shipped.run / BEST)
    comparison = Comparison.read(experiment.here / shipped.evaluation)
    try:
        entry = entry_of_run(comparison, shipped.run)
    except InputError as error:
        raise InputError(f"{experiment.here / shipped.evaluation}: {error}") from None
    if comparison.reference is None or comparison.policy(comparison.reference).kind != "heuristic":
        raise InputError(f"{experiment.here / shipped.evaluation}: its reference is no heuristic")
    recipe = experiment.recipe
    trainer = recipe.writer(shipped.run)
    source = _Source(experiment)
    jobs_from = source.of_run(experiment.here / shipped.run)
    name, jobs = source.jobs(jobs_from)
    data = model_bytes(replace(model, training=source.portable_all(model.training)))
    card = Card(
        name=shipped.name,
        experiment=experiment.name,
        title=recipe.title,
        trained_on=TrainedOn(
            source=jobs_from,
            workload=name,
            jobs=jobs,
            cluster=model.cluster.name,
            nodes=model.cluster.node_count,
            gpus=model.cluster.total_gpus,
            estimates=model.environment.simulated.estimates,
        ),
        training=tuple(command.arguments for command in (*recipe.behind(trainer), trainer)),
        test=Figures.of(comparison, entry),
        repeat=_repetition(experiment, shipped.evaluation, comparison),
        why=" ".join(shipped.why.split()),
        limits=" ".join(shipped.limits.split()),
        sha256=hashlib.sha256(data).hexdigest(),
        bytes=len(data),
        gpuyard_version=gpuyard.__version__,
    )
    return card, data


@dataclass(frozen=True)
class _Source:
    """Where jobs come from, in words that hold elsewhere, too."""

    experiment: Experiment

    def portable(self, text: str) -> str:
        """A path of the experiment's own folder, wherever that was, as one below ``{here}``."""
        parts, name = PurePath(text).parts, self.experiment.name
        if name not in parts[:-1]:
            return text
        last = len(parts) - 1 - parts[::-1].index(name, 1)
        return "/".join((HERE, *parts[last + 1 :]))

    def portable_all(self, value: Any) -> Any:
        """The same for every text in a document."""
        if isinstance(value, Mapping):
            return {name: self.portable_all(entry) for name, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self.portable_all(entry) for entry in value]
        return self.portable(value) if isinstance(value, str) else value

    def of_run(self, run: Path) -> str:
        """What a run was trained on."""
        environment = read_toml(run / CONFIG).get("environment", {})
        for name in SOURCES:
            if (source := environment.get(name)) is not None:
                return self.portable(source) if isinstance(source, str) else str(source.get("kind", name))
        return "-"

    def jobs(self, source: str) -> tuple[str, int]:
        """What jobs to train on call themselves, and how many they are; 0 if they are drawn."""
        if not source.startswith(HERE):
            return source, 0
        workload = read_workload(Path(source.replace(HERE, str(self.experiment.here), 1)))
        return workload.metadata.name, len(workload.frame)

    def commands_for(self, jobs: str | None) -> tuple[Arguments, ...]:
        """Commands that make a file of jobs; none for built-in ones and files of traces."""
        if jobs is None or not jobs.startswith(HERE):
            return ()
        recipe = self.experiment.recipe
        maker = next((command for command in recipe.commands() if command.out == jobs), None)
        if maker is None:
            raise InputError(f"{self.experiment.name}: no step writes {jobs}, on which a model was tested")
        return tuple(command.arguments for command in (*recipe.behind(maker), maker))


def _repetition(experiment: Experiment, evaluation: str, comparison: Comparison) -> Repetition:
    setting, source = comparison.setting, _Source(experiment)
    arguments = experiment.recipe.writer(evaluation).arguments
    on = option(arguments, "--on")
    environment = None if setting.environment is None else source.portable_all(setting.environment)
    return Repetition(
        kind=setting.kind,
        prepare=source.commands_for(on if environment is None else environment.get("workload")),
        on=on,
        cluster=setting.cluster,
        simulation=setting.information,
        part=setting.part,
        transfer="--transfer" in arguments,
        noise_draws=setting.noise_draws,
        environment=environment,
        first=setting.windows[0],
        last=setting.windows[-1],
        fingerprint=setting.fingerprint,
        is_cold=setting.is_cold,
        differences="geometric",
    )


# --- The page ---


def models_page(cards: Sequence[Card]) -> str:
    """All cards, readable."""
    opening = OPENING.format(name=cards[0].name)
    size = sum(card.bytes for card in cards) / 1024
    lines = ["# Models", "", *wrapped(opening), *_overview(cards)]
    lines += [f"{plural(len(cards), 'model')}, {size:,.0f} KiB in all.", ""]
    for card in cards:
        lines += _card_lines(card)
    return "\n".join(lines).rstrip() + "\n"


def _overview(cards: Sequence[Card]) -> list[str]:
    rows = []
    for card in cards:
        test = card.test
        figures = (metric_text(test.metric, value) for value in (test.value, test.reference_value))
        link = f"[`model:{card.name}`](#{card.name})"
        apart = apart_text(test.difference)
        rows.append([link, metric_label(test.metric), *figures, code(test.reference), apart])
    headers = ["model", "metric", "mean", "reference's mean", "reference", "difference [95 %]"]
    return table(headers, rows)


def _card_lines(card: Card) -> list[str]:
    test, trained = card.test, card.trained_on
    jobs = (
        f"{plain(trained.workload)} ({plural(trained.jobs, 'job')})"
        if trained.jobs
        else f"draws of {plain(trained.workload)}"
    )
    nodes = f"{plural(trained.nodes, 'node')}, {plural(trained.gpus, 'GPU')}"
    tested = f"{plural(test.windows, TESTED_ON[card.repeat.kind])} of {plural(test.jobs_per_window, 'job')}"
    facts = [
        f"**Trained on** {jobs}; cluster {plain(trained.cluster)} ({nodes}); estimates: {trained.estimates}; "
        f"experiment [{card.experiment}](results/{card.experiment}.md).",
        f"**Tested on** {tested}. Reference: {code(test.reference)}.",
        f"**Limits.** {card.limits}",
        f"**File.** {card.bytes / 1024:,.1f} KiB, made with gpuyard {card.gpuyard_version}. SHA-256: "
        f"`{card.sha256}`.",
    ]
    return [
        *(f"## {card.name}", "", *wrapped(card.why), *_figures(test)),
        *(line for fact in facts for line in wrapped(f"- {fact}")[:-1]),
        *("", "Training:", ""),
        *(f"    gpuyard {command_text(arguments)}" for arguments in card.training),
        "",
    ]


def _figures(test: Figures) -> list[str]:
    value, other = (metric_text(test.metric, one) for one in (test.value, test.reference_value))
    verdict = test.difference.verdict if test.difference else ""
    rows = [[metric_label(test.metric), value, other, apart_text(test.difference), verdict]]
    if test.mean_jct is not None:
        rows.append(["completion time", "", "", apart_text(test.mean_jct), test.mean_jct.verdict])
    for name, own, reference in (
        ("mean wait", test.mean_wait_s, test.reference_mean_wait_s),
        ("p99 wait", test.p99_wait_s, test.reference_p99_wait_s),
        ("max wait", test.max_wait_s, test.reference_max_wait_s),
    ):
        if own is not None and name != metric_label(test.metric):
            rows.append([name, wait_text(own), wait_text(reference), "", ""])
    return table(["", "model", "reference", "difference [95 %]", "verdict"], rows)


def command_text(arguments: Arguments) -> str:
    """A command as it is typed, with folders as a shell's variables would be."""
    shown = (argument.replace("{here}", "HERE").replace("{traces}", "TRACES") for argument in arguments)
    return shlex.join(shown)
