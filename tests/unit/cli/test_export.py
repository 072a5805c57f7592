"""``gpuyard export``: models as ONNX files that decide as the models do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard import cli
from gpuyard.learn import export_model as module
from gpuyard.network.config import NetworkConfig
from gpuyard.network.model_file import ModelFile, write_model
from gpuyard.network.sizes import NetworkSizes
from support.network_cases import trained_by_chance
from support.small_environments import single

Run = Callable[..., tuple[int, str, str]]
CASES = [
    ("select-job", "job-scorer", "base"),
    ("select-job", "mlp", "none"),
    ("select-job", "rule", "none"),
    ("select-job", "state-rule", "none"),
    ("select-job", "job-scorer", "rule"),
    ("select-job-and-pool", "cross-attention", "base"),
    ("accept-or-skip", "job-scorer", "base"),
    ("select-host", "host-attention", "base"),
    ("rank-hosts", "host-attention", "none"),
]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main(["export", *(str(argument) for argument in arguments)])
        return code, *capfd.readouterr()

    return call


def a_run(
    directory: Path, kind: str = "select-job", network: str = "job-scorer", residual: str = "base"
) -> Path:
    """A directory with a model of weights by chance."""
    env = single(kind)
    config = NetworkConfig(kind=network, residual=residual, width=8)  # type: ignore[arg-type]
    made = trained_by_chance((config, NetworkSizes.of(env.model)))
    tensors = {name: tensor.detach().numpy() for name, tensor in made.state_dict().items()}
    directory.mkdir(parents=True)
    write_model(directory / "best.safetensors", ModelFile.of(env.model, config, tensors, {}))
    return directory


@pytest.mark.parametrize(("kind", "network", "residual"), CASES)
def test_exported_models_decide_as_the_models_do(
    run: Run, tmp_path: Path, kind: str, network: str, residual: str
) -> None:
    a_run(tmp_path / "runs" / "one", kind, network, residual)
    code, out, err = run("runs/one", "--out", "model.onnx", "--json")
    assert code == 0, err
    printed = json.loads(out)
    assert printed["out"] == "model.onnx"
    assert (printed["kind"], printed["network"], printed["checked"]) == (kind, network, True)
    assert printed["largest_difference"] < 1e-4
    assert (tmp_path / "model.onnx").stat().st_size > 500


def test_export_says_in_words_what_was_compared(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path / "runs" / "one")
    code, out, _ = run("runs/one/best.safetensors", "--out", "model.onnx")
    assert code == 0
    assert "onnxruntime decides as the model does" in out
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    code, out, _ = run("runs/one", "--out", "model.onnx")
    assert code == 0
    assert "Not compared" in out


def test_file_that_decides_otherwise_is_a_failure_and_is_removed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path / "runs" / "one")
    other = trained_by_chance((NetworkConfig(width=8), NetworkSizes.of(single("select-job").model)))
    export = module.export_onnx
    monkeypatch.setattr(module, "export_onnx", lambda network, sizes, path: export(other, sizes, path))
    code, out, err = run("runs/one", "--out", "model.onnx")
    assert (code, out) == (cli.FAILED, "")
    assert "decides otherwise than the model" in err
    assert not (tmp_path / "model.onnx").exists()


def test_wrong_usage_is_refused_with_what_to_do(run: Run, tmp_path: Path) -> None:
    a_run(tmp_path / "runs" / "one")
    for arguments, words in (
        (["runs/one", "--out", "model.txt"], ".onnx"),
        (["runs/one", "--out", "none/model.onnx"], "create it first"),
        (["nothing", "--out", "model.onnx"], "no such run directory or model file"),
        (["one", "--out", "model.onnx"], "did you mean runs/one?"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (cli.BAD_INPUT, "")
        assert words in err
