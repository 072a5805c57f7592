"""Journals as agents leave them: a fake cluster that was served for some rounds, fixed by the seed."""

import random
import time
from pathlib import Path
from typing import Any
from unittest import mock

from gpuyard.serve.journal.contents import SETTINGS_NOTE
from support.fake_cluster import FakeCluster, Served

NODES = {f"gn{number:02}": 8 for number in range(12)}
USERS = ("ada", "bo", "chen", "dana", "<i>eve</i>")


def write_agent(
    directory: Path, rounds: int = 60, *, ago_s: float = 5.0, every_s: float = 5.0, **settings: Any
) -> Served:
    """Serve a fake cluster for some rounds, the last one so long ago; whoever calls closes it.

    Args:
        directory: The state directory.
        rounds: How many.
        ago_s: How long ago the last round was, by its journal.
        every_s: Time between rounds.
        settings: Of the agent, beyond shadow mode.
    """
    draw = random.Random(7)
    cluster = FakeCluster(NODES, held=False)
    served = Served(directory, cluster, "sjf+easy", **({"mode": "shadow", "control": "order"} | settings))
    served.journal.set_note(SETTINGS_NOTE, served.settings.model_dump_json())
    now_s = time.time()
    for number in range(rounds):
        for _ in range(draw.choice((0, 0, 0, 0, 0, 1, 1))):
            submit(cluster, draw)
        wall_s = now_s - ago_s - every_s * (rounds - 1 - number)
        with mock.patch("time.time", lambda at_s=wall_s: at_s):
            served.round(every_s)
    if served.settings.acts:
        served.signs.beat()
    return served


def submit(cluster: FakeCluster, draw: random.Random) -> str:
    """A user submits a job; its id."""
    id = str(1000 + len(cluster.run_s))
    gpus, run_s = draw.choice((1, 1, 2, 4, 8, 16)), draw.uniform(60, 900)
    cluster.submit(id, gpus, run_s, user=draw.choice(USERS), limit_s=4 * run_s)
    return id
