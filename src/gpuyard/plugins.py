"""Code of others: packages with an entry point ``gpuyard.plugins``, and files named on the command line.

A plug-in registers its orders, readers, metrics and so on when it is imported. Plug-ins are imported
when something is first looked up by name, once per process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from gpuyard.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "gpuyard.plugins"
"""The group of entry points."""

VARIABLE = "GPUYARD_PLUGINS"
"""The environment variable with files, separated as in PATH: processes that we start load them, too."""

_loading: list[str] = []


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plug-in that was found.

    Attributes:
        name: The entry point's name, or the file's.
        source: The package and its version, or the file.
        error: Why it could not be loaded; empty if it was.
    """

    name: str
    source: str
    error: str = ""

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"plug-in {self.name} of {self.source}"


def add_file(path: str) -> None:
    """Load this file too, here and in processes started from here.

    Raises:
        InputError: if it is no Python file that exists.
    """
    if not path.endswith(".py") or not Path(path).is_file():
        raise InputError(f"--plugin {path}: there is no such Python file; name a file that ends in .py")
    files = [*_files(), str(Path(path).resolve())]
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(files))


def loading() -> str:
    """The plug-in that is being imported; empty if none is."""
    return _loading[-1] if _loading else ""


@cache
def load(forget: Callable[[str], None]) -> tuple[Plugin, ...]:
    """Import all plug-ins; an installed one that fails is reported and left out.

    Args:
        forget: Called with the label of a plug-in that failed, to take back what it registered.

    Raises:
        InputError: if a named file cannot be loaded.
    """
    from importlib.metadata import entry_points  # takes as long as the rest of `import gpuyard`

    if _loading:  # a plug-in that looks something up while it is imported sees what there is so far
        return ()
    installed = [_installed(point, forget) for point in entry_points(group=GROUP)]
    return (*installed, *(_file(path) for path in _files()))


def _installed(point: EntryPoint, forget: Callable[[str], None]) -> Plugin:
    source = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    plugin = Plugin(point.name, source)
    try:
        with _named(plugin.label):
            thing = point.load()
            if not isinstance(thing, ModuleType):
                thing()
    except Exception as error:  # code of others: whatever it raises, gpuyard works without it
        forget(plugin.label)
        told = f"{type(error).__name__}: {error}"
        print(f"note: {plugin.label} is left out: {told}", file=sys.stderr)
        return replace(plugin, error=told)
    return plugin


def _file(path: str) -> Plugin:
    plugin = Plugin(Path(path).stem, path)
    try:
        with _named(plugin.label):
            _import_file(path, f"gpuyard_plugin_{plugin.name}")
    except Exception as error:
        raise InputError(f"plug-in {path} cannot be loaded: {type(error).__name__}: {error}") from error
    return plugin


def _import_file(path: str, name: str) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _files() -> list[str]:
    return [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]


@contextmanager
def _named(name: str) -> Iterator[None]:
    _loading.append(name)
    try:
        yield
    finally:
        _loading.pop()
