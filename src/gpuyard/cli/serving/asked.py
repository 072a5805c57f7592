"""``gpuyard serve http``: a policy for schedulers that ask over HTTP."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from gpuyard.cli.parameters import Whole
from gpuyard.cli.serving.options import FLAGS, Config, Flags, merged
from gpuyard.cli.serving.verbs import serve_app


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
