"""Honest comparisons of policies: the same jobs, the same information, intervals (docs/guide/evaluate.md).

Names are loaded when they are first used, so that settings can be read without what takes them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuyard.evaluate.bootstrap import Difference
    from gpuyard.evaluate.comparison import Comparison, Loser
    from gpuyard.evaluate.config import EvaluationConfig
    from gpuyard.evaluate.episodes import evaluate_episodes, evaluate_run
    from gpuyard.evaluate.inputs import compare
    from gpuyard.evaluate.setting import PolicyEntry, Setting
    from gpuyard.evaluate.windows import evaluate_draws, evaluate_windows

__all__ = [
    "Comparison",
    "Difference",
    "EvaluationConfig",
    "Loser",
    "PolicyEntry",
    "Setting",
    "compare",
    "evaluate_draws",
    "evaluate_episodes",
    "evaluate_run",
    "evaluate_windows",
]

_HOMES = {
    "Comparison": "comparison",
    "Difference": "bootstrap",
    "EvaluationConfig": "config",
    "Loser": "comparison",
    "PolicyEntry": "setting",
    "Setting": "setting",
    "compare": "inputs",
    "evaluate_draws": "windows",
    "evaluate_episodes": "episodes",
    "evaluate_run": "episodes",
    "evaluate_windows": "windows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpuyard.evaluate' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"gpuyard.evaluate.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
