"""Checkpoints: whole or as before, checked when they are read."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from gpuyard.errors import InputError
from gpuyard.learn.process import checkpoint as module
from gpuyard.learn.process.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gpuyard.learn.start import load_weights


def some(number: float = 1.0) -> Checkpoint:
    made = Checkpoint({"step": 7})
    made.add("networks/policy", {"weight": torch.full((3, 2), number), "bias": torch.arange(3.0)})
    made.add(
        "rank/0",
        {"generator": torch.arange(5, dtype=torch.uint8), "empty": torch.zeros(0, 4), "count": np.array(3)},
    )
    return made


def test_checkpoint_reads_back_equal(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", some())
    back = read_checkpoint(tmp_path / "c")
    assert back.document["step"] == 7
    assert back.arrays.keys() == some().arrays.keys()
    for name, array in some().arrays.items():
        assert back.arrays[name].dtype == array.dtype
        assert np.array_equal(back.arrays[name], array)
    assert back.arrays["rank/0/count"].shape == ()
    assert set(back.part("networks/policy")) == {"weight", "bias"}


@pytest.mark.parametrize("keep", [0, 5, 60, 300, -1])
def test_truncated_checkpoint_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "c"
    write_checkpoint(path, some())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"damaged.*`init_from`"):
        read_checkpoint(path)


def test_tampered_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    write_checkpoint(path, some())
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match="do not match its checksum"):
        read_checkpoint(path)


def test_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkpoint here"):
        read_checkpoint(tmp_path / "none")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("format", "format 99.*the version that wrote it"),
        ("observation_version", "version 99"),
    ],
)
def test_checkpoint_of_another_version_is_refused(tmp_path: Path, key: str, message: str) -> None:
    path = tmp_path / "c"
    write_checkpoint(path, some())
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    document = json.loads(header["__metadata__"]["gpuyard-checkpoint"])
    header["__metadata__"]["gpuyard-checkpoint"] = json.dumps({**document, key: 99})
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    with pytest.raises(InputError, match=message):
        read_checkpoint(path)


def test_full_disk_leaves_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    write_checkpoint(path, some(1.0))

    def full(*arguments: object) -> None:
        Path(str(arguments[1])).write_bytes(b"a part of it")
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_checkpoint(path, some(2.0))
    assert float(read_checkpoint(path).arrays["networks/policy/weight"][0, 0]) == 1.0
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


def test_weights_of_another_network_are_refused_by_name() -> None:
    network = torch.nn.Linear(2, 3)
    with pytest.raises(InputError, match=r"x does not fit the network: tensor weight has shape \(4, 2\)"):
        load_weights(network, {"weight": torch.zeros(4, 2), "bias": torch.zeros(3)}, "x")
    with pytest.raises(InputError, match="tensor bias has shape None"):
        load_weights(network, {"weight": torch.zeros(3, 2)}, "x")
