"""Training: one run or several laid over each other, live; what may be done to a run of this machine."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpuyard.dashboard.site import Site
from gpuyard.dashboard.static_files import asset
from gpuyard.dashboard.training.charts import settings_chart, training_chart_list
from gpuyard.dashboard.training.control import Action, act, trainer
from gpuyard.dashboard.training.facts import run_facts, run_tiles, run_words
from gpuyard.dashboard.training.followed import FollowedRun
from gpuyard.errors import InputError
from gpuyard.report import layout
from gpuyard.report.pages.training import settings_table
from gpuyard.report.training import MOST_RUNS, Across
from gpuyard.runs.directory import Run
from gpuyard.runs.summary import run_names

TITLE, PATH = "Training", "/runs"
DRAW_EVERY_S = 1.0
"""Charts are made anew so often at most, however fast a run writes."""
ACTIONS = ("pause", "finish", "resume")


class RunsSource:
    """What is watched of one choice of runs.

    Args:
        site: Where they are.
        ids: Of the runs, each once.
        across: What curves are drawn over.
        seeds: Whether seeds of the same settings are one line.
    """

    def __init__(self, site: Site, ids: Sequence[str], across: Across, *, seeds: bool) -> None:
        self._followed = [FollowedRun(site.library.directory(id)) for id in ids]
        self._ids, self._across, self._seeds = ids, across, seeds
        self._drawn_s = 0.0
        self._is_due = True

    def look(self) -> dict[str, Any]:
        """Facts of all, and charts where something has changed."""
        changed = [followed.look() for followed in self._followed]
        self._is_due = self._is_due or any(changed)
        found: dict[str, Any] = {"facts": self._facts()}
        if self._is_due and time.monotonic() - self._drawn_s >= DRAW_EVERY_S:
            found["charts"] = training_chart_list(self._followed, self._across, seeds=self._seeds)
            self._is_due, self._drawn_s = False, time.monotonic()
        return found

    def _facts(self) -> list[dict[str, Any]]:
        names = run_names([one.run for one in self._followed])
        return [
            run_facts(one)
            | {"id": id, "label": name, "tiles": run_tiles(one), "words": run_words(one)}
            | {"can": _possible(one)}
            for id, name, one in zip(self._ids, names, self._followed, strict=True)
        ]

    @property
    def runs(self) -> list[Run]:
        """The runs as far as they have been read."""
        return [one.run for one in self._followed]


def _possible(followed: FollowedRun) -> list[str]:
    """What may be done to a run now."""
    if followed.state == "running":
        return ["pause", "finish"] if trainer(followed.directory) is not None else []
    return ["resume"] if followed.is_resumable else []


def routes(site: Site) -> Sequence[Route]:
    """The page, its stream of changes, and actions."""
    rows = site.rows

    def show(request: Request) -> Response:
        if not request.query_params.getlist("run"):
            found = rows.look()["home"]
            return site.page(
                TITLE, asset("run-list.html"), path=PATH, script="run-list.js", data={"runs": found["run"]}
            )
        ids, across, seeds = _chosen(request)
        source = RunsSource(site, ids, across, seeds=seeds)
        runs = _read(source)
        title = f"Training run {runs[0].name}" if len(ids) == 1 else f"{len(ids)} training runs"
        data = {"ids": ids, "across": across, "seeds": seeds, "directories": [str(r.directory) for r in runs]}
        return site.page(title, _body(runs), path=PATH, script="runs.js", data=data)

    async def feed(request: Request) -> Response:
        ids, across, seeds = _chosen(request)
        key = f"runs {across} {seeds} {ids}"
        return site.feeds.answer(request, key, lambda: RunsSource(site, ids, across, seeds=seeds))

    def scores(_: Request) -> Response:
        return JSONResponse({"chart": settings_chart(rows.read_runs())})

    async def do(request: Request) -> Response:
        asked = await read_json(request)
        action, id = asked.get("action"), asked.get("run")
        if action not in ACTIONS or not isinstance(id, str):
            raise InputError(f"action {action!r}: expected {', '.join(ACTIONS)}, and a run")
        directory = site.library.directory(id)
        said = await run_in_threadpool(act, directory, cast(Action, action))
        return JSONResponse({"said": said})

    return [
        Route(PATH, show),
        Route("/api/runs", feed),
        Route("/api/runs/scores", scores),
        Route("/api/runs/do", do, methods=["POST"]),
    ]


async def read_json(request: Request) -> Mapping[str, Any]:
    """The document of a request.

    Raises:
        InputError: if it is none.
    """
    try:
        found = await request.json()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError("expected a JSON object")
    return found


def _chosen(request: Request) -> tuple[list[str], Across, bool]:
    asked = request.query_params
    ids = list(dict.fromkeys(asked.getlist("run")))
    if not 1 <= len(ids) <= MOST_RUNS:
        raise InputError(f"{len(ids)} runs: choose 1 to {MOST_RUNS}")
    across: Across = "minutes" if asked.get("across") == "minutes" else "steps"
    return ids, across, asked.get("seeds") == "band"


def _read(source: RunsSource) -> list[Run]:
    """The runs of a page, read for a moment; the stream of changes reads on."""
    source.look()
    return source.runs


def _body(runs: Sequence[Run]) -> str:
    heading, table = settings_table(runs, run_names(runs))
    seeds = (
        '<label>Seeds <select id="seeds"><option value="each">each run</option>'
        '<option value="band">as a band</option></select></label>'
    )
    return (
        '<div id="facts"></div><div class="actions" role="group" aria-label="How curves are drawn">'
        '<label>Over <select id="across"><option value="steps">samples</option>'
        '<option value="minutes">minutes of training</option></select></label>'
        f'{seeds if len(runs) > 1 else ""}</div><div class="figures" id="charts"></div>'
        '<p class="intro" id="nothing" hidden>Nothing has been trained yet: there are no curves to show.</p>'
        f"{layout.section('settings', heading, table)}"
    )
