"""``gpuyard evaluate``: compare policies on windows that nothing was chosen by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from gpuyard.cli.inputs import (
    ClusterText,
    Flag,
    Json,
    is_preset,
    open_console,
    open_trace,
    parse_settings,
    print_json,
    print_note,
)
from gpuyard.cli.parameters import Whole, given_options, option_name
from gpuyard.cli.simulation_options import SimulationOptions
from gpuyard.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gpuyard.evaluate import Comparison
    from gpuyard.terminal.console import StageProgress
    from gpuyard.workload import Workload


def evaluate(
    policies: Annotated[
        list[str],
        Parameter(
            negative=(),
            help="Runs, model files, model:NAME or names like sjf+easy; with --episodes a run comes first.",
        ),
    ],
    /,
    *,
    on: Annotated[
        str | None, Parameter(help="A file of jobs in any known format, or a built-in workload such as demo.")
    ] = None,
    cluster: ClusterText = None,
    windows: Annotated[Whole | None, Parameter(help="How many. (default: 40)")] = None,
    jobs_per_window: Annotated[
        Whole | None, Parameter(help="Jobs of a window; 0 makes the whole part one window. (default: 1024)")
    ] = None,
    part: Annotated[
        Literal["test", "validation", "train", "all"] | None,
        Parameter(help="Of the workload by time: 60 % train, 20 % validation, 20 % test. (default: test)"),
    ] = None,
    draws: Annotated[
        bool,
        Flag,
        Parameter(help="Windows are fresh draws of the built-in workload, or like the part of the jobs."),
    ] = False,
    noise_draws: Annotated[
        Whole | None,
        Parameter(help="With --estimates noisy: draws of noise that figures are means over. (default: 1)"),
    ] = None,
    against: Annotated[
        str | None,
        Parameter(
            help="The reference: a policy, or the best fixed heuristic on other windows. (default: best)"
        ),
    ] = None,
    metric: Annotated[
        str | None,
        Parameter(help="What to compare by (docs/contract/metrics.md). (default: mean_bounded_slowdown)"),
    ] = None,
    all_heuristics: Annotated[
        bool | None,
        Parameter(
            help="Run every fixed heuristic, to name the best in hindsight. (default: if --against is best)"
        ),
    ] = None,
    placement: Annotated[
        str | None, Parameter(help="Where jobs go, the same for all. (default: as the policies say)")
    ] = None,
    any_placement: Annotated[
        bool, Flag, Parameter(help="Let placements differ between policies, to see what they are worth.")
    ] = False,
    transfer: Annotated[
        bool,
        Flag,
        Parameter(help="Allow models trained with other estimates or on another cluster, and say so."),
    ] = False,
    episodes: Annotated[
        Whole | None,
        Parameter(help="Instead: so many episodes of the environment that the first policy was trained in."),
    ] = None,
    first_draw: Annotated[
        Whole | None,
        Parameter(help="With --episodes: seed of the first draw. (default: far from all others)"),
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
    options: SimulationOptions = SimulationOptions(),  # noqa: B008  (frozen)
) -> None:
    """Compare policies on held-out jobs, and say how sure the answer is.

    Example: gpuyard evaluate runs/ppo-1 sjf+easy --on jobs.parquet --cluster 64x8 --out results
    """
    from gpuyard.terminal.console import StageProgress

    if out is not None:
        _check_out(out)
    given = {
        "windows": windows,
        "part": part,
        "metric": metric,
        "against": against,
        "all_heuristics": all_heuristics,
        "placement": placement,
        "noise_draws": noise_draws,
    }
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings |= {"draws": True} if draws else {}
    settings |= {"transfer": True} if transfer else {}
    settings |= {"any_placement": True} if any_placement else {}
    if jobs_per_window is not None:
        settings["jobs_per_window"] = jobs_per_window or None
    with StageProgress() as progress:
        if episodes is not None:
            others = {"--on": on, "--cluster": cluster, "--jobs-per-window": jobs_per_window}
            changed = parse_settings("--set", changes or ())
            comparison = _in_episodes(
                policies, episodes, settings, others, options, progress, first_draw, changed
            )
        else:
            if first_draw is not None or changes:
                raise InputError("--first-draw and --set need --episodes")
            comparison = _on_windows(policies, on, cluster, settings, options, progress)
    if out is not None:
        comparison.write(out)
    if json:
        from gpuyard.terminal.evaluation import evaluation_document

        print_json(evaluation_document(comparison))
        return
    _show(open_console(), comparison, out)


def _check_out(directory: Path) -> None:
    from gpuyard.evaluate.storage import check_free

    try:
        check_free(directory)
    except InputError as error:
        raise InputError(f"--out {error}") from None


def _on_windows(
    policies: list[str],
    on: str | None,
    cluster: str | None,
    settings: dict[str, Any],
    options: SimulationOptions,
    progress: StageProgress,
) -> Comparison:
    from gpuyard.evaluate import compare

    if on is None:
        raise InputError(
            "--on is missing: on which jobs? Give a file of jobs or a built-in workload, or compare with "
            "--episodes N in the environment that a run was trained in"
        )
    if settings.get("draws") and is_preset(on):
        return compare(policies, on, cluster, options.config(), progress=progress.update, **settings)
    if cluster is None and not is_preset(on):
        from gpuyard.cluster.model import GRAMMAR

        raise InputError(f"--cluster is missing: which cluster shall run {on}? Expected {GRAMMAR}")
    jobs, machines, _ = open_trace(on, cluster)
    if not settings.get("draws"):
        _check_windows(jobs, settings)
    try:
        return compare(policies, jobs, machines, options.config(), progress=progress.update, **settings)
    except InputError as error:  # also where jobs that can never run are what a part lacks
        raise InputError(str(error).replace("(jobs_per_window)", "(--jobs-per-window)")) from None


def _check_windows(jobs: Workload, settings: dict[str, Any]) -> None:
    """Before anything is run: are the windows too long for these jobs?

    Raises:
        InputError: if a part that is needed has fewer jobs than a window.
    """
    from gpuyard.evaluate.config import BEST, read_evaluation
    from gpuyard.evaluate.engine import CHOSEN_IN
    from gpuyard.evaluate.window_sizes import few_windows, refuse_long_windows

    config = read_evaluation(settings)
    parts = [config.part, *([CHOSEN_IN[config.part]] if config.against == BEST else [])]
    refuse_long_windows(jobs, parts, config.jobs_per_window)
    if note := few_windows(jobs, config.part, config.jobs_per_window):
        print_note(note)


def _in_episodes(
    policies: list[str],
    count: int,
    settings: dict[str, Any],
    others: dict[str, Any],
    options: SimulationOptions,
    progress: StageProgress,
    first_draw: int | None,
    changes: dict[str, Any],
) -> Comparison:
    from gpuyard.evaluate.episodes import evaluate_run

    unfit = [name for name, value in others.items() if value is not None]
    unfit += [option_name(name) for name in given_options(options)]
    unfit += [option_name(name) for name in settings if name not in ("metric", "against", "all_heuristics")]
    if unfit:
        raise InputError(
            f"{unfit[0]} has no meaning with --episodes: jobs, cluster and settings are those of the run's "
            "environment"
        )
    return evaluate_run(
        policies[0],
        policies[1:],
        count,
        metric=settings.get("metric"),
        against=settings.get("against", "best"),
        all_heuristics=settings.get("all_heuristics", True),
        first_draw=first_draw,
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
