"""The one way anything is looked up by name: ``@register(kind, name)`` where the thing lives."""

import difflib
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

from gpuyard import plugins
from gpuyard.errors import InputError

T = TypeVar("T")

KINDS = {
    "order": "a score over the waiting jobs, smallest first",
    "backfill": "who may start ahead of a job that has to wait",
    "placement": "which nodes a job gets",
    "metric": "a figure of a schedule",
    "cluster": "a cluster by name",
    "workload-format": "a reader of logs",
    "workload-generator": "a maker of workloads",
    "workload-preset": "a generator with its settings",
    "audit-check": "a check of workloads",
    "env-preset": "an environment with its settings",
    "train-preset": "a training run with its settings",
    "algorithm": "a way to train a policy",
    "network": "a network that torch trains",
    "benchmark": "a measurement of gpuyard bench",
}
"""What can be registered."""

OF_THE_CORE = ("backfill", "placement")
"""Kinds that plug-ins cannot add to."""

_entries: dict[str, dict[str, Any]] = {}
_origins: dict[tuple[str, str], str] = {}


def register(kind: str, name: str) -> Callable[[T], T]:
    """Decorator: make ``thing`` known as ``name`` among the things of ``kind``.

    Raises:
        InputError: for a kind that there is not, or that is not for plug-ins.
        ValueError: if the name is taken; names are never overwritten silently.
    """
    if kind not in KINDS:
        raise InputError(f"nothing is registered as {kind!r}{suggest(kind, KINDS)}")
    if kind in OF_THE_CORE and plugins.loading():
        raise InputError(f"a {kind} is a rule of the native core: a plug-in cannot add one")

    def enter(thing: T) -> T:
        names = _entries.setdefault(kind, {})
        if name in names:
            by = _origins[kind, name]
            raise ValueError(f"{kind} {name!r} is registered already{f' by {by}' if by else ''}")
        names[name] = thing
        _origins[kind, name] = plugins.loading()
        return thing

    return enter


def registered(kind: str) -> Mapping[str, Any]:
    """All things of a kind by name, in order of registration, those of plug-ins too."""
    plugins.load(_forget)
    return MappingProxyType(_entries.get(kind, {}))


def origin(kind: str, name: str) -> str:
    """The plug-in that registered a thing; empty if none did."""
    return _origins.get((kind, name), "")


def loaded_plugins() -> dict[plugins.Plugin, list[str]]:
    """All plug-ins that were found, each with what it registered, such as ``order my-order``."""
    found = plugins.load(_forget)
    return {one: [f"{kind} {name}" for kind, name in _of(one.label)] for one in found}


def _of(label: str) -> list[tuple[str, str]]:
    return [thing for thing, by in _origins.items() if by == label]


def _forget(label: str) -> None:
    for kind, name in _of(label):
        del _entries[kind][name], _origins[kind, name]


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
