"""What an address asks for: numbers, names and directories, checked."""

import math
from pathlib import Path

from starlette.requests import Request

from gpuyard.dashboard.library import Library
from gpuyard.errors import InputError


def text(request: Request, name: str) -> str:
    """A text that must be there.

    Raises:
        InputError: if it is not.
    """
    found = request.query_params.get(name, "")
    if not found:
        raise InputError(f"the address lacks {name}")
    return found


def number(request: Request, name: str) -> float:
    """A finite number.

    Raises:
        InputError: if it is none.
    """
    given = text(request, name)
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"{name} {given!r}: expected a number")
    return found


def whole(request: Request, name: str, most: int = 2**31 - 1) -> int:
    """A whole number from 0 on.

    Raises:
        InputError: if it is none, or too large.
    """
    found = number(request, name)
    if found != int(found) or not 0 <= found <= most:
        raise InputError(f"{name} {text(request, name)!r}: expected a whole number from 0 to {most}")
    return int(found)


def directory(request: Request, library: Library, name: str = "id") -> Path:
    """A directory below the roots.

    Raises:
        InputError: if there is none of that id.
    """
    return library.directory(text(request, name))
