"""The process on Kubernetes: it leads by a Lease, and answers kube-scheduler where it is asked to."""

import ssl
import time
from contextlib import ExitStack

from gpuyard.errors import InputError, setting
from gpuyard.serve.adapter import Adapter
from gpuyard.serve.kubernetes.adapter import KubernetesAdapter
from gpuyard.serve.kubernetes.api import Api
from gpuyard.serve.kubernetes.connection import find_connection
from gpuyard.serve.kubernetes.extender import Extender
from gpuyard.serve.kubernetes.kueue import KueueAdapter
from gpuyard.serve.kubernetes.lease import Lease, LeaseKeeper, LeaseSigns
from gpuyard.serve.process.agent import Agent
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.routes import Routes
from gpuyard.serve.process.service import Service
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from gpuyard.serve.watchdog import watch

HALTED_BY_LEASE = "the Lease is annotated"


def make_adapter(settings: ServeSettings, api: Api | None = None) -> KubernetesAdapter | KueueAdapter:
    """The adapter of the lever that is set."""
    if settings.kubernetes.lever == "kueue":
        return KueueAdapter(settings, api)
    return KubernetesAdapter(settings, api)


def lease_signs(settings: ServeSettings) -> LeaseSigns:
    """Where the agent of these settings shows life, for watchdogs elsewhere."""
    part = settings.kubernetes
    api = Api(find_connection(part.kubeconfig), settings.command_timeout_s)
    return LeaseSigns(api, part.namespace, part.lease)


class KubernetesService(Service):
    """Runs an agent on Kubernetes until it is told to stop, or another leads.

    Args:
        settings: How.
        log: Where to say what happens.
    """

    def __init__(self, settings: ServeSettings, log: Log) -> None:
        super().__init__(settings.model_copy(update={"scheduler": "kubernetes"}), make_adapter, log)
        self._adapter: KubernetesAdapter | KueueAdapter | None = None
        self._lease: Lease | None = None
        self._began = time.monotonic()

    def _lead(self, stack: ExitStack, adapter: Adapter, signs: Signs) -> bool:
        """Wait until this agent leads; whether it does."""
        assert isinstance(adapter, KubernetesAdapter | KueueAdapter)
        self._adapter = adapter
        stack.callback(adapter.close)
        if not self.settings.acts:
            return True  # any number may watch
        part, adapter.may_act = self.settings.kubernetes, False
        self._lease = lease = Lease(adapter.api, part.namespace, part.lease, part.lease_s)
        keeper = LeaseKeeper(lease, part.lease_s / 3, lambda: self._well(signs), lambda: self._lost(adapter))
        self.log.info("waiting to lead", lease=f"{part.namespace}/{part.lease}", holder=lease.holder)
        if not keeper.wait_for_it(lambda: self._goes_on):
            return False
        stack.callback(keeper.close)
        self._began = time.monotonic()
        adapter.may_act = True
        return True

    def _well(self, signs: Signs) -> bool:
        """Whether the Lease is to be renewed; obeys what it is annotated with."""
        if self._lease is not None and self._lease.halted and not signs.halted:
            signs.halt(HALTED_BY_LEASE)
        elif self._lease is not None and not self._lease.halted and _by_lease(signs):
            signs.resume()
        silence_s = signs.silence_s()
        young = time.monotonic() - self._began < self.settings.watchdog_s
        return signs.halted or young or (silence_s is not None and silence_s < self.settings.watchdog_s)

    def _lost(self, adapter: KubernetesAdapter | KueueAdapter) -> None:
        adapter.may_act = False
        self.log.error("the lead is lost; ending", error=self._lease.error if self._lease else "")
        self.stop()

    def _routes(self, agent: Agent) -> Routes:
        """The webhook always, the extender where that is the lever."""
        adapter = self._adapter
        if not isinstance(adapter, KubernetesAdapter):
            return {}
        extender = Extender(adapter.scene, agent.policy, self.settings, adapter.releases, self.log)
        routes = extender.routes()
        if self.settings.kubernetes.lever == "extender":
            return routes
        return {("POST", "/mutate"): routes["POST", "/mutate"]}

    def _tls(self) -> ssl.SSLContext | None:
        part = self.settings.kubernetes
        if part.tls_cert is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(part.tls_cert, part.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise InputError(
                f"{setting('kubernetes.tls_cert')} {part.tls_cert}: cannot be used ({error})"
            ) from None
        return context


def _by_lease(signs: Signs) -> bool:
    """Whether it is the annotation of the Lease that halted the agent."""
    try:
        return HALTED_BY_LEASE in signs.halt_file.read_text(encoding="utf-8")
    except OSError:
        return False


def watch_lease(settings: ServeSettings, log: Log, every_s: float = 5.0) -> None:
    """Give all pods back whenever the agent's Lease is not renewed. Ends only with its process."""
    adapter = make_adapter(settings)
    part = settings.kubernetes
    life = PatientLife(LeaseSigns(adapter.api, part.namespace, part.lease))
    watch(life, adapter, settings.watchdog_s, log, every_s)


class PatientLife:
    """The life of an agent that may not have begun yet: without a Lease it is as old as we are.

    Args:
        signs: What the Lease says.
    """

    def __init__(self, signs: LeaseSigns) -> None:
        self._signs, self._since = signs, time.monotonic()

    @property
    def halted(self) -> bool:
        """Whether somebody asked it to keep its hands off."""
        return self._signs.halted

    def silence_s(self, now_s: float | None = None) -> float | None:
        """How long ago it last showed life, or how long we have watched for it."""
        found = self._signs.silence_s(now_s)
        if found is not None:
            self._since = time.monotonic() - found
        return time.monotonic() - self._since
