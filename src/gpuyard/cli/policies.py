"""``gpuyard policies`` and ``gpuyard explain``: which rules there are, how they fare, why a job waited."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gpuyard.cli.inputs import (
    ClusterText,
    Json,
    WorkloadText,
    is_preset,
    open_console,
    open_trace,
    print_json,
)
from gpuyard.cli.parameters import Whole
from gpuyard.cli.simulation_options import SimulationOptions
from gpuyard.errors import InputError

MOST_SPANS = 15
KINDS = ("order", "backfill", "placement")
EXPRESS = "a job longer than T0 seconds leaves a share of the GPUs free, K per factor of e that it is longer"

policies_app = App(
    name="policies", help="List every order, backfill and placement; compare them all.", sort_key=4
)


@policies_app.default
def list_policies(*, json: Json = False) -> None:
    """List every order, backfill, placement and trained model: what it is, what it needs."""
    import gpuyard.policies.grammar as names
    from gpuyard.registry import registered

    kinds = {kind: registered(kind).values() for kind in KINDS}
    if json:
        print_json({kind: [vars(rule) for rule in rules] for kind, rules in kinds.items()})
        return
    from gpuyard.terminal.tables import named_table, rule_table

    console = open_console()
    console.print(f"A policy is {names.GRAMMAR}.", "", sep="\n")
    for kind, rules in kinds.items():
        console.print(rule_table(kind, rules), "", sep="\n")
    console.print(named_table("admission", [("express:T0:K", EXPRESS)]), "", sep="\n")
    console.print(named_table("trained model", _models()), "", "Their cards: docs/models.md", sep="\n")


def _models() -> list[tuple[str, str]]:
    """Models that come with gpuyard and the titles of their cards; nothing heavy is loaded for them."""
    from json import loads

    cards = sorted((Path(__file__).parents[1] / "models").glob("*.json"))
    return [(f"model:{card.stem}", loads(card.read_text(encoding="utf-8"))["title"]) for card in cards]


@policies_app.command
def survey(
    cases: Annotated[
        list[str],
        Parameter(negative=(), help="Workloads and clusters: WORKLOAD@CLUSTER, such as jobs.csv@20x8."),
    ],
    /,
    *,
    jobs: Annotated[
        Whole | None, Parameter(help="Take only the first so many jobs of each workload.")
    ] = None,
    into: Annotated[
        Path | None, Parameter(help="Put the tables into this Markdown page, between its survey marks.")
    ] = None,
    json: Json = False,
    options: SimulationOptions = SimulationOptions(),  # noqa: B008  (frozen)
) -> None:
    """Run every policy on some workloads and print Markdown tables. Takes minutes.

    Example: gpuyard policies survey philly.csv@20x8 lublin_256.swf@32x8 --jobs 20000
    """
    from gpuyard import policy_survey

    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs}: expected 1 or more")
    if into is not None:
        policy_survey.marked_text(into)
    config = options.config()
    chosen = [policy_survey.parse_case(case, jobs) for case in cases]
    rows = policy_survey.survey(chosen, config, lambda line: print(line, file=sys.stderr, flush=True))
    if json:
        print_json(
            {
                "cases": [case.name for case in chosen],
                "settings": config.model_dump(mode="json"),
                "policies": [vars(row) for row in rows],
            }
        )
        return
    markdown = policy_survey.to_markdown(chosen, rows, config)
    if into is None:
        print(markdown)
    else:
        policy_survey.write_into(into, markdown)
        print(f"Written into {into}", file=sys.stderr)


def explain(
    workload: WorkloadText,
    job: Annotated[Whole, Parameter(help="Row of the job in the workload, counted from 0.")],
    /,
    *,
    cluster: ClusterText = None,
    policy: Annotated[
        str, Parameter(help="ORDER[+BACKFILL][+ADMISSION][/PLACEMENT]. (default: fifo)")
    ] = "fifo",
    json: Json = False,
    options: SimulationOptions = SimulationOptions(),  # noqa: B008  (frozen)
) -> None:
    """Say why a job of a simulated schedule started when and where it did.

    Example: gpuyard explain jobs.csv 1234 --cluster 64x8 --policy sjf+easy
    """
    from gpuyard.policies.grammar import PolicySpec
    from gpuyard.simulation import explain as stories
    from gpuyard.simulation.find import find_policy
    from gpuyard.terminal.console import show_progress

    config, spec = options.config(), find_policy(policy)
    if not isinstance(spec, PolicySpec):
        raise InputError(f"policy {policy} is a network, which has no reasons to tell; explain a heuristic")
    if cluster is None and not is_preset(workload):
        from gpuyard.cluster.model import GRAMMAR

        raise InputError(f"--cluster is missing: which cluster shall run {workload}? Expected {GRAMMAR}")
    jobs, machines, _ = open_trace(workload, cluster)
    assert machines is not None  # built-in workloads bring one
    with show_progress(len(jobs), 1) as progress:
        story = stories.explain_job(
            jobs, machines, spec, config, job, progress=progress.start_run(f"explaining job {job}")
        )
    if json:
        print_json(story.document())
        return
    from gpuyard.terminal.tables import wait_table

    console = open_console()
    for sentence in stories.sentences(story):
        console.print(sentence)
    if story.waits:
        console.print("", wait_table(story.waits[:MOST_SPANS], stories.REASONS), sep="\n")
    if len(story.waits) > MOST_SPANS:
        console.print(f"... and {len(story.waits) - MOST_SPANS:,} more; --json has all", style="dim")
