"""Where training runs are kept, and the names of the files of one."""

FOLDER = "runs"
"""Where runs are kept unless one says otherwise."""
CONFIG = "config.toml"
PROGRESS = "progress.jsonl"
CHECKPOINT = "checkpoint.safetensors"
START = "start.safetensors"
"""A copy of the model that training started from, if there was one."""
BEST, LAST = "best.safetensors", "last.safetensors"
MODELS = (BEST, LAST)
"""Models of a run, the preferred one first."""
DIAGNOSIS = "diagnosis.json"


def process_log(rank: int) -> str:
    """What one of the run's processes said on standard error."""
    return f"process-{rank}.log"
