"""``gpuyard policies`` and ``gpuyard explain``: which rules there are, also for Slurm; why a job waited."""

from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from gpuyard.cli.inputs import (
    check_output,
    need_cluster,
    open_cluster,
    open_console,
    open_trace,
    print_json,
    print_note,
    write_text,
)
from gpuyard.cli.parameters import SIMULATION, ClusterText, Flag, Json, Simulation, Whole, WorkloadText
from gpuyard.config import AUTO
from gpuyard.errors import InputError
from gpuyard.policies.base import RECORDED
from gpuyard.policies.grammar import GRAMMAR, PolicySpec
from gpuyard.policies.heuristics import described
from gpuyard.terminal.console import show_progress
from gpuyard.terminal.tables import named_table, rule_table, wait_table

if TYPE_CHECKING:
    from gpuyard.evaluate.export.gain import ExportGain
    from gpuyard.policies.slurm_lines.lines import SlurmLines

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
    kinds = {kind: described(kind) for kind in KINDS}
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


@policies_app.command(name="export", sort_key=1)
def export_policy(
    policy: Annotated[str, Parameter(help="ORDER[+BACKFILL][+ADMISSION], or a policy file (.toml).")],
    /,
    *,
    slurm: Annotated[bool, Flag, Parameter(help="For Slurm: lines of slurm.conf.")] = False,
    workload: Annotated[
        str | None,
        Parameter(help="Simulate the lines on these jobs: a file in any known format, or built-in ones."),
    ] = None,
    cluster: ClusterText = None,
    current: Annotated[
        str,
        Parameter(
            help="What runs today: a policy; auto: what your scheduler did, if the log has recorded starts, "
            "else fifo+easy."
        ),
    ] = AUTO,
    classes: Annotated[
        Whole, Parameter(help="Classes by time limit, at most, for orders that go by it: 2 to 16.")
    ] = 4,
    out: Annotated[Path | None, Parameter(help="Also write the lines into this file: .conf.")] = None,
    json: Json = False,
    simulation: Simulation = SIMULATION,
) -> None:
    """Print the lines of slurm.conf that come nearest to a policy, and what of its gain they keep.

    The printed lines are read back and simulated on the jobs, as are the policy itself and what runs today.

    Example: gpuyard policies export sjf+easy --slurm --workload jobs.parquet --cluster 64x8
    """
    from gpuyard.evaluate.export.gain import export_gain
    from gpuyard.policies.slurm_lines.export import slurm_lines
    from gpuyard.simulation.find import find_policy

    if not slurm:
        raise InputError("say for which scheduler: --slurm is the one that there is")
    if not 2 <= classes <= 16:
        raise InputError(f"--classes {classes}: expected 2 to 16")
    check_output("--out", out, (".conf",))
    rule = find_policy(policy)
    jobs, machines = None, open_cluster(cluster)
    if workload is not None:
        need_cluster(cluster, workload)
        jobs, machines, _ = open_trace(workload, cluster)
    lines = slurm_lines(rule, simulation, jobs, machines, classes=classes)
    gain = None
    if jobs is not None and machines is not None:
        assert isinstance(rule, PolicySpec)  # others have no lines
        with show_progress(len(jobs), 3) as progress:
            gain = export_gain(
                rule, lines, jobs, machines, simulation, current=current, start_run=progress.start_run
            )
    if out is not None:
        write_text(out, lines.text())
    _show_export(lines, gain, out, json=json)


def _show_export(lines: "SlurmLines", gain: "ExportGain | None", out: Path | None, *, json: bool) -> None:
    from gpuyard.terminal.slurm_lines import NOT_SIMULATED, gain_table, gain_words

    if json:
        print_json(lines.document() | {"simulated": None if gain is None else gain.document()})
        return
    print(lines.text())
    console = open_console()
    if gain is None:
        console.print(NOT_SIMULATED)
    else:
        for note in (note for run in (gain.current, gain.rule, gain.lines) for note in run.result.notes):
            print_note(note)
        console.print(gain_table(console, gain), "", *gain_words(gain), sep="\n")
    if out is not None:
        console.print(f"Written: {out}")


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
