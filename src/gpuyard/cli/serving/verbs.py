"""``gpuyard serve``: a policy on a live cluster, what it does there, and how to stop it."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from gpuyard.cli.inputs import open_console, print_json, print_note
from gpuyard.cli.parameters import Flag, Json, Whole
from gpuyard.cli.serving.options import FLAGS, Config, Flags, StateDir, located, merged
from gpuyard.errors import InputError

if TYPE_CHECKING:
    from gpuyard.serve.adapter import Adapter
    from gpuyard.serve.records import RoundRecord
    from gpuyard.serve.settings import Scheduler, ServeSettings
    from gpuyard.serve.signs import Signs
    from gpuyard.serve.state import ClusterState

serve_app = App(name="serve")
Once = Annotated[bool, Flag, Parameter(help="Look once and end; for a timer.")]
JobName = Annotated[str, Parameter(help="The job's id, as the scheduler calls it.")]
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
    _serve("slurm", config, rounds, flags)


@serve_app.command
def lsf(
    *,
    config: Config = None,
    rounds: Annotated[Whole | None, Parameter(help="End after this many rounds.")] = None,
    flags: Flags = FLAGS,
) -> None:
    """Serve a policy on the LSF of this machine. It runs until SIGTERM or Ctrl-C.

    Begin with --mode shadow: it writes nothing and needs no rights. docs/guide/serve-lsf.md says what was
    tried on a real LSF and what was not.

    Example: gpuyard serve lsf --policy sjf+easy --mode shadow
    """
    _serve("lsf", config, rounds, flags)


def _serve(scheduler: Scheduler, config: Path | None, rounds: int | None, flags: ServeSettings) -> None:
    from gpuyard.serve.backends import BACKENDS
    from gpuyard.serve.process.log import Log
    from gpuyard.serve.process.service import Service

    def chosen() -> ServeSettings:
        return merged(config, flags).model_copy(update={"scheduler": scheduler})

    reload = None if config is None else chosen
    service = Service(chosen(), BACKENDS[scheduler].make, Log(), reload)
    service.take_signals()
    service.run(rounds)


def _adapter(chosen: ServeSettings) -> Adapter:
    """Of the cluster that an agent serves or served."""
    from gpuyard.serve.backends import backend_of

    return backend_of(chosen).make(chosen)


@serve_app.command
def status(
    *,
    state_dir: StateDir = None,
    config: Config = None,
    watch: Annotated[bool, Flag, Parameter(help="Stay, and show every second anew.")] = False,
    json: Json = False,
) -> int:
    """Show how the agent does: mode, who decides, queue, what it holds, what went wrong.

    Example: gpuyard serve status
    """
    from gpuyard.terminal.serve import show_status, watch_status

    chosen = located(config, state_dir)
    if watch and not json:
        watch_status(open_console(), lambda: _status(chosen))
        return 0
    found = _status(chosen)
    if json:
        print_json(found)
    else:
        show_status(open_console(), found)
    return 0 if found["alive"] else 1


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
            "mode": "dead",
            "why_not": "no agent answers; what is shown is its last round",
            "halted": signs.halted,
            "heartbeat_age_s": signs.silence_s(),
            "state_dir": str(chosen.state_dir),
        }
        if not chosen.journal.exists():
            raise InputError(f"{error}; nor has an agent ever served from {chosen.state_dir}") from None
        try:
            with Journal.open(chosen.journal, readonly=True) as journal:
                last = journal.last()
                state = None if last is None else journal.state(last.number)
        except JournalError as problem:
            return found | {"journal": str(problem)}
        if last is not None:
            found |= _last_known(last, state)
        return found


def _last_known(last: RoundRecord, state: ClusterState | None) -> dict[str, Any]:
    """What the journal says of an agent that does not answer."""
    held = 0 if state is None else sum(job.held == "agent" for job in state.jobs)
    alarm = f"{held} jobs were held then: gpuyard serve release returns those that still are" if held else ""
    return {
        "round": last.number,
        "age_s": max(0.0, time.time() - last.wall_s),
        "policy": last.policy,
        "control": last.control,
        "decider": last.decider,
        "pending": last.pending,
        "held": held,
        "source": "" if state is None else state.source,
        "last_mode": last.mode,
        "alarms": [alarm] if alarm else [],
    }


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
    """Compare what the policy wanted with what the scheduler did: agreement, order, predicted starts.

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
    """Return every job to the scheduler now, and let the agent act no more until gpuyard serve resume.

    It works when the agent is dead: it writes a file, and gives the jobs back itself.

    Example: gpuyard serve halt --why "maintenance"
    """
    from gpuyard.serve.watchdog import release as give_back

    chosen = located(config, state_dir)
    signs = _signs(chosen)
    signs.halt(f"{getpass.getuser()} {why}".strip())
    where = signs.halt_file.resolve()
    found = give_back(_adapter(chosen), "halted")
    if found.error and not json:
        raise InputError(
            f"halted ({where} is written, and a living agent obeys it), but no job could be returned here: "
            f"{found.error}; run gpuyard serve release when the scheduler answers"
        )
    return _released(found, json, f"halted by {where}; gpuyard serve resume lets the agent act again")


@serve_app.command
def resume(*, state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Let a halted agent act again.

    Example: gpuyard serve resume
    """
    was = _signs(located(config, state_dir)).resume()
    if json:
        print_json({"was_halted": was})
    else:
        open_console().print("The agent acts again from its next round on." if was else "It was not halted.")


@serve_app.command
def release(*, state_dir: StateDir = None, config: Config = None, json: Json = False) -> int:
    """Return every job that the agent holds or has ranked; a living agent handles later ones only.

    Example: gpuyard serve release
    """
    from gpuyard.serve.watchdog import release as give_back

    return _released(give_back(_adapter(located(config, state_dir)), "asked"), json)


@serve_app.command
def watchdog(
    *,
    once: Once = False,
    watchdog_s: Annotated[
        float | None, Parameter(help="How long the agent may be silent, s. Not given: as in --config, or 60.")
    ] = None,
    every_s: Annotated[float, Parameter(help="Time from one look to the next, s.")] = 5.0,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Return all jobs to the scheduler if the agent has shown no life for --watchdog-s.

    Needs neither the agent nor its policy. It watches until Ctrl-C; from a timer, use --once.

    Example: gpuyard serve watchdog --state-dir gpuyard-serve
    """
    from gpuyard.serve.process.log import Log
    from gpuyard.serve.signs import Signs
    from gpuyard.serve.watchdog import look, watch

    chosen = located(config, state_dir)
    signs, adapter = Signs(chosen.state_dir), _adapter(chosen)
    silence_s = chosen.watchdog_s if watchdog_s is None else watchdog_s
    if once:
        return _released(look(signs, adapter, silence_s), json)
    watch(signs, adapter, silence_s, Log(), every_s)
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


def _signs(chosen: ServeSettings) -> Signs:
    """Files of an agent that is or was there.

    Raises:
        InputError: if none ever was: somebody in a hurry is in the wrong directory.
    """
    from gpuyard.serve.signs import Signs

    signs = Signs(chosen.state_dir)
    if not signs.known:
        raise InputError(
            f"no agent has ever served from {chosen.state_dir.resolve()}; give the --state-dir or the "
            "--config of the one that runs"
        )
    return signs


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
        console.print(f"The last heartbeat was {found.silence_s:.0f} s ago; nothing to do.")
    elif found.error:
        raise InputError(f"no job could be given back: {found.error}")
    else:
        count = len(found.outcomes) - len(refused)
        console.print(f"{count} {'job' if count == 1 else 'jobs'} returned to the scheduler ({found.why}).")
    for one in refused:
        print_note(f"job {one.action.job}: {one.error}")
    if done:
        console.print(done[0].upper() + done[1:] + ".")
    return 0 if found.ok else 1
