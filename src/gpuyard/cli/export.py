"""``gpuyard export``: a trained model as a file for other runtimes."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gpuyard.cli.inputs import Json, check_output, one_line, open_console, print_json
from gpuyard.errors import InputError


def export(
    model: Annotated[str, Parameter(help="A run's directory, a model file, or model:NAME.")],
    /,
    *,
    out: Annotated[Path, Parameter(help="The file to write: .onnx.")],
    json: Json = False,
) -> int:
    """Write a trained model as ONNX, and compare it with the model if onnxruntime is installed.

    Example: gpuyard export runs/ppo-1 --out model.onnx
    """
    check_output("--out", out, (".onnx",))
    for package in ("torch", "onnx"):
        if find_spec(package) is None:
            raise InputError(f"writing ONNX needs the package {package}; run pip install 'gpuyard[onnx]'")
    from gpuyard.learn.export_model import ExportFailedError, export_model

    try:
        written = export_model(model, out)
    except ExportFailedError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return 1
    if json:
        print_json(written.document())
        return 0
    console = open_console()
    console.print(
        f"Written to {out}: {written.network} for {written.kind}, from {written.model}.", soft_wrap=True
    )
    if written.checked:
        console.print(
            f"onnxruntime decides as the model does on {written.states} states (logits differ by at most "
            f"{written.largest_difference:.1g}).",
            soft_wrap=True,
        )
    else:
        console.print("Not compared with the model: that needs pip install onnxruntime.", soft_wrap=True)
    return 0
