"""What holds for the runs of every job: docs/contract/simulator.md, sections 4, 6 and 14 to 17."""

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any

from gpuyard.config import SimulationConfig

Run = dict[str, Any]
"""A run and the columns of its job."""
Nodes = list[dict[str, Any]]


def to_us(seconds: float) -> int:
    return round(seconds * 1e6)


def check_pieces(runs: list[Run], nodes: Nodes, config: SimulationConfig) -> None:
    """One after another, the last one finishing, each going on with what those before it kept."""
    for run in runs:
        check_one_run(run, config)
    for run, after in pairwise(runs):
        assert run["ending"] in ("stopped", "failed"), f"goes on after its end: {run}, {after}"
        assert run["released_us"] <= after["taken_us"], f"runs twice at a time: {run}, {after}"
    assert runs[-1]["ending"] in ("completed", "timeout"), f"never finished: {runs[-1]}"
    check_work(runs, nodes, config)


def check_one_run(run: Run, config: SimulationConfig) -> None:
    times = [run[name] for name in ("taken_us", "begin_us", "stop_us", "released_us")]
    assert times == sorted(times), f"times are out of order: {run}"
    assert run["taken_us"] >= to_us(run["submit_s"]), f"starts before its submit: {run}"
    assert run["taken_us"] < run["released_us"], f"held nothing: {run}"
    wake_us = 0 if config.sleep_after_s is None else to_us(config.waking_s)
    assert run["begin_us"] - run["taken_us"] <= wake_us, f"waits longer than nodes take to wake: {run}"
    if run["ending"] in ("completed", "timeout"):
        assert run["stop_us"] == run["released_us"], f"holds GPUs after its end: {run}"
    if run["ending"] == "failed":
        assert config.node_mtbf_s is not None, f"failed although nodes do not fail: {run}"


def check_work(runs: list[Run], nodes: Nodes, config: SimulationConfig) -> None:
    """The work that is kept from run to run adds up to the job's duration."""
    duration_us, done_us = max(1, to_us(runs[0]["duration_s"])), 0
    for run in runs:
        restore_us = checkpoint_or_restore_us(run, config.restore_s) if done_us > 0 else 0
        assert run["restore_us"] == restore_us, f"restores with {done_us} us done: {run}"
        progress_us = max(0, run["stop_us"] - run["begin_us"] - restore_us)
        left_us = run_us(duration_us - done_us, run, nodes, config.locality_penalty)
        if run["ending"] == "completed":
            assert progress_us == left_us, f"took {progress_us} us for {left_us}: {run}"
            assert run["lost_us"] == 0, f"lost work at its end: {run}"
        elif run["ending"] == "timeout":
            check_timeout(run, nodes, config, progress_us, left_us, done_us)
        else:
            assert progress_us < left_us, f"was not done when it was: {run}"
            kept_us = kept_progress_us(run, config, progress_us)
            done_work_us, kept_work_us = (work_us(us, run, nodes, config) for us in (progress_us, kept_us))
            assert run["lost_us"] == done_work_us - kept_work_us, f"another loss than it says: {run}"
            done_us = min(done_us + kept_work_us, duration_us - 1)


def kept_progress_us(run: Run, config: SimulationConfig, progress_us: int) -> int:
    """All of it at a stop; at a failure that of the last checkpoint."""
    if run["ending"] == "stopped":
        return progress_us
    if config.checkpoint_every_s is None:
        return 0
    return progress_us - progress_us % max(1, to_us(config.checkpoint_every_s))


def check_timeout(
    run: Run, nodes: Nodes, config: SimulationConfig, took_us: int, left_us: int, done_us: int
) -> None:
    assert config.kill_at_estimate, f"killed without need: {run}"
    assert took_us < left_us, f"killed when it was done: {run}"
    if config.estimates == "requested":
        estimate_us = max(1, to_us(run["estimate_s"]))
        allowed_us = run_us(max(1, estimate_us - done_us), run, nodes, config.locality_penalty)
        assert took_us == allowed_us, f"killed after {took_us} us instead of {allowed_us}: {run}"


def run_us(duration_us: int, run: Run, nodes: Nodes, penalty: float) -> int:
    """Section 6, for the nodes of this run."""
    speed, excess = speed_and_excess(run, nodes)
    return max(1, round(duration_us / speed * (1.0 + penalty * excess)))


def work_us(progress_us: int, run: Run, nodes: Nodes, config: SimulationConfig) -> int:
    """Section 14: how much work so much progress is on the nodes of this run."""
    speed, excess = speed_and_excess(run, nodes)
    slow_down = (1.0 / speed) * (1.0 + config.locality_penalty * excess)
    return progress_us if slow_down == 1.0 else math.floor(float(progress_us) / slow_down)


def speed_and_excess(run: Run, nodes: Nodes) -> tuple[float, float]:
    used = [nodes[node] for node, _ in run["nodes"]]
    if not run["gpus"]:
        return 1.0, 0.0
    fewest = run["asked"] or min(math.ceil(run["gpus"] / node["gpus"]) for node in used)
    return min(node["speed"] for node in used), (len(used) - fewest) / fewest


def checkpoint_or_restore_us(run: Run, given_s: float | None) -> int:
    """Section 14: half of 7, 30 or 60 s, unless a setting replaces it."""
    usual_s = 3.5 if run["gpus"] <= 8 else 15.0 if run["gpus"] <= 32 else 30.0
    return to_us(usual_s if given_s is None else given_s)


def check_stops(runs: list[Run], config: SimulationConfig) -> None:
    """Section 15: no run is stopped too early, and it holds its GPUs for the longest checkpoint among those
    that are stopped for the same job. (Those that were stopped at the same instant, as far as one can tell.)
    """
    at: dict[int, set[int]] = defaultdict(set)  # checkpoints of runs that were stopped at this instant
    for run in runs:
        if was_stopped(run):
            at[run["stop_us"]].add(max(1, checkpoint_or_restore_us(run, config.checkpoint_s)))
    begins = {run["begin_us"] for run in runs}
    for run in runs:
        if not was_stopped(run):
            continue
        lasted_us = run["stop_us"] - run["begin_us"]
        assert lasted_us >= max(1, to_us(config.min_run_s)), f"stopped after {lasted_us} us: {run}"
        held_us = run["released_us"] - run["stop_us"]
        own_us = max(1, checkpoint_or_restore_us(run, config.checkpoint_s))
        if run["ending"] == "failed":
            assert held_us <= max(at[run["stop_us"]]), f"failed after its stop took effect: {run}"
            continue
        assert held_us >= own_us, f"its checkpoint took {held_us} us instead of {own_us}: {run}"
        assert held_us in at[run["stop_us"]], f"its checkpoint took {held_us} us: {run}"
        if config.node_mtbf_s is None and config.sleep_after_s is None:
            assert run["released_us"] in begins, f"stopped for nobody: {run}"


def was_stopped(run: Run) -> bool:
    """Also those whose node failed before the stop took effect."""
    return run["ending"] == "stopped" or (run["ending"] == "failed" and run["stop_us"] < run["released_us"])
