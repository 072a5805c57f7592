"""Run directories as training leaves them, made up: smooth curves with noise, fixed by the seed."""

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SAMPLES_PER_UPDATE = 8192
HEURISTICS = {
    "sjf+easy/consolidate": {"score": 0.529, "mean_bounded_slowdown": 4.91, "mean_wait_s": 511.0},
    "fifo+easy/consolidate": {"score": 0.402, "mean_bounded_slowdown": 11.2, "mean_wait_s": 1294.0},
    "wspt+greedy/consolidate": {"score": 0.517, "mean_bounded_slowdown": 5.33, "mean_wait_s": 540.0},
}


def sample_records(
    updates: int = 120,
    *,
    seed: int = 0,
    algorithm: str = "ppo",
    name: str = "sample",
    stop: str | None = "finished",
    validate_every: int = 10,
) -> Iterator[dict[str, Any]]:
    """The records of a run, in order."""
    draw = random.Random(seed)
    total = updates * SAMPLES_PER_UPDATE
    judged = {"metric": "mean_bounded_slowdown", "higher_is_better": True}
    start = {"event": "start", "algorithm": algorithm, "name": name, **judged}
    yield {**start, "total_steps": total, "time": 1.79e9}
    best = -math.inf
    for update in range(1, updates + 1):
        done = update / updates
        step, elapsed_s = update * SAMPLES_PER_UPDATE, update * SAMPLES_PER_UPDATE / 21_000
        yield {
            "event": "update",
            "step": step,
            "update": update,
            "elapsed_s": round(elapsed_s, 3),
            "samples_per_s": draw.gauss(21_000, 500),
            "values": _update_values(done, draw),
        }
        if update % validate_every == 0:
            score = 0.45 + 0.11 * (1 - math.exp(-4 * done)) + draw.gauss(0, 0.004)
            better, best = score > best, max(best, score)
            yield _validation(step, elapsed_s, score, better)
            yield {"event": "actions", "step": step, "values": _actions(done, draw)}
    if stop is not None:
        yield {"event": "stop", "reason": stop, "step": total}


def _update_values(done: float, draw: random.Random) -> dict[str, float | None]:
    return {
        "loss/policy": -0.02 * math.exp(-2 * done) + draw.gauss(0, 0.003),
        "loss/value": 0.9 * math.exp(-3 * done) + 0.15 + draw.gauss(0, 0.02),
        "entropy": 1.9 * math.exp(-1.5 * done) + 0.3 + draw.gauss(0, 0.02),
        "kl": 0.012 * (1.2 - done) + abs(draw.gauss(0, 0.002)),
        "clip_share": 0.15 * (1.1 - done) + abs(draw.gauss(0, 0.01)),
        "gradient_norm": 0.5 + abs(draw.gauss(0, 0.1)),
        "learning_rate": 3e-4 * (1 - done),
        "explained_variance": 1 - math.exp(-5 * done) - 0.05,
        "episode/return": -80 * math.exp(-3 * done) - 12 + draw.gauss(0, 3),
        "episode/mean_bounded_slowdown": 12 * math.exp(-3 * done) + 4.3 + draw.gauss(0, 0.4),
    }


def _validation(step: int, elapsed_s: float, score: float, better: bool) -> dict[str, Any]:
    policy = {"score": score, "mean_bounded_slowdown": 2.6 / score, "mean_wait_s": 270 / score}
    values = {f"policy/{metric}": value for metric, value in policy.items()}
    for name, metrics in HEURISTICS.items():
        values |= {f"{name}/{metric}": value for metric, value in metrics.items()}
    return {
        "event": "validation",
        "step": step,
        "elapsed_s": round(elapsed_s, 3),
        "score": score,
        "better": better,
        "values": values,
    }


def _actions(done: float, draw: random.Random) -> dict[str, Any]:
    edges = [-100 + 10 * k for k in range(11)]
    return {
        "noop_share": 0.3 * (1.1 - done) + draw.uniform(0, 0.02),
        "rank_histogram": [round(1000 * 0.6**rank * (1 + done)) for rank in range(12)],
        "value_histogram": {
            "edges": edges,
            "counts": [round(500 * math.exp(-(((e + 45) / 25) ** 2))) for e in edges[:-1]],
        },
        "probability_of_choice": [round(100 * (1 + bin * done)) for bin in range(10)],
    }


def write_run(directory: Path, *, config: str | None = None, models: bool = True, **options: Any) -> Path:
    """Write a run directory; options as ``sample_records`` takes them."""
    directory.mkdir(parents=True)
    options.setdefault("name", directory.name)
    lines = [json.dumps(record) for record in sample_records(**options)]
    (directory / "progress.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    algorithm = options.get("algorithm", "ppo")
    text = (
        config if config is not None else f'algorithm = "{algorithm}"\nseed = 0\n\n[network]\nkind = "mlp"\n'
    )
    (directory / "config.toml").write_text(text, encoding="utf-8")
    for name in ("checkpoint", "best", "last") if models else ():
        (directory / f"{name}.safetensors").write_bytes(b"")
    return directory
