"""Replay: a cluster over time, moment by moment, under one policy or under two side by side."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpuyard.dashboard import query
from gpuyard.dashboard.library import Library
from gpuyard.dashboard.replay.colours import CHOICES
from gpuyard.dashboard.replay.index import ReplayIndex
from gpuyard.dashboard.replay.moment import find, job_facts, job_on, lanes_per_square, moment
from gpuyard.dashboard.replay.picture import Stretch, picture
from gpuyard.dashboard.replay.series import series
from gpuyard.dashboard.replay.shelf import Shelf, Shelved
from gpuyard.dashboard.replay.story import Stories
from gpuyard.dashboard.site import Site
from gpuyard.dashboard.static_files import asset
from gpuyard.errors import InputError
from gpuyard.evaluate.setting import Outline
from gpuyard.evaluate.storage import read_outline
from gpuyard.report import layout

TITLE, PATH = "Replay", "/replay"
MOST_OFFERED = 60
"""Directories of results whose schedules are offered, the newest ones."""


def routes(site: Site) -> Sequence[Route]:
    """The page, and what it asks for."""
    answers = Answers(site.library)

    def show(_: Request) -> Response:
        offered = _offered(site.library)
        if not offered:
            said = "No schedules were found. gpuyard simulate --out writes one for each policy."
            return site.page(TITLE, layout.paragraph(said), path=PATH)
        data = {"results": offered, "colours": CHOICES}
        body, styles = asset("replay.html"), ("replay.css",)
        return site.page(TITLE, body, path=PATH, script="replay.js", data=data, styles=styles)

    names = ("about", "picture", "moment", "series", "job", "story")
    return [
        Route(PATH, show),
        *(Route(f"/api/replay/{name}", getattr(answers, name)) for name in names),
    ]


def _offered(library: Library) -> list[dict[str, Any]]:
    """Results with schedules, the newest first; those that cannot be read are named with the reason."""
    found: list[dict[str, Any]] = []
    entries = [entry for entry in library.entries()[0] if entry.kind == "results"]
    for entry in entries[:MOST_OFFERED]:
        try:
            outline = read_outline(library.directory(entry.id))
        except InputError:
            continue  # Home says what is wrong with it
        if outline.schedules:
            found.append({"id": entry.id, **_described(outline)})
    return found


def _described(outline: Outline) -> dict[str, Any]:
    labels = {entry.name: entry.label for entry in outline.policies}
    policies = [{"name": name, "label": labels.get(name, name)} for name in outline.schedules]
    setting = outline.setting
    cluster = setting.cluster.get("name", "")
    return {
        "workload": setting.workload,
        "cluster": cluster,
        "fingerprint": setting.fingerprint,
        "reference": outline.reference,
        "policies": policies,
    }


class Answers:
    """Answers what the page asks for; each question names the results and the policy.

    Args:
        library: Where results are.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._shelf = Shelf()
        self._stories = Stories()

    def _schedule(self, request: Request) -> Shelved:
        return self._shelf.schedule(query.directory(request, self._library), query.text(request, "policy"))

    def about(self, request: Request) -> Response:
        """What the schedule is of, and what colours mean."""
        shelved = self._schedule(request)
        colours = shelved.colours(query.text(request, "by"))
        legend = {"names": list(colours.names), "palette": colours.palette}
        part = "" if len(shelved.outline.setting.windows) == 1 else "The first window of the comparison."
        return JSONResponse({**_about(shelved.index), "part": part, "legend": legend})

    def picture(self, request: Request) -> Response:
        """A stretch of time."""
        shelved = self._schedule(request)
        whole = {name: query.whole(request, name) for name in ("columns", "rows")}
        nodes = {"first_node": query.whole(request, "first"), "last_node": query.whole(request, "last")}
        stretch = Stretch(query.number(request, "from"), query.number(request, "to"), **nodes, **whole)
        data = picture(shelved.index, shelved.colours(query.text(request, "by")), stretch)
        return Response(data, media_type="application/octet-stream", headers={"Content-Encoding": "deflate"})

    def moment(self, request: Request) -> Response:
        """A moment; with ``job``, a row of the log, also which GPUs that job holds."""
        shelved = self._schedule(request)
        index, colours = shelved.index, shelved.colours(query.text(request, "by"))
        asked = request.query_params.get("job")
        chosen = None if not asked else find(index, f"row:{query.whole(request, 'job', 2**53)}")
        return JSONResponse(moment(index, colours, query.number(request, "at"), chosen))

    def series(self, request: Request) -> Response:
        """GPUs in use and jobs waiting, from the first moment to the last."""
        index = self._schedule(request).index
        return JSONResponse(series(index, index.began_s, index.ended_s))

    def job(self, request: Request) -> Response:
        """A job by its name (``name``), or the one on a GPU (``lane``) at a moment (``at``); null: none."""
        index = self._schedule(request).index
        if name := request.query_params.get("name"):
            return JSONResponse({"job": job_facts(index, find(index, name.strip()))})
        found = job_on(index, query.whole(request, "lane"), query.number(request, "at"))
        return JSONResponse({"job": None if found is None else job_facts(index, found)})

    def story(self, request: Request) -> Response:
        """Why a job (a row of the log) started when it did; dates are ``ahead`` seconds ahead of UTC."""
        directory, policy = query.directory(request, self._library), query.text(request, "policy")
        row, ahead_s = query.whole(request, "job", 2**53), query.number(request, "ahead")
        return JSONResponse(self._stories.tell(directory, read_outline(directory), policy, row, ahead_s))


def _about(index: ReplayIndex) -> dict[str, Any]:
    return {
        "jobs": len(index),
        "gpus": index.total_gpus,
        "first_lanes": index.bars.first_lanes.tolist(),
        "lanes_per_square": lanes_per_square(index),
        "epoch_s": index.epoch_s,
        "began_s": index.began_s,
        "ended_s": index.ended_s,
    }
