"""Models as files: a network's tensors with all that is needed to act by them.

See docs/formats/model-file.md.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import ValidationError

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.files import atomic_write, parse_json
from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import check_tensors
from gpuyard.observation.config import EnvConfig
from gpuyard.observation.spec import EnvModel
from gpuyard.policies.base import SHIPPED
from gpuyard.registry import suggest
from gpuyard.runs.directory import BEST, FOLDER, LAST, MODELS

FORMAT = 1
KEY = "gpuyard"
SUFFIX = ".safetensors"
HERE = "{here}"
"""Stands for a folder of results in what is told of how a model came about; files there stay behind."""
SHIPPED_IN = Path(__file__).parents[1] / "models"
_AGAIN = "copy it again from where it was made, or train it again"

Tensors = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class ModelFile:
    """A trained network, and the environment that it acts in.

    Attributes:
        kind: Of the environment, such as ``select-job``.
        environment: Its settings, the base policy and the window filled in.
        cluster: What it was trained on; one of the draws where a generator draws clusters.
        network: Settings of the network.
        sizes: Of its observations and actions.
        tensors: Its parameters, by name.
        training: Whatever training wants to tell, such as algorithm, steps and validation.
    """

    kind: str
    environment: EnvConfig
    cluster: Cluster
    network: NetworkConfig
    sizes: NetworkSizes
    tensors: Tensors
    training: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: EnvModel, network: NetworkConfig, tensors: Tensors, training: Mapping[str, Any]
    ) -> Self:
        """A network that acts in an environment."""
        filled_in = {"base_policy": model.policy.name, "window": model.config.window_of(model.kind)}
        environment = model.config.model_copy(update=filled_in)
        sizes = NetworkSizes.of(model)
        return cls(model.kind, environment, model.cluster, network, sizes, dict(tensors), dict(training))

    def header(self) -> dict[str, Any]:
        """All but the tensors, as a JSON document."""
        cluster = self.cluster
        return {
            "format": FORMAT,
            "observation_version": _core.OBSERVATION_VERSION,
            "kind": self.kind,
            "environment": self.environment.model_dump(mode="json"),
            "cluster": {
                "name": cluster.name,
                "nodes": cluster.node_count,
                "gpus": cluster.total_gpus,
                "definition": cluster.model_dump(mode="json", exclude_none=True),
            },
            "network": self.network.model_dump(mode="json"),
            "sizes": self.sizes.to_json(),
            "training": _finite(dict(self.training)),
        }


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def write_model(path: str | Path, model: ModelFile) -> None:
    """Write a model; the file appears whole or not at all.

    Raises:
        InputError: if the tensors are not those of the network, or the file cannot be written.
    """
    data = model_bytes(model)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def model_bytes(model: ModelFile) -> bytes:
    """What the file of a model holds.

    Raises:
        InputError: if the tensors are not those of the network.
    """
    check_tensors(model.network, model.sizes, model.tensors)
    tensors = {name: np.ascontiguousarray(model.tensors[name], np.float32) for name in sorted(model.tensors)}
    header = model.header()
    header["sha256"] = _checksum(header, tensors)
    return safetensors.numpy.save(tensors, {KEY: json.dumps(header, sort_keys=True, allow_nan=False)})


def read_model(path: str | Path) -> ModelFile:
    """Read a model and check all of it.

    Raises:
        InputError: if there is no such file, it is no model, is damaged, or was made for another gpuyard.
    """
    data = _read(Path(path))
    header = _header(path, data)
    tensors = _tensors(path, data)
    stated = header.pop("sha256", None)
    if stated != _checksum(header, tensors):
        raise InputError(f"{path}: is damaged or was changed (its checksum does not match); {_AGAIN}")
    model = _model(path, header, tensors)
    try:
        check_tensors(model.network, model.sizes, tensors)
    except InputError as error:
        raise InputError(f"{path}: {error}; {_AGAIN}") from None
    return model


def left_behind(source: object) -> bool:
    """Whether jobs that a model was trained on are named, but did not come with it."""
    return isinstance(source, str) and source.startswith(HERE)


def find_model(source: str | Path) -> Path:
    """The model file that is meant by a run directory, a file or a name such as ``model:NAME``.

    Raises:
        InputError: if there is none.
    """
    if str(source).startswith(SHIPPED):
        return _shipped(str(source).removeprefix(SHIPPED))
    path = Path(source)
    if not path.is_dir():
        if not path.exists():
            run = Path(FOLDER) / path
            hint = f"; did you mean {run}?" if path.name == str(source) and run.is_dir() else ""
            raise InputError(f"{source}: there is no such run directory or model file{hint}")
        return path
    for name in MODELS:
        if (path / name).is_file():
            return path / name
    raise InputError(
        f"{source}: there is no model in this directory ({BEST} or {LAST}); give the directory of a run that "
        "was validated at least once, or a model file"
    )


def shipped_models() -> tuple[str, ...]:
    """Names of the models that come with gpuyard."""
    return tuple(sorted(path.stem for path in SHIPPED_IN.glob(f"*{SUFFIX}")))


def _shipped(name: str) -> Path:
    known = shipped_models()
    if name not in known:
        close = suggest(name, dict.fromkeys(known))
        raise InputError(f"{SHIPPED}{name}: no such model comes with gpuyard{close}")
    return SHIPPED_IN / f"{name}{SUFFIX}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read as a model ({error.strerror})") from None


def _header(path: str | Path, data: bytes) -> dict[str, Any]:
    """What the file says of itself, if this gpuyard can read such files."""
    whole = _safetensors_header(path, data)
    stated = whole.get("__metadata__", {}).get(KEY)
    if stated is None:
        raise InputError(
            f"{path}: is a safetensors file, but no model of gpuyard (its metadata has no entry {KEY}); "
            f"give a run directory, or its {BEST}"
        )
    try:
        header = parse_json(stated)
    except ValueError:
        raise InputError(f"{path}: is damaged (its description cannot be read); {_AGAIN}") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        found = header.get("format") if isinstance(header, dict) else None
        raise InputError(
            f"{path}: has format {found} of models, but this gpuyard reads {FORMAT}; use the gpuyard that "
            "wrote it, or train the model again"
        )
    version = header.get("observation_version")
    if version != _core.OBSERVATION_VERSION:
        raise InputError(
            f"{path}: was trained on observations of version {version}, but this gpuyard makes version "
            f"{_core.OBSERVATION_VERSION}; use the gpuyard that trained it, or train the model again"
        )
    return header


def _safetensors_header(path: str | Path, data: bytes) -> dict[str, Any]:
    """The file's table of contents: 8 bytes of length, then JSON; tensors follow."""
    length = int.from_bytes(data[:8], "little")
    begins = data[8:9] == b"{"
    if len(data) >= 9 and not begins:
        raise InputError(f"{path}: is not a model file (safetensors); give a run directory, or its {BEST}")
    if len(data) < 8 + length or not begins:
        raise InputError(f"{path}: is cut short; {_AGAIN}")
    try:
        whole = parse_json(data[8 : 8 + length])
        ends = [entry["data_offsets"][1] for name, entry in whole.items() if name != "__metadata__"]
        missing = 8 + length + max(ends, default=0) - len(data)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise InputError(f"{path}: is damaged (its table of contents cannot be read); {_AGAIN}") from None
    if missing > 0:
        raise InputError(f"{path}: is cut short ({missing:,} bytes are missing); {_AGAIN}")
    if not isinstance(whole.get("__metadata__", {}), dict):
        raise InputError(f"{path}: is damaged (its table of contents cannot be read); {_AGAIN}")
    return dict(whole)


def _tensors(path: str | Path, data: bytes) -> dict[str, NDArray[np.float32]]:
    try:
        tensors = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is damaged ({error}); {_AGAIN}") from None
    other = [name for name, values in tensors.items() if values.dtype != np.float32]
    if other:
        raise InputError(f"{path}: tensor {other[0]} is not of type float32; {_AGAIN}")
    return tensors


def _checksum(header: Mapping[str, Any], tensors: Tensors) -> str:
    """Over the description and the tensors in order of name."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True, allow_nan=False).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {list(tensors[name].shape)}\n".encode())
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()


def _model(path: str | Path, header: dict[str, Any], tensors: Tensors) -> ModelFile:
    try:
        return ModelFile(
            header["kind"],
            EnvConfig.model_validate(header["environment"]),
            Cluster.model_validate(header["cluster"]["definition"]),
            NetworkConfig.model_validate(header["network"]),
            NetworkSizes.from_json(header["sizes"]),
            tensors,
            header["training"],
        )
    except ValidationError as error:
        raise InputError(f"{refusal(error, str(path))}; use the gpuyard that wrote it") from None
    except (KeyError, TypeError, InputError) as error:
        raise InputError(
            f"{path}: its description is not complete ({error}); use the gpuyard that wrote it"
        ) from None
