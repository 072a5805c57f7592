"""Trained models as ONNX files, compared with the model before anybody relies on them."""

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpuyard.learn.export_onnx import export_onnx
from gpuyard.learn.networks.heads import make_network
from gpuyard.network.model_file import ModelFile, find_model, read_model
from gpuyard.network.rollout import native_network
from gpuyard.network.sizes import NetworkSizes

STATES = 64
TOLERANCE = 1e-4
"""Largest difference of logits, or share of them, that is rounding; the best actions may differ within it."""

State = dict[str, NDArray[Any]]


class ExportFailedError(Exception):
    """The file does not decide as the model does."""


@dataclass(frozen=True)
class Export:
    """A file that was written.

    Attributes:
        model: The model file that it was made from.
        out: The file.
        kind: Of the environment that the model acts in.
        network: Kind of the network.
        checked: Whether onnxruntime was there to compare it with the model.
        states: How many states they were compared on.
        largest_difference: Of logits; None if they were not compared.
    """

    model: str
    out: str
    kind: str
    network: str
    checked: bool = False
    states: int = 0
    largest_difference: float | None = None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def export_model(source: str, out: Path) -> Export:
    """Write the model of a run, a file or a name as ONNX, and compare it if onnxruntime is installed.

    Raises:
        InputError: if there is no such model, onnx is not installed, or the file cannot be written.
        ExportFailedError: if the file decides otherwise than the model; it is removed.
    """
    path = find_model(source)
    model = read_model(path)
    network = make_network(model.network, model.sizes, seed=0)
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in model.tensors.items()})
    export_onnx(network, model.sizes, out)
    written = Export(str(path), str(out), model.kind, model.network.kind)
    if find_spec("onnxruntime") is None:
        return written
    try:
        difference = _compare(model, out)
    except ExportFailedError:
        out.unlink(missing_ok=True)
        raise
    return Export(str(path), str(out), model.kind, model.network.kind, True, STATES, difference)


def _compare(model: ModelFile, file: Path) -> float:
    """The largest difference of logits on states by chance."""
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    wanted = {each.name for each in session.get_inputs()}
    states = _states(model.sizes)
    inputs = {name: part for name, part in states.items() if name in wanted}
    found, action = session.run(["logits", "action"], inputs)
    native = native_network(model.network, model.sizes, model.tensors)
    own, _ = native.forward_batch(states["jobs"], states["nodes"], states["globals"], states["mask"])
    legal = states["mask"] != 0
    difference = np.abs(found - own)[legal]
    same = (difference <= TOLERANCE * np.maximum(1.0, np.abs(own[legal]))).all()
    if same and not model.sizes.ranks_hosts:
        ranked = np.where(legal, own, -np.inf)
        chosen = np.take_along_axis(ranked, action[:, None], 1)[:, 0]
        best = ranked.max(1)
        same = (best - chosen <= TOLERANCE * np.maximum(1.0, np.abs(best))).all()
    if not same:
        raise ExportFailedError(
            f"{file}: onnxruntime {onnxruntime.__version__} decides otherwise than the model (logits differ "
            f"by up to {float(difference.max()):.2g}); the file was removed; try another onnxruntime"
        )
    return float(difference.max())


def _states(sizes: NetworkSizes) -> State:
    """Numbers of the right form: all rows are there, the base policy chooses the first, which is legal."""
    draw = np.random.default_rng(0)
    jobs = draw.random((STATES, sizes.rows, sizes.job_columns), dtype=np.float32)
    nodes = draw.random((STATES, sizes.tokens, sizes.node_columns), dtype=np.float32)
    overall = draw.random((STATES, sizes.global_columns), dtype=np.float32)
    mask = (draw.random((STATES, sizes.actions)) < 0.6).astype(np.int8)
    mask[:, 0] = 1
    for rows, present, choice in (
        (jobs, sizes.job_present, sizes.job_base_choice),
        (nodes, sizes.node_present, sizes.node_base_choice),
    ):
        if present >= 0:
            rows[:, :, present] = 1
        if choice >= 0:
            rows[:, :, choice] = 0
            rows[:, 0, choice] = 1
    if sizes.base_waits >= 0:
        overall[:, sizes.base_waits] = 0
    if sizes.base_pool >= 0:
        overall[:, sizes.base_pool : sizes.base_pool + sizes.pools] = 0
        overall[:, sizes.base_pool] = 1
    return {"jobs": jobs, "nodes": nodes, "globals": overall, "mask": mask}
