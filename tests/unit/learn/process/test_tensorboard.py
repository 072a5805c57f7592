"""Records of a run as scalars of TensorBoard, which need not be installed."""

import sys
from pathlib import Path

import pytest

from gpuyard.learn.process import tensorboard
from gpuyard.learn.process.tensorboard import Board, open_board
from support.sample_runs import sample_records


class Writer:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.scalars: dict[str, list[tuple[int, float]]] = {}

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.setdefault(tag, []).append((step, value))


def test_updates_validations_and_actions_become_scalars() -> None:
    writer, records = Writer(), list(sample_records(20))
    board = Board(writer)
    for record in records:
        board.write(record)
    updates = [record for record in records if record["event"] == "update"]
    assert writer.scalars["loss/policy"] == [(one["step"], one["values"]["loss/policy"]) for one in updates]
    assert len(writer.scalars["update/entropy"]) == 20
    assert len(writer.scalars["update/samples_per_s"]) == 20
    assert [value for _, value in writer.scalars["validation/score/sjf+easy/consolidate"]] == [0.529, 0.529]
    assert len(writer.scalars["validation/score/policy"]) == 2
    assert len(writer.scalars["actions/noop_share"]) == 2


def test_what_is_not_a_finite_number_is_left_out() -> None:
    writer = Writer()
    Board(writer).write({"event": "update", "step": 1, "values": {"kl": None, "entropy": float("nan")}})
    assert writer.scalars == {}


def test_without_tensorboard_there_is_no_board_and_no_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    assert open_board(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_tensorboard_that_torch_cannot_use_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert open_board(tmp_path) is None


def test_an_installed_tensorboard_gets_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    board = open_board(tmp_path)
    assert board is not None
    for record in sample_records(10):
        board.write(record)
    board.close()
    assert list((tmp_path / tensorboard.FOLDER).glob("events.*"))
