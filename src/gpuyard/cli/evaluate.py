"""``gpuyard evaluate``: compare policies on windows that nothing was chosen by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gpuyard.cli.inputs import (
    is_preset,
    need_cluster,
    note_searches_without_result,
    open_console,
    open_trace,
    parse_settings,
    print_json,
    print_note,
)
from gpuyard.cli.parameters import SIMULATION, ClusterText, Json, Simulation, Whole, settings
from gpuyard.config import AUTO, SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.evaluate.config import BEST, EvaluationConfig
from gpuyard.terminal.console import StageProgress

if TYPE_CHECKING:
    from rich.console import Console

    from gpuyard.evaluate import Comparison
    from gpuyard.workload import Workload


Evaluation = Annotated[EvaluationConfig, settings(EvaluationConfig, "Comparison")]
EVALUATION = EvaluationConfig()
WITH_EPISODES = ("metric", "current", "all_heuristics", "first_draw")
"""Settings of a comparison that hold for episodes too."""


def evaluate(
    policies: Annotated[
        list[str],
        Parameter(
            negative=(),
            help="Names like sjf+easy, policy files, runs, model files or model:NAME; with --episodes a run "
            "comes first.",
        ),
    ],
    /,
    *,
    on: Annotated[
        str | None, Parameter(help="A file of jobs in any known format, or a built-in workload such as demo.")
    ] = None,
    cluster: ClusterText = None,
    episodes: Annotated[
        Whole | None,
        Parameter(help="Instead: so many episodes of the environment that the first policy was trained in."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        Parameter(
            name="--set",
            negative=(),
            help="With --episodes: KEY=VALUE, a setting of the environment that is to be another, such as "
            'generator={"preset":"host-farm","hosts":[48,64]}; repeat it for more.',
        ),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Write all results into this directory.")] = None,
    json: Json = False,
    evaluation: Evaluation = EVALUATION,
    simulation: Simulation = SIMULATION,
) -> None:
    """Compare policies on held-out jobs, and say how sure the answer is.

    Windows begin on a busy cluster, and the whole part is replayed in one go besides.

    Example: gpuyard evaluate sjf+easy runs/search-1 --on jobs.parquet --cluster 64x8 --out results
    """
    if out is not None:
        _check_out(out)
    with StageProgress() as progress:
        if episodes is not None:
            others = {"on": on, "cluster": cluster}
            unfit = [name for name, value in others.items() if value is not None]
            unfit += sorted({*simulation.model_fields_set, *evaluation.model_fields_set} - {*WITH_EPISODES})
            _refuse_with_episodes(unfit)
            changed = parse_settings("--set", changes or ())
            comparison = _in_episodes(policies, episodes, evaluation, changed, progress)
        else:
            if changes:
                raise InputError("--set needs --episodes")
            comparison = _on_windows(policies, on, cluster, evaluation, simulation, progress)
    if out is not None:
        comparison.write(out)
    if json:
        from gpuyard.terminal.evaluation import evaluation_document

        print_json(evaluation_document(comparison))
        return
    _show(open_console(), comparison, out)


def _check_out(directory: Path) -> None:
    from gpuyard.evaluate.results.files import holds_results
    from gpuyard.evaluate.storage import check_free

    try:
        check_free(directory)
    except InputError as error:
        raise InputError(f"--out {error}") from None
    if holds_results(directory):
        print_note(f"--out {directory}: the results that are there are replaced")


def _on_windows(
    policies: list[str],
    on: str | None,
    cluster: str | None,
    evaluation: EvaluationConfig,
    simulation: SimulationConfig,
    progress: StageProgress,
) -> Comparison:
    from gpuyard.evaluate import compare
    from gpuyard.native.information import why_chosen

    if on is None:
        raise InputError(
            "--on is missing: on which jobs? Give a file of jobs or a built-in workload, or compare with "
            "--episodes N in the environment that a run was trained in"
        )
    given = evaluation.model_dump(exclude_unset=True)
    if evaluation.draws and is_preset(on):
        return compare(policies, on, cluster, simulation, progress=progress.update, **given)
    need_cluster(cluster, on)
    note_searches_without_result(policies)
    jobs, machines, _ = open_trace(on, cluster)
    if why := why_chosen(simulation, jobs):
        print_note(why)
    if not evaluation.draws:
        _check_windows(jobs, evaluation)
    return compare(policies, jobs, machines, simulation, progress=progress.update, **given)


def _check_windows(jobs: Workload, config: EvaluationConfig) -> None:
    """Before anything is run: are the windows too long for these jobs?

    Raises:
        InputError: if a part that is needed has fewer jobs than a window.
    """
    from gpuyard.evaluate.engine import CHOSEN_IN
    from gpuyard.evaluate.inputs import few_windows, refuse_long_windows

    parts = [config.part, *(CHOSEN_IN[config.part] if config.all_heuristics else ())]
    refuse_long_windows(jobs, parts, config.jobs_per_window)
    if note := few_windows(jobs, config.part, config.jobs_per_window):
        print_note(note)


def _refuse_with_episodes(names: list[str]) -> None:
    if names:
        raise InputError(
            f"{setting(names[0])} has no meaning with --episodes: jobs, cluster and settings are those of "
            "the run's environment"
        )


def _in_episodes(
    policies: list[str],
    count: int,
    evaluation: EvaluationConfig,
    changes: dict[str, Any],
    progress: StageProgress,
) -> Comparison:
    from gpuyard.evaluate.episodes import evaluate_run

    return evaluate_run(
        policies[0],
        policies[1:],
        count,
        metric=evaluation.metric if "metric" in evaluation.model_fields_set else None,
        current=BEST if evaluation.current == AUTO else evaluation.current,
        all_heuristics=evaluation.all_heuristics,
        first_draw=evaluation.first_draw,
        changes=changes,
        progress=progress.update,
    )


def _show(console: Console, comparison: Comparison, out: Path | None) -> None:
    from gpuyard.evaluate.wording import who_loses_in_words
    from gpuyard.terminal.evaluation import evaluation_table

    console.print(evaluation_table(console, comparison), "", sep="\n")
    for line in comparison.summary().split("\n"):
        console.print(line)
    losers = who_loses_in_words(comparison)
    if losers:
        console.print("", "Who loses", sep="\n", style="bold")
        for line in losers:
            console.print(line)
    for entry in comparison.shown:
        if entry.note:
            console.print(f"Note on {entry.label}: {entry.note}.", style="dim")
    if out is not None:
        console.print("", f"Written to {out}: results.json and parquet tables", sep="\n")
