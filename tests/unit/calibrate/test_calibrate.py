"""Policies that are found again in the logs that they made, and logs that no policy made."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gpuyard as gy
from gpuyard.calibrate import Calibration, CalibrationConfig, calibrate
from gpuyard.calibrate.candidates import YARDSTICK, named_candidates, relevant_weights
from gpuyard.calibrate.result import DOCUMENT, POLICY
from gpuyard.cluster.model import parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.files import parse_json
from gpuyard.policies.policy_file import policy_file_text, read_policy_file
from gpuyard.workload import Workload, make_workload
from support.evaluation_cases import CLUSTER, recorded_log, some_jobs

EXACT = SimulationConfig(estimates="exact")
QUICK = CalibrationConfig(minutes=1, trials=30, node_factors=(1.0,))
SMALL_FIRST = {"age_weight": 10.0, "fair_share_weight": 0.0, "size_weight": 5000.0, "favor_small": True}


def as_recorded(policy: str, cluster: str = CLUSTER) -> Workload:
    """Jobs with what a policy did to them as what was recorded."""
    result = gy.simulate(some_jobs(), cluster, policy, EXACT)
    start_s = pl.Series(result.schedule.start_us / 1e6)
    log = make_workload(result.workload.frame.with_columns(recorded_start_s=start_s))
    return Workload(log.frame, result.workload.metadata)  # on the same clock: Slurm's plans go by it


def found(log: Workload, limits: CalibrationConfig = QUICK, cluster: str = CLUSTER) -> Calibration:
    return calibrate(log, parse_cluster(cluster), EXACT, limits)


@pytest.fixture(scope="module")
def chance() -> Calibration:
    """Of a log whose waits are drawn by lot."""
    jobs = some_jobs()
    waits = np.random.default_rng(3).exponential(3600.0, len(jobs))
    start = pl.Series(jobs.frame["submit_s"].to_numpy() + waits)
    log = make_workload(jobs.frame.with_columns(recorded_start_s=start), name="log")
    return found(log, QUICK, "64x4")  # large enough to hold whatever is drawn


@pytest.mark.parametrize("policy", ["fifo+easy", "sjf+easy", "fifo+slurm"])
def test_a_policy_is_found_again_in_its_own_log(policy: str) -> None:
    one = found(as_recorded(policy))
    assert one.misfit == 0.0
    assert one.candidate.label == policy
    assert (one.closeness.verdict, one.closeness.share_within) == ("good", 1.0)
    assert one.closeness.median_error_s == one.closeness.p90_error_s == 0.0
    assert one.closeness.least_difference == 0.0
    assert not one.is_scaled


def test_weights_are_found_well_enough(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(policy_file_text("multifactor+slurm", SMALL_FIRST))
    one = found(as_recorded(str(site)))
    assert one.rules.startswith("multifactor+slurm")
    assert one.closeness.verdict == "good"
    assert one.closeness.misfit < 0.5 * one.yardstick.misfit


def test_the_users_own_policy_is_tried_and_kept(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(policy_file_text("multifactor+easy", {**SMALL_FIRST, "max_age_s": 7200.0}))
    log = as_recorded(str(site))
    one = calibrate(log, parse_cluster(CLUSTER), EXACT, QUICK, policies=[str(site)])
    assert one.misfit == 0.0
    assert one.settings["size_weight"] == 5000.0


def test_the_number_of_nodes_is_found() -> None:
    one = found(as_recorded("fifo+easy", "5x4"), CalibrationConfig(node_factors=(0.75, 1.25), trials=40))
    assert (one.cluster.node_count, one.given.node_count, one.is_scaled) == (5, 4, True)
    assert one.closeness.verdict == "good"


def test_what_no_policy_did_is_reproduced_poorly(chance: Calibration) -> None:
    assert chance.closeness.verdict == "poor"
    assert "Do not rest decisions" in chance.figures.meaning()


def test_the_second_half_begins_as_recorded_where_that_is_possible() -> None:
    assert found(recorded_log()).start == "recorded"
    assert found(as_recorded("fifo+slurm")).start == "replay"


def test_the_policy_file_reproduces_the_log_and_says_how_closely(tmp_path: Path) -> None:
    log = as_recorded("sjf+easy")
    one = found(log)
    one.write(tmp_path / "out")
    policy = read_policy_file(tmp_path / "out" / POLICY)
    assert policy.calibration == one.figures
    waits = gy.simulate(log, CLUSTER, policy, EXACT).schedule.start_us / 1e6
    assert waits.tolist() == log.frame["recorded_start_s"].to_list()
    document = parse_json((tmp_path / "out" / DOCUMENT).read_text())
    assert document["verdict"] == "good"
    assert document["trials"][0]["policy"] == YARDSTICK
    one.write(tmp_path / "out")  # over the former one


def test_the_same_seed_finds_the_same(chance: Calibration) -> None:
    again = found(as_recorded("fair-share+easy"), CalibrationConfig(trials=25))
    once_more = found(as_recorded("fair-share+easy"), CalibrationConfig(trials=25))
    assert [one.misfit for one in again.trials] == [one.misfit for one in once_more.trials]


def test_only_weights_that_matter_are_varied() -> None:
    jobs = some_jobs(users=1)
    weights = relevant_weights(jobs, parse_cluster(CLUSTER))
    assert weights == ["age_weight", "size_weight"]
    assert named_candidates(jobs, parse_cluster(CLUSTER), ["wfp3+easy"])[0].label == "wfp3+easy"


def test_logs_that_cannot_be_calibrated_are_refused() -> None:
    with pytest.raises(InputError, match="recorded_start_s"):
        found(some_jobs())
    few = recorded_log()
    with pytest.raises(InputError, match="needs 100"):
        found(Workload(few.frame[:99], few.metadata))
    with pytest.raises(InputError, match=r"impossible record: .* of 8"):
        found(recorded_log(), QUICK, "2x4")
