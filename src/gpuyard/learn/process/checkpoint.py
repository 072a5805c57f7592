"""The whole state of a training run in one file: safetensors with a JSON document, never pickle.

A checkpoint is written to a temporary name, synced and renamed, so that whatever happens the last good one is
there. It is checked against a hash when it is read. Needs no torch.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from gpuyard import _core
from gpuyard.errors import InputError, setting
from gpuyard.files import atomic_write, parse_json

FORMAT = 2
_KEY = "gpuyard-checkpoint"


@dataclass
class Checkpoint:
    """Arrays by name, and everything else.

    Attributes:
        document: JSON: the step, counters, what the environments did.
        arrays: Weights, states of optimizers, random generators, recorded actions.
    """

    document: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    def part(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The arrays whose names begin so, by the rest of their names."""
        start = f"{prefix}/"
        return {name.removeprefix(start): a for name, a in self.arrays.items() if name.startswith(start)}

    def add(self, prefix: str, values: Mapping[str, Any]) -> None:
        """Enter arrays, or tensors of torch, under a common beginning of their names."""
        for name, value in values.items():
            array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
            # Copied: it may be a view of another, which the format does not hold.
            self.arrays[f"{prefix}/{name}"] = np.array(array, copy=True, order="C")


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file by this checkpoint, whole or not at all.

    Raises:
        InputError: if the system refuses, for example for want of space; the file is then as it was.
    """
    document = {
        **checkpoint.document,
        "format": FORMAT,
        "observation_version": _core.OBSERVATION_VERSION,
        "sha256": _hash(checkpoint.arrays),
    }
    with atomic_write(path) as temporary:
        try:
            save_file(checkpoint.arrays, temporary, {_KEY: json.dumps(document)})
        except SafetensorError as error:
            raise OSError(str(error)) from None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read and check a checkpoint.

    Raises:
        InputError: if it is missing, damaged, or of another version.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no checkpoint here; begin a new run without {setting('resume')}")
    try:
        with safe_open(path, framework="numpy") as file:
            header = (file.metadata() or {}).get(_KEY)
            if header is None:
                raise InputError(f"{path}: is not a checkpoint of a training run")
            arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        document = parse_json(header, lenient=True)
    except (SafetensorError, ValueError, OSError) as error:
        raise InputError(
            f"{path}: is damaged ({str(error).splitlines()[0]}); restore a copy, or begin a new run with "
            f"{setting('init_from')} and the run's best.safetensors"
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
    if document.get("sha256") != _hash(arrays):
        raise InputError(
            f"{path}: its contents do not match its checksum; restore a copy, or begin a new run with "
            f"{setting('init_from')} and the run's best.safetensors"
        )
    return Checkpoint(document, arrays)


def _hash(arrays: Mapping[str, NDArray[Any]]) -> str:
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()
