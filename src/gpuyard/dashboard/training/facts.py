"""What is said of a run in a row or in tiles, ready for JSON."""

import time
from typing import Any

from gpuyard.dashboard.training.followed import FollowedRun
from gpuyard.runs.curves import compared_text, short_number, short_policy
from gpuyard.runs.summary import verdict
from gpuyard.terminal.runs import limits_in_words
from gpuyard.units import duration

STATE_WORDS = {
    "running": "running",
    "finished": "finished",
    "early": "stopped early",
    "interrupted": "paused",
    "nan": "not finite",
    "killed": "killed",
}


def run_facts(followed: FollowedRun) -> dict[str, Any]:
    """Where a run stands."""
    run = followed.run
    best = run.best.score if run.best is not None else None
    heuristic = run.best_heuristic()
    left_s = followed.seconds_left
    beside = ""
    if best is not None and heuristic is not None:
        beside = compared_text(best, short_policy(heuristic[0]), heuristic[1], run.higher_is_better)
    share = followed.story.share_done
    return {
        "name": run.name,
        "algorithm": run.algorithm or "-",
        "state": run.state,
        "state_words": STATE_WORDS[run.state],
        "stale": f"nothing written since {duration(_idle_s(followed))}" if followed.is_stale else "",
        "score": None if best is None else short_number(best),
        "beside": beside,
        "share": None if share is None else round(share, 4),
        "left": "" if left_s is None else f"{duration(left_s)} left",
        "resumable": followed.is_resumable,
        "written_s": followed.written_s,
        "reading": None if followed.share_read == 1.0 else round(followed.share_read, 3),
    }


def run_tiles(followed: FollowedRun) -> dict[str, str]:
    """Names and values of the tiles of one run."""
    run, story, facts = followed.run, followed.story, run_facts(followed)
    total = f" of {run.total_steps:,}" if run.total_steps else ""
    return {
        "state": facts["state_words"] + (f", {facts['left']}" if facts["left"] else ""),
        "algorithm": facts["algorithm"],
        f"{run.unit}s": f"{story.step:,}{total}",
        "time of training": duration(story.elapsed_s),
        f"{run.unit}s per second": "-" if story.rate is None else short_number(story.rate),
        "best score": facts["score"] or "-",
    }


def run_words(followed: FollowedRun) -> list[str]:
    """Sentences about one run: how good it is, what it recommends, what is amiss."""
    run, words = followed.run, []
    if said := verdict(run):
        words.append(said)
    words += limits_in_words(run)
    if run.state == "nan":
        words.append(
            "It stopped because a number was not finite; diagnosis.json in its directory says which."
        )
    return words


def _idle_s(followed: FollowedRun) -> float:
    return max(0.0, time.time() - followed.written_s)
