"""The one way anything is looked up by name: ``@register(kind, name)`` where the thing lives.

Kinds in use: ``order``, ``backfill``, ``placement``, ``metric``, ``cluster``, ``workload-format``,
``audit-check``, ``benchmark`` and ``network``.
"""

import difflib
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

from gpuyard.errors import InputError

T = TypeVar("T")

_entries: dict[str, dict[str, Any]] = {}


def register(kind: str, name: str) -> Callable[[T], T]:
    """Decorator: make ``thing`` known as ``name`` among the things of ``kind``.

    Raises:
        ValueError: if the name is taken; names are never overwritten silently.
    """

    def enter(thing: T) -> T:
        names = _entries.setdefault(kind, {})
        if name in names:
            raise ValueError(f"{kind} {name!r} is registered already")
        names[name] = thing
        return thing

    return enter


def registered(kind: str) -> Mapping[str, Any]:
    """All things of a kind by name, in order of registration."""
    return MappingProxyType(_entries.get(kind, {}))


def lookup(kind: str, name: str, *, known: Mapping[str, Any] | None = None) -> Any:
    """The thing of that name.

    Raises:
        InputError: for an unknown name, with the closest known ones.
    """
    names = registered(kind) if known is None else known
    if name in names:
        return names[name]
    raise InputError(f"unknown {kind} {name!r}{suggest(name, names)}")


def suggest(name: str, names: Mapping[str, Any]) -> str:
    """The tail of an "unknown name" message: what is close to it, else what there is.

    Names with the same letters in another order are closest: ``sfj`` means ``sjf``.
    """
    swapped = [other for other in names if other != name and sorted(other) == sorted(name)]
    close = swapped or difflib.get_close_matches(name, list(names), n=2, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(repr(match) for match in close)}?"
    return f"; known: {', '.join(names)}"


def loaded_on_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose public names are imported when they are first used.

    Args:
        package: Its dotted name.
        homes: The module below it that each name comes from.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
