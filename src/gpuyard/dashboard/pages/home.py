"""Home: what was found, newest first: live agents, training runs, comparisons."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuyard.dashboard.rows import HomeRows
from gpuyard.dashboard.site import Site

TITLE, PATH = "Home", "/"
BODY = """
<p id="empty" class="intro" hidden>Nothing was found yet. Training runs, results of gpuyard simulate and
evaluate, and journals of live agents appear here as soon as they are written.</p>
<section id="agents" aria-labelledby="agents-title" hidden><h2 id="agents-title">Live agents</h2></section>
<section id="runs" aria-labelledby="runs-title" hidden><h2 id="runs-title">Training runs</h2></section>
<section id="results" aria-labelledby="results-title" hidden><h2 id="results-title">Comparisons</h2></section>
<div id="notes"></div>
"""


def routes(site: Site) -> Sequence[Route]:
    """The page and its stream of changes."""
    rows = HomeRows(site.library)

    def show(_: Request) -> Response:
        return site.page("Home", BODY, path=PATH, script="home.js", data=rows.look()["home"])

    async def feed(request: Request) -> Response:
        return site.feeds.answer(request, "home", lambda: rows)

    return [Route("/", show), Route("/api/home", feed)]
