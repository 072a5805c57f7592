"""The application: its pages, its files, and the guard around them."""

from collections.abc import Awaitable, Callable, Sequence
from types import ModuleType
from typing import Protocol, cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpuyard.dashboard.access import Access, Guarded
from gpuyard.dashboard.feeds import Feeds, plain
from gpuyard.dashboard.library import Library, NotHereError
from gpuyard.dashboard.pages import compare, home, live, policies, replay, runs, whatif
from gpuyard.dashboard.site import Site
from gpuyard.dashboard.static_files import serve_static
from gpuyard.errors import InputError
from gpuyard.report import layout

PAGES: tuple[ModuleType, ...] = (home, runs, replay, compare, whatif, live, policies)
"""In the order of the navigation."""


class Page(Protocol):
    """What a module of ``pages`` has."""

    TITLE: str
    """In the navigation."""
    PATH: str
    """Where the navigation leads; the page's other routes lie below it or below ``/api``."""

    def routes(self, site: Site) -> Sequence[Route]:
        """Its pages, data and actions."""


def make_app(
    library: Library, access: Access, *, pages: Sequence[ModuleType] = PAGES, feeds: Feeds | None = None
) -> Starlette:
    """The dashboard as an ASGI application.

    Args:
        library: What it may show.
        access: Who may see it.
        pages: Modules with ``TITLE``, ``PATH`` and ``routes(site)``.
        feeds: Who tells browsers of changes; whoever stops the server closes it.
    """
    shown = [cast(Page, page) for page in pages]
    site = Site(library, {page.PATH: page.TITLE for page in shown}, feeds or Feeds())
    routes = [route for page in shown for route in page.routes(site)]
    return Starlette(
        routes=[*routes, Route("/static/{name}", serve_static)],
        middleware=[Middleware(Guarded, access=access)],
        exception_handlers={
            NotHereError: _teller(site, 404),
            InputError: _teller(site, 400),
            404: _teller(site, 404),
        },
    )


def _teller(site: Site, status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Answers with what went wrong: data where data were asked for, else a page."""

    async def tell(request: Request, error: Exception) -> Response:
        said = plain(error) if isinstance(error, InputError) else "There is no such page."
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": said}, status)
        return site.page("Not shown", layout.paragraph(said), path="", status=status)

    return tell
