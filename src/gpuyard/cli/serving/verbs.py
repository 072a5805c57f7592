"""``gpuyard serve``: a policy on a live cluster, what it does there, and how to stop it."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from gpuyard.cli.inputs import open_console, print_json, print_note
from gpuyard.cli.parameters import Flag, Json, Whole
from gpuyard.cli.serving.options import FLAGS, Config, Flags, StateDir, located, merged
from gpuyard.errors import InputError

if TYPE_CHECKING:
    from gpuyard.serve.adapter import Adapter
    from gpuyard.serve.settings import ServeSettings

serve_app = App(name="serve")
Once = Annotated[bool, Flag, Parameter(help="Look once and end; for a timer.")]
JobName = Annotated[str, Parameter(help="The job's id, as Slurm calls it.")]
JournalFile = Annotated[
    Path | None,
    Parameter(help="A journal or the state directory that it lies in; without it, that of the agent."),
]


@serve_app.command
def slurm(
    *,
    config: Config = None,
    rounds: Annotated[Whole | None, Parameter(help="End after this many rounds.")] = None,
    flags: Flags = FLAGS,
) -> None:
    """Serve a policy on the Slurm of this machine. It runs until SIGTERM or Ctrl-C.

    Begin with --mode shadow: it writes nothing and needs no rights. docs/guide/serve.md leads from there to
    an agent that acts, and back out.

    Example: gpuyard serve slurm --policy sjf+easy --mode shadow
    """
    from gpuyard.serve.process.log import Log
    from gpuyard.serve.process.service import Service

    chosen = merged(config, flags)
    reload = None if config is None else lambda: merged(config, flags)
    service = Service(chosen, slurm_adapter, Log(), reload)
    service.take_signals()
    service.run(rounds)


def slurm_adapter(chosen: ServeSettings) -> Adapter:
    """The Slurm of this machine."""
    from gpuyard.serve.slurm import SlurmAdapter

    return SlurmAdapter(chosen)


@serve_app.command
def status(
    *,
    state_dir: StateDir = None,
    config: Config = None,
    watch: Annotated[bool, Flag, Parameter(help="Stay, and show every second anew.")] = False,
    json: Json = False,
) -> None:
    """Show how the agent does: mode, who decides, queue, what it holds, what went wrong.

    Example: gpuyard serve status
    """
    from gpuyard.terminal.serve import show_status, watch_status

    chosen = located(config, state_dir)
    if json:
        print_json(_status(chosen))
    elif watch:
        watch_status(open_console(), lambda: _status(chosen))
    else:
        show_status(open_console(), _status(chosen))


def _status(chosen: ServeSettings) -> dict[str, Any]:
    """What the agent says; if it does not answer, what its files say."""
    from gpuyard.serve.journal import Journal, JournalError
    from gpuyard.serve.process.client import ask
    from gpuyard.serve.signs import Signs

    try:
        found: dict[str, Any] = ask(chosen.socket, "/v1/status")
        return found
    except InputError as error:
        signs = Signs(chosen.state_dir)
        found = {
            "alive": False,
            "why_not": str(error),
            "halted": signs.halted,
            "heartbeat_age_s": signs.silence_s(),
            "state_dir": str(chosen.state_dir),
        }
        if not chosen.journal.exists():
            raise InputError(f"{error}; nor has an agent ever served from {chosen.state_dir}") from None
        try:
            with Journal.open(chosen.journal, readonly=True) as journal:
                last = journal.last()
        except JournalError as problem:
            return found | {"journal": str(problem)}
        if last is not None:
            found |= {
                "round": last.number,
                "round_at_s": last.wall_s,
                "mode": last.mode,
                "policy": last.policy,
            }
        return found


@serve_app.command
def order(*, state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Show the waiting jobs as the policy ranks them, and what it would start now.

    Example: gpuyard serve order
    """
    from gpuyard.serve.process.client import ask
    from gpuyard.terminal.serve import show_order

    found = ask(located(config, state_dir).socket, "/v1/order")
    if json:
        print_json(found)
    else:
        show_order(open_console(), found)


@serve_app.command
def explain(
    job: JobName, /, *, state_dir: StateDir = None, config: Config = None, json: Json = False
) -> None:
    """Say why a job waits, behind whom, and when it will start.

    Example: gpuyard serve explain 4711
    """
    from gpuyard.serve.process.client import ask, job_path
    from gpuyard.terminal.serve import show_explanation

    found = ask(located(config, state_dir).socket, job_path(job, "explain"))
    if json:
        print_json(found)
    else:
        show_explanation(open_console(), found)


@serve_app.command
def shadow(
    journal: JournalFile = None,
    /,
    *,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Compare what the policy wanted with what Slurm did: agreement, order, predicted starts.

    Example: gpuyard serve shadow
    """
    from gpuyard.serve.journal import Journal, JournalError
    from gpuyard.serve.journal.shadow import shadow_report
    from gpuyard.terminal.serve import show_shadow

    try:
        with Journal.open(_journal(journal, config, state_dir), readonly=True) as opened:
            found = shadow_report(opened).to_json()
    except JournalError as error:
        raise InputError(str(error)) from None
    if json:
        print_json(found)
    else:
        show_shadow(open_console(), found)


@serve_app.command
def replay(
    journal: JournalFile = None,
    /,
    *,
    policy: Annotated[str | None, Parameter(help="What would this policy have done?")] = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Decide every recorded round again: the same policy must agree to the last bit.

    Example: gpuyard serve replay --policy sjf+easy
    """
    from gpuyard.serve.journal import Journal, JournalError
    from gpuyard.serve.journal.replay import replay as again
    from gpuyard.terminal.serve import show_replay

    try:
        with Journal.open(_journal(journal, config, state_dir), readonly=True) as opened:
            found = again(opened, policy)
    except JournalError as error:
        raise InputError(str(error)) from None
    if json:
        print_json(found.to_json())
    else:
        show_replay(open_console(), found)
    return 0 if policy is not None or found.agrees else 1


def _journal(journal: Path | None, config: Path | None, state_dir: Path | None) -> Path:
    from gpuyard.serve.settings import ServeSettings

    if journal is None:
        return located(config, state_dir).journal
    return ServeSettings(state_dir=journal).journal if journal.is_dir() else journal


@serve_app.command
def halt(
    *,
    why: Annotated[str, Parameter(help="For the record.")] = "",
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Return every job to Slurm now, and let the agent act no more until gpuyard serve resume.

    It works when the agent is dead: it writes a file, and gives the jobs back itself.

    Example: gpuyard serve halt --why "maintenance"
    """
    from gpuyard.serve.signs import Signs
    from gpuyard.serve.watchdog import release as give_back

    chosen = located(config, state_dir)
    Signs(chosen.state_dir).halt(f"{getpass.getuser()} {why}".strip())
    return _released(
        give_back(slurm_adapter(chosen), "halted"), json, "halted; gpuyard serve resume lets it act"
    )


@serve_app.command
def resume(*, state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Let a halted agent act again.

    Example: gpuyard serve resume
    """
    from gpuyard.serve.signs import Signs

    chosen = located(config, state_dir)
    was = Signs(chosen.state_dir).resume()
    if json:
        print_json({"was_halted": was})
    else:
        open_console().print("The agent acts again from its next round on." if was else "It was not halted.")


@serve_app.command
def release(*, state_dir: StateDir = None, config: Config = None, json: Json = False) -> int:
    """Return every job that the agent holds or has ranked to Slurm, once; a living agent goes on after that.

    Example: gpuyard serve release
    """
    from gpuyard.serve.watchdog import release as give_back

    return _released(give_back(slurm_adapter(located(config, state_dir)), "asked"), json)


@serve_app.command
def watchdog(
    *,
    once: Once = False,
    every_s: Annotated[float, Parameter(help="Time from one look to the next, s.")] = 5.0,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Return all jobs to Slurm if the agent has shown no life for watchdog_s.

    Needs neither the agent nor its policy. Run it beside the agent, or from a timer with --once.

    Example: gpuyard serve watchdog --state-dir gpuyard-serve
    """
    from gpuyard.serve.process.log import Log
    from gpuyard.serve.signs import Signs
    from gpuyard.serve.watchdog import look, watch

    chosen = located(config, state_dir)
    signs, adapter = Signs(chosen.state_dir), slurm_adapter(chosen)
    if once:
        return _released(look(signs, adapter, chosen.watchdog_s), json)
    watch(signs, adapter, chosen.watchdog_s, Log(), every_s)
    return 0


@serve_app.command
def files(
    directory: Annotated[Path, Parameter(help="Where to write them.")], /, *, json: Json = False
) -> None:
    """Write what an installation needs: serve.toml, systemd units, and job_submit.lua.

    Files that are there already are left as they are.

    Example: gpuyard serve files gpuyard-files
    """
    from gpuyard.files import atomic_write
    from gpuyard.serve.process.systemd import shipped_files

    directory.mkdir(parents=True, exist_ok=True)
    written, kept = [], []
    for name, text in shipped_files().items():
        target = directory / name
        if target.exists():
            kept.append(name)
            continue
        with atomic_write(target) as temporary:
            temporary.write_text(text, encoding="utf-8")
        written.append(name)
    if json:
        print_json({"directory": str(directory), "written": written, "kept": kept})
        return
    for name in kept:
        print_note(f"{directory / name} is there already and stays")
    open_console().print("\n".join(f"wrote {directory / name}" for name in written) or "nothing to write")


def _released(found: Any, json: bool, done: str = "") -> int:
    """Say what became of the jobs; 1 if some could not be given back."""
    refused = [one for one in found.outcomes if not one.ok and one.code != "missing"]
    if json:
        print_json(
            {
                "alive": found.alive,
                "why": found.why,
                "error": found.error,
                "jobs": [one.action.job for one in found.outcomes],
                "refused": {one.action.job: one.error for one in refused},
            }
        )
        return 0 if found.ok else 1
    console = open_console()
    if found.alive:
        console.print("The agent is alive; nothing to do.")
    elif found.error:
        raise InputError(f"no job could be given back: {found.error}")
    else:
        count = len(found.outcomes) - len(refused)
        console.print(f"{count} {'job' if count == 1 else 'jobs'} returned to Slurm ({found.why}).")
    for one in refused:
        print_note(f"job {one.action.job}: {one.error}")
    if done:
        console.print(done[0].upper() + done[1:] + ".")
    return 0 if found.ok else 1
