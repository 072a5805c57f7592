"""Nobody without the token sees anything, and nothing but the dashboard's own pages changes anything."""

from pathlib import Path
from typing import Any

import pytest

from unit.dashboard.conftest import ORIGIN, TOKEN, Visit

PATHS = ("/", "/runs", "/live", "/policies", "/static/frame.js", "/api/home", "/nowhere")
CHANGES = ("/api/runs/do", "/api/live/halt", "/api/live/resume")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", [None, "", "another-token-than-it", f"{TOKEN}x", "ü"])
def test_without_the_token_there_is_nothing_to_see(visit: Visit, path: str, token: str | None) -> None:
    browser = visit(token=None)
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
    answer = browser.get(path, headers=headers)
    assert answer.status_code == 401
    assert TOKEN not in answer.text


def test_the_printed_address_leads_in_and_the_token_leaves_the_address(visit: Visit) -> None:
    browser = visit(token=None)
    answer = browser.get(f"/policies?token={TOKEN}&a=1&b=%26")
    assert (answer.status_code, answer.headers["location"]) == (303, "/policies?a=1&b=%26")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert browser.get("/policies").status_code == 200
    assert browser.get("/policies?token=wrong-token-wrong").status_code == 200  # the cookie still counts


def test_a_wrong_token_in_the_address_leads_nowhere(visit: Visit) -> None:
    answer = visit(token=None).get("/?token=wrong-token-wrong")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8642", "", "[", "localhost@evil.example", "10.0.0.1"]
)
def test_a_host_that_is_not_ours_is_refused_even_with_the_token(visit: Visit, host: str) -> None:
    browser = visit()
    assert browser.get("/", headers={"Host": host}).status_code == 400
    entrance = browser.get(f"/?token={TOKEN}", headers={"Host": host})
    assert entrance.status_code == 400
    assert "set-cookie" not in entrance.headers


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:1", "[::1]:8642", "LOCALHOST"])
def test_tunnels_may_have_another_port(visit: Visit, host: str) -> None:
    assert visit().get("/policies", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize(
    "origin",
    [None, "null", "http://evil.example", "http://127.0.0.1:9999", "http://127.0.0.1", "https://a@b"],
)
def test_another_origin_changes_nothing(visit: Visit, path: str, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    assert visit().post(path, json={}, headers=headers).status_code == 403


@pytest.mark.parametrize("path", CHANGES)
def test_the_own_origin_passes_and_bad_documents_are_told(visit: Visit, path: str) -> None:
    for content in (b"", b"[]", b"{", b"{}", b"[" * 100_000):
        answer = visit().post(path, content=content, headers={"Origin": ORIGIN})
        assert answer.status_code == 400
        assert answer.json()["error"]


def test_reading_changes_nothing(visit: Visit) -> None:
    for path in CHANGES:
        assert visit().get(path).status_code == 405


@pytest.mark.parametrize("path", ["/", "/nowhere", "/static/frame.js", "/static/drawing.js"])
def test_every_answer_forbids_everything_from_elsewhere(visit: Visit, path: str) -> None:
    for browser in (visit(), visit(token=None)):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.startswith("access-control")]


def test_no_page_asks_for_a_script_in_itself(visit: Visit, tmp_path: Path) -> None:
    from support.sample_runs import write_run

    write_run(tmp_path / "<script>alert(1)</script>", updates=20)
    browser: Any = visit()
    for path in ("/", "/runs", "/runs?run=0/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/policies"):
        text = browser.get(path).text
        assert "<script>" not in text
        assert " style=" not in text
        assert " onclick=" not in text
        assert "http://" not in text
        assert "https://" not in text


def test_files_of_the_page_are_asked_for_again_only_when_they_change(visit: Visit) -> None:
    browser = visit()
    mark = browser.get("/static/drawing.js").headers["etag"]
    assert browser.get("/static/drawing.js", headers={"If-None-Match": mark}).status_code == 304
    for name in ("page.html", "live.html", "..%2Fapp.py", "%2e%2e/app.py", "nothing.js"):
        assert browser.get(f"/static/{name}").status_code == 404
