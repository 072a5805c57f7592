"""``gpuyard dashboard``: runs, results and live agents in a browser."""

import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated

from cyclopts import Parameter

from gpuyard.cli.inputs import open_console, print_json, print_note
from gpuyard.cli.parameters import Json
from gpuyard.errors import InputError


def dashboard(
    directories: Annotated[
        list[Path] | None,
        Parameter(negative=(), help="Where runs, results and state directories of agents lie. (default: .)"),
    ] = None,
    /,
    *,
    listen: Annotated[
        str, Parameter(help="HOST:PORT. An address that other machines reach needs --token-file.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None, Parameter(help="A file with the token that the address must have; else one is drawn.")
    ] = None,
    open: Annotated[bool, Parameter(negative="--no-open", help="Open the browser.")] = True,
    json: Json = False,
) -> None:
    """Show training runs, results and live agents in a browser. Pages follow what changes; Ctrl-C ends it.

    Everything below the given directories is found; nothing is asked of other machines.

    Example: gpuyard dashboard runs results
    """
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InputError(f"the dashboard needs {' and '.join(missing)}: pip install 'gpuyard[dashboard]'")
    from gpuyard.dashboard.library import Library
    from gpuyard.dashboard.server import Dashboard, Place

    place = Place.parse(listen)
    server = Dashboard(Library(directories or [Path()]), place, token_file)
    if json:
        print_json({"url": server.url})
        sys.stdout.flush()
    else:
        open_console().print(f"The dashboard is at {server.url}", "Ctrl-C ends it.", sep="\n", soft_wrap=True)
    if not place.is_local:
        print_note("it is not encrypted: use it in a network that you trust, or behind a proxy with TLS")
    with _doorway(server.url) as door:
        if open and place.is_local:
            webbrowser.open(door.as_uri())
        server.serve_until_stopped()


@contextmanager
def _doorway(url: str) -> Iterator[Path]:
    """A file of this user's that leads to an address: on a command line, others would see the token."""
    with NamedTemporaryFile("w", prefix="gpuyard-dashboard-", suffix=".html", encoding="utf-8") as file:
        file.write(f'<!DOCTYPE html><meta http-equiv="refresh" content="0;url={escape(url)}">')
        file.flush()
        yield Path(file.name)
