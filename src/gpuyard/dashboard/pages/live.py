"""Live: an agent on a real cluster, from its journal: rounds, decisions, jobs, and the kill switch."""

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from gpuyard.dashboard.pages.runs import read_json
from gpuyard.dashboard.rows import PAGES
from gpuyard.dashboard.site import Site
from gpuyard.dashboard.static_files import asset
from gpuyard.errors import InputError
from gpuyard.report import layout

TITLE, PATH = "Live", "/live"
NONE = "No journal of a live agent lies below the directories that were given; gpuyard serve writes one."


def routes(site: Site) -> Sequence[Route]:
    """The page, its stream of changes, questions about jobs, and the switch."""
    # Loaded when they are asked for, so that the first page is there at once.

    def show(request: Request) -> Response:
        id = request.query_params.get("agent")
        if id is None:
            return _choice(site)
        directory = site.library.directory(id)
        title = f"Live: {directory.name}"
        return site.page(
            title,
            asset("live.html"),
            path=PATH,
            script="live.js",
            data={"agent": id},
            subtitle=str(directory),
        )

    async def feed(request: Request) -> Response:
        from gpuyard.dashboard.live.followed import FollowedAgent

        id = _agent(request)
        directory = site.library.directory(id)
        return site.feeds.answer(request, f"live {id}", lambda: FollowedAgent(directory))

    def find(request: Request) -> Response:
        from gpuyard.dashboard.live.jobs import find_jobs

        directory = site.library.directory(_agent(request))
        return JSONResponse(find_jobs(directory, request.query_params.get("q", "")))

    def tell(request: Request) -> Response:
        from gpuyard.dashboard.live.jobs import tell_job

        directory = site.library.directory(_agent(request))
        return JSONResponse(tell_job(directory, request.query_params.get("job", "")))

    async def switch(request: Request) -> Response:
        from gpuyard.dashboard.live.switch import halt

        asked = await read_json(request)
        id, why = asked.get("agent"), asked.get("why", "")
        if not isinstance(id, str) or not isinstance(why, str) or asked.get("confirmed") != "halt":
            raise InputError("halting an agent must be confirmed")
        said = await run_in_threadpool(halt, site.library.directory(id), " ".join(why.split())[:200])
        return JSONResponse({"said": said})

    async def go_on(request: Request) -> Response:
        from gpuyard.dashboard.live.switch import resume

        id = (await read_json(request)).get("agent")
        if not isinstance(id, str):
            raise InputError("expected an agent")
        return JSONResponse({"said": await run_in_threadpool(resume, site.library.directory(id))})

    return [
        Route(PATH, show),
        Route("/api/live", feed),
        Route("/api/live/jobs", find),
        Route("/api/live/job", tell),
        Route("/api/live/halt", switch, methods=["POST"]),
        Route("/api/live/resume", go_on, methods=["POST"]),
    ]


def _agent(request: Request) -> str:
    id = request.query_params.get("agent")
    if id is None:
        raise InputError("expected an agent")
    return id


def _choice(site: Site) -> Response:
    """The only agent there is, else all of them."""
    agents = [entry for entry in site.library.entries()[0] if entry.kind == "journal"]
    if len(agents) == 1:
        return RedirectResponse(PAGES["journal"] + quote(agents[0].id, safe=""), 303)
    if not agents:
        return site.page(TITLE, layout.paragraph(NONE), path=PATH)
    links = "".join(
        f'<li><a href="{PAGES["journal"]}{quote(entry.id, safe="")}">{escape(str(entry.path))}</a></li>'
        for entry in agents
    )
    return site.page(TITLE, f"<ul>{links}</ul>", path=PATH)
