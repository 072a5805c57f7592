"""Model files: what is written is read, and whatever is wrong with one is said."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from gpuyard import _core
from gpuyard.errors import InputError
from gpuyard.network import model_file
from gpuyard.network.config import NetworkConfig
from gpuyard.network.model_file import ModelFile, find_model, read_model, write_model
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import expected_tensors
from gpuyard.observation.spec import EnvModel
from support.small_environments import vector


def environment(**settings: Any) -> EnvModel:
    return vector("select-job", 1, **settings).model


def some_model(model: EnvModel | None = None, **network: Any) -> ModelFile:
    model = model or environment()
    config = NetworkConfig(**{"width": 4} | network)
    rng = np.random.default_rng(0)
    shapes = expected_tensors(config, NetworkSizes.of(model))
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    training = {"algorithm": "ppo", "steps": 5, "validation": {"score": -1.5}}
    return ModelFile.of(model, config, tensors, training)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "best.safetensors"
    write_model(target, some_model())
    return target


Change = Callable[[dict[str, Any], dict[str, Any]], Any]


def rewrite(path: Path, change: Change, *, sign: bool = True) -> None:
    """Change the description or the tensors, with a checksum that matches again."""
    tensors = dict(safetensors.numpy.load(path.read_bytes()))
    data = path.read_bytes()
    whole = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header = json.loads(whole["__metadata__"]["gpuyard"])
    change(header, tensors)
    if sign:
        header.pop("sha256", None)
        header["sha256"] = model_file._checksum(header, tensors)
    path.write_bytes(safetensors.numpy.save(tensors, {"gpuyard": json.dumps(header)}))


def test_a_model_is_read_as_it_was_written(path: Path) -> None:
    written, read = some_model(), read_model(path)
    assert read.header() == written.header()
    assert read.environment == written.environment
    assert read.environment.base_policy == "wspt+easy/consolidate"
    assert read.environment.window == 4
    assert read.cluster == written.cluster
    assert set(read.tensors) == set(written.tensors)
    for name, values in written.tensors.items():
        np.testing.assert_array_equal(read.tensors[name], values)


def test_a_model_file_is_the_same_bytes_each_time(path: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "again.safetensors", read_model(path))
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.0005, 0.002, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(InputError, match=r"is cut short.*copy it again"):
        read_model(path)


@pytest.mark.parametrize("place", [2, 8, 30, 200, 700, -1, -100, -1000])
def test_a_flipped_byte_is_noticed(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"copy it again|give a run directory|reads 1"):
        read_model(path)


def test_any_flipped_byte_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    for place in range(0, len(whole), 37):
        data = bytearray(whole)
        data[place] ^= 4
        path.write_bytes(bytes(data))
        with pytest.raises(InputError, match=r"best\.safetensors"):
            read_model(path)


def test_bytes_behind_the_tensors_are_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(InputError, match="is damaged"):
        read_model(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: h.update(format=2), "has format 2 of models, but this gpuyard reads 1; use"),
        (lambda h, t: h.update(observation_version=99), "observations of version 99.*train the model again"),
        (lambda h, t: t.pop("noop.bias"), "tensor noop.bias is missing; copy it again"),
        (lambda h, t: t.update(more=np.zeros(3, np.float32)), "it has no tensor more; copy it again"),
        (lambda h, t: t.update({"noop.bias": np.zeros(3, np.float32)}), r"has shape \[3\]; expected \[1\]"),
        (lambda h, t: t.update({"noop.bias": np.zeros(1, np.float64)}), "noop.bias is not of type float32"),
        (lambda h, t: t["noop.bias"].fill(np.nan), "noop.bias holds numbers that are not finite"),
        (lambda h, t: h["network"].update(widht=3), "widht.*use the gpuyard that wrote it"),
        (lambda h, t: h["environment"].update(window=0), "window.*use the gpuyard that wrote it"),
        (lambda h, t: h.pop("sizes"), "description is not complete.*use the gpuyard that wrote it"),
        (lambda h, t: h["sizes"].pop("rows"), "description is not complete.*use the gpuyard that wrote it"),
    ],
)
def test_what_is_wrong_is_said(path: Path, change: Any, message: str) -> None:
    rewrite(path, change)
    with pytest.raises(InputError, match=message):
        read_model(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda h, t: h["environment"].update(window=5),
        lambda h, t: h["training"].update(steps=6),
        lambda h, t: t["noop.bias"].fill(0.5),
    ],
)
def test_a_change_without_a_new_checksum_is_noticed(path: Path, change: Any) -> None:
    rewrite(path, change, sign=False)
    with pytest.raises(InputError, match=r"checksum does not match\); copy it again"):
        read_model(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "jobs.csv"
    text.write_text("submit_s,duration_s,gpus\n0,1,1\n")
    with pytest.raises(InputError, match="is not a model file"):
        read_model(text)
    plain = tmp_path / "weights.safetensors"
    plain.write_bytes(safetensors.numpy.save({"x": np.zeros(2, np.float32)}))
    with pytest.raises(InputError, match="no model of gpuyard"):
        read_model(plain)
    with pytest.raises(InputError, match=r"cannot be read as a model \(No such file"):
        read_model(tmp_path / "none.safetensors")
    with pytest.raises(InputError, match="cannot be read as a model"):
        read_model(tmp_path)


def test_a_run_directory_means_its_best_model_else_its_last(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no model in this directory"):
        find_model(tmp_path)
    write_model(tmp_path / "last.safetensors", some_model())
    assert find_model(tmp_path) == tmp_path / "last.safetensors"
    write_model(tmp_path / "best.safetensors", some_model())
    assert find_model(str(tmp_path)) == tmp_path / "best.safetensors"
    assert find_model(tmp_path / "last.safetensors") == tmp_path / "last.safetensors"
    with pytest.raises(InputError, match="there is no such run directory or model file"):
        find_model(tmp_path / "other")


def test_an_unknown_name_of_a_model_says_which_there_are() -> None:
    with pytest.raises(InputError, match=r"model:nonsense: no such model comes with gpuyard; known: "):
        find_model("model:nonsense")


def test_wrong_tensors_are_not_written(tmp_path: Path) -> None:
    model = some_model()
    tensors = {name: values for name, values in model.tensors.items() if name != "value.bias"}
    with pytest.raises(InputError, match=r"value\.bias is missing"):
        write_model(tmp_path / "model.safetensors", replace(model, tensors=tensors))
    assert not list(tmp_path.iterdir())


def test_a_model_of_a_farm_that_is_drawn_keeps_a_cluster(tmp_path: Path) -> None:
    model = vector("select-host", 1).model
    write_model(tmp_path / "m.safetensors", some_model(model, kind="host-attention"))
    assert read_model(tmp_path / "m.safetensors").cluster == model.cluster
    assert _core.OBSERVATION_VERSION == 1
