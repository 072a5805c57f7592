"""Clusters: shorthand, presets, TOML and the columns the simulator gets."""

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpuyard.cluster.model import (
    KNOWN_GPU_TYPES,
    UNLIMITED,
    Cluster,
    GpuType,
    NodeGroup,
    parse_cluster,
    preset_clusters,
)
from gpuyard.errors import InputError


def refusal(text):
    with pytest.raises(InputError) as caught:
        parse_cluster(str(text))
    return str(caught.value)


@pytest.fixture
def toml(tmp_path):
    def write(text):
        path = tmp_path / "lab.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_shorthand_gives_nodes_of_one_plain_type():
    cluster = parse_cluster("64x8")
    assert (cluster.name, cluster.node_count, cluster.total_gpus) == ("64x8", 64, 512)
    assert [(gpu.name, gpu.speed) for gpu in cluster.gpu_types] == [("gpu", 1.0)]


def test_a_shorthand_of_several_parts_keeps_their_order_and_types():
    cluster = parse_cluster("16x2:p100,20x8:v100,1x4:p100")
    assert [(group.count, group.gpus, group.type) for group in cluster.nodes] == [
        (16, 2, "p100"),
        (20, 8, "v100"),
        (1, 4, "p100"),
    ]
    assert [gpu.name for gpu in cluster.gpu_types] == ["p100", "v100"]


def test_a_shorthand_changes_run_times_only_where_it_states_a_speed():
    cluster = parse_cluster("16x2:p100@0.5,20x8:h100,4x4:home-made")
    assert {gpu.name: gpu.speed for gpu in cluster.gpu_types} == {"p100": 0.5, "h100": 1.0, "home-made": 1.0}
    assert all(gpu.speed == 1.0 for gpu in KNOWN_GPU_TYPES.values())


def test_well_known_types_bring_memory_and_watts():
    (a100,) = parse_cluster("1x8:a100-80gb").gpu_types
    assert (a100.memory_mib, a100.peak_w) == (81920, 400)
    assert all(gpu.idle_w < gpu.peak_w for gpu in KNOWN_GPU_TYPES.values() if gpu.peak_w is not None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0x8", "0 nodes"),
        ("8x0", "0 GPUs"),
        ("8x", "cannot read '8x'"),
        ("8x8,", "cannot read ''"),
        ("8x8:a b", "cannot read"),
        ("8x8:a100@-1", "speed '-1'"),
        ("8x8:a100@nan", "speed 'nan'"),
        ("8x8:a100@inf", "speed 'inf'"),
        ("8x8:a100@fast", "speed 'fast'"),
        ("8x8:a@1,8x8:a@2", "two speeds"),
        ("9" * 5000 + "x8", "cannot read"),
        ("900000x1,900000x1", "more than the 1,000,000"),
    ],
)
def test_a_bad_shorthand_is_quoted_with_the_reason(text, words):
    assert words in refusal(text)


@pytest.mark.parametrize("text", ["0x8", "8x0", "8x", "x8", ""])
def test_a_bad_shorthand_is_answered_with_the_grammar(text):
    assert "COUNTxGPUS[:TYPE[@SPEED]]" in refusal(text)


def test_an_unknown_name_suggests_a_preset():
    assert "did you mean 'philly'" in refusal("phily")


@given(st.text(max_size=40))
def test_any_text_is_a_cluster_or_an_input_error(text):
    with contextlib.suppress(InputError):
        assert parse_cluster(text).node_count >= 1


@pytest.mark.parametrize(
    ("name", "nodes", "gpus"),
    [
        ("demo", 8, 64),
        ("philly", 552, 2490),
        ("helios-venus", 133, 1064),
        ("helios-earth", 143, 1144),
        ("helios-saturn", 262, 2096),
        ("helios-uranus", 264, 2112),
        ("pai", 1897, 6742),
        ("openb", 1213, 6212),
        ("philly-contended", 20, 160),
        ("philly-steady", 52, 416),
        ("venus-contended", 48, 384),
        ("venus-steady", 71, 568),
        ("pai-contended", 60, 480),
        ("openb-contended", 2, 16),
        ("farm-small", 10, 0),
        ("farm-large", 200, 0),
    ],
)
def test_presets_have_the_published_counts(name, nodes, gpus):
    cluster = parse_cluster(name)
    assert (cluster.name, cluster.node_count, cluster.total_gpus) == (name, nodes, gpus)
    assert all(gpu.speed == 1.0 for gpu in cluster.gpu_types)


def test_openb_has_the_cores_of_its_node_list():
    assert parse_cluster("openb").node_columns()["cpus"].sum() == 107_018


@pytest.mark.parametrize("name", list(preset_clusters()))
def test_presets_describe_themselves_in_one_line_and_survive_toml(name, toml):
    assert preset_clusters()[name].__doc__.splitlines()[0].endswith(".")
    cluster = parse_cluster(name)
    assert parse_cluster(str(toml(cluster.to_toml()))) == cluster


@pytest.mark.parametrize("name", ["farm-small", "farm-large"])
def test_farms_span_small_to_large_hosts(name):
    columns = parse_cluster(name).node_columns()
    assert (columns["cpus"].min(), columns["cpus"].max()) == (8, 128)
    assert (columns["memory_mib"].min(), columns["memory_mib"].max()) == (32 * 1024, 1024 * 1024)


labels = st.text(st.characters(codec="utf-8"), min_size=1, max_size=10)
groups = st.builds(
    NodeGroup,
    count=st.integers(1, 1000),
    gpus=st.integers(0, 16),
    type=st.sampled_from(["gpu", "odd", "v100"]),
    cpus=st.integers(1, 2**40),
    memory_mib=st.none() | st.integers(1, 2**40),
    rack=st.none() | labels,
    owner=st.none() | labels,
    idle_w=st.floats(0, 1e6),
    sleep_w=st.floats(0, 1e6),
)


@given(name=labels, speed=st.floats(1e-6, 1e6), nodes=st.lists(groups, min_size=1, max_size=4))
def test_toml_round_trips_any_cluster(tmp_path_factory, name, speed, nodes):
    cluster = Cluster(name=name, gpu_types=(GpuType(name="odd", speed=speed),), nodes=tuple(nodes))
    path = tmp_path_factory.mktemp("toml") / "lab.toml"
    path.write_text(cluster.to_toml(), encoding="utf-8", newline="")
    assert Cluster.from_toml(path) == cluster


def test_node_columns_have_one_entry_a_node():
    cluster = Cluster(
        nodes=(
            NodeGroup(count=2, gpus=8, type="v100", cpus=64, owner="vision", rack="r1"),
            NodeGroup(count=1, gpus=0, cpus=16, memory_mib=1024),
            NodeGroup(count=1, gpus=4, type="v100", owner="speech", rack="r2"),
        )
    )
    columns = cluster.node_columns()
    assert [gpu.name for gpu in cluster.gpu_types] == ["v100", "cpu"]
    assert columns["type"].tolist() == [0, 0, 1, 0]
    assert columns["gpus"].tolist() == [8, 8, 0, 4]
    assert columns["cpus"].tolist() == [64, 64, 16, UNLIMITED]
    assert columns["memory_mib"].tolist() == [UNLIMITED, UNLIMITED, 1024, UNLIMITED]
    assert (cluster.owners, columns["owner"].tolist()) == (("vision", "speech"), [0, 0, -1, 1])
    assert (cluster.racks, columns["rack"].tolist()) == (("r1", "r2"), [0, 0, -1, 1])
    wide = {"cpus", "memory_mib"}
    assert all(values.dtype == (np.int64 if key in wide else np.int32) for key, values in columns.items())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes = [", "not valid TOML"),
        ("name = 'a'\nnodes = = 3", "line 2"),
        ("", "nodes: is missing"),
        ("nodes = []", ": nodes: "),
        ("nodes = 3", ": nodes: "),
        ("nodes = [1]", ": nodes[0]: "),
        ("[[nodes]]\ngpus = 8\ncont = 2", "unknown key nodes[0].cont; did you mean 'count'"),
        ("[[nodes]]\ngpu = 8", "unknown key nodes[0].gpu; did you mean 'gpus'"),
        ("colour = 1\n[[nodes]]\ngpus = 8", "unknown key colour; known: name, gpu_types, nodes"),
        ("[[nodes]]\ncount = 0\ngpus = 8", ": nodes[0].count: "),
        ("[[nodes]]\ngpus = 0", "must state its cpus"),
        ("[[nodes]]\ngpus = 8\ntype = 'v10'", "did you mean 'v100'"),
        ("[[nodes]]\ngpus = 8\ntype = [1]", ": nodes[0].type: "),
        ("[[gpu_types]]\nname = 'a'\nspeed = nan\n[[nodes]]\ngpus = 1\ntype = 'a'", ": gpu_types[0].speed: "),
        ("[[gpu_types]]\nname = 'a'\nspeed = -2\n[[nodes]]\ngpus = 1\ntype = 'a'", "(is -2)"),
        ("[[gpu_types]]\nname = 'a|b'\n[[nodes]]\ngpus = 1", ": gpu_types[0].name: "),
        ("[[gpu_types]]\nname = 'a'\n[[gpu_types]]\nname = 'a'\n[[nodes]]\ngpus = 1", "stated twice"),
    ],
)
def test_a_bad_toml_file_is_refused_with_file_and_key(toml, text, words):
    path = toml(text)
    message = refusal(path)
    assert message.startswith(str(path))
    assert words in message


def test_a_toml_file_that_is_missing_or_not_text_is_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8 text" in refusal(tmp_path / "bytes.toml")


def test_the_name_of_a_toml_cluster_defaults_to_the_file(toml):
    assert parse_cluster(str(toml("[[nodes]]\ngpus = 8"))).name == "lab"


@pytest.mark.parametrize("speed", [0, -1, math.nan, math.inf])
def test_speeds_are_positive_and_finite(speed):
    with pytest.raises(ValidationError):
        GpuType(name="a", speed=speed)


def test_models_cannot_be_changed():
    with pytest.raises(ValidationError):
        parse_cluster("demo").name = "other"
