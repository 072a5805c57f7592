"""Networks as ONNX files, for runtimes other than the native core."""

import copy
import json
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from gpuyard.errors import InputError
from gpuyard.files import atomic_write
from gpuyard.learn.networks.heads import SchedulingNetwork, masked_logits
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import HOST_KINDS

OPSET = 18
INPUTS = ("jobs", "nodes", "globals", "mask")
OUTPUTS = ("logits", "value", "action")


def export_onnx(network: SchedulingNetwork, sizes: NetworkSizes, path: str | Path) -> None:
    """Write a network as an ONNX file that takes any number of states at once.

    Inputs are ``jobs`` [B, K, F], ``nodes`` [B, N, G] and ``globals`` [B, D] (float32) and ``mask`` [B, A]
    (int8). Outputs are ``logits`` [B, A], those of illegal actions the lowest number there is, ``value`` [B]
    and ``action``: the number of the best legal one [B], the first of equals, or where hosts are ranked
    their priorities [B, A]. A ``host-attention`` takes any number of hosts. Without columns of globals there
    is no input ``globals``. Settings and sizes are in the metadata, as JSON under ``gpuyard``.

    Args:
        network: What to write; it is not changed.
        sizes: Of the environment it acts in.
        path: The file.

    Raises:
        InputError: if the package onnx is not installed, or the file cannot be written.
    """
    try:
        import onnx
    except ImportError:
        raise InputError("writing ONNX needs the package onnx; run pip install 'gpuyard[onnx]'") from None
    model = onnx.load_from_string(_exported(network, sizes))
    about = {"format": 1, "network": network.config.model_dump(mode="json"), "sizes": sizes.to_json()}
    onnx.helper.set_model_props(model, {"gpuyard": json.dumps(about)})
    onnx.checker.check_model(model, full_check=True)
    with atomic_write(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


class _Deciding(nn.Module):
    """A network as it is used: masks applied, an action chosen."""

    def __init__(self, network: SchedulingNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, jobs: Tensor, nodes: Tensor, overall: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        legal = mask.to(jobs.dtype)  # runtimes compare these everywhere, but not int8
        logits, value = self.network({"jobs": jobs, "nodes": nodes, "globals": overall, "mask": legal})
        masked = masked_logits(logits, legal)
        return masked, value, logits if self.network.sizes.ranks_hosts else masked.argmax(1)


def _exported(network: SchedulingNetwork, sizes: NetworkSizes) -> bytes:
    deciding = _Deciding(copy.deepcopy(network).to("cpu", torch.float32)).eval()
    example = (
        torch.ones(2, sizes.rows, sizes.job_columns),
        torch.ones(2, sizes.tokens, sizes.node_columns),
        torch.ones(2, sizes.global_columns),
        torch.ones(2, sizes.actions, dtype=torch.int8),
    )
    axes = {name: {0: "batch"} for name in (*INPUTS, *OUTPUTS)}
    if sizes.kind in HOST_KINDS and network.config.kind == "host-attention":
        axes["nodes"][1] = axes["mask"][1] = axes["logits"][1] = "hosts"
        if sizes.ranks_hosts:
            axes["action"][1] = "hosts"
    with torch.no_grad(), warnings.catch_warnings(), TemporaryDirectory() as directory:
        # The exporter that needs nothing but torch says that it is not the default one.
        warnings.simplefilter("ignore", DeprecationWarning)
        deciding.network.fix_weights()
        file = Path(directory) / "network.onnx"
        torch.onnx.export(
            deciding,
            example,
            file,
            dynamo=False,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_axes=axes,
            opset_version=OPSET,
        )
        return file.read_bytes()
