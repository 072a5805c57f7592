"""ONNX files decide as the networks they were written from."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from gpuyard.errors import InputError
from gpuyard.learn.export_onnx import export_onnx
from gpuyard.learn.networks.heads import masked_logits
from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from support.network_cases import Case, all_cases, cases, name_of, observation_of, sizes_of, trained_by_chance

SOME_CASES = [case for case in all_cases() if case[0].depth == 3 or case not in cases()]
FIRST = {(case[0].kind, case[0].residual): case for case in reversed(SOME_CASES)}
"""One of each network and residual; others take as long to export and go the same way."""


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path: Path, observation: dict[str, Tensor]) -> list[Any]:
    session = session_of(path)
    wanted = {each.name for each in session.get_inputs()}
    inputs = {name: part.numpy() for name, part in observation.items() if name in wanted}
    return list(session.run(["logits", "value", "action"], inputs))


def same_decisions(case: Case, path: Path, observation: dict[str, Tensor], network: Any) -> None:
    logits, value, action = run(path, observation)
    with torch.no_grad():
        own_logits, own_value = network(observation)
    masked = masked_logits(own_logits, observation["mask"])
    legal = observation["mask"].numpy() != 0
    np.testing.assert_allclose(value, own_value.numpy(), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(logits[legal], masked.numpy()[legal], atol=1e-5, rtol=1e-5)
    assert (logits[~legal] == np.finfo(np.float32).min).all()
    if case[1].ranks_hosts:
        np.testing.assert_allclose(action, own_logits.numpy(), atol=1e-5, rtol=1e-5)
        return
    best = masked.topk(2, 1).values
    clear = (best[:, 0] - best[:, 1]).numpy() > 1e-4
    assert clear.sum() > len(clear) / 2
    assert (action == masked.argmax(1).numpy())[clear].all()


@pytest.mark.parametrize("case", FIRST.values(), ids=name_of)
def test_onnxruntime_decides_as_torch_at_any_batch_size(case: Case, tmp_path: Path) -> None:
    check_export(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in SOME_CASES if case not in FIRST.values()], ids=name_of)
def test_onnxruntime_decides_as_torch_in_any_environment(case: Case, tmp_path: Path) -> None:
    check_export(case, tmp_path)


def check_export(case: Case, tmp_path: Path) -> None:
    network, path = trained_by_chance(case), tmp_path / "network.onnx"
    export_onnx(network, case[1], path)
    for batch in (2, 40):
        same_decisions(case, path, observation_of(case[1], batch), network)
    one = {name: part[1:2] for name, part in observation_of(case[1]).items()}
    np.testing.assert_allclose(run(path, one)[1], network(one)[1].detach().numpy(), atol=1e-5)


def test_exported_host_attention_takes_any_number_of_hosts(tmp_path: Path) -> None:
    sizes = sizes_of("select-host")
    network = trained_by_chance((NetworkConfig(kind="host-attention", residual="base"), sizes))
    export_onnx(network, sizes, tmp_path / "network.onnx")
    larger = NetworkSizes(**sizes.to_json() | {"tokens": 50, "actions": 50})
    case = network.config, larger
    same_decisions(case, tmp_path / "network.onnx", observation_of(larger, 20), network)


def test_exported_file_tells_its_settings(tmp_path: Path) -> None:
    config, sizes = NetworkConfig(width=8), sizes_of("select-job")
    export_onnx(trained_by_chance((config, sizes)), sizes, tmp_path / "network.onnx")
    about = json.loads(session_of(tmp_path / "network.onnx").get_modelmeta().custom_metadata_map["gpuyard"])
    assert NetworkConfig(**about["network"]) == config
    assert NetworkSizes.from_json(about["sizes"]) == sizes


def test_export_into_a_missing_directory_is_refused(tmp_path: Path) -> None:
    sizes = sizes_of("select-job")
    network = trained_by_chance((NetworkConfig(width=8), sizes))
    with pytest.raises(InputError, match="create it first"):
        export_onnx(network, sizes, tmp_path / "nowhere" / "network.onnx")
