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
from gpuyard.cli.parameters import SIMULATION, ClusterText, Json, Simulation, WorkloadText
from gpuyard.errors import InputError
from gpuyard.policies.base import RECORDED
from gpuyard.policies.grammar import GRAMMAR
from gpuyard.registry import registered
from gpuyard.terminal.console import show_progress
from gpuyard.terminal.tables import named_table, rule_table, wait_table

KINDS = ("order", "backfill", "placement")
EXPRESS = "a job longer than T0 seconds leaves a share of the GPUs free, K per factor of e that it is longer"
AGE = "a job that has waited MAXWAIT seconds goes first, is always admitted, and lets nobody delay it"
REPLAYED = "what your scheduler did: every job starts when the log says it did"

policies_app = App(name="policies")


@policies_app.default
def list_policies(*, json: Json = False) -> None:
    """List every order, backfill, placement and trained model: what it is, what it needs.

    Example: gpuyard policies
    """
    kinds = {kind: registered(kind).values() for kind in KINDS}
    if json:
        print_json({kind: [vars(rule) for rule in rules] for kind, rules in kinds.items()})
        return
    console = open_console()
    console.print(f"A policy is {GRAMMAR}.", "", sep="\n")
    for kind, rules in kinds.items():
        console.print(rule_table(kind, rules), "", sep="\n")
    claims = [("express:T0:K", EXPRESS), ("age:MAXWAIT", AGE), ("express:T0:K:MAXWAIT", "both")]
    console.print(named_table("admission and ageing", claims), "", sep="\n")
    console.print(named_table("log", [(RECORDED, REPLAYED)]), "", sep="\n")
    console.print(named_table("trained model", _models()), "", "Their cards: docs/models.md", sep="\n")


def _models() -> list[tuple[str, str]]:
    """Models that come with gpuyard and the titles of their cards; nothing heavy is loaded for them."""
    cards = sorted((Path(__file__).parents[1] / "models").glob("*.json"))
    return [(f"model:{card.stem}", loads(card.read_text(encoding="utf-8"))["title"]) for card in cards]


def explain(
    workload: WorkloadText,
    job: Annotated[
        str,
        Parameter(
            help="The log's own id of the job, else its row in the log from 0; row:16 is always a row."
        ),
    ],
    /,
    *,
    cluster: ClusterText = None,
    policy: Annotated[str, Parameter(help="ORDER[+BACKFILL][+ADMISSION][/PLACEMENT].")] = "fifo",
    json: Json = False,
    simulation: Simulation = SIMULATION,
) -> None:
    """Say why a job of a simulated schedule started when and where it did.

    Example: gpuyard explain jobs.parquet 995584 --cluster 64x8 --policy sjf+easy
    """
    from gpuyard.simulation.explain import explain_job
    from gpuyard.simulation.explain_text import moment, periods, reasons, sentences
    from gpuyard.simulation.find import find_policy

    spec = find_policy(policy).rules
    if spec is None:
        raise InputError(_no_reasons(policy))
    need_cluster(cluster, workload)
    jobs, machines, _ = open_trace(workload, cluster)
    assert machines is not None  # built-in workloads bring one
    with show_progress(len(jobs), 1) as progress:
        told = progress.start_run(f"explaining {job}")
        story = explain_job(jobs, machines, spec, simulation, job, progress=told)
    if json:
        print_json(story.document())
        return
    console = open_console()
    for sentence in sentences(story):
        console.print(sentence)
    if shown := periods(story):
        table = wait_table(
            shown, reasons(story), lambda at_s: moment(story, at_s), mostly=len(shown) < len(story.waits)
        )
        console.print("", table, sep="\n")
    if len(shown) < len(story.waits):
        console.print(f"In short; --json has all {len(story.waits):,} parts of its wait.", style="dim")


def _no_reasons(policy: str) -> str:
    if policy == RECORDED:
        return "policy recorded repeats what the log says and has no reasons to tell; explain a heuristic"
    return f"policy {policy} is a network, which has no reasons to tell; explain a heuristic"
