"""What all pages share: what may be shown, who is told of changes, and the frame around a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from string import Template
from typing import Any

from starlette.responses import HTMLResponse

import gpuyard
from gpuyard.dashboard.feeds import Feeds
from gpuyard.dashboard.library import Library
from gpuyard.dashboard.rows import HomeRows
from gpuyard.dashboard.static_files import asset
from gpuyard.report.frame import script_json


@dataclass(frozen=True)
class Site:
    """One dashboard.

    Attributes:
        library: What may be shown.
        links: Titles of pages by their paths, for the navigation.
        feeds: Who is told of changes.
    """

    library: Library
    links: Mapping[str, str]
    feeds: Feeds = field(default_factory=Feeds)

    @cached_property
    def rows(self) -> HomeRows:
        """What was found, in rows; all pages share what has been read for them."""
        return HomeRows(self.library)

    def page(
        self,
        title: str,
        body: str,
        *,
        path: str,
        script: str = "",
        data: Any = None,
        subtitle: str = "",
        status: int = 200,
        styles: Sequence[str] = (),
    ) -> HTMLResponse:
        """A page in the frame that all have.

        Args:
            title: A text.
            body: HTML; texts in it are escaped by who made it.
            path: Which link of the navigation it belongs to.
            script: A module of ``static`` that brings it to life, such as ``home.js``.
            data: What the module finds in the element ``data``, ready for JSON.
            subtitle: A text.
            status: Of the answer.
            styles: More files of ``static``, such as ``live.css``.
        """
        more = "".join(f'<link rel="stylesheet" href="/static/{escape(name)}">' for name in styles)
        module = f'<script type="module" src="/static/{escape(script)}"></script>' if script else ""
        text = Template(asset("page.html")).substitute(
            title=escape(title),
            subtitle=f'<p class="subtitle">{escape(subtitle)}</p>' if subtitle else "",
            styles=more,
            links="".join(self._link(to, name, path) for to, name in self.links.items()),
            body=body,
            data=script_json(data),
            script=module,
            version=escape(gpuyard.__version__),
        )
        return HTMLResponse(text, status)

    def _link(self, to: str, name: str, path: str) -> str:
        here = ' aria-current="page"' if to == path else ""
        return f'<a href="{escape(to)}"{here}>{escape(name)}</a>'
