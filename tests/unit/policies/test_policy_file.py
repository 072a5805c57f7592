"""Policy files: a policy with settings of its own, wherever a policy's name is taken."""

from pathlib import Path

import pytest

import gpuyard as gy
from gpuyard.cluster.model import parse_cluster
from gpuyard.config import POLICY_SETTINGS, SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate import compare
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.episodes import evaluate_episodes
from gpuyard.policies.grammar import parse_policy
from gpuyard.policies.policy_file import TunedPolicy, policy_file_text, read_policy_file
from gpuyard.simulation.find import find_policy
from gpuyard.simulation.window_set import WindowSet
from support.command_line import Run, assert_refused, document
from support.evaluation_cases import CLUSTER, some_jobs

OLD_FIRST = {"age_weight": 1000.0, "fair_share_weight": 0.0, "size_weight": 0.0, "priority_weight": 0.0}
LARGE_FIRST = {"age_weight": 0.0, "fair_share_weight": 0.0, "size_weight": 1e6, "priority_weight": 0.0}
EXACT = SimulationConfig(estimates="exact")


@pytest.fixture
def large(tmp_path: Path) -> str:
    path = tmp_path / "site.toml"
    path.write_text(policy_file_text("multifactor+easy", LARGE_FIRST))
    return str(path)


def test_a_policy_runs_under_its_own_settings_and_the_others_under_those_that_all_share(large: str) -> None:
    jobs = some_jobs()
    shared = EXACT.model_copy(update=OLD_FIRST)
    by_hand = gy.simulate(jobs, CLUSTER, "multifactor+easy", EXACT.model_copy(update=LARGE_FIRST))
    tuned = gy.simulate(jobs, CLUSTER, large, shared)
    plain = gy.simulate(jobs, CLUSTER, "multifactor+easy", shared)
    assert tuned.schedule.hash() == by_hand.schedule.hash()
    assert tuned.schedule.hash() != plain.schedule.hash()
    assert tuned.config == plain.config  # what all share


def test_windows_that_were_prepared_for_all_are_run_under_its_own_settings(large: str) -> None:
    policy = find_policy(large)
    assert isinstance(policy, TunedPolicy)
    options = {"count": 3, "jobs": 40}
    cluster = parse_cluster(CLUSTER)
    own = WindowSet.of(some_jobs(), cluster, EXACT.model_copy(update=OLD_FIRST), "test", **options)
    other = WindowSet.of(some_jobs(), cluster, EXACT.model_copy(update=LARGE_FIRST), "test", **options)
    plain = parse_policy("multifactor+easy")
    assert own.run([policy])[0]["mean_wait_s"].tolist() == other.run([plain])[0]["mean_wait_s"].tolist()


def test_a_comparison_knows_its_rules_and_settings_and_calls_it_by_its_file(
    large: str, tmp_path: Path
) -> None:
    small = {"windows": 3, "jobs_per_window": 40, "cold": True, "whole": False, "all_heuristics": False}
    found = compare(["sjf+easy", large], some_jobs(), CLUSTER, EXACT, current=large, **small)
    entry = found.policy(found.reference or "")
    assert (entry.label, entry.name, entry.source) == ("site", large, large)
    assert (entry.rules, entry.settings) == ("multifactor+easy/consolidate", LARGE_FIRST)
    found.write(tmp_path / "results")
    assert Comparison.read(tmp_path / "results").policy("site") == entry


def test_a_file_takes_the_placement_of_the_others_unless_it_states_one(tmp_path: Path) -> None:
    small = {"windows": 2, "jobs_per_window": 40, "cold": True, "whole": False, "all_heuristics": False}
    path = tmp_path / "site.toml"
    path.write_text(policy_file_text("sjf+easy", {}))
    found = compare([str(path), "fifo+easy/spread"], some_jobs(), CLUSTER, EXACT, **small)
    assert found.policy("site").rules == "sjf+easy/spread"
    path.write_text(policy_file_text("sjf+easy/best-fit", {}))
    with pytest.raises(InputError, match="same placement, but best-fit is that of"):
        compare([str(path), "fifo+easy/spread"], some_jobs(), CLUSTER, EXACT, **small)


def test_the_command_line_takes_a_file_as_a_policy_and_as_what_runs_today(
    run: Run, large: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, text, _ = run(
        "simulate", "demo", "--policy", "sjf+easy", "--current", large, "--json", "--out", out
    )
    assert code == 0
    assert [result["policy"] for result in document(text)["results"]] == [large, "sjf+easy/consolidate"]
    code, text, _ = run("simulate", "demo", "--policy", large, "--policy", "fifo")
    assert code == 0
    assert "site" in text
    assert large not in text
    assert run("report", out, "--out", tmp_path / "report.html")[0] == 0
    assert "site" in (tmp_path / "report.html").read_text()


def test_a_job_is_explained_under_its_own_settings(run: Run, large: str) -> None:
    assert run("explain", "demo", "row:40", "--policy", large)[0] == 0


BAD = {
    'policy = "nonsense"': r"site\.toml: unknown order 'nonsense'",
    "[settings]\nage_weight = 1": r"site\.toml: has no policy",
    'policy = "fifo"\n[settings]\nage_wait = 1': r"unknown key settings\.age_wait; did you mean 'age_weight'",
    'policy = "fifo"\n[settings]\nestimates = "exact"': r"settings\.estimates holds for all policies",
    'policy = "fifo"\n[settings]\nage_weight = -1': r"settings\.age_weight: expected 0 or more \(is -1\)",
    'policy = "fifo"\nweights = 1': r"site\.toml: unknown key weights; expected policy = ",
    'name = "x"\n[[nodes]]\ngpus = 1': r"unknown key name; expected|is it a cluster",
    "policy = ": r"site\.toml: is not valid TOML",
}


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_is_wrong_is_refused_by_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=BAD[text]):
        read_policy_file(path)


def test_a_missing_file_is_refused(run: Run) -> None:
    assert_refused(*run("simulate", "demo", "--policy", "nowhere.toml"), ["nowhere.toml: cannot be read"])


def test_settings_of_policies_are_settings_of_simulations() -> None:
    assert {*POLICY_SETTINGS} <= {*SimulationConfig.model_fields}


def test_episodes_have_settings_of_their_own(large: str) -> None:
    with pytest.raises(InputError, match="has settings of its own, but in episodes"):
        evaluate_episodes({"preset": "bursty-8gpu"}, [large], 2)
