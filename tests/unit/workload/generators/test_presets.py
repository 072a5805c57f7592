"""Every preset: seeded, remade from its history, fits its cluster, and is found by name."""

import re

import pytest

from gpuyard.errors import InputError
from gpuyard.simulation.run import simulate
from gpuyard.workload import SynthConfig, demo_workload, make_workload, read_workload, write_workload
from gpuyard.workload.generators import preset_workload, preset_workloads, remake
from support.paths import DOCS

NAMES = sorted(preset_workloads())


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(name):
    first, again, other = (preset_workload(name, seed=seed, jobs=200) for seed in (3, 3, 4))
    assert first.workload.frame.equals(again.workload.frame)
    assert first.cluster == again.cluster
    assert not first.workload.frame["duration_s"].equals(other.workload.frame["duration_s"])


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_is_remade_from_its_history(name, tmp_path):
    trace = preset_workload(name, jobs=100, seed=8)
    write_workload(trace.workload, tmp_path / "jobs.parquet")
    stored = read_workload(tmp_path / "jobs.parquet")
    again = remake(stored)
    assert again.workload.frame.equals(trace.workload.frame)
    assert again.cluster is None or again.cluster == trace.cluster


@pytest.mark.parametrize("name", NAMES)
def test_every_job_runs_on_the_recommended_cluster(name):
    trace = preset_workload(name, jobs=150)
    result = simulate(trace.workload, trace.cluster, "fifo+greedy/anywhere")
    assert len(result.schedule) == 150


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_says_in_one_line_what_it_is(name):
    description = preset_workloads()[name].__doc__.splitlines()[0]
    assert description.endswith(".")
    assert len(description) <= 110


def test_the_names_asked_for_are_there():
    wanted = {"demo", "poisson", "bursty-8gpu", "diurnal", "heavy-tail", "lublin", "host-farm"}
    assert wanted <= set(NAMES)


def test_the_demo_preset_is_the_demo():
    assert preset_workload("demo").workload.frame.equals(demo_workload().frame)


def test_the_poisson_preset_is_the_default():
    assert preset_workloads()["poisson"]().config == SynthConfig(name="poisson")


def test_a_misspelt_name_is_answered_with_the_closest():
    with pytest.raises(InputError, match="did you mean 'diurnal'"):
        preset_workload("diurnall")


@pytest.mark.parametrize(("setting", "words"), [({"jobs": 0}, "jobs"), ({"hosts": 3}, "unknown key hosts;")])
def test_a_wrong_setting_is_named(setting, words):
    with pytest.raises(InputError, match=words):
        preset_workload("lublin", **setting)


def test_what_no_generator_made_cannot_be_remade():
    demo = demo_workload()
    with pytest.raises(InputError, match="not that of a generator"):
        remake(make_workload(demo.frame))


def test_the_documentation_lists_every_preset_with_its_cluster():
    page = (DOCS / "guide" / "generators.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (`[a-z0-9]+`|drawn) \|", page, re.M))
    clusters = {name: make().cluster for name, make in preset_workloads().items()}
    assert listed == {name: f"`{cluster}`" if cluster else "drawn" for name, cluster in clusters.items()}
