"""The journal: every round of the agent in one SQLite file, from which rounds can be decided again.

``gpuyard.serve`` writes it; replays, reports, ``cli`` and ``terminal`` read it, also while it is written.
"""

from gpuyard.serve.journal.database import JournalError
from gpuyard.serve.journal.rows import DecisionRow, Prediction
from gpuyard.serve.journal.store import Journal

__all__ = ["DecisionRow", "Journal", "JournalError", "Prediction"]
