"""The command line: one file per group of verbs, loaded when a verb of it is used. Nothing imports it."""

import os
import sys
import time
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

from cyclopts import App, CycloptsError
from cyclopts.command_spec import CommandSpec

from gpuyard import plugins
from gpuyard.cli.inputs import HELP, flag, one_line, open_console, print_json
from gpuyard.errors import InputError, spelt
from gpuyard.terminal.console import is_verbose, set_quiet, set_verbose

__all__ = ["BAD_INPUT", "DONE", "FAILED", "INTERRUPTED", "PIPE_CLOSED", "app", "main"]

DONE, FAILED, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141


VERBS = {
    "demo": ("demo:demo", "Compare policies on a small built-in workload, then train one and test it."),
    "simulate": ("simulate:simulate", "Replay a workload under one or more policies and compare them."),
    "evaluate": ("evaluate:evaluate", "Compare policies on held-out jobs, and say how sure the answer is."),
    "calibrate": (
        "calibration.verb:calibrate",
        "Find the policy that reproduces a log's recorded waits, and say how closely.",
    ),
    "report": ("report:report", "Show which policy is best, by how much and how sure, on one HTML page."),
    "dashboard": ("browser.dashboard:dashboard", "Show training runs, results and live agents in a browser."),
    "explain": ("policies:explain", "Say why a job of a simulated schedule started when and where it did."),
    "policies": ("policies:policies_app", "List every order, backfill and placement."),
    "serve": (
        "serving.app:serve_app",
        "Run a policy on a live Slurm, LSF or Kubernetes: first in its shadow, then for real.",
    ),
    "workload": ("workload:workload_app", "Import, make, look over and shape workloads."),
    "cluster": ("imports.clusters:cluster_app", "Import a cluster from Slurm's list of nodes."),
    "train": ("train:train", "Train a policy, or search for a rule."),
    "runs": ("runs:runs_app", "Training runs: list, show, compare, plot, watch."),
    "export": ("train:export", "Write a trained model as ONNX, and compare it with the model."),
    "env": ("env:env_app", "Environments for learning: list, describe, export episodes."),
    "experiments": ("experiments:experiments_app", "Run the experiments of docs/results, check models."),
    "bench": ("bench:bench", "Measure speed, each figure with that of a peer measured in the same run."),
    "completion": ("doctor:completion", "Print a script that completes commands and options in a shell."),
    "doctor": ("doctor:doctor", "Check the installation and say what to do about what is wrong."),
}
"""Where each verb is, and its summary in the list, in the order of the list."""


MANY_SETTINGS = ("simulate", "evaluate", "calibrate", "explain")
"""Verbs with settings that few need."""


class _LazyVerb(CommandSpec):
    """A verb that is loaded when it is used; its summary is for the list, its help is its docstring."""

    def resolve(self, parent_app: App) -> App:
        """Load it."""
        verb = super().resolve(parent_app)
        if not self.import_path.endswith("_app"):
            verb.help = None
        if self.name in MANY_SETTINGS and not HELP.shows_all:
            verb.help_epilogue = "--help-all also shows settings of fairness, preemption, failures and power."
        return verb


def _version() -> str:
    import gpuyard

    return gpuyard.__version__


def _make_app() -> App:
    made = App(
        name="gpuyard",
        help="Simulate and compare schedulers for GPU clusters.",
        help_epilogue="gpuyard help COMMAND shows a command's options; -q (--quiet) leaves out progress and "
        "notes, -v (--verbose) adds what a command took, --plugin FILE.py loads orders, readers or metrics "
        "of yours. Exit codes: 0 done, 1 failed, 2 bad usage or bad input.",
        version=_version,
        version_flags=["--version", "-V"],
        suppress_keyboard_interrupt=False,
    )
    for place, (name, (home, summary)) in enumerate(VERBS.items()):
        # app.command(path, help=...) would let the summary replace the docstring of the loaded verb.
        made._commands[name] = _LazyVerb(f"gpuyard.cli.{home}", name, help=summary, sort_key=place)
    return made


app = _make_app()
GROUPS = ("workload", "cluster", "runs", "env")
"""Commands that hold others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Args:
        arguments: What follows the program's name; None takes the process's own.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    began_s = time.monotonic()
    try:
        given = _without_plugins(given)
        code = app(
            _understood(given),
            console=open_console(),
            exit_on_error=False,
            print_error=False,
            result_action="return_int_as_exit_code_else_zero",
        )
        _show_settings(_understood(given))
        sys.stdout.flush()
        if is_verbose():
            print(_spent(time.monotonic() - began_s), file=sys.stderr)
        return int(code)
    except CycloptsError as error:
        return _fail(_below_another(given) or str(_as_input_error(error)), BAD_INPUT, given)
    except InputError as error:
        return _fail(str(error), BAD_INPUT, given)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at exit; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        if is_verbose() or os.environ.get("GPUYARD_DEBUG"):
            raise
        return _fail(f"{_describe(error)} (--verbose shows where it happened)", FAILED, given)


def _spent(elapsed_s: float) -> str:
    """What the command took, with the processes that it started and waited for."""
    import resource

    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor_s = sum(one.ru_utime + one.ru_stime for one in used)
    most_mib = max(one.ru_maxrss for one in used) / (1024 if sys.platform != "darwin" else 1024**2)
    return (
        f"gpuyard {_version()} took {elapsed_s:.1f} s, {processor_s:.1f} s of processor time and at most "
        f"{most_mib:.0f} MiB of memory."
    )


def _without_plugins(given: Sequence[str]) -> list[str]:
    """Take ``--plugin FILE.py`` out of any command line, and load these files."""
    kept, files = [], []
    words = iter(given)
    for word in words:
        if word == "--plugin":
            files.append(next(words, ""))
        elif word.startswith("--plugin="):
            files.append(word.partition("=")[2])
        else:
            kept.append(word)
    for file in files:
        plugins.add_file(file)
    return kept


def _understood(given: Sequence[str]) -> list[str]:
    """What every command takes alike: help VERB, --help-all, --quiet, --verbose, and - for standard input."""
    words = ["/dev/stdin" if word == "-" else word for word in given]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    HELP.shows_all = "--help-all" in words
    set_quiet(not {"-q", "--quiet"}.isdisjoint(words))
    set_verbose(not {"-v", "--verbose"}.isdisjoint(words))
    kept = [word for word in words if word not in ("-q", "--quiet", "-v", "--verbose")]
    return ["--help" if word == "--help-all" else word for word in kept]


def _show_settings(words: Sequence[str]) -> None:
    """After the help of ``train ALGORITHM``: the settings of that algorithm."""
    if len(words) < 2 or words[0] != "train" or {"--help", "-h"}.isdisjoint(words):
        return
    from gpuyard.cli.train import settings_lines

    if lines := settings_lines(words[1]):
        print(f"Settings of {words[1]} (docs/algorithms/{words[1]}.md):", *lines, sep="\n")


def _below_another(given: Sequence[str]) -> str | None:
    """What to say of a command that stands below another one, such as ``import``; None if it does not."""
    word = given[0] if given else ""
    if word in VERBS or word.startswith("-"):
        return None
    homes = [verb for verb in GROUPS if word in list(app[verb])]
    told = " or ".join(f"gpuyard {home} {word}" for home in homes)
    return f"there is no command {word}; did you mean {told}?" if homes else None


def _as_input_error(error: CycloptsError) -> Exception:
    """Values that a model refused are told as everywhere else."""
    cause: Any = error.__cause__
    if type(cause).__name__ != "ValidationError" or not hasattr(cause, "errors"):
        return error
    from gpuyard.config import refusal

    return refusal(cause)


def _fail(message: str, code: int, given: Sequence[str]) -> int:
    told = one_line(spelt(message, flag))
    if "--json" in given:
        print_json({"error": told, "exit_code": code})
    print(f"error: {told}", file=sys.stderr)
    return code


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}".rstrip(": ")
