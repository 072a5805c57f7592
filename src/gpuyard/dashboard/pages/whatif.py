"""What if: another cluster, other policies; replayed in the background, then compared."""

import json
from collections.abc import Sequence
from typing import Any, get_args

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpuyard.cluster.model import KNOWN_GPU_TYPES, preset_clusters
from gpuyard.config import Estimates
from gpuyard.dashboard import query
from gpuyard.dashboard.library import Library
from gpuyard.dashboard.site import Site
from gpuyard.dashboard.static_files import asset
from gpuyard.dashboard.whatif.question import RESULTS, Question, base_cluster, logs
from gpuyard.dashboard.whatif.runs import WhatIfRuns
from gpuyard.errors import InputError
from gpuyard.evaluate.storage import read_outline
from gpuyard.policies.base import SHIPPED
from gpuyard.workload.generators import preset_workloads

TITLE, PATH = "What if", "/what-if"
OFFERED = ("fifo+easy", "sjf+easy", "wspt+easy", "saf+easy", "multifactor+easy", "fifo+conservative")
"""Policies with a box; any other is typed."""
MOST_OFFERED = 50
LARGEST_BODY = 65_536


def routes(site: Site) -> Sequence[Route]:
    """The page, what it asks for, and what it starts and ends."""
    runs = WhatIfRuns(site.library)

    def show(_: Request) -> Response:
        body, styles = asset("whatif.html"), ("compare.css", "whatif.css")
        data = _choices(site.library)
        return site.page(TITLE, body, path=PATH, script="whatif.js", data=data, styles=styles)

    def cluster(request: Request) -> Response:
        found = base_cluster(site.library, query.text(request, "cluster"))
        pools = [{"nodes": pool.count, "gpus": pool.gpus, "type": pool.type} for pool in found.nodes]
        return JSONResponse({"name": found.name, "pools": pools})

    async def start(request: Request) -> Response:
        question = Question.parse(await _body(request))
        return JSONResponse(await run_sync(runs.start, question))

    async def cancel(request: Request) -> Response:
        asked = await _body(request)
        return JSONResponse(await run_sync(runs.cancel, str(asked.get("name", ""))))

    async def feed(request: Request) -> Response:
        return site.feeds.answer(request, "what-if", lambda: runs)

    return [
        Route(PATH, show),
        Route("/api/what-if", feed),
        Route("/api/what-if/cluster", cluster),
        Route("/api/what-if/start", start, methods=["POST"]),
        Route("/api/what-if/cancel", cancel, methods=["POST"]),
    ]


async def _body(request: Request) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InputError: if it is none, or large.
    """
    text = b""
    async for part in request.stream():
        text += part
        if len(text) > LARGEST_BODY:
            raise InputError(f"a question has at most {LARGEST_BODY:,} bytes")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError("expected a JSON object")
    return found


def _choices(library: Library) -> dict[str, Any]:
    """What the form offers."""
    presets = {f"built-in:{name}": make().cluster for name, make in preset_workloads().items()}
    return {
        "logs": [{"id": id, "name": name, "cluster": presets.get(id)} for id, name in logs(library)],
        "clusters": [
            *_clusters_of_results(library),
            *({"id": name, "name": name} for name in preset_clusters()),
        ],
        "types": sorted(KNOWN_GPU_TYPES),
        "policies": OFFERED,
        "estimates": get_args(Estimates),
        "models": SHIPPED,
    }


def _clusters_of_results(library: Library) -> list[dict[str, str]]:
    """Clusters of results that lie below the roots, each once."""
    found: dict[str, dict[str, str]] = {}
    entries = [entry for entry in library.entries()[0] if entry.kind == "results"][:MOST_OFFERED]
    for entry in entries:
        try:
            setting = read_outline(entry.path).setting
        except InputError:
            continue  # Home says what is wrong with it
        if setting.cluster:
            name = f"{setting.cluster.get('name')} (as in {entry.path.name})"
            document = json.dumps(setting.cluster, sort_keys=True)
            found.setdefault(document, {"id": f"{RESULTS}{entry.id}", "name": name})
    return list(found.values())
