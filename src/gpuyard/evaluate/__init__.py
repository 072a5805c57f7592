"""Honest comparisons of policies: the same jobs, the same information, intervals (docs/guide/evaluate.md).

Names are loaded when they are first used, so that settings can be read without what takes them.
"""

from typing import TYPE_CHECKING

from gpuyard.registry import loaded_on_use

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

__getattr__ = loaded_on_use(__name__, _HOMES)
