"""A small API server over real HTTP: lists, watches, patches, bindings, versions, and their ways to fail."""

import copy
import json
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
PODS, NODES, LEASES = "/api/v1/pods", "/api/v1/nodes", "/apis/coordination.k8s.io/v1/leases"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/workloads"
CHECKS = "/apis/kueue.x-k8s.io/v1beta1/admissionchecks"
FAULTS = ("429", "500", "cut-before", "cut-after", "gone")


class ApiError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that breaks off is what is tested."""


class FakeApi:
    """Objects by kind, with one version for all, as etcd has it.

    Attributes:
        fault: Asked before each request (method, path); one of ``FAULTS``, or None.
        log: Every write: method, path and code.
    """

    def __init__(self, minor: str = "36") -> None:
        self.minor = minor
        self.lock = threading.Condition(threading.RLock())
        self.version = 100
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        self.events: list[tuple[int, str, str, Object]] = []
        self.forgotten = 0
        self.fault: Callable[[str, str], str | None] = lambda method, path: None
        self.log: list[tuple[str, str, int]] = []
        self.binds: dict[str, list[str]] = {}
        self.token: str | None = None
        self.closing = False
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        with self.lock:
            self.closing = True
            self.lock.notify_all()
        self.server.shutdown()
        self.server.server_close()

    # --- objects

    def kind(self, path: str) -> dict[tuple[str, str], Object]:
        return self.objects.setdefault(path, {})

    def emit(self, path: str, what: str, found: Object) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, path, what, copy.deepcopy(found)))
        self.lock.notify_all()

    def create(self, path: str, found: Object) -> Object:
        with self.lock:
            meta = found["metadata"]
            key = (meta.get("namespace", ""), meta["name"])
            if key in self.kind(path):
                raise ApiError(409, f"{key[1]} already exists")
            meta.setdefault("uid", str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            if path == PODS:
                found.setdefault("status", {"phase": "Pending"})
                found["spec"].setdefault("schedulerName", "default-scheduler")
            self.kind(path)[key] = found
            self.emit(path, "ADDED", found)
            return copy.deepcopy(found)

    def delete(self, path: str, namespace: str, name: str) -> None:
        with self.lock:
            found = self.kind(path).pop((namespace, name))
            self.emit(path, "DELETED", found)

    def change(self, path: str, namespace: str, name: str, how: Callable[[Object], None]) -> None:
        with self.lock:
            found = self.kind(path)[(namespace, name)]
            how(found)
            self.emit(path, "MODIFIED", found)

    def all(self, path: str) -> list[Object]:
        with self.lock:
            return copy.deepcopy(list(self.kind(path).values()))

    def forget_events(self) -> None:
        """What etcd's compaction does: older versions can be watched no more."""
        with self.lock:
            self.forgotten = self.version
            self.events.clear()

    # --- requests

    def find(self, path: str, key: tuple[str, str]) -> Object:
        if key not in self.kind(path):
            raise ApiError(404, f"{key[1]} not found")
        return self.kind(path)[key]

    def patch(self, path: str, key: tuple[str, str], operations: list[Object]) -> Object:
        with self.lock:
            before = self.find(path, key)
            after = patched(copy.deepcopy(before), operations)
            if path == PODS:
                check_pod_change(before, after)
            if after == before:
                return after
            self.kind(path)[key] = after
            self.emit(path, "MODIFIED", after)
            return copy.deepcopy(after)

    def replace(self, path: str, key: tuple[str, str], body: Object) -> Object:
        with self.lock:
            before = self.find(path, key)
            given = body["metadata"].get("resourceVersion")
            if given is not None and given != before["metadata"]["resourceVersion"]:
                raise ApiError(409, "the object has been modified")
            body["metadata"]["uid"] = before["metadata"]["uid"]
            self.kind(path)[key] = body
            self.emit(path, "MODIFIED", body)
            return copy.deepcopy(body)

    def bind(self, key: tuple[str, str], node: str, uid: str | None = None) -> None:
        """Nothing is checked but that it is not bound yet: that is how the real one does it."""
        with self.lock:
            pod = self.find(PODS, key)
            if pod["spec"].get("nodeName"):
                raise ApiError(409, f"pod {key[1]} is already assigned to node {pod['spec']['nodeName']}")
            if uid and uid != pod["metadata"]["uid"]:
                raise ApiError(409, "the uid is another")
            if pod["spec"].get("schedulingGates"):
                raise ApiError(409, "the pod has scheduling gates")
            pod["spec"]["nodeName"] = node
            self.binds.setdefault(pod["metadata"]["uid"], []).append(node)
            self.emit(PODS, "MODIFIED", pod)


def patched(found: Object, operations: list[Object]) -> Object:
    """A JSON patch, as far as it is used."""
    for one in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in one["path"].split("/")[1:]]
        place: Any = found
        try:
            for part in parts[:-1]:
                place = place[int(part)] if isinstance(place, list) else place[part]
            last: Any = int(parts[-1]) if isinstance(place, list) and parts[-1] != "-" else parts[-1]
            if one["op"] == "test":
                if place[last] != one["value"]:
                    raise ApiError(422, f"the test of {one['path']} failed")
            elif one["op"] == "remove":
                del place[last]
            elif one["op"] == "add" and isinstance(place, list):
                place.insert(len(place) if last == "-" else last, one["value"])
            else:
                place[last] = one["value"]
        except (KeyError, IndexError, TypeError):
            raise ApiError(422, f"there is no {one['path']}") from None
    return found


def check_pod_change(before: Object, after: Object) -> None:
    """Gates can only go, and a node selector only grow while there is a gate."""
    old, new = before["spec"], after["spec"]
    gates = [one["name"] for one in old.get("schedulingGates") or ()]
    if any(one["name"] not in gates for one in new.get("schedulingGates") or ()):
        raise ApiError(422, "spec.schedulingGates: only deletion is allowed")
    selector = old.get("nodeSelector") or {}
    if any((new.get("nodeSelector") or {}).get(key) != value for key, value in selector.items()):
        raise ApiError(422, "spec.nodeSelector: may only be made narrower")
    if not gates and (new.get("nodeSelector") or {}) != selector:
        raise ApiError(422, "spec: pod updates may not change fields other than these")
    if {**new, "schedulingGates": 0, "nodeSelector": 0} != {**old, "schedulingGates": 0, "nodeSelector": 0}:
        raise ApiError(422, "spec: pod updates may not change fields other than these")


def _split(path: str) -> tuple[str, tuple[str, str] | None, str]:
    """Collection, namespace and name, and subresource of an address."""
    parts = path.strip("/").split("/")
    base = 2 if parts[0] == "api" else 3
    rest, namespace = parts[base:], ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    collection = "/" + "/".join([*parts[:base], rest[0]])
    key = (namespace, rest[1]) if len(rest) > 1 else None
    return collection, key, rest[2] if len(rest) > 2 else ""


def _handler(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.serve()

        def serve(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            fault = api.fault(self.command, self.path)
            try:
                if fault == "cut-before":
                    raise ConnectionError
                if api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
                    raise ApiError(401, "Unauthorized")
                if fault in ("429", "500"):
                    raise ApiError(int(fault), "try again later")
                if query.get("watch") and fault in ("hang", "garbage", "partial"):
                    self.nonsense(fault, {"type": "BOOKMARK"})
                    return
                if query.get("watch"):
                    self.watch(parts.path, query, fault)
                    return
                code, found = self.answer(parts.path, query, body)
                if fault == "cut-after":
                    raise ConnectionError
                if fault in ("hang", "garbage", "partial"):
                    self.nonsense(fault, found)
                    return
            except ApiError as error:
                code, found = error.code, {"kind": "Status", "code": error.code, "message": error.message}
            except ConnectionError:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if self.command != "GET":
                api.log.append((self.command, parts.path, code))
            self.send(code, found)

        def nonsense(self, fault: str, found: Object) -> None:
            text = b"<html>" if fault == "garbage" else json.dumps(found).encode()
            if fault == "hang":
                time.sleep(5.0)
            else:
                kind = "HTTP/1.1 200 X\r\nContent-Type: application/json\r\n"
                head = f"{kind}Content-Length: {len(text)}\r\n\r\n"
                self.wfile.write(head.encode() + (text if fault == "garbage" else text[: len(text) // 2]))
                self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def send(self, code: int, found: Object) -> None:
            text = json.dumps(found).encode()
            retry = "Retry-After: 0\r\n" if code == 429 else ""
            head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\n{retry}"
            self.wfile.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
            self.wfile.flush()

        def answer(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Object]:
            if path == "/version":
                return 200, {"major": "1", "minor": api.minor, "gitVersion": f"v1.{api.minor}.0"}
            collection, key, sub = _split(path)
            with api.lock:
                if self.command == "GET":
                    return 200, self.listed(collection, path, query) if key is None else api.find(
                        collection, key
                    )
                if self.command == "POST" and sub == "binding":
                    assert key is not None
                    api.bind(key, body["target"]["name"], body["metadata"].get("uid"))
                    return 201, {"kind": "Status", "status": "Success"}
                if self.command == "POST":
                    if path.count("/namespaces/"):
                        body["metadata"].setdefault("namespace", path.split("/namespaces/")[1].split("/")[0])
                    return 201, api.create(collection, body)
                assert key is not None
                if self.command == "PATCH":
                    return 200, api.patch(collection, key, body)
                if self.command == "PUT":
                    return 200, api.replace(collection, key, body)
                api.delete(collection, *key)
                return 200, {"kind": "Status", "status": "Success"}

        def listed(self, collection: str, path: str, query: dict[str, str]) -> Object:
            first = int(query.get("continue", "0"))
            most = int(query.get("limit", "100000"))
            items = sorted(api.kind(collection).items())
            if "/namespaces/" in path:
                space = path.split("/namespaces/")[1].split("/")[0]
                items = [one for one in items if one[0][0] == space]
            meta = {"resourceVersion": str(api.version)}
            if first + most < len(items):
                meta["continue"] = str(first + most)
            return {
                "kind": "List",
                "metadata": meta,
                "items": [one for _, one in items[first : first + most]],
            }

        def watch(self, path: str, query: dict[str, str], fault: str | None) -> None:
            after = int(query["resourceVersion"])
            if after < api.forgotten or fault == "gone":
                raise ApiError(410, "too old resource version")
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            self.wfile.flush()
            until = time.monotonic() + float(query.get("timeoutSeconds", "60"))
            try:
                self.stream(path, after, until)
            except OSError:
                self.close_connection = True

        def stream(self, path: str, after: int, until: float) -> None:
            while time.monotonic() < until and not api.closing:
                with api.lock:
                    if after < api.forgotten:
                        gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
                        fresh: list[Object] = [{"type": "ERROR", "object": gone}]
                        until = 0.0
                    else:
                        fresh = [
                            {"type": what, "object": found}
                            for version, kind, what, found in api.events
                            if kind == path and version > after
                        ]
                        if api.events:
                            after = max(after, api.events[-1][0])
                    if not fresh:
                        api.lock.wait(min(0.2, max(0.0, until - time.monotonic())))
                for event in fresh:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
                if self.broken(path):
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

        def broken(self, path: str) -> bool:
            return api.fault("WATCH", path) is not None

    for method in ("POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.do_GET)
    return Handler


def random_faults(share: float, seed: int) -> Callable[[str, str], str | None]:
    """Some requests fail, in every way that there is."""
    draw = random.Random(seed)
    return lambda method, path: draw.choice(FAULTS) if draw.random() < share else None
