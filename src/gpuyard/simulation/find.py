"""Policies by name: heuristics by their grammar, learned ones by path or name of a model, ``recorded``."""

from pathlib import Path

from gpuyard.errors import InputError
from gpuyard.policies.base import RECORDED, SHIPPED, ReplayingPolicy
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.runs.directory import FOLDER
from gpuyard.simulation.recorded import RecordedPolicy


def find_policy(text: str) -> PolicySpec | ReplayingPolicy:
    """The policy of a name: ``recorded``, a heuristic, else a learned one if there is such a path or model.

    Raises:
        InputError: naming the part of the name that is wrong, or what is wrong with the model.
    """
    if text == RECORDED:
        return RecordedPolicy()
    if text.startswith(SHIPPED):
        return _learned(text)
    try:
        return parse_policy(text)
    except InputError as error:
        if Path(text).exists():
            return _learned(text)
        if text.endswith(".safetensors") or text.startswith((".", "/", "~")):
            raise InputError(f"policy {text!r}: there is no such run directory or model file") from None
        if "/" in text:
            raise InputError(f"{error}; nor is there a run directory or model file {text}") from None
        run = Path(FOLDER) / text
        if text and run.is_dir():
            raise InputError(f"policy {text!r}: did you mean the training run {run}?") from None
        raise


def _learned(text: str) -> ReplayingPolicy:
    from gpuyard.network.policy import LearnedPolicy  # what learned policies need takes time to load

    return LearnedPolicy.open(text)
