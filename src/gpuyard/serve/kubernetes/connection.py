"""Where the API server is and who we are: from inside a pod, or from a kubeconfig."""

import base64
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import InputError, setting

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Connection:
    """How to reach an API server.

    Attributes:
        server: Such as ``https://10.0.0.1:6443``.
        tls: Whom to trust, and a client certificate; None for plain HTTP.
        token: Bearer token; None: none.
        token_file: File that the token is read from again and again, because it is renewed.
    """

    server: str
    tls: ssl.SSLContext | None = None
    token: str | None = None
    token_file: Path | None = None

    def bearer(self) -> str | None:
        """The token now."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise InputError(f"{self.token_file}: cannot be read ({error.strerror})") from None


def find_connection(kubeconfig: Path | None) -> Connection:
    """Of a kubeconfig if one is given, then of the pod that we run in, then of ``$KUBECONFIG``.

    Raises:
        InputError: if there is none, or it cannot be used.
    """
    if kubeconfig is not None:
        return _of_file(kubeconfig)
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if host and (SERVICE_ACCOUNT / "token").exists():
        name = f"[{host}]" if ":" in host else host
        tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
        return Connection(f"https://{name}:{port}", tls, token_file=SERVICE_ACCOUNT / "token")
    path = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if not path.exists():
        raise InputError(
            f"no API server is known: this is no pod, and {path} does not exist; give {setting('kubeconfig')}"
        )
    return _of_file(path)


def _of_file(path: Path) -> Connection:
    import yaml  # type: ignore[import-untyped]

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _named(document, "contexts", document["current-context"])["context"]
        cluster = _named(document, "clusters", context["cluster"])["cluster"]
        user = _named(document, "users", context["user"]).get("user") or {}
        return _connection(path, cluster, user)
    except (OSError, KeyError, TypeError, StopIteration, ValueError, yaml.YAMLError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{setting('kubeconfig')} {path}: cannot be used ({type(error).__name__}: {error}); expected a "
            "current-context with a cluster and a user"
        ) from None


def _named(document: Any, table: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in document[table] if entry["name"] == name)
    return found


def _connection(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Connection:
    for kind in ("exec", "auth-provider", "username"):
        if kind in user:
            raise InputError(
                f"{path}: users with {kind} are not supported; use a token or a client certificate"
            )
    server = str(cluster["server"]).rstrip("/")
    tls = _tls(path, cluster, user) if server.startswith("https:") else None
    token_file = path.parent / user["tokenFile"] if "tokenFile" in user else None
    return Connection(server, tls, user.get("token"), token_file)


def _tls(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify"):
        raise InputError(f"{path}: insecure-skip-tls-verify is not supported; give the certificate-authority")
    authority = _bytes(path, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    certificate, key = _bytes(path, user, "client-certificate"), _bytes(path, user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # of mode 0600; ssl reads files only
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _bytes(path: Path, entry: dict[str, Any], name: str) -> bytes:
    """A file's content, or what stands in the entry itself."""
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"])
    return (path.parent / entry[name]).read_bytes() if name in entry else b""
