"""Who may see and change what: a token, the Host and Origin of requests, and headers of every answer."""

import secrets
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names under which a browser on this machine, or at the end of a tunnel, finds the server."""
READING = ("GET", "HEAD")
COOKIE_DAYS = 7
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Access:
    """Decides about requests.

    Args:
        token: Whoever has it may read, and change what the dashboard can change.
        hosts: Names of the server besides those of this machine, without ports.
    """

    def __init__(self, token: str, hosts: Iterable[str] = ()) -> None:
        self._token = token.encode()
        self._hosts = frozenset(name.lower() for name in (*LOOPBACK, *hosts))

    def refusal(self, request: Request) -> Response | None:
        """What a request gets that may not pass; None if it may."""
        if not self._is_our_host(request.headers):
            return _refused(HTTPStatus.BAD_REQUEST, "This server has another name than the request says.")
        if not self._has_token(request):
            said = "Open the address that gpuyard dashboard has printed: it ends with a token."
            return _refused(HTTPStatus.UNAUTHORIZED, said)
        if request.method not in READING and not _is_same_origin(request.headers):
            return _refused(HTTPStatus.FORBIDDEN, "Only pages of this dashboard may change something.")
        return None

    def entrance(self, request: Request) -> Response | None:
        """For an address with the right token: the same without it, and a cookie; None for others."""
        given = request.query_params.get("token")
        if given is None or request.method not in READING or not self._is_our_host(request.headers):
            return None
        if not self._is_token(given):
            return None
        rest = [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]
        answer = RedirectResponse(request.url.path + (f"?{urlencode(rest)}" if rest else ""), 303)
        answer.set_cookie(
            _cookie_name(request.headers), given, 86400 * COOKIE_DAYS, httponly=True, samesite="lax"
        )
        return answer

    def _has_token(self, request: Request) -> bool:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer if scheme.lower() == "bearer" else None
        return self._is_token(given or request.cookies.get(_cookie_name(request.headers), ""))

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "replace"), self._token)

    def _is_our_host(self, headers: Headers) -> bool:
        """Against pages of others whose name was made to lead here (DNS rebinding)."""
        given = headers.getlist("host")
        return len(given) == 1 and _host_name(given[0]) in self._hosts


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _cookie_name(headers: Headers) -> str:
    """Cookies are shared between the ports of a machine; so the name has the port as the browser sees it."""
    try:
        return f"gpuyard-{urlsplit('//' + headers.get('host', '')).port or 80}"
    except ValueError:
        return "gpuyard"


def _is_same_origin(headers: Headers) -> bool:
    origins = headers.getlist("origin")
    host = headers.get("host", "")
    return len(origins) == 1 and origins[0] in (f"http://{host}", f"https://{host}")


def _refused(status: HTTPStatus, said: str) -> Response:
    return PlainTextResponse(f"{status.value} {status.phrase}\n\n{said}\n", status)


class Guarded:
    """Lets requests through to an application that may pass, and gives every answer the same headers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets: the server closes what nobody accepts

        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        request = Request(scope)
        answer = self._access.entrance(request) or self._access.refusal(request) or self._app
        await answer(scope, receive, sender)
