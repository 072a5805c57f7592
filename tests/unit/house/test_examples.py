"""The examples run, and show what they say they show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run_example(name: str, *arguments: str) -> str:
    path = next(path for path in EXAMPLES if path.stem == name)
    done = subprocess.run(
        [sys.executable, "-W", "error", path, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def waits(output: str, statistic: str) -> dict[str, float]:
    return {
        policy: float(value)
        for policy, value in re.findall(rf"^(\S+) .*?{statistic} wait +([\d.]+) s", output, re.M)
    }


def test_every_example_has_a_test_here() -> None:
    assert {path.stem for path in EXAMPLES} == {
        "replay_a_log",
        "python_order",
        "custom_policy",
        "train_maskable_ppo",
        "ask_over_http",  # with the service that it asks, in tests/unit/serve/remote
    }


def test_replaying_a_made_up_log_shows_that_backfill_helps() -> None:
    mean = waits(run_example("replay_a_log"), "mean")
    assert mean["fifo+easy/consolidate"] < mean["fifo+strict/consolidate"]


def test_replaying_a_log_without_requests_uses_exact_estimates(tmp_path: Path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text("submit_s,duration_s,gpus\n0,100,8\n1,100,8\n2,10,1\n")
    mean = waits(run_example("replay_a_log", str(log), "1x8"), "mean")
    assert mean["fifo+strict/consolidate"] == pytest.approx((0 + 99 + 198) / 3, abs=0.05)
    assert mean["sjf+easy/consolidate"] == pytest.approx((0 + 98 + 109) / 3, abs=0.05)


def test_the_python_order_shortens_the_longest_wait_of_sjf() -> None:
    longest = waits(run_example("python_order"), "longest")
    assert longest["patient-sjf+easy"] < longest["sjf+easy"]


def test_the_custom_policy_lies_between_the_two_that_it_joins() -> None:
    mean = waits(run_example("custom_policy"), "mean")
    assert mean["fifo+greedy/consolidate"] < mean["GreedyUntilLate"] < mean["fifo+strict/consolidate"]


def test_training_prints_the_policy_beside_the_rules_on_the_same_windows() -> None:
    output = run_example("train_maskable_ppo", "256", "2")
    rows = re.findall(r"^(.+?)  +([\d.]+) +([\d.]+)   (\d) of 2$", output, re.M)
    names = ["MaskablePPO, 256 steps", "wspt+easy/consolidate", "sjf+easy", "fifo"]
    assert [name for name, *_ in rows] == names
    mean = {name: float(value) for name, value, *_ in rows}
    assert min(mean.values()) >= 1.0
    assert mean["sjf+easy"] < mean["fifo"]
