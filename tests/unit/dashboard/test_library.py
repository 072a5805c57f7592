"""Nothing is shown that does not lie below the given directories, and links lead nowhere else."""

import os
import shutil
from pathlib import Path

import pytest

from gpuyard.dashboard.library import MOST_DEEP, Library, NotHereError
from gpuyard.errors import InputError
from support.report_cases import simulated
from support.sample_runs import write_run
from unit.dashboard.conftest import Visit, page_data

ESCAPES = (
    *("0/..", "0/../secret", "0/runs/../../secret", "0//etc", "0/\0", "../0", "1/", "-1/", "", "x"),
    *("0/link", "0/runs/link", "00000000000000000/x", "٠/runs", "0/" + "a" * 5000, "0/loop"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a run, beside a secret, with links that lead out and in circles."""
    secret = write_run(tmp_path / "secret", updates=10)
    root = tmp_path / "root"
    write_run(root / "runs" / "good", updates=10)
    (root / "link").symlink_to(secret)
    (root / "runs" / "link").symlink_to("../../secret")
    (root / "loop").symlink_to("loop")
    return root


@pytest.mark.parametrize("id", ESCAPES)
def test_no_id_leads_out(root: Path, visit: Visit, id: str) -> None:
    with pytest.raises(NotHereError):
        Library([root]).directory(id)
    for address in ("/runs?run=", "/live?agent=", "/api/live/jobs?q=1&agent="):
        browser = visit(root)
        answer = browser.get(address + os.fsdecode(id.encode()).replace("\0", "%00"))
        assert answer.status_code == 404
        assert "secret/" not in answer.text.replace("/../", "")


def test_links_are_not_followed_when_looking(root: Path) -> None:
    entries, notes = Library([root]).entries()
    assert [entry.id for entry in entries] == ["0/runs/good"]
    assert notes == []


@pytest.mark.parametrize("name", ["progress.jsonl", "config.toml", "search.json"])
def test_a_run_whose_files_are_links_to_elsewhere_is_refused(root: Path, visit: Visit, name: str) -> None:
    told = root.parent / "told"
    told.write_text("nobody may read this\n", encoding="utf-8")
    good = root / "runs" / "good"
    (good / name).unlink(missing_ok=True)
    (good / name).symlink_to(told)
    answer = visit(root).get("/runs?run=0/runs/good")
    assert answer.status_code == 404
    assert "leads out" in answer.text
    home = visit(root).get("/").text
    assert "nobody may read" not in home
    damaged = [row["damaged"] for row in page_data(home)["run"]]
    assert all("leads out" in said for said in damaged)


def test_results_with_a_linked_schedule_are_refused(root: Path) -> None:
    results = simulated(root / "results")
    target = next((results / "schedules").iterdir())
    shutil.move(target, root.parent / "outside.parquet")
    target.symlink_to(root.parent / "outside.parquet")
    with pytest.raises(NotHereError, match="leads out"):
        Library([root]).directory("0/results")


def test_links_within_the_roots_are_fine(root: Path) -> None:
    good = root / "runs" / "good"
    shutil.move(good / "best.safetensors", root / "best.safetensors")
    (good / "best.safetensors").symlink_to(root / "best.safetensors")
    assert Library([root]).directory("0/runs/good") == good


def test_a_root_that_is_a_link_is_what_it_leads_to(root: Path) -> None:
    shortcut = root.parent / "shortcut"
    shortcut.symlink_to(root)
    assert Library([shortcut]).directory("0/runs/good") == root / "runs" / "good"


def test_files_are_in_their_directory(root: Path) -> None:
    library = Library([root])
    assert library.file("0/runs/good", "progress.jsonl").name == "progress.jsonl"
    for name in ("../good/progress.jsonl", "..", "", ".", "/etc/passwd", "nothing"):
        with pytest.raises(NotHereError):
            library.file("0/runs/good", name)


def test_hidden_and_deep_folders_are_left_out(root: Path) -> None:
    write_run(root / ".trash" / "run", updates=10)
    deep = root.joinpath(*"abcdefgh"[:MOST_DEEP], "run")
    write_run(deep, updates=10)
    assert [entry.id for entry in Library([root]).entries()[0]] == ["0/runs/good"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_told(root: Path) -> None:
    (root / "runs").chmod(0)
    entries, notes = Library([root]).entries()
    (root / "runs").chmod(0o755)
    assert (entries, len(notes)) == ([], 1)


def test_roots_must_be_directories_and_apart(root: Path, tmp_path: Path) -> None:
    for roots in ([root / "nothing"], [root / "runs/good/config.toml"], [root, root / "runs"], [root, root]):
        with pytest.raises(InputError):
            Library(roots)


def test_the_newest_comes_first(root: Path) -> None:
    write_run(root / "runs" / "older", updates=10)
    for name in ("progress.jsonl", "config.toml"):
        os.utime(root / "runs" / "older" / name, (1e9, 1e9))
    assert [entry.path.name for entry in Library([root]).entries()[0]] == ["good", "older"]
