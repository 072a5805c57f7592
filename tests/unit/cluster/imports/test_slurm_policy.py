"""What slurm.conf says of priorities and backfilling becomes a policy with settings, in gpuyard's units."""

import pytest

from gpuyard.cluster.imports.recognise import import_cluster
from gpuyard.config import POLICY_SETTINGS, SimulationConfig
from support.paths import ROOT

SAMPLE = ROOT / "tests" / "data" / "slurm-conf" / "slurm.conf"


def policy(tmp_path, text: str):
    path = tmp_path / "slurm.conf"
    path.write_text(f"ClusterName=x\nNodeName=a CPUs=1\n{text}\n")
    result = import_cluster({path: path.read_text()})
    return result.policy, result.settings


def test_weights_times_and_backfilling_have_their_units():
    result = import_cluster({SAMPLE: SAMPLE.read_text()})
    assert result.policy == "multifactor+slurm"
    assert result.settings == {
        "age_weight": 1000,
        "fair_share_weight": 10000,
        "size_weight": 200,
        "partition_weight": 500,
        "qos_weight": 2000,
        "cpu_weight": 10,
        "memory_weight": 20,
        "gpu_weight": 3000,
        "priority_weight": 0,
        "max_age_s": 3.5 * 86400,
        "usage_half_life_s": 14 * 86400,
        "priority_calc_s": 600,
        "favor_small": True,
        "fair_share": "classic",
        "bf_interval_s": 60,
        "bf_max_job_test": 1000,
        "bf_max_job_part": 0,
        "bf_max_job_user": 20,
        "bf_window_s": 2880 * 60,
        "bf_resolution_s": 300,
    }


def test_all_settings_belong_to_policies_and_are_valid():
    settings = import_cluster({SAMPLE: SAMPLE.read_text()}).settings
    assert {*settings} <= {*POLICY_SETTINGS}
    SimulationConfig.model_validate(settings)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("PriorityType=priority/basic", "fifo+slurm"),
        ("", "fifo+slurm"),
        ("PriorityWeightAge=10", "multifactor+slurm"),
        ("PriorityType=priority/multifactor\nSchedulerType=sched/builtin", "multifactor+strict"),
        ("SchedulerParameters=bf_interval=-1", "fifo+strict"),
    ],
)
def test_plug_ins_become_rules(tmp_path, text, name):
    assert policy(tmp_path, text)[0] == name


def test_what_is_left_out_is_as_slurm_has_it_by_default(tmp_path):
    settings = policy(tmp_path, "PriorityType=priority/multifactor")[1]
    assert (settings["age_weight"], settings["priority_weight"], settings["fair_share"]) == (0, 0, "tree")
    assert (settings["max_age_s"], settings["bf_window_s"], settings["bf_max_job_test"]) == (
        604800,
        86400,
        500,
    )


def test_usage_that_never_fades_has_an_endless_half_life(tmp_path):
    text = "PriorityType=priority/multifactor\nPriorityDecayHalfLife=0"
    assert policy(tmp_path, text)[1]["usage_half_life_s"] == 1e12
