"""Policies by name: heuristics by their grammar or file, learned ones by path or model, ``recorded``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.config import AUTO, USUAL_CURRENT
from gpuyard.errors import InputError
from gpuyard.policies.base import RECORDED, SHIPPED, ReplayingPolicy
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.policies.policy_file import SUFFIX, parse_rules, read_policy_file
from gpuyard.runs.directory import FOLDER, SUMMARY
from gpuyard.simulation.recorded import RecordedPolicy
from gpuyard.workload.recorded import has_recorded

if TYPE_CHECKING:
    from gpuyard.workload import Workload

SIMPLER_CURRENT = ("fifo+greedy", "fifo+strict")
"""What is taken to run today where reservations cannot be kept, such as where running jobs are moved."""


def find_policy(text: str) -> PolicySpec | ReplayingPolicy:
    """The policy of a name: ``recorded``, a heuristic, else a learned one if there is such a path or model.

    What ends in .toml is a policy file.

    Raises:
        InputError: naming the part of the name that is wrong, or what is wrong with the model.
    """
    if text == RECORDED:
        return RecordedPolicy()
    if text.startswith(SHIPPED):
        return _learned(text)
    if text.endswith(SUFFIX):
        return read_policy_file(text)
    try:
        return parse_policy(text)
    except InputError as error:
        if Path(text).exists():
            return _found_by_search(Path(text)) or _learned(text)
        if text.endswith(".safetensors") or text.startswith((".", "/", "~")):
            raise InputError(f"policy {text!r}: there is no such run directory or model file") from None
        if "/" in text:
            raise InputError(f"{error}; nor is there a run directory or model file {text}") from None
        run = Path(FOLDER) / text
        if text and run.is_dir():
            raise InputError(f"policy {text!r}: did you mean the training run {run}?") from None
        raise


def found_nothing(run: Path) -> str | None:
    """What runs today, if this is a search that recommends nothing else; None for all other runs."""
    summary = _summary(run)
    return str(summary.get("policy")) if summary.get("chosen") == "current" else None


def _found_by_search(run: Path) -> PolicySpec | ReplayingPolicy | None:
    """The policy that a search chose, if that has a name; None for other runs, and if it chose a rule."""
    policy = _summary(run).get("policy")
    if policy == RECORDED:
        return RecordedPolicy()
    return parse_rules(policy) if isinstance(policy, str) else None


def _summary(run: Path) -> dict[str, Any]:
    """What a search wrote about its result; empty for other runs."""
    try:
        summary = json.loads((run / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}


def _learned(text: str) -> ReplayingPolicy:
    from gpuyard.network.policy import LearnedPolicy  # what learned policies need takes time to load

    return LearnedPolicy.open(text)


def current_policy(
    workload: "Workload | None", asked: str, runs: Callable[[PolicySpec], bool] | None = None
) -> str:
    """What runs today: as asked for, or what the log recorded, or what is usual.

    Args:
        workload: The jobs; None: they are drawn, and nothing is recorded.
        asked: A policy's name, or ``auto``.
        runs: Whether a heuristic can run with these settings; None: all can.
    """
    if asked != AUTO:
        return asked
    if workload is not None and has_recorded(workload):
        return RECORDED
    names = (USUAL_CURRENT, *SIMPLER_CURRENT)
    return next((name for name in names if runs is None or runs(parse_policy(name))), USUAL_CURRENT)
