"""Home: what was found, newest first: live agents, training runs, comparisons."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuyard.dashboard.site import Site
from gpuyard.dashboard.static_files import asset

TITLE, PATH = "Home", "/"


def routes(site: Site) -> Sequence[Route]:
    """The page and its stream of changes."""
    rows = site.rows

    def show(_: Request) -> Response:
        return site.page("Home", asset("home.html"), path=PATH, script="home.js", data=rows.look()["home"])

    async def feed(request: Request) -> Response:
        return site.feeds.answer(request, "home", lambda: rows)

    return [Route("/", show), Route("/api/home", feed)]
