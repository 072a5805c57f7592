"""Honest comparisons of policies: the same jobs, the same information, intervals (docs/guide/evaluate.md)."""

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
