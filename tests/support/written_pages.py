"""What is in a page that was written: tags, texts, charts and files."""

import json
import re
from html.parser import HTMLParser
from typing import Any

VOID = ("meta", "wbr", "br", "input")
OWN_SCRIPTS = ['<script type="application/json" id="data">', "<script>"]
"""The data of a page and the script that draws it."""


class WrittenPage(HTMLParser):
    """A page; refuses tags that are not closed in order, and attributes that run scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []
        self.scripts: list[str] = re.findall(r"<script[^>]*>", html)
        (data,) = re.findall(r'id="data">(.*?)</script>', html)
        self.data: dict[str, Any] = json.loads(data)
        self.charts = {chart["title"]: chart for chart in self.data["charts"].values()}
        self.places: list[str] = re.findall(r'<figure id="[^"]*" data-chart="([^"]*)"', html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens."""
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Closes."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text for people; what scripts hold is none."""
        if self._open[-1:] not in (["script"], ["style"]):
            self.text += data + "\n"
