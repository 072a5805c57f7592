"""``gpuyard serve`` for somebody in a hurry: wrong directories, dead agents, no Slurm."""

from pathlib import Path

import pytest

from gpuyard.serve.journal import Journal
from gpuyard.serve.records import RoundRecord
from gpuyard.serve.signs import Signs
from gpuyard.serve.state import ClusterState, Job, Node
from support.command_line import Run, document, runner


@pytest.fixture
def serve(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return runner(capfd, "serve")


def served_once(directory: Path) -> None:
    """What an agent leaves that was killed with a job held."""
    signs = Signs(directory)
    with signs.leadership(), Journal.open(directory / "journal.sqlite") as journal:
        state = ClusterState(
            "slurm 22.05.8", 10.0, (Job("7", "waiting", 1.0, held="agent"),), (Node("n1", 8),)
        )
        record = RoundRecord(1, 10.0, 20.0, "active", "start", "sjf+easy", pending=1, decider="policy")
        journal.write(record, state, "{}")


@pytest.mark.parametrize("verb", ["halt", "resume"])
def test_a_directory_without_an_agent_is_refused(serve: Run, verb: str, tmp_path: Path) -> None:
    code, _, error = serve(verb)
    assert code == 2
    assert "no agent has ever served from" in error
    assert str(tmp_path / "gpuyard-serve") in error.replace("\n", "")
    assert not (tmp_path / "gpuyard-serve").exists()


def test_a_halt_stands_even_if_slurm_does_not_answer(serve: Run, tmp_path: Path) -> None:
    served_once(tmp_path / "agent")
    code, _, error = serve("halt", "--state-dir", tmp_path / "agent")
    assert code == 2
    assert "halted (" in error
    assert Signs(tmp_path / "agent").halted
    assert serve("resume", "--state-dir", tmp_path / "agent")[0] == 0
    assert not Signs(tmp_path / "agent").halted


def test_a_dead_agent_looks_dead_and_says_what_it_held(serve: Run, tmp_path: Path) -> None:
    served_once(tmp_path / "agent")
    code, output, _ = serve("status", "--state-dir", tmp_path / "agent")
    assert code == 1
    assert "dead" in output
    assert "control start" in output
    assert "1 jobs were held then" in output
    code, output, _ = serve("status", "--state-dir", tmp_path / "agent", "--json")
    assert code == 1
    assert (document(output)["alive"], document(output)["held"]) == (False, 1)


def test_without_slurm_the_agent_does_not_begin(serve: Run) -> None:
    code, _, error = serve("slurm", "--rounds", "1")
    assert code == 2
    assert "was not found" in error


def test_files_of_an_installation_are_written_once(serve: Run, tmp_path: Path) -> None:
    assert serve("files", "made")[0] == 0
    assert {"serve.toml", "job_submit.lua", "gpuyard-serve.service"} <= {
        path.name for path in (tmp_path / "made").iterdir()
    }
    (tmp_path / "made" / "serve.toml").write_text("mine")
    assert serve("files", "made")[0] == 0
    assert (tmp_path / "made" / "serve.toml").read_text() == "mine"
