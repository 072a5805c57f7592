"""``gpuyard policies`` and ``gpuyard explain``: which rules there are, why a job waited."""

from json import loads
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gpuyard.cli.inputs import (
    need_cluster,
    open_console,
    open_trace,
    print_json,
)
from gpuyard.cli.parameters import SIMULATION, ClusterText, Json, Simulation, Whole, WorkloadText
from gpuyard.errors import InputError
from gpuyard.policies.grammar import GRAMMAR
from gpuyard.registry import registered
from gpuyard.terminal.console import show_progress
from gpuyard.terminal.tables import named_table, rule_table, wait_table

MOST_SPANS = 15
KINDS = ("order", "backfill", "placement")
EXPRESS = "a job longer than T0 seconds leaves a share of the GPUs free, K per factor of e that it is longer"

policies_app = App(name="policies")


@policies_app.default
def list_policies(*, json: Json = False) -> None:
    """List every order, backfill, placement and trained model: what it is, what it needs."""
    kinds = {kind: registered(kind).values() for kind in KINDS}
    if json:
        print_json({kind: [vars(rule) for rule in rules] for kind, rules in kinds.items()})
        return
    console = open_console()
    console.print(f"A policy is {GRAMMAR}.", "", sep="\n")
    for kind, rules in kinds.items():
        console.print(rule_table(kind, rules), "", sep="\n")
    console.print(named_table("admission", [("express:T0:K", EXPRESS)]), "", sep="\n")
    console.print(named_table("trained model", _models()), "", "Their cards: docs/models.md", sep="\n")


def _models() -> list[tuple[str, str]]:
    """Models that come with gpuyard and the titles of their cards; nothing heavy is loaded for them."""
    cards = sorted((Path(__file__).parents[1] / "models").glob("*.json"))
    return [(f"model:{card.stem}", loads(card.read_text(encoding="utf-8"))["title"]) for card in cards]


def explain(
    workload: WorkloadText,
    job: Annotated[Whole, Parameter(help="Row of the job in the workload, counted from 0.")],
    /,
    *,
    cluster: ClusterText = None,
    policy: Annotated[str, Parameter(help="ORDER[+BACKFILL][+ADMISSION][/PLACEMENT].")] = "fifo",
    json: Json = False,
    simulation: Simulation = SIMULATION,
) -> None:
    """Say why a job of a simulated schedule started when and where it did.

    Example: gpuyard explain jobs.csv 1234 --cluster 64x8 --policy sjf+easy
    """
    from gpuyard.simulation import explain as stories
    from gpuyard.simulation.find import find_policy

    spec = find_policy(policy).rules
    if spec is None:
        raise InputError(f"policy {policy} is a network, which has no reasons to tell; explain a heuristic")
    need_cluster(cluster, workload)
    jobs, machines, _ = open_trace(workload, cluster)
    assert machines is not None  # built-in workloads bring one
    with show_progress(len(jobs), 1) as progress:
        story = stories.explain_job(
            jobs, machines, spec, simulation, job, progress=progress.start_run(f"explaining job {job}")
        )
    if json:
        print_json(story.document())
        return
    console = open_console()
    for sentence in stories.sentences(story):
        console.print(sentence)
    if story.waits:
        console.print("", wait_table(story.waits[:MOST_SPANS], stories.REASONS), sep="\n")
    if len(story.waits) > MOST_SPANS:
        console.print(f"... and {len(story.waits) - MOST_SPANS:,} more; --json has all", style="dim")
