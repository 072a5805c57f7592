"""What if: from a question to results that lie below the roots, and nowhere else."""

import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.dashboard.library import Library
from gpuyard.dashboard.whatif.question import (
    PoolChange,
    Question,
    base_cluster,
    changed_cluster,
    find_log,
    logs,
)
from gpuyard.dashboard.whatif.runs import MOST_AT_ONCE, WhatIfRuns
from gpuyard.errors import InputError
from gpuyard.evaluate.storage import read_comparison
from gpuyard.workload import write_workload
from support.report_cases import jobs_with_names, simulated

from .conftest import ORIGIN, Visit


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    root.mkdir()
    write_workload(jobs_with_names(), root / "jobs.parquet")
    return root


def question(**more: Any) -> dict[str, Any]:
    return {
        "log": "0/./jobs.parquet",
        "cluster": "4x4",
        "policies": ["sjf+easy"],
        "estimates": "exact",
        "changes": [{"pool": 0, "nodes": 2}],
        **more,
    }


def ended(runs: WhatIfRuns, state: str) -> dict[str, Any]:
    """The newest question, once it is in this state."""
    for _ in range(600):
        told: dict[str, Any] = runs.look()["runs"][0]
        if told["state"] != "running":
            assert told["state"] == state, told["said"]
            return told
        time.sleep(0.05)
    raise AssertionError("it did not end")


def test_a_question_is_answered_on_both_clusters_below_the_roots(site: Path) -> None:
    runs = WhatIfRuns(Library([site]))
    runs.start(Question.parse(question()))
    told = ended(runs, "done")
    assert told["cluster"] == "4x4 +2 nodes"
    found = [read_comparison(site / id.removeprefix("0/")) for id in told["ids"]]
    assert [one.setting.cluster["nodes"][0]["count"] for one in found] == [4, 6]
    assert found[1].mean("sjf+easy", "mean_wait_s") < found[0].mean("sjf+easy", "mean_wait_s")
    assert not list((site / "what-if" / ".state").iterdir())


def test_the_same_question_is_answered_once(site: Path) -> None:
    runs = WhatIfRuns(Library([site]))
    runs.start(Question.parse(question(changes=[])))
    first = ended(runs, "done")
    written = (site / first["ids"][0].removeprefix("0/") / "results.json").stat().st_mtime_ns
    assert runs.start(Question.parse(question(changes=[])))["state"] == "done"
    assert (site / first["ids"][0].removeprefix("0/") / "results.json").stat().st_mtime_ns == written


def test_a_cancelled_question_leaves_nothing(site: Path) -> None:
    runs = WhatIfRuns(Library([site]))
    asked = runs.start(Question.parse(question()))
    assert runs.cancel(asked["name"])["state"] == "cancelled"
    assert not [path for path in (site / "what-if").iterdir() if path.name != ".state"]
    assert not list((site / "what-if" / ".state").iterdir())
    with pytest.raises(InputError, match="nothing of that name"):
        runs.cancel("nobody")


def test_only_so_many_questions_are_answered_at_once(site: Path) -> None:
    runs = WhatIfRuns(Library([site]))
    try:
        for nodes in range(MOST_AT_ONCE):
            runs.start(Question.parse(question(changes=[{"pool": 0, "nodes": nodes + 1}])))
        with pytest.raises(InputError, match="wait for one"):
            runs.start(Question.parse(question(changes=[{"pool": 0, "nodes": 9}])))
    finally:
        for told in runs.look()["runs"]:
            runs.cancel(told["name"])


def test_what_goes_wrong_while_it_is_answered_is_said(site: Path) -> None:
    (site / "jobs.csv").write_text("submit_s,duration_s,gpus\n1,2,many\n", encoding="utf-8")
    runs = WhatIfRuns(Library([site]))
    runs.start(Question.parse(question(log="0/./jobs.csv")))
    assert "many" in ended(runs, "failed")["said"]


def test_pools_change_by_nodes_type_and_speed() -> None:
    changes = (PoolChange(pool=0, nodes=-16), PoolChange(pool=1, nodes=4, type="h100", speed=3.0))
    found = changed_cluster(parse_cluster("16x2:p100,20x8:v100"), changes)
    assert [(pool.count, pool.gpus, pool.type) for pool in found.nodes] == [(24, 8, "h100")]
    assert {one.name: one.speed for one in found.gpu_types}["h100"] == 3.0
    assert found.name == "16x2:p100,20x8:v100 -16 nodes in pool 1, +4 nodes, h100@3 in pool 2"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([PoolChange(pool=3, nodes=1)], "has 1"),
        ([PoolChange(pool=0, nodes=-5)], "fewer than"),
        ([PoolChange(pool=0, nodes=-4)], "no node is left"),
        ([PoolChange(pool=0, type="a b")], "type"),
        ([PoolChange(pool=0, type="gpu", speed=2.0)], "one speed"),
    ],
)
def test_changes_that_cannot_be_are_refused(changes: list[PoolChange], said: str) -> None:
    with pytest.raises(InputError, match=said):
        changed_cluster(parse_cluster("4x4"), tuple(changes))


@pytest.mark.parametrize(
    "change",
    [
        {"policies": ["../secret"]},
        {"policies": ["/etc/passwd"]},
        {"policies": ["policy.toml"]},
        {"policies": ["model:../../x"]},
        {"policies": []},
        {"policies": ["sjf+easy"] * 9},
        {"estimates": "magic"},
        {"changes": [{"pool": 0, "nodes": 10**9}]},
        {"more": 1},
    ],
)
def test_questions_that_name_files_or_are_malformed_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Question.parse(question(**change))


def test_logs_and_clusters_outside_of_the_roots_are_refused(site: Path, tmp_path: Path) -> None:
    library = Library([site])
    outside = write_workload(jobs_with_names(), tmp_path / "secret.parquet") or tmp_path / "secret.parquet"
    (site / "link.parquet").symlink_to(outside)
    for id in ("0/../secret.parquet", "0/./link.parquet", "0/./none.parquet", str(outside), "built-in:none"):
        with pytest.raises(InputError):
            find_log(library, id)
    (site / "mine.toml").write_text("[[nodes]]\ncount = 1\ngpus = 1\n", encoding="utf-8")
    for text in (str(site / "mine.toml"), "mine.toml", "../x", "results:0/../..", "nonsense"):
        with pytest.raises(InputError):
            base_cluster(library, text)


def test_logs_that_are_offered_are_jobs_below_the_roots_and_no_results(site: Path) -> None:
    simulated(site / "results", ("sjf+easy",))
    (site / "other.parquet").write_bytes(b"PAR1")
    names = [name for _, name in logs(Library([site]))]
    assert names[0] == "jobs.parquet"
    assert all(name.endswith("(built in)") for name in names[1:])


def test_pages_of_others_start_nothing(visit: Visit, site: Path) -> None:
    client = visit(site)
    refused = client.post("/api/what-if/start", json=question(), headers={"Origin": "http://evil.example"})
    assert refused.status_code == 403
    assert client.post("/api/what-if/start", json=question()).status_code == 403
    own = {"Origin": ORIGIN}
    assert client.post("/api/what-if/start", content=b"[1]", headers=own).status_code == 400
    large = client.post("/api/what-if/start", content=b"x" * 70_000, headers=own)
    assert (large.status_code, "bytes" in large.json()["error"]) == (400, True)
    assert not (site / "what-if").exists()


def test_the_form_gets_the_pools_of_a_cluster(visit: Visit, site: Path) -> None:
    told = visit(site).get("/api/what-if/cluster", params={"cluster": "3x2,4x8:v100"}).json()
    assert told["pools"] == [{"nodes": 3, "gpus": 2, "type": "gpu"}, {"nodes": 4, "gpus": 8, "type": "v100"}]
    assert visit(site).get("/api/what-if/cluster", params={"cluster": "../x.toml"}).status_code == 400
