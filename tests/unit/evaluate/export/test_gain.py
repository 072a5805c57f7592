"""What of a rule's gain is left: figures of the lines as they were printed, under the limits of evaluate."""

from pathlib import Path

import pytest

import gpuyard as gy
from gpuyard.config import SimulationConfig
from gpuyard.evaluate.export.gain import ExportGain, export_gain
from gpuyard.policies.grammar import parse_policy
from gpuyard.policies.slurm_lines.export import slurm_lines
from gpuyard.policies.slurm_lines.reading import read_lines
from gpuyard.workload.generators import preset_workload
from support.command_line import Run, assert_refused, document

CONFIG = SimulationConfig()
DEMO = preset_workload("demo")


def gain_of(policy: str, current: str = "auto") -> ExportGain:
    rule = parse_policy(policy)
    assert DEMO.cluster is not None
    lines = slurm_lines(rule, CONFIG, DEMO.workload, DEMO.cluster)
    return export_gain(rule, lines, DEMO.workload, DEMO.cluster, CONFIG, current=current)


@pytest.fixture(scope="module")
def sjf() -> ExportGain:
    return gain_of("sjf+easy")


def test_the_figures_are_those_of_the_lines_as_they_were_printed(sjf: ExportGain) -> None:
    assert DEMO.cluster is not None
    lines = slurm_lines(parse_policy("sjf+easy"), CONFIG, DEMO.workload, DEMO.cluster)
    read = read_lines(lines.text(), DEMO.cluster)
    by_hand = gy.simulate(lines.routing.routed(DEMO.workload), read.cluster, read.policy, CONFIG)
    assert sjf.lines.result.schedule.hash() == by_hand.schedule.hash()
    assert sjf.lines.metrics["mean_wait_s"] == by_hand.metrics()["mean_wait_s"]


def test_a_printed_number_that_is_changed_changes_what_is_simulated(sjf: ExportGain) -> None:
    assert DEMO.cluster is not None
    lines = slurm_lines(parse_policy("sjf+easy"), CONFIG, DEMO.workload, DEMO.cluster)
    other = lines.text().replace("PriorityWeightPartition=4000", "PriorityWeightPartition=0")
    read = read_lines(other, DEMO.cluster)
    changed = gy.simulate(lines.routing.routed(DEMO.workload), read.cluster, read.policy, CONFIG)
    assert changed.schedule.hash() != sjf.lines.result.schedule.hash()


def test_the_gain_that_is_left_is_the_lines_share_of_the_rules(sjf: ExportGain) -> None:
    today, rule, lines = sjf.values
    assert sjf.current.policy == "fifo+easy/consolidate"
    assert sjf.gain_left == (today - lines) / (today - rule)
    assert 0.5 < sjf.gain_left < 1.0


def test_lines_that_make_a_class_wait_far_longer_are_not_recommended(sjf: ExportGain) -> None:
    assert sjf.broken
    assert not sjf.recommended


def test_a_rule_that_gains_nothing_leaves_nothing_to_keep() -> None:
    found = gain_of("fifo+easy")
    assert found.rule is found.current
    assert found.gain_left is None
    assert gain_of("fifo+strict", current="sjf+easy").gain_left is None


def test_the_command_prints_lines_and_verdict_and_writes_what_it_simulated(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "lines.conf"
    code, printed, _ = run("policies", "export", "sjf+easy", "--slurm", "--workload", "demo", "--out", out)
    assert code == 0
    assert out.read_text() in printed
    assert "% of the gain is left." in printed.replace("\n", " ").replace("\u00a0", " ")
    assert "Not recommended" in printed


def test_json_has_lines_losses_and_figures(run: Run) -> None:
    _, printed, _ = run("policies", "export", "sjf+easy", "--slurm", "--workload", "demo", "--json")
    found = document(printed)
    assert found["conf"][0] == "PriorityType=priority/multifactor"
    assert found["losses"]
    assert found["lua"].startswith("local bounds")
    assert found["simulated"]["simulated_as"] == "multifactor+slurm/consolidate"
    assert found["simulated"]["recommended"] is False


def test_without_a_log_the_command_says_that_nothing_was_simulated(run: Run) -> None:
    code, printed, _ = run("policies", "export", "fair-share+easy", "--slurm")
    assert code == 0
    assert "Nothing was simulated" in printed
    _, printed, _ = run("policies", "export", "fair-share+easy", "--slurm", "--json")
    assert document(printed)["simulated"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sjf+easy",), "--slurm"),
        (("sjf+easy", "--slurm", "--classes", "1"), "--classes 1"),
        (("sjf+easy", "--slurm", "--out", "lines.txt"), ".conf"),
        (("sjf+easy", "--slurm", "--workload", "jobs.csv"), "--cluster"),
        (("saf+easy", "--slurm"), "--workload and --cluster"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(run: Run, words: tuple[str, ...], said: str) -> None:
    assert_refused(*run("policies", "export", *words), [said])
