"""The whole state of a training run in one file: safetensors with a JSON document, never pickle.

A checkpoint is written to a temporary name, synced and renamed, so that whatever happens the last good one is
there. It is checked against a hash when it is read.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gpuyard import _core
from gpuyard.errors import InputError
from gpuyard.files import atomic_write, parse_json
from gpuyard.learn.learner import Learner

FORMAT = 1
_KEY = "gpuyard-checkpoint"


@dataclass
class Checkpoint:
    """Tensors by name, and everything else.

    Attributes:
        document: JSON: the step, counters, what the environments did.
        tensors: Weights, states of optimizers, random generators, recorded actions.
    """

    document: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, by the rest of their names."""
        start = f"{prefix}/"
        return {name.removeprefix(start): t for name, t in self.tensors.items() if name.startswith(start)}

    def add(self, prefix: str, tensors: Mapping[str, Any]) -> None:
        """Enter tensors or arrays under a common beginning of their names."""
        for name, value in tensors.items():
            tensor = value.detach() if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))
            # Cloned: a tensor may be a view of another, which the format does not hold.
            self.tensors[f"{prefix}/{name}"] = tensor.cpu().clone().contiguous()


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file by this checkpoint, whole or not at all.

    Raises:
        InputError: if the system refuses, for example for want of space; the file is then as it was.
    """
    document = {
        **checkpoint.document,
        "format": FORMAT,
        "observation_version": _core.OBSERVATION_VERSION,
        "sha256": _hash(checkpoint.tensors),
    }
    with atomic_write(path) as temporary:
        try:
            save_file(checkpoint.tensors, temporary, {_KEY: json.dumps(document)})
        except SafetensorError as error:
            raise OSError(str(error)) from None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read and check a checkpoint.

    Raises:
        InputError: if it is missing, damaged, or of another version.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no checkpoint here; begin a new run without --resume")
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(_KEY)
            if header is None:
                raise InputError(f"{path}: is not a checkpoint of a training run")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        document = parse_json(header, lenient=True)
    except (SafetensorError, ValueError, OSError) as error:
        raise InputError(
            f"{path}: is damaged ({str(error).splitlines()[0]}); restore a copy, or begin a new run with "
            "--init-from and the run's best.safetensors"
        ) from None
    if document.get("format") != FORMAT:
        raise InputError(
            f"{path}: checkpoint format {document.get('format')}, but this version reads {FORMAT}; "
            "resume it with the version that wrote it"
        )
    if document.get("observation_version") != _core.OBSERVATION_VERSION:
        raise InputError(
            f"{path}: was made for observation version {document.get('observation_version')}, but this is "
            f"version {_core.OBSERVATION_VERSION}; resume it with the version that wrote it, or train anew"
        )
    if document.get("sha256") != _hash(tensors):
        raise InputError(
            f"{path}: its contents do not match its checksum; restore a copy, or begin a new run with "
            "--init-from and the run's best.safetensors"
        )
    return Checkpoint(document, tensors)


def _hash(tensors: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


# --- Learners ---


def add_learner(checkpoint: Checkpoint, learner: Learner) -> None:
    """Enter weights and the states of optimizers: the same in every process."""
    for name, network in learner.networks.items():
        checkpoint.add(f"networks/{name}", network.state_dict())
    for name, optimizer in learner.optimizers.items():
        for number, values in optimizer.state_dict()["state"].items():
            checkpoint.add(f"optimizers/{name}/{number}", values)


def restore_learner(checkpoint: Checkpoint, learner: Learner) -> None:
    """Take weights and the states of optimizers back.

    Raises:
        InputError: if the checkpoint is of another network.
    """
    for name, network in learner.networks.items():
        load_weights(network, checkpoint.part(f"networks/{name}"), "the checkpoint")
    for name, optimizer in learner.optimizers.items():
        states: dict[int, dict[str, Tensor]] = {}
        for key, tensor in checkpoint.part(f"optimizers/{name}").items():
            number, _, field_name = key.partition("/")
            states.setdefault(int(number), {})[field_name] = tensor
        optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})


def load_weights(network: torch.nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Set a network's weights.

    Raises:
        InputError: naming the first tensor that is missing, too many or of another shape.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(wanted.keys() | given.keys()):
        if wanted.get(name) != given.get(name):
            raise InputError(
                f"{source} does not fit the network: tensor {name} has shape {given.get(name)}, the network "
                f"asks for {wanted.get(name)}; network and environment must be those it was trained with"
            )
    network.load_state_dict(dict(tensors))
