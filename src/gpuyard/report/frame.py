"""The frame of every page: one file with data, style and script, and a policy that forbids the network."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import gpuyard
from gpuyard.report import layout
from gpuyard.report.figures import Chart

FIGURE_SCRIPTS = ("format", "moments", "figures", "rows", "lines", "columns", "points", "pictures", "tables")
"""Files of the script that draws charts and sorts tables."""
GANTT_SCRIPTS = ("packing", "bars", "canvas", "gantt", "details")
"""Files of the script that draws a cluster's schedule."""


class PageMaker:
    """Puts a page together out of sections; its charts and its files find their data by name."""

    def __init__(self, title: str, subtitle: str) -> None:
        self._title, self._subtitle = title, subtitle
        self._links: dict[str, str] = {}
        self._body: list[str] = []
        self._charts: dict[str, Chart] = {}
        self._tables: dict[str, Sequence[Sequence[Any]]] = {}

    def add(self, *parts: str) -> None:
        """HTML without a heading."""
        self._body += parts

    def section(self, heading: str, *parts: str, intro: str = "") -> None:
        """A heading with what stands under it, and a link to it; nothing if there is nothing."""
        id = _free_name(heading, self._links)
        if html := layout.section(id, heading, *parts, intro=intro):
            self._links[id] = heading
            self._body.append(html)

    def figures(self, charts: Sequence[Chart], *beside: str) -> str:
        """Charts, named after their titles, side by side, with other HTML after them."""
        named = []
        for chart in charts:
            id = _free_name(chart["title"], self._charts)
            self._charts[id] = {**chart, "id": id}
            named.append(self._charts[id])
        return layout.figures(named, *beside)

    def file(self, name: str, rows: Sequence[Sequence[Any]]) -> str:
        """A button that saves rows, the first with names, as a CSV file."""
        id = _free_name(name, self._tables)
        self._tables[id] = rows
        return layout.file_button(id)

    def html(self) -> str:
        """The whole page."""
        data = {"charts": self._charts, "gantt": None, "tables": self._tables}
        return framed(self._title, self._subtitle, self._links, "\n".join(self._body), data)


def _free_name(text: str, taken: Mapping[str, Any]) -> str:
    """A text as the name of an element or of a file, other than those that are taken."""
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in text)
    name = "-".join(filter(None, name.split("-"))) or "unnamed"
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def framed(
    title: str,
    subtitle: str,
    links: Mapping[str, str],
    body: str,
    data: Any,
    packed: Mapping[str, str] | None = None,
) -> str:
    """A page of its parts.

    Args:
        title: A text.
        subtitle: A text.
        links: Names of sections by their ids.
        body: HTML.
        data: What the script draws.
        packed: Blocks of the cluster's schedule by name; without them its script is left out.
    """
    names = (*FIGURE_SCRIPTS, *(GANTT_SCRIPTS if packed else ()), "start")
    style = resource("style.css")
    script = '"use strict";(() => {\n' + "\n".join(resource(f"{name}.js") for name in names) + "\n})();"
    blocks = "".join(
        f'<script type="text/plain" id="packed-{escape(name)}">{text}</script>\n'
        for name, text in (packed or {}).items()
    )
    return Template(resource("page.html")).substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        # Images: charts that the page has drawn itself, on their way to a PNG file.
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src blob:",
        style=style,
        links="".join(f'<a href="#{escape(id)}">{escape(name)}</a>' for id, name in links.items()),
        body=body,
        data=script_json(data),
        script=script,
        packed=blocks,
        version=escape(gpuyard.__version__),
    )


def script_json(document: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def resource(name: str) -> str:
    """A file of the folder ``assets``."""
    return files("gpuyard.report").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
