"""The process: an agent from its start to its end, with signals, the socket and the forecasts."""

import gc
import signal
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import gpuyard
from gpuyard.errors import InputError, setting
from gpuyard.policies.base import Policy, as_policy
from gpuyard.policies.policy_file import parse_rules
from gpuyard.serve.adapter import Adapter, AdapterError
from gpuyard.serve.decision.deciding import check_served
from gpuyard.serve.decision.live_cluster import known_cluster, live_cluster
from gpuyard.serve.decision.ranges import range_check, range_notes
from gpuyard.serve.journal import Journal, JournalError
from gpuyard.serve.journal.contents import SETTINGS_NOTE
from gpuyard.serve.journal.replay import model_hash
from gpuyard.serve.process.agent import Agent
from gpuyard.serve.process.answers import Answers
from gpuyard.serve.process.http import HttpServer
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.metrics import Metrics
from gpuyard.serve.process.routes import Routes
from gpuyard.serve.process.systemd import Notifier
from gpuyard.serve.records import RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from gpuyard.serve.state import ClusterState
from gpuyard.serve.waits.forecaster import Forecaster
from gpuyard.simulation.find import find_policy

MakeAdapter = Callable[[ServeSettings], Adapter]
_ADVISED = 20
"""Jobs at the head of the order that advise mode prints."""
_FULL_COLLECTION = 60
"""Rounds after which all garbage is looked for, not only young one."""


def find_served(name: str) -> Policy:
    """A policy that can serve.

    Raises:
        InputError: if there is none of that name, or it cannot.
    """
    policy = as_policy(find_policy(name))
    check_served(policy)
    return policy


class Service:
    """Runs an agent until it is told to stop.

    Args:
        settings: How.
        make_adapter: Makes the adapter of the cluster.
        log: Where to say what happens.
        reload: Reads the settings again; None: they do not change.
    """

    def __init__(
        self,
        settings: ServeSettings,
        make_adapter: MakeAdapter,
        log: Log,
        reload: Callable[[], ServeSettings] | None = None,
    ) -> None:
        self.settings, self._make_adapter, self.log = settings, make_adapter, log
        self._read_again = reload
        self._stop = threading.Event()
        self._reload = threading.Event()
        self._notifier = Notifier()
        self.servers: list[HttpServer] = []
        """Where it answers."""
        self._advised: tuple[list[str], list[str]] = ([], [])

    # --- signals

    def stop(self, *_: object) -> None:
        """End after the round that is under way."""
        self._stop.set()

    def ask_reload(self, *_: object) -> None:
        """Read the settings again before the next round."""
        self._reload.set()

    def take_signals(self) -> None:
        """SIGTERM and SIGINT end it, SIGHUP makes it read its settings again."""

        def on(number: int, act: Callable[[], None]) -> None:
            def handler(_: int, __: FrameType | None) -> None:
                act()

            signal.signal(number, handler)

        on(signal.SIGTERM, self.stop)
        on(signal.SIGINT, self.stop)
        on(signal.SIGHUP, self.ask_reload)

    # --- life

    def run(self, rounds: int | None = None) -> None:
        """Serve.

        Args:
            rounds: After how many rounds to end; None: when told to.

        Raises:
            InputError: for what cannot be served; nothing was written to the cluster then.
        """
        while True:
            with ExitStack() as stack:
                self._live(stack, rounds)
            if not self._reload.is_set():
                return
            self._reload.clear()
            self._notifier.reloading()
            self._take_new_settings()

    def _take_new_settings(self) -> None:
        try:
            if self._read_again is not None:
                fresh = self._read_again()
                find_served(fresh.policy)
                self.settings = fresh
            self.log.info("settings read again", policy=self.settings.policy, mode=self.settings.mode)
        except InputError as error:
            self.log.error("settings not taken; those before stay in force", error=str(error))

    def _live(self, stack: ExitStack, rounds: int | None) -> None:
        settings = self.settings
        signs = Signs(settings.state_dir)
        stack.enter_context(signs.leadership())
        journal = stack.enter_context(_open_journal(settings))
        policy, fallback = find_served(settings.policy), parse_rules(settings.fallback)
        adapter = self._make_adapter(settings)
        signs.remember(adapter.name)
        if not self._lead(stack, adapter, signs):
            return
        model = model_hash(settings.policy)
        metrics = Metrics(gpuyard.__version__, model)
        cluster = None if settings.cluster is None else known_cluster(settings.cluster, adapter.observe())
        agent = Agent(
            settings, adapter, policy, fallback, journal, signs, self.log, metrics=metrics, cluster=cluster,
            model=model, out_of_range=range_check(policy),
        )  # fmt: skip
        _note(journal, settings, self.log)
        agent.restore()
        forecaster = Forecaster(settings, find_served)
        forecaster.start()
        stack.callback(forecaster.close)
        token = read_token(settings.token_file, "token_file")
        if token:
            self.log.hide(token)
        answers = Answers(agent, metrics, forecaster)
        server = HttpServer(
            answers, settings.socket, settings.listen, token, further=self._routes(agent), tls=self._tls()
        )
        server.start()
        self.servers = [server]
        stack.callback(server.close)
        door = getattr(adapter, "door", None)  # where the scheduler itself asks, if it has such a thing
        if door is not None:
            stack.enter_context(door(answers.select_host))
        stack.callback(gc.enable)
        metrics.set_leader(True)
        self.log.info("serving", policy=policy.name, mode=settings.mode, control=settings.control)
        _check_commands(adapter)
        self._notifier.ready(f"{settings.mode}: {policy.name}")
        self._rounds(agent, forecaster, rounds)
        if not self._reload.is_set():
            self._notifier.stopping()
            agent.stop()
            self.log.info("stopped")
        else:
            agent.chooser.close()

    @property
    def _goes_on(self) -> bool:
        """Whether nobody asked it to end or to read its settings again."""
        return not self._stop.is_set() and not self._reload.is_set()

    def _lead(self, stack: ExitStack, adapter: Adapter, signs: Signs) -> bool:
        """Wait until this agent may act; False if nobody wants to wait any more."""
        return True

    def _tls(self) -> ssl.SSLContext | None:
        """Certificate of the TCP address; None: it speaks plain HTTP."""
        return None

    def _routes(self, agent: Agent) -> Routes:
        """Addresses besides those that every agent has."""
        return {}

    def _rounds(self, agent: Agent, forecaster: Forecaster, rounds: int | None) -> None:
        done, compared = 0, False
        due = time.monotonic()
        gc.freeze()
        gc.disable()  # collections of garbage take their time between rounds, not within them
        while self._goes_on:
            record = agent.round()
            self._notifier.alive()
            self._advise(record)
            if record is not None and agent.last_state is not None:
                compared = compared or self._compare(agent, agent.last_state)
                self._after_round(agent, forecaster)
            gc.collect(2 if done % _FULL_COLLECTION == 0 else 1)
            done += 1
            if rounds is not None and done >= rounds:
                return
            due = max(due + self.settings.interval_s, time.monotonic())  # a late round delays no other
            while self._goes_on:
                left_s = due - time.monotonic()
                if left_s <= 0:
                    break
                self._stop.wait(min(left_s, 0.2))

    def _after_round(self, agent: Agent, forecaster: Forecaster) -> None:
        """Let the forecaster know, and record what it found out."""
        state, record = agent.last_state, agent.last_record
        if state is not None and record is not None:
            forecaster.give(state, record.number, dict(agent.memory.predictions_s), agent.run_times)
            self._write_predictions(agent, forecaster)

    def _compare(self, agent: Agent, state: ClusterState) -> bool:
        """Say how the cluster differs from that of training: no reason yet not to decide."""
        try:
            cluster = agent.chooser.cluster or live_cluster(state)
        except InputError:  # a state that cannot be, which the round has told; the next may be better
            return False
        for note in range_notes(agent.policy, cluster):
            self.log.warning("unlike training", note=note)
        return True

    def _advise(self, record: RoundRecord | None) -> None:
        """In advise mode, print the head of the order and what to start, whenever these change."""
        if record is None or self.settings.mode != "advise":
            return
        advice = ([one.job for one in record.order[:_ADVISED]], [one.job for one in record.starts])
        if advice != self._advised:
            self._advised = advice
            self.log.info("order", first=advice[0], start_now=advice[1], waiting=record.pending)

    def _write_predictions(self, agent: Agent, forecaster: Forecaster) -> None:
        for number, rows in forecaster.rows():
            try:
                agent.journal.write_predictions(number, rows)
            except JournalError as error:
                self.log.warning("predictions not recorded", error=str(error))


def _check_commands(adapter: Adapter) -> None:
    """Refuse to serve without the scheduler's commands; a scheduler that is down may come up."""
    try:
        adapter.observe()
    except AdapterError as error:
        if error.code == "missing":
            raise InputError(str(error)) from None


def _open_journal(settings: ServeSettings) -> Journal:
    try:
        return Journal.open(settings.journal)
    except JournalError as error:
        raise InputError(str(error)) from None


def _note(journal: Journal, settings: ServeSettings, log: Log) -> None:
    try:
        journal.set_note(SETTINGS_NOTE, settings.model_dump_json())
    except JournalError as error:
        log.warning("settings not recorded", error=str(error))


def read_token(path: Path | None, name: str) -> str | None:
    """The first line of a file; None without a file.

    Raises:
        InputError: if it cannot be read, is empty, or others may read it.
    """
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8").splitlines()
        open_to_others = path.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{setting(name)} {path}: cannot be read ({error})") from None
    if not text or not text[0].strip():
        raise InputError(f"{setting(name)} {path}: its first line is empty; write a token there")
    if open_to_others & 0o007:
        raise InputError(f"{setting(name)} {path}: everybody can read it; chmod 600 it")
    return text[0].strip()
