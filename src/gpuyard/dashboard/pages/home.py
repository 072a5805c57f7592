"""Home: what was found, newest first."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuyard.dashboard.site import Site
from gpuyard.report import layout

TITLE, PATH = "Home", "/"


def routes(site: Site) -> Sequence[Route]:
    """The page and its stream of changes."""

    def show(_: Request) -> Response:
        entries, notes = site.library.entries()
        rows = [(entry.kind, entry.id) for entry in entries]
        body = layout.text_table("What was found", ("what", "where"), rows)
        return site.page("Home", body + "".join(map(layout.paragraph, notes)), path=PATH)

    return [Route("/", show)]
