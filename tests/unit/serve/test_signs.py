"""Signs in files: they tell the truth also when a disk is full or an agent is dead."""

from pathlib import Path

import pytest

from gpuyard.errors import InputError
from gpuyard.serve.signs import Signs


@pytest.fixture
def signs(tmp_path: Path) -> Signs:
    made = Signs(tmp_path / "deep" / "state")
    made.make()
    return made


def test_a_heartbeat_ages(signs: Signs) -> None:
    signs.beat(1000.0)
    assert signs.silence_s(1000.0) == 0.0
    assert signs.silence_s(1070.5) == 70.5


def test_there_is_no_heartbeat_before_the_first_and_after_the_last(signs: Signs) -> None:
    assert signs.silence_s() is None
    signs.beat()
    silence_s = signs.silence_s()
    assert silence_s is not None
    assert silence_s < 60.0
    signs.stop_beating()
    signs.stop_beating()
    assert signs.silence_s() is None


@pytest.mark.parametrize("text", ["", "soon\n", "\n\n"])
def test_a_torn_heartbeat_is_none(signs: Signs, text: str) -> None:
    signs.heartbeat.write_text(text)
    assert signs.silence_s() is None


def test_a_heartbeat_of_the_future_is_none_but_clocks_may_differ_a_little(signs: Signs) -> None:
    signs.beat(5000.0)
    assert signs.silence_s(1000.0) is None
    assert signs.silence_s(4990.0) == -10.0


def test_a_heartbeat_is_replaced_whole_and_leaves_nothing_behind(signs: Signs) -> None:
    for second in range(5):
        signs.beat(float(second))
    assert [path.name for path in signs.directory.iterdir()] == ["heartbeat"]


def test_a_heartbeat_that_cannot_be_written_ends_nothing(signs: Signs) -> None:
    signs.heartbeat.mkdir()
    (signs.heartbeat / "in the way").touch()
    signs.beat()
    assert signs.silence_s() is None
    assert [path.name for path in signs.directory.iterdir()] == ["heartbeat"]


def test_halt_and_resume(signs: Signs) -> None:
    assert not signs.halted
    assert not signs.resume()
    signs.halt("maintenance\nof the disks")
    assert signs.halted
    assert Signs(signs.directory).halted
    assert signs.resume()
    assert not signs.halted


def test_halt_works_before_there_is_a_directory(tmp_path: Path) -> None:
    signs = Signs(tmp_path / "new")
    assert not signs.halted
    signs.halt("early")
    assert signs.halted


def test_a_halt_file_that_cannot_be_looked_at_counts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert Signs(tmp_path / "file").halted


def test_a_directory_that_cannot_be_made_is_refused_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="state"):
        Signs(tmp_path / "file" / "below").make()


def test_one_agent_leads_and_another_may_follow(signs: Signs) -> None:
    other = Signs(signs.directory)
    with signs.leadership(), pytest.raises(InputError, match="another agent serves"), other.leadership():
        pass
    with other.leadership():
        assert (signs.directory / "lock").exists()


def test_a_disk_without_room_for_another_file_takes_the_heartbeat_in_place(
    signs: Signs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    assert signs.beat(1000.0)
    monkeypatch.setattr(Path, "write_text", full)
    assert signs.beat(2000.0)
    assert signs.silence_s(2001.0) == 1.0
    signs.stop_beating()
    assert not signs.beat(3000.0)
    assert signs.silence_s(3000.0) is None
