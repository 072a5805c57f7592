"""Scripts and styles: our own files, and the report's drawing code as one module that exports its names."""

import hashlib
import re
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from gpuyard.report.frame import FIGURE_SCRIPTS, GANTT_SCRIPTS, resource

DRAWING, STYLE = "drawing.js", "report.css"
"""Files that are made of the report's assets."""
TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_DECLARED = re.compile(r"^(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)


def asset(name: str) -> str:
    """A file of the folder ``static``."""
    return files("gpuyard.dashboard").joinpath("static", name).read_text(encoding="utf-8")


@cache
def static_text(name: str) -> str | None:
    """A file that browsers may ask for; None if there is none of that name."""
    if name == DRAWING:
        return drawing_module()
    if name == STYLE:
        return resource("style.css")
    folder = files("gpuyard.dashboard").joinpath("static")
    known = {one.name for one in folder.iterdir() if one.name.rpartition(".")[2] in TYPES}
    return asset(name) if name in known else None


def drawing_module() -> str:
    """The report's scripts as an ES module: charts, tables, the chart of the cluster."""
    text = "\n".join(resource(f"{name}.js") for name in (*FIGURE_SCRIPTS, *GANTT_SCRIPTS))
    return f"{text}\nexport {{ {', '.join(_DECLARED.findall(text))} }};\n"


async def serve_static(request: Request) -> Response:
    """Answer a request for a file; the browser asks each time whether it has changed."""
    name = request.path_params["name"]
    text = static_text(name)
    if text is None:
        return Response("404 Not Found\n", 404, media_type="text/plain")
    mark = f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"'
    headers = {"ETag": mark, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type=TYPES[name.rpartition(".")[2]], headers=headers)
