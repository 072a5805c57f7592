"""``gpuyard serve http`` and ``kubernetes``: a policy for schedulers that are reached over HTTP."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from gpuyard.cli.parameters import Flag, Whole, settings
from gpuyard.cli.serving.options import FLAGS, Config, Flags, merged
from gpuyard.cli.serving.verbs import serve_app
from gpuyard.errors import InputError
from gpuyard.serve.settings import KubernetesSettings


@serve_app.command
def http(
    *,
    config: Config = None,
    rounds: Annotated[Whole | None, Parameter(help="End after this many answers.")] = None,
    flags: Flags = FLAGS,
) -> None:
    """Answer a scheduler that asks over HTTP: it sends its state and gets a decision.

    A unix socket in --state-dir answers, and --listen with --token-file. docs/guide/serve-http.md has
    clients; /v1/openapi.json describes states and decisions.

    Example: gpuyard serve http --policy sjf+easy --mode active --control start
    """
    from gpuyard.serve.process.log import Log
    from gpuyard.serve.remote import RemoteService

    chosen = merged(config, flags)
    reload = None if config is None else lambda: merged(config, flags)
    service = RemoteService(chosen, Log(), reload)
    service.take_signals()
    service.run(rounds)


KubernetesFlags = Annotated[KubernetesSettings, settings(KubernetesSettings, "Kubernetes")]
_KUBERNETES = KubernetesSettings()


@serve_app.command
def kubernetes(
    *,
    config: Config = None,
    rounds: Annotated[Whole | None, Parameter(help="End after this many rounds.")] = None,
    watchdog: Annotated[
        bool, Flag, Parameter(help="Only watch the agent's Lease, and open all gates when it runs out.")
    ] = False,
    flags: Flags = FLAGS,
    cluster_flags: KubernetesFlags = _KUBERNETES,
) -> None:
    """Serve a policy on a Kubernetes cluster. It runs until SIGTERM or Ctrl-C.

    Begin with --mode shadow: it writes nothing. docs/guide/serve-kubernetes.md says what was tried on a real
    cluster and what was not. Needs gpuyard[kubernetes].

    Example: gpuyard serve kubernetes --control start --policy sjf+easy --mode shadow
    """
    _need_httpx()
    from gpuyard.serve.kubernetes.service import KubernetesService, watch_lease
    from gpuyard.serve.process.log import Log

    chosen = merged(config, flags)
    given = {name: getattr(cluster_flags, name) for name in cluster_flags.model_fields_set}
    part = chosen.kubernetes.model_copy(update=given)
    chosen = chosen.model_copy(update={"kubernetes": part})
    if watchdog:
        watch_lease(chosen, Log())
        return
    service = KubernetesService(chosen, Log())
    service.take_signals()
    service.run(rounds)


def _need_httpx() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("httpx", "yaml") if find_spec(name) is None]
    if missing:
        raise InputError("gpuyard serve kubernetes needs httpx and PyYAML: pip install 'gpuyard[kubernetes]'")
