"""An agent on the small API server."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.policies.policy_file import parse_rules
from gpuyard.serve.journal import Journal
from gpuyard.serve.kubernetes.adapter import KubernetesAdapter
from gpuyard.serve.process.agent import Agent
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.service import find_served
from gpuyard.serve.settings import KubernetesSettings, ServeSettings
from gpuyard.serve.signs import Signs
from support.kubernetes_api import FakeApi
from support.kubernetes_cluster import client


def kubernetes_settings(directory: Path, lever: Any = "gates", **more: Any) -> ServeSettings:
    known: dict[str, Any] = {"state_dir": directory, "deadline_ms": 60_000.0, "mode": "active"}
    part = KubernetesSettings(lever=lever)
    return ServeSettings(**(known | {"control": "start", "policy": "sjf+easy", "kubernetes": part} | more))


@contextlib.contextmanager
def agent_on(api: FakeApi, settings: ServeSettings, timeout_s: float = 5.0) -> Iterator[Agent]:
    """Until the block ends; then it is gone without a word, as after a kill."""
    adapter = KubernetesAdapter(settings, client(api, timeout_s))
    signs = Signs(settings.state_dir)
    signs.make()
    with Journal.open(settings.journal) as journal:
        policy, fallback = find_served(settings.policy), parse_rules(settings.fallback)
        agent = Agent(settings, adapter, policy, fallback, journal, signs, Log(io.StringIO()))
        agent.restore()
        try:
            yield agent
        finally:
            agent.chooser.close()
            adapter.close()
