"""A dashboard without a socket, over a directory of made-up things."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pip install 'gpuyard[dashboard]'")
from starlette.testclient import TestClient

from gpuyard.dashboard.access import Access
from gpuyard.dashboard.app import make_app
from gpuyard.dashboard.library import Library

TOKEN = "a-token-for-tests-only"
ORIGIN = "http://127.0.0.1:8642"

Visit = Callable[..., TestClient]


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    """Browsers of a dashboard over ``tmp_path``, with the token unless told otherwise."""

    def make(*roots: Path, token: str | None = TOKEN, **options: Any) -> TestClient:
        app = make_app(Library(roots or (tmp_path,)), Access(TOKEN))
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return TestClient(app, base_url=ORIGIN, headers=headers, follow_redirects=False, **options)

    return make


def page_data(text: str) -> Any:
    """What a page's script is given."""
    import json
    import re

    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])
