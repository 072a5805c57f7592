"""Training runs as tables and sentences for people."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from gpuyard.runs.curves import short_policy
from gpuyard.runs.directory import CHECKPOINT, DIAGNOSIS, POLICY, STATE_TEXTS, Run
from gpuyard.runs.summary import COMPARISON, comparison_rows, settings_of, verdict
from gpuyard.terminal.panel import validation_table
from gpuyard.terminal.tables import plain_table
from gpuyard.units import duration

STATE_STYLES = {"running": "cyan", "finished": "green", "early": "green", "nan": "bold red"}
SHORT_STATES = {"early": "early stop", "nan": "not finite"}


def runs_table(runs: Sequence[Run], names: Sequence[str]) -> Table:
    """Runs, one row each."""
    table = plain_table(*(name.replace(" ", "\n") for name in COMPARISON[:-1]), right=(3, 4, 5))
    table.columns[0].overflow = table.columns[6].overflow = "fold"
    table.columns[2].no_wrap = True
    for run, row in zip(runs, comparison_rows(runs, names), strict=True):
        state = Text(SHORT_STATES.get(run.state, run.state), style=STATE_STYLES.get(run.state, "yellow"))
        name, algorithm, _, samples, minutes, score, heuristic, _ = row
        table.add_row(Text(name, style="bold"), algorithm, state, samples, minutes, score, Text(heuristic))
    return table


def run_description(run: Run, width: int) -> Group:
    """One run: its state, its best validation beside heuristics, its settings, and what to do with it."""
    facts = {
        "run": str(run.directory),
        "algorithm": run.algorithm or "-",
        "state": STATE_TEXTS[run.state],
        "samples": f"{run.last_step:,}" + (f" of {run.total_steps:,}" if run.total_steps else ""),
        "time of training": duration(run.progress.elapsed_s),
    }
    parts: list[Any] = [_pairs(facts)]
    if run.best is not None:
        others = sorted(
            (name for name in run.best.metrics if name != POLICY),
            key=lambda name: run.best.scores.get(name, 0.0) if run.best else 0.0,
            reverse=run.higher_is_better,
        )
        parts += ["", verdict(run), validation_table(run.best, [POLICY, *others], run.metric, width)]
        parts += limits_in_words(run)
    if settings := settings_of(run.config):
        parts += ["", Text("Settings", style="bold"), _pairs(settings)]
    return Group(*parts, "", *_advice(run))


def _pairs(facts: Mapping[str, str]) -> Table:
    table = plain_table("", "")
    table.show_header, table.box = False, None
    table.padding = (0, 2, 0, 0)
    table.columns[0].no_wrap = True
    table.columns[1].overflow = "fold"
    for name, value in facts.items():
        table.add_row(Text(name, style="dim"), Text(value))
    return table


def next_commands(run: Run) -> list[tuple[str, str]]:
    """What can be done with a run: commands, and what they do."""
    directory = str(run.directory)
    commands = []
    if run.state == "running":
        commands.append((f"gpuyard runs watch {directory}", "watch it"))
    elif run.state in ("interrupted", "killed"):
        commands.append((f"gpuyard train --resume {directory}", "resume it"))
    if run.model is not None:
        commands.append((f"gpuyard simulate WORKLOAD --policy {directory}", "use its best model as a policy"))
    if run.progress.records:
        commands.append((f"gpuyard runs plot {directory} --out curves.html", "its curves as a page"))
    return commands


def _advice(run: Run) -> Iterable[Text]:
    if run.state == "nan":
        where = run.file(DIAGNOSIS) or run.directory / DIAGNOSIS
        yield Text(
            f"{where} says where the number came from; a lower learning rate often helps", style="yellow"
        )
    if run.state in ("interrupted", "killed") and run.file(CHECKPOINT) is None:
        yield Text("It stopped before its first checkpoint: to resume it is to begin anew", style="yellow")
    for command, what in next_commands(run):
        yield Text.assemble((command, "cyan"), (f"  {what}", "dim"))


def outcome_in_words(run: Run) -> str:
    """What a run reached, and what to do with it."""
    lines = []
    reasons = {
        "finished": "Training is done",
        "early": "Training stopped early: it was good enough, or no longer improved",
        "interrupted": f"Training was interrupted; gpuyard train --resume {run.directory} resumes it",
        "nan": f"Training stopped: a number was no longer finite; {run.directory}/diagnosis.json says which. "
        "Try a smaller --learning_rate.start",
    }
    lines.append(reasons.get(run.state, "Training was killed") + ".")
    lines += _comparison(run)
    lines += limits_in_words(run)
    if run.model is not None:
        lines.append(
            "Use it wherever a policy is named: "
            f"gpuyard simulate JOBS --cluster CLUSTER --policy {run.directory}"
        )
        lines.append(f"Look at the curves: gpuyard runs plot {run.directory}")
    return "\n".join(lines)


def _comparison(run: Run) -> list[str]:
    """The best model compared with what it started from and with the best heuristic."""
    best, heuristic = run.best, run.best_heuristic()
    if best is None or best.score is None:
        return []
    start = run.validations[0].score
    if run.is_unmoved:
        lines = [f"{_still(run)}, with a score of {best.score:.4g}: training has not changed what it does."]
    elif best.step == 0:
        lines = [f"Training did not improve on what it started from (score {best.score:.4g}), which is kept."]
    else:
        lines = [f"The best score on held-out windows is {best.score:.4g}; it started from {start:.4g}."]
    if heuristic is not None:
        name, score = heuristic
        verdict = "more than" if best.score > score else "as much as" if best.score == score else "less than"
        lines.append(f"That is {verdict} the best heuristic there, {name}, has: {score:.4g}.")
    return lines


def _still(run: Run) -> str:
    """What a policy that has not moved is."""
    network = run.config.get("network", {})
    rule = network.get("residual") == "rule" or network.get("kind") in ("rule", "state-rule")
    if network.get("residual") == "base":
        return "The policy is still the base policy that it started from"
    return f"The policy is still the {'rule' if rule else 'one'} that it started from"


def limits_in_words(run: Run) -> list[str]:
    """Whether the best model of a run is recommended, or which limit it breaks on windows."""
    from gpuyard.evaluate.wording import limit_in_words  # which loads polars

    said = run.recommendation
    if said is None:
        if run.best is None or not run.best.broken:
            return []
        return [f"It breaks a limit on held-out windows: {limit_in_words(run.best.broken[0])}."]
    whole = f"(the whole validation part in one go, against {short_policy(said.current)})"
    if said.kind == "recommended":
        return [
            f"Recommended for a check on held-out jobs {whole}: gpuyard evaluate {run.directory} --on JOBS"
        ]
    if said.kind == "unknown":
        return [f"Not checked {whole}: {said.why}."]
    return [f"Not recommended: {limit_in_words(said.broken[0])} {whole}."]
